//! `pipework call`: its output, the order of replies, and its exit statuses.

use crate::{clean, fails};

/// A script that runs while a server serves `ch`.
fn serving(serve: &str, script: &str) -> String {
    let stop = "kill $S; wait $S; [ $? = 0 ] || echo it failed >&2";
    clean(&format!(
        "pipework serve {serve} 2> err & S=$!; call() {{ timeout 60 pipework call -w ch \"$@\"; }}; {script}; {stop}"
    ))
}

/// A service that ends as its request says.
const OBEYS: &str = "ch -- sh -c 'read x; case $x in fail) echo why >&2; exit 1;; sleep*) sleep ${x#sleep};; esac; echo \"$x\"'";

#[test]
fn call_separates_the_replies() {
    let upper = "ch -- tr a-z A-Z";
    // A single reply is printed unchanged; several replies end with a newline each.
    let one = "printf a | call; printf 'b\\n' | call; call c; call d e; printf 'f\\n\\ng' | call --lines";
    assert_eq!(serving(upper, one), "AB\nCD\nE\nF\n\nG\n");
    assert_eq!(
        serving(upper, "printf 'a\\nb\\0c\\0' | call --nul | od -An -c | tr -d ' '"),
        "A\\nB\\0C\\0\n"
    );
    let json =
        "call -j a b | sed s/[0-9.]*,\\\"data/T,\\\"data/; printf '\\377' | call -j | grep -o ,.data.*";
    let expected = "{\"index\":1,\"outcome\":\"answered\",\"seconds\":T,\"data\":\"A\"}\n{\"index\":2,\"outcome\":\"answered\",\"seconds\":T,\"data\":\"B\"}\n,\"data_base64\":\"/w==\"}\n";
    assert_eq!(serving(upper, json), expected);
}

#[test]
fn replies_keep_the_order_of_requests_without_unordered() {
    let serve = format!("--workers 4 {OBEYS}");
    let requests = "printf 'sleep0.4\\na\\nb\\nsleep0.2\\n'";
    assert_eq!(serving(&serve, &format!("{requests} | call --lines -n 4")), "sleep0.4\na\nb\nsleep0.2\n");
    let unordered = serving(&serve, &format!("{requests} | call --lines -n 4 --unordered"));
    assert_eq!(unordered.lines().next_back(), Some("sleep0.4"), "{unordered}");
    let many =
        "seq 3000 > in; call --lines -n 40 < in | cmp - in; call -u --lines -n 40 < in | sort -n | cmp - in";
    assert_eq!(serving("--lines -w 2 ch -- cat", many), "");
}

#[test]
fn call_prints_a_reply_before_it_reads_the_next_request() {
    for options in ["", "-n 4", "-n 4 --unordered"] {
        let script = format!(
            "mkfifo in; call --lines {options} < in > out & C=$!; exec 3> in
            for x in a b c; do echo $x >&3; until grep -qs $x out; do sleep 0.02; done; done
            exec 3>&-; wait $C; echo $?; paste -s out"
        );
        assert_eq!(serving("ch -- cat", &script), "0\na\tb\tc\n", "{options}");
    }
}

#[test]
fn call_status_names_the_gravest_outcome() {
    let script = "call ok; echo $?; call fail 2> why; echo $?; cat why; call --timeout 0.3 sleep9 2> why; echo $?; cat why";
    let out = serving(OBEYS, script);
    assert_eq!(out, "ok\n0\n1\npipework: why\n124\npipework: no reply has come in time\n");
    // Several calls: the gravest outcome counts, and the other calls are still answered.
    for options in ["", "-n 3"] {
        let script = format!(
            "call begin > got; printf 'fail\\nok\\nsleep60\\nfine\\n' > in
            pipework call -w --lines {options} --timeout 3 ch < in 2> why; echo $?; sort why
            printf 'ok\\nfail\\nfine\\n' | call --lines {options} 2> why; echo $?; cat why"
        );
        let out = serving(&format!("-w 2 {OBEYS}"), &script);
        let expected = "ok\nfine\n124\npipework: call 1: why\npipework: call 3: no reply has come in time\nok\nfine\n1\npipework: call 2: why\n";
        assert_eq!(out, expected, "{options}");
    }
    let json = "call -j fail | grep -o ,.outcome.:.failed; call -j fail | grep -o ,.reason.*; call -j --timeout 0.2 sleep9 | grep -o timed_out";
    assert_eq!(serving(OBEYS, json), ",\"outcome\":\"failed\n,\"reason\":\"why\"}\ntimed_out\n");
}

#[test]
fn call_fails_without_a_server_unless_it_waits() {
    fails(5, &["ch: there is no such channel", "pipework serve ch"], "pipework call ch x");
    fails(1, &["ch: it is no channel"], "echo text > ch; pipework call ch x");
    // A channel that was left behind.
    let left = "pipework serve ch -- cat & S=$!; pipework call -w ch x; echo; kill -9 $S; wait $S;";
    fails(5, &["ch: no server is attached", "--wait"], &format!("{left} pipework call ch y"));
    fails(124, &["no reply has come in time"], &format!("{left} pipework call --wait --timeout 0.3 ch y"));
    fails(124, &["no reply has come in time"], "pipework call --wait --timeout 0.3 ch y");
    for options in ["", "-n 4"] {
        let script = format!("{left} yes | pipework call --lines {options} ch");
        fails(5, &["call 1: ch: no server is attached"], &script);
    }
    let json = format!("{left} (pipework call -j ch y; echo $?) | grep -o -e no_worker -e ^5; true");
    let out = crate::sh(&crate::Folder::new(), &json).out;
    assert_eq!(out, "x\nno_worker\n5\n");
    // A server starts on a new channel at the same path.
    let script = format!(
        "({left}) 2> said; pipework call --wait --timeout 20 ch new & C=$!; sleep 0.3; rm ch; pipework serve ch -- tr a-z A-Z & S=$!; wait $C; kill $S; wait $S"
    );
    assert_eq!(clean(&script), "x\nNEW");
}

#[test]
fn call_waits_for_a_free_member() {
    // The server takes one of the two members.
    let script = "for n in 1 2 3 4 5 6; do call $n > $n & P=\"$P $!\"; done; wait $P; cat 1 2 3 4 5 6";
    assert_eq!(serving("--members 2 ch -- sh -c 'sleep 0.2; cat'", script), "123456");
}

#[test]
fn call_reports_a_failed_stream() {
    let full =
        "for o in '' --lines --json --stream; do call $o < in > /dev/full 2> why; echo $?; cat why; done";
    let out = serving("ch -- cat", &format!("echo a > in; {full}"));
    assert_eq!(out, "1\npipework: standard output: No space left on device\n".repeat(4));
    let closed = "call x >&- 2> why; echo $?; cat why; call <&- 2> why; echo $?; cat why";
    assert_eq!(
        serving("ch -- cat", closed),
        "1\npipework: standard output is closed\n1\npipework: standard input is closed\n"
    );
    for options in ["", "-n 8", "-n 8 --unordered", "--stream"] {
        let left = format!(
            "(yes | pipework call -w --lines {options} ch; echo $? > status) | head -n 1; cat status"
        );
        assert_eq!(serving("--lines -w 2 ch -- cat", &left), "y\n141\n", "{options}");
    }
    fails(2, &["--stream"], "pipework call --stream -n 2 ch x");
    fails(2, &["--lines"], "pipework call --lines ch x");
}

#[test]
fn max_message_holds_although_a_slot_has_more_space() {
    let limits = "call --max-message 1 xx 2>&1; echo $?; call --max-message 1 x 2>&1; echo $?
        call --max-message 2 x; echo $?";
    let long = "pipework: the request is longer than --max-message\n1\npipework: the reply is longer than --max-message\n1\n";
    assert_eq!(serving("ch -- echo y", limits), format!("{long}y\n0\n"));
    let limits = "call xxx 2>&1; echo $?; call xx; echo $?";
    let long = "pipework: the request is longer than 2 bytes\n1\n";
    for serve in ["--max-message 2 ch -- cat", "--lines --max-message 2 ch -- cat"] {
        assert_eq!(serving(serve, limits), format!("{long}xx0\n"), "{serve}");
    }
}

#[test]
fn newline_ends_each_reply_with_a_newline() {
    let script =
        "seq 3 | xargs -n 1 pipework call --wait --newline ch; printf 'a\\n' | call --newline; call --newline b c
        call x; echo; call --stream -n 1 y";
    assert_eq!(serving("ch -- tr a-z A-Z", script), "1\n2\n3\nA\nB\nC\nX\nY");
    fails(2, &["--newline"], "pipework call --newline --nul ch");
    fails(2, &["--stream", "--in-flight"], "pipework call --stream -n 2 ch x");
}
