//! Other languages call the installed library, where their compilers are.

use std::path::Path;
use std::process::Command;

use crate::install::make;
use crate::{Folder, done, home};

/// Whether a program is here to be run.
fn is_here(program: &str) -> bool {
    let is_here = Command::new(program).arg("version").output().is_ok();
    if !is_here {
        println!("not tried: no {program}");
    }
    is_here
}

/// A command in the folder of an example, which finds the library.
fn command(program: &str, example: &str, prefix: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(home().join("examples").join(example));
    command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).env("LD_LIBRARY_PATH", prefix.join("lib"));
    command
}

#[test]
fn programs_in_go_and_crystal_call_and_stream() {
    let (has_go, has_crystal) = (is_here("go"), is_here("crystal"));
    if !has_go && !has_crystal || !is_here("pkg-config") {
        return;
    }
    let (prefix, folder) = (Folder::new(), Folder::new());
    make("install", &prefix);
    let said =
        |language: &str| format!("hello from {language}\npart: hello \npart: from \npart: {language}\n");
    if has_go {
        let mut go = command("go", "go", &prefix);
        assert_eq!(done(go.args(["run", "."]).env("GOFLAGS", "-mod=mod")), said("Go"));
    }
    if has_crystal {
        let program = folder.join("main");
        let flags = done(command("pkg-config", "crystal", &prefix).args(["--libs", "pipework"]));
        let mut crystal = command("crystal", "crystal", &prefix);
        done(crystal.args(["build", "main.cr", "--link-flags", flags.trim(), "-o"]).arg(&program));
        let mut program = Command::new(&program);
        assert_eq!(done(program.env("LD_LIBRARY_PATH", prefix.join("lib"))), said("Crystal"));
    }
}
