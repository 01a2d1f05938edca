//! The scripts in `tests/`: a test that hangs is ended with all that it has started, and named; the
//! others run; and the table at the end says so. A long test is left to `make test-all`, and counted.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Folder, again, is_alone, left_to_test_all, say};

/// A script of that folder. Neither knows of the limits of the run that it is part of.
fn script(name: &str) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(name));
    command.env_remove("PIPEWORK_TEST_LIMIT").env_remove("RUST_TEST_THREADS").stdin(Stdio::null());
    command
}

/// A program in the shell.
fn program(path: PathBuf, body: &str) -> PathBuf {
    fs::write(&path, format!("#!/bin/sh\n{body}")).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}

/// `tests/run`, for which each part is this program in the shell.
fn run(folder: &Folder, part: &str) -> Command {
    let mut command = script("run");
    command
        .env("MAKE", program(folder.join("make"), part))
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env("PIPEWORK_PROGRESS", "1");
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn limit_ends_a_command_with_what_it_left_in_other_sessions() {
    // A process that had the output open would keep `output` waiting.
    for (seconds, last, status) in [("1", "sleep 1001", 124), ("1000", "exit 3", 3)] {
        let program = format!("setsid sleep 1002 & {last}");
        let output = script("limit").args([seconds, "sh", "-c", &program]).output().unwrap();
        let said = text(&output);
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert_eq!(
            said.contains("not done after 1 s") && said.contains("sleep 1002"),
            status == 124,
            "{said}"
        );
    }
}

#[test]
fn tests_that_hang_are_named_and_the_others_run_without_them() {
    let folder = Folder::new();
    let deps = folder.join("deps");
    fs::create_dir(&deps).unwrap();
    let body = "
        if [ \"$*\" = '--skip other --list' ]; then
            printf '%s: test\\n' first second ignored stands
        elif [ $1 = --skip ]; then
            echo 'test first ... ok'; echo 'test second ... FAILED'; echo 'test ignored ... ignored, because'
            echo 'test stands has been running for over 60 seconds'
            setsid sleep 1003 & sleep 1004
        else
            echo \"$@\"; echo 'test second ... ok'
            echo 'test result: ok. 1 passed; 0 failed; 0 ignored'
        fi";
    let tests = program(deps.join("tests"), body);
    let mut cargo = script("cargo");
    let output =
        cargo.arg(tests).args(["--skip", "other"]).env("PIPEWORK_TEST_LIMIT", "61").output().unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(101), "{said}");
    let again = "--exact second\ntest second ... ok";
    for wanted in ["test stands ... FAILED", "FAILED. 1 passed; 1 failed; 1 ignored", "sleep 1003", again] {
        assert!(said.contains(wanted), "no {wanted:?}:\n{said}");
    }
}

#[test]
fn table_adds_up_what_each_runner_says_and_names_what_failed() {
    let folder = Folder::new();
    let parts = [
        (
            "rust",
            "101 75",
            "test a::b ... FAILED\nlong: a::c: 10,000 kills\nlong: a::d: it waits\nleft out: crash: processes cannot be traced here\n\
            test result: FAILED. 7 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1s\n\
            test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s\n",
        ),
        (
            "python",
            "1 9",
            "FAILED tests/test_a.py::test_b - AssertionError\n\
            SKIPPED [2] tests/test_c.py:9: no uvloop\nSKIPPED [3] tests/test_d.py:9: long: a storm\n\
            1 failed, 20 passed, 5 skipped in 3.21s\n",
        ),
        (
            "perl",
            "2 9",
            "t/a.t (Wstat: 256 (exited 1) Tests: 4 Failed: 2)\nt/b.t .. skipped: no threads\nt/c.t .. skipped: long: a storm\n\
            Files=9, Tests=30,  5 wallclock secs\nok 3 # skip no IPv6\n",
        ),
        (
            "node",
            "1 9",
            "✖ breaks (3.5ms)\n﹣ call (0.2ms) # left out: Perl is not built\n﹣ kill (0.2ms) # long: a storm\n\
            ℹ pass 5\nℹ fail 1\nℹ cancelled 0\nℹ skipped 2\n✖ failing tests:\n✖ breaks (3.5ms)\n",
        ),
        ("loom", "2 3", "error: could not compile\n"),
        ("packages", "0 5", "Compiling pipework\n"),
        ("newest", "0 3", "left out: the newest Node: npm cannot fetch it here\n"),
    ];
    let mut table = script("table");
    for (name, end, log) in parts {
        fs::write(folder.join(&format!("{name}.end")), end).unwrap();
        fs::write(folder.join(&format!("{name}.log")), log).unwrap();
        table.arg(folder.join(&format!("{name}.log")));
    }
    let output = table.output().unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for row in [
        "rust       FAILED        10       1         3   1:15",
        "python     FAILED        20       1         2   0:09",
        "perl       FAILED        27       2         2   0:09",
        "node       FAILED         5       1         1   0:09",
        "packages   passed         0       0         0   0:05",
        "newest     left out       0       0         1   0:03",
        "rust: a::b",
        "python: tests/test_a.py::test_b",
        "perl: perl/t/a.t",
        "node: breaks",
        "loom: status 2, see ",
        "rust: crash: processes cannot be traced here",
        "python: no uvloop (2 times)",
        "perl: t/b.t: no threads",
        "perl: no IPv6",
        "node: Perl is not built",
        "newest: the newest Node: npm cannot fetch it here",
    ] {
        assert!(said.contains(row), "no {row:?}:\n{said}");
    }
    assert!(
        said.ends_with("\nlong tests left to make test-all: 7\n\n62 passed, 6 failed, 9 skipped\n"),
        "{said}"
    );
    assert_eq!(said.matches("node: breaks").count(), 1, "{said}");
}

#[test]
fn run_says_how_far_a_part_is() {
    let part = "echo 'running 3 tests'; echo 'test a ... ok'; sleep 3
        echo 'test result: ok. 3 passed; 0 failed; 0 ignored'; [ $2 != test-second ]";
    let output = run(&Folder::new(), part).args(["first", "second+third"]).output().unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for wanted in [
        "\n== make test-first\nrunning 3 tests\n",
        "\ntest a ... ok\n",
        "\n== first: 1 of 3, 0:0",
        "\n== make test-second: failed after ",
        "\nthird  | test a ... ok\n",
        "\n== third: 1 of 3, 0:0",
        "\n9 passed, 1 failed, 0 skipped\n",
    ] {
        assert!(format!("\n{said}").contains(wanted), "no {wanted:?}:\n{said}");
    }
}

#[test]
fn run_ends_its_parts_with_itself() {
    for parts in ["first", "first+second"] {
        let folder = Folder::new();
        let mut run = run(&folder, "setsid sleep 1005 & echo begun; sleep 1006");
        let mut run = run.arg(parts).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(run.stdout.take().unwrap());
        let mut line = String::new();
        while !line.ends_with("begun\n") {
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "it ended: {line}");
        }
        kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
        assert_eq!(run.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
        // It ends when nobody has it open any more.
        output.read_to_string(&mut line).unwrap();
    }
}

#[test]
fn test_all_runs_what_test_leaves_to_it() {
    const NAME: &str = "project::make_test::test_all_runs_what_test_leaves_to_it";
    if is_alone() {
        if !left_to_test_all("an example") {
            say("it ran");
        }
        return;
    }
    let makefile = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Makefile");
    let makefile = fs::read_to_string(makefile).unwrap();
    for line in ["\ntest: export PIPEWORK_SHORT = 1\n", "\ntest test-all: cargo tools ; @tests/run "] {
        assert!(makefile.contains(line), "no {line:?}");
    }
    let mut test = again(&[], NAME);
    let all = text(&test.env_remove("PIPEWORK_SHORT").output().unwrap());
    let short = text(&test.env("PIPEWORK_SHORT", "1").output().unwrap());
    let left = format!("long: {NAME}: an example\n");
    assert!(all.contains("it ran") && !all.contains(&left), "{all}");
    assert!(short.contains(&left) && !short.contains("it ran"), "{short}");
}
