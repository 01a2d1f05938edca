//! The files that `make install` installs: programs in an empty folder build against them by
//! pkg-config and by CMake, shared and static.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::abi::{functions, symbols};
use crate::programs::{c_files, run, soname};
use crate::{Folder, done, home, left_out, text};

/// Runs `make` with the folder as its prefix; one at a time, because all write their results
/// install to the same place first.
pub(crate) fn make(target: &str, prefix: &Path) {
    static ONE: Mutex<()> = Mutex::new(());
    let _alone = ONE.lock();
    done(&mut command(target, prefix));
}

/// The prefix of all versions that can run programs linked with this one.
pub(crate) fn series() -> String {
    done(command("series", Path::new("/")).arg("-s")).trim().to_string()
}

fn command(target: &str, prefix: &Path) -> Command {
    let mut make = Command::new("make");
    make.arg("-C").arg(home()).args([target, "PROFILE=dev"]).arg(format!("PREFIX={}", prefix.display()));
    // Variables that a make that runs the tests has set are not for this one.
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    make
}

/// Names of the files in a folder, below which everything lies that it holds.
fn files(folder: &Path) -> BTreeSet<String> {
    let found = done(Command::new("find").arg(folder).args(["!", "-type", "d", "-printf", "%P\n"]));
    found.lines().map(String::from).collect()
}

/// The programs of a folder by name, where they were not written, as the user of an installed
/// library has them.
fn programs(from: &str, folder: &Folder) -> Vec<String> {
    for entry in fs::read_dir(home().join(from)).unwrap().map(Result::unwrap) {
        if entry.path().is_file() {
            fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
        }
    }
    let name = |path: PathBuf| Some(path.file_stem()?.to_str()?.to_string());
    c_files(from).into_iter().filter_map(name).collect()
}

/// The output of pkg-config for the installed library.
fn pkg_config(prefix: &Path, arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command
        .arg("--define-prefix")
        .args(arguments)
        .arg("pipework")
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    done(&mut command).split_whitespace().map(String::from).collect()
}

/// Whether the tools that look for libraries are here; in CI they must be.
fn has_tools() -> bool {
    let answers = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    let has_tools = answers("pkg-config") && answers("cmake");
    assert!(has_tools || std::env::var_os("CI").is_none(), "install pkg-config and cmake");
    if !has_tools {
        left_out("installing", "no pkg-config or no cmake");
    }
    has_tools
}

#[test]
fn pkg_config_and_cmake_find_the_installed_library_and_uninstall_removes_it() {
    if !has_tools() {
        return;
    }
    let prefix = Folder::new();
    make("install", &prefix);
    let installed = files(&prefix);
    assert!(
        installed.contains("include/pipework.h") && installed.contains("lib/libpipework.so"),
        "{installed:?}"
    );
    let link = prefix.join("lib").join(soname(&prefix.join("lib/libpipework.so")));
    assert!(link.is_symlink(), "{}", link.display());
    for name in functions() {
        // Its own page, or one that refers to it.
        let pages = prefix.join("share/man");
        let page = fs::read_to_string(pages.join(format!("man3/{name}.3"))).expect("it has a page");
        let page = match page.strip_prefix(".so ") {
            Some(other) => fs::read_to_string(pages.join(other.trim())).expect("it leads to a page"),
            None => page,
        };
        assert!(page.contains(&format!("\n.SS {name}\n")), "{name} is on its page");
        // apropos(1) looks for names in the third line, before the dash.
        let head = page.lines().nth(2).and_then(|line| line.split_once(" \\- ")).expect("a head");
        assert!(head.0.split(", ").any(|other| other == name), "{name} is in the head of its page");
    }
    let first = fs::read_to_string(prefix.join("share/man/man3/pipework.3")).expect("it is a page");
    for module in ["reqrep", "broadcast", "pipe", "fd"] {
        assert!(first.contains(&format!("\n.SS Module {module}\n")), "pipework(3) introduces {module}");
    }
    assert!(first.contains("\n.SH SEE ALSO\n.BR pwk_status (3) ,\n"), "pipework(3) names its pages");
    let archive = prefix.join("lib/libpipework.a");
    let listed = done(Command::new("nm").args(["--extern-only", "--defined-only"]).arg(archive));
    assert_eq!(symbols(&listed), functions());
    build_with("examples", &prefix);
    // After the whole of it is moved, programs find it there.
    let moved = prefix.with_extension("moved");
    fs::rename(&*prefix, &moved).unwrap();
    build_with("tests/c", &moved);
    fs::rename(&moved, &*prefix).unwrap();

    make("uninstall", &prefix);
    assert_eq!(files(&prefix), BTreeSet::new());
}

/// Within a series, a later version suffices if a program asks for an earlier one.
#[test]
fn cmake_accepts_a_later_version_of_the_series() {
    if !has_tools() {
        return;
    }
    // Nothing is left to build from here on, so it needs no turn.
    make("built", Path::new("/"));
    let [zero, one] = ["0.2.3", "1.2.3"].map(|version| {
        let prefix = Folder::new();
        done(command("install", &prefix).arg(format!("VERSION={version}")));
        let series = done(command("series", &prefix).args(["-s", &format!("VERSION={version}")]));
        assert!(prefix.join(format!("lib/libpipework.so.{}", series.trim())).exists(), "{series}");
        prefix
    });
    for (prefix, asked, is_taken) in [
        (&zero, "0.2.3", true),
        (&zero, "0.2", true),
        (&zero, "0.2.4", false),
        (&zero, "0.1", false),
        (&zero, "0.20", false),
        (&zero, "1", false),
        (&one, "1", true),
        (&one, "1.0", true),
        (&one, "1.2.2", true),
        (&one, "1.2.3", true),
        (&one, "1.3", false),
        (&one, "0.2", false),
        (&one, "10", false),
        (&one, "2.0", false),
    ] {
        let script = prefix.join("asks.cmake");
        let file = prefix.join("lib/cmake/pipework/pipework-config-version.cmake");
        let asks = format!(
            "set(PACKAGE_FIND_VERSION {asked})\ninclude({})\nmessage(\"<${{PACKAGE_VERSION_COMPATIBLE}}>\")\n",
            file.display()
        );
        fs::write(&script, asks).unwrap();
        let output = Command::new("cmake").arg("-P").arg(&script).output().unwrap();
        assert_eq!(text(&output).contains("<TRUE>"), is_taken, "{asked}: {output:?}");
    }
}

/// The installing user may be root and have no cargo.
#[test]
fn install_needs_cargo_only_if_sources_are_newer() {
    let (prefix, other) = (Folder::new(), Folder::new());
    make("install", &prefix);
    // A cargo that fails must not be asked.
    done(command("install", &other).arg("CARGO_BUILD=false"));
    assert_eq!(files(&other), files(&prefix));
    let build = |cargo| command("built", &prefix).args(["-W", "src/lib.rs", cargo]).output().unwrap();
    assert!(!build("CARGO_BUILD=false").status.success(), "a source is newer, so cargo is asked");
    let without = build("CARGO_BUILD=cargo-is-not-here");
    assert!(without.status.success() && text(&without).contains("no cargo-is-not-here"), "{without:?}");
    let elsewhere = format!("BUILT={}", other.display());
    let without = command("install", &other).args(["CARGO_BUILD=cargo-is-not-here", &elsewhere]).output();
    assert!(!without.unwrap().status.success(), "nothing is built there");
}

/// The programs of the folder `from`, with the library in `prefix`.
fn build_with(from: &str, prefix: &Path) {
    let folder = Folder::new();
    let names = programs(from, &folder);
    build_by_pkg_config(prefix, &folder, &names);
    build_by_cmake(prefix, &folder, &names);
}

/// Each program shared and static, and run.
fn build_by_pkg_config(prefix: &Path, folder: &Folder, names: &[String]) {
    let (library, archive) = (prefix.join("lib"), prefix.join("lib/libpipework.a"));
    let found_at_run = format!("-Wl,-rpath,{}", library.display());
    // Names that a program may have itself where the archive has those of a library inside.
    let own = folder.join("own.o");
    let text = folder.join("own.c");
    fs::write(&text, "int ZSTD_compress = 1, rust_eh_personality = 2, rust_begin_unwind = 3;\n").unwrap();
    done(Command::new("cc").arg("-c").arg(&text).arg("-o").arg(&own));
    let (compiling, shared) = (pkg_config(prefix, &["--cflags"]), pkg_config(prefix, &["--libs"]));
    let all = pkg_config(prefix, &["--libs", "--static"]);
    let with = pkg_config(prefix, &["--libs-only-l", "--static"]);
    let with: Vec<String> = with.into_iter().filter(|name| name != "-lpipework").collect();
    for name in names {
        let output = folder.join(name);
        let cc = || {
            let mut cc = Command::new("cc");
            cc.args(&compiling).args(["-D_GNU_SOURCE", "-pthread"]);
            cc.arg(folder.join(format!("{name}.c"))).arg("-o").arg(&output);
            cc
        };
        done(cc().args(&shared).arg(&found_at_run));
        run(&output);
        done(cc().arg(&own).arg(&archive).args(&with).arg("-Wl,--gc-sections"));
        run(&output);
        done(cc().arg("-static").args(&all));
        run(&output);
    }
}

/// The same through CMake.
fn build_by_cmake(prefix: &Path, folder: &Folder, names: &[String]) {
    let mut text = format!(
        "cmake_minimum_required(VERSION 3.10)\nproject(example C)\nadd_definitions(-D_GNU_SOURCE)\n\
         find_package(pipework {series} REQUIRED)\nfind_package(Threads REQUIRED)\n",
        series = series()
    );
    let kinds = names.iter().flat_map(|name| ["shared", "static"].map(|kind| (name, kind)));
    for (name, kind) in kinds.clone() {
        let target = format!("{name}-{kind}");
        text += &format!("add_executable({target} {name}.c)\n");
        text += &format!("target_link_libraries({target} pipework::{kind} Threads::Threads)\n");
    }
    fs::write(folder.join("CMakeLists.txt"), text).unwrap();
    let build = folder.join("build");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(&**folder).arg("-B").arg(&build);
    done(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())));
    done(Command::new("cmake").arg("--build").arg(&build));
    kinds.for_each(|(name, kind)| _ = run(&build.join(format!("{name}-{kind}"))));
}
