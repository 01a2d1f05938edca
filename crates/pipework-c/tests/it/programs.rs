//! Programs in C: the tests of each module, and the examples, against both libraries.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::abi::functions;
use crate::sources::{Entry, entries};
use crate::{Folder, built, cc, done, home, left_out};

/// For the programs of tests, which have deadlines of their own.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn every_module_passes_its_c_program() {
    let folder = Folder::new();
    for source in c_files("tests/c") {
        run(&compiled(&source, &folder));
    }
}

#[test]
fn every_function_is_called_for_success_and_for_failure() {
    let texts: String =
        c_files("tests/c").iter().map(|path| fs::read_to_string(path).unwrap() + "\n").collect();
    let squeezed: String = texts.split_whitespace().collect();
    let reports: BTreeSet<String> = entries()
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Function { name, returned, .. } => returned.starts_with("pwk_status ").then_some(name),
            _ => None,
        })
        .collect();
    let mut missing = vec![];
    for name in functions() {
        if !reports.contains(&name) {
            missing
                .extend((!squeezed.contains(&format!("{name}("))).then(|| format!("{name} is not called")));
            continue;
        }
        let fails =
            squeezed.match_indices(&format!(",{name}(")).any(|(at, _)| squeezed[..at].ends_with(is_given));
        let succeeds = squeezed.contains(&format!("OK({name}("));
        missing.extend((!succeeds).then(|| format!("no OK({name}(..))")));
        missing.extend((!fails).then(|| format!("no GIVES(PWK_.., {name}(..))")));
    }
    assert!(missing.is_empty(), "tests/c: {missing:#?}");
}

/// Whether the text before a comma is `GIVES(PWK_..`.
fn is_given(c: char) -> bool {
    c.is_ascii_uppercase() || c == '_'
}

#[test]
fn examples_compile_and_run() {
    let folder = Folder::new();
    for source in c_files("examples") {
        run(&compiled(&source, &folder));
    }
}

#[test]
fn programs_of_the_pages_run() {
    let entries = |folder| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let docs = home().join("../../docs");
    let folders = entries(docs.clone()).filter(|path| path.is_dir()).chain([docs]);
    let pages = folders.flat_map(entries).filter(|path| path.extension().is_some_and(|kind| kind == "md"));
    for page in pages.chain([home().join("../../README.md")]) {
        let text = fs::read_to_string(&page).unwrap();
        let examples = examples_of(&text, "```c", "```");
        let is_for_c = page.parent().is_some_and(|folder| folder.ends_with("c"));
        assert!(!examples.is_empty() || !is_for_c, "{} shows a program", page.display());
        examples.iter().for_each(|example| drop(run_text("page.c", example)));
    }
}

/// PipeWire's names begin with `pw_`, and ours with `pwk_`: a program in C or C++ uses both.
#[test]
fn program_can_use_pipewire_as_well() {
    let mut found = Command::new("pkg-config");
    let found = found.args(["--cflags", "--libs", "libpipewire-0.3"]).output();
    let Some(found) = found.ok().filter(|output| output.status.success()) else {
        assert!(std::env::var_os("CI").is_none(), "install libpipewire-0.3-dev");
        return left_out("PipeWire beside pipework", "no libpipewire-0.3-dev");
    };
    let flags = String::from_utf8(found.stdout).expect("it prints text");
    let folder = Folder::new();
    let shared = built();
    for (standard, language) in [("c11", "c"), ("c++17", "c++")] {
        let program = folder.join(standard);
        let mut cc = cc(standard);
        cc.args(["-D_GNU_SOURCE", "-x", language]).arg(home().join("tests/c/beside/pipewire.c"));
        cc.args(["-x", "none"]).arg(linked_name(shared)).arg("-o").arg(&program);
        // Headers of the system may be less strict than ours.
        for flag in flags.split_whitespace() {
            cc.arg(flag.strip_prefix("-I").map_or(flag.into(), |folder| format!("-isystem{folder}")));
        }
        done(cc.arg(rpath(shared)));
        let said = run(&program);
        assert!(said.starts_with("pipewire ") && said.ends_with(": hello\n"), "{standard}: {said}");
    }
}

#[test]
fn library_can_be_closed_and_loaded_again() {
    let folder = Folder::new();
    let program = folder.join("dlopen");
    let mut cc = cc("c11");
    cc.arg("-D_GNU_SOURCE").arg(home().join("tests/c/with_arguments/dlopen.c"));
    done(cc.arg("-o").arg(&program).arg("-ldl"));
    done(Command::new(&program).arg(built()));
}

/// Takes a minute. `make c` runs it.
#[test]
#[ignore = "asks for valgrind, and for patience"]
fn programs_are_clean_under_valgrind() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return left_out("programs under valgrind", "no valgrind");
    }
    let folder = Folder::new();
    for source in c_files("tests/c") {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--quiet", "--error-exitcode=9", "--leak-check=full"]);
        valgrind.arg("--errors-for-leak-kinds=definite,indirect").arg(compiled(&source, &folder));
        done(&mut valgrind);
    }
}

/// The blocks of a text between two lines.
pub(crate) fn examples_of(text: &str, begin: &str, end: &str) -> Vec<String> {
    let (begin, end) = (format!("{begin}\n"), format!("\n{end}\n"));
    let blocks = text.split(&begin).skip(1);
    blocks.map(|block| block.split(&end).next().unwrap_or(block).to_string()).collect()
}

/// The output of a program.
pub(crate) fn run_text(name: &str, text: &str) -> String {
    let folder = Folder::new();
    let source = folder.join(name);
    fs::write(&source, text).unwrap();
    run(&compiled(&source, &folder))
}

/// The programs of a folder.
pub(crate) fn c_files(folder: &str) -> Vec<std::path::PathBuf> {
    let found = fs::read_dir(home().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> =
        found.filter(|path| path.extension().is_some_and(|ending| ending == "c")).collect();
    found.sort();
    assert!(!found.is_empty(), "{folder} has programs");
    found
}

/// The name by which programs ask for a shared library that they were linked with.
pub(crate) fn soname(library: &Path) -> String {
    let said = done(Command::new("readelf").arg("-d").arg(library));
    let (_, name) = said.split_once("Library soname: [").expect("it has a name");
    name.split(']').next().expect("it ends").to_string()
}

pub(crate) fn compiled(source: &Path, folder: &Folder) -> std::path::PathBuf {
    let program = folder.join(source.file_stem().expect("it has a name"));
    let shared = built();
    let mut cc = cc("c11");
    cc.arg("-D_GNU_SOURCE").arg(source).arg("-o").arg(&program);
    done(cc.arg(linked_name(shared)).arg(rpath(shared)).arg("-pthread"));
    program
}

/// The library, which also has the name by which programs look for it.
fn linked_name(shared: &Path) -> &Path {
    let link = shared.parent().expect("it lies in a folder").join(soname(shared));
    let _ = std::os::unix::fs::symlink(shared.file_name().expect("it has a name"), &link);
    shared
}

/// Has a program look for the library in its folder.
fn rpath(shared: &Path) -> String {
    format!("-Wl,-rpath,{}", shared.parent().expect("it lies in a folder").display())
}

/// The output of a program; it must succeed, and in time.
pub(crate) fn run(program: &Path) -> String {
    let (mut output, end) = std::io::pipe().unwrap();
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(end.try_clone().unwrap()).stderr(end);
    let mut child = command.spawn().unwrap();
    drop(command);
    let reader = thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if began.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        thread::sleep(Duration::from_millis(5));
    };
    let text = reader.join().unwrap().unwrap();
    assert!(status.is_some_and(|status| status.success()), "{}: {status:?}\n{text}", program.display());
    text
}
