//! The scripts in `tests/`: a test that hangs is ended with all that it has started, and named; the
//! others run; and the table at the end says so.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::harness::Folder;

/// A script of that folder. Neither knows of the limits of the run that it is part of.
fn script(name: &str) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(name));
    command.env_remove("PIPEWORK_TEST_LIMIT").env_remove("RUST_TEST_THREADS").stdin(Stdio::null());
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
    let program = deps.join("tests");
    let body = "#!/bin/sh
        if [ $# = 0 ]; then
            echo 'test first ... ok'; echo 'test second ... FAILED'; echo 'test ignored ... ignored, because'
            echo 'test stands has been running for over 60 seconds'
            setsid sleep 1003 & sleep 1004
        else
            echo \"$@\"; echo 'test second ... ok'
            echo 'test result: ok. 1 passed; 0 failed; 0 ignored'
        fi";
    fs::write(&program, body).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let output = script("cargo").arg(&program).env("PIPEWORK_TEST_LIMIT", "61").output().unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(101), "{said}");
    let skipped = "--exact --skip ignored --skip stands --skip first\ntest second ... ok";
    for wanted in ["test stands ... FAILED", "FAILED. 1 passed; 1 failed; 1 ignored", "sleep 1003", skipped] {
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
            "test a::b ... FAILED\nleft out: crash: processes cannot be traced here\n\
            test result: FAILED. 7 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1s\n\
            test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s\n",
        ),
        (
            "python",
            "1 9",
            "FAILED tests/test_a.py::test_b - AssertionError\n\
            SKIPPED [2] tests/test_c.py:9: no uvloop\n1 failed, 20 passed, 2 skipped in 3.21s\n",
        ),
        (
            "perl",
            "2 9",
            "t/a.t (Wstat: 256 (exited 1) Tests: 4 Failed: 2)\nt/b.t .. skipped: no threads\n\
            Files=9, Tests=30,  5 wallclock secs\nok 3 # skip no IPv6\n",
        ),
        (
            "node",
            "1 9",
            "✖ breaks (3.5ms)\n﹣ call (0.2ms) # left out: Perl is not built\nℹ pass 5\nℹ fail 1\n\
            ℹ cancelled 0\nℹ skipped 1\n✖ failing tests:\n✖ breaks (3.5ms)\n",
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
    assert!(said.ends_with("\n62 passed, 6 failed, 9 skipped\n"), "{said}");
    assert_eq!(said.matches("node: breaks").count(), 1, "{said}");
}
