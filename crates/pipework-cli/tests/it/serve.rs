//! `pipework serve`: any program answers calls; no process is left behind and no request is lost.

use crate::terminal::Terminal;
use crate::{Folder, clean, fails, outcome, sh, shell};
use std::fs;

/// A script that runs beside `pipework serve SERVE` and stops it at its end. `$S` is the server's
/// process, and its standard error goes to the file `err`.
fn served(serve: &str, script: &str) -> String {
    format!(
        "pipework serve {serve} 2> err & S=$!
        call() {{ timeout 60 pipework call --wait ch \"$@\"; }}
        until_gone() {{ while kill -0 $(cat pid) 2> gone; do sleep 0.02; done; }}
        {script}
        kill $S; wait $S; echo \"served $?\""
    )
}

/// Runs such a script, which must succeed without a word on standard error; returns its output.
fn serving(serve: &str, script: &str) -> String {
    let out = clean(&served(serve, script));
    out.strip_suffix("served 0\n").unwrap_or_else(|| panic!("{out}")).to_string()
}

/// A command that writes the file `pid` and then runs for ever.
const ENDLESS: &str = "sh -c 'echo $$ > pid; while :; do sleep 0.02; done'";
/// The same command, but it ignores SIGTERM.
const STUBBORN: &str = "sh -c 'trap \"\" TERM; echo $$ > pid; while :; do sleep 0.02; done'";
const UNTIL_BEGUN: &str = "until [ -s pid ]; do sleep 0.02; done";

#[test]
fn serve_answers_each_call_with_the_output_of_a_filter() {
    let script = "call hello; echo; echo piped | call; call one two; printf '' | call | wc -c; ls";
    assert_eq!(serving("ch -- tr a-z A-Z", script), "HELLO\nPIPED\nONE\nTWO\n0\nch\nerr\n");
    assert_eq!(
        clean(
            "pipework serve ch -- cat & kill_when_there() { until [ -e ch ]; do sleep 0.02; done
        kill $!; wait $!; }; kill_when_there; ls"
        ),
        "",
        "who has made the channel removes it"
    );
}

#[test]
fn serve_takes_requests_and_replies_of_any_bytes_and_size() {
    let script = "head -c 5000000 /dev/urandom > big; call < big | cmp - big
        printf 'a\\0b\\n\\0' > nul; call < nul | cmp - nul; call '' | wc -c";
    for command in ["ch -- cat", "--messages ch -- pipework recv --exec pipework send --mixed"] {
        assert_eq!(serving(command, script), "0\n", "{command}");
    }
    // A command need not read its request. An empty reply is valid.
    assert_eq!(serving("ch -- true", "head -c 5000000 /dev/zero | call; echo $?"), "0\n");
    let limit = "head -c 5000 /dev/zero | call 2> why; echo $?; call x; cat why";
    let out = serving("--max-message 4500 ch -- cat", limit);
    assert!(out.starts_with("1\nx") && out.contains("longer than"), "{out}");
    let out = serving("--max-message 70000 ch -- yes", "call x 2> why; echo $?; cat why");
    assert_eq!(out, "1\npipework: the reply is longer than 70000 bytes\n");
}

#[test]
fn failed_call_has_the_last_line_of_stderr_as_reason() {
    for (command, reason) in [
        ("sh -c 'echo first >&2; echo why >&2; echo >&2; exit 3'", "why"),
        ("sh -c 'printf \"no newline\" >&2; exit 3'", "no newline"),
        ("sh -c 'echo half an answer; exit 3'", "sh: exit status: 3"),
        ("sh -c 'kill -9 $$'", "sh: signal: 9 (SIGKILL)"),
    ] {
        let out = serving(&format!("ch -- {command}"), "call x 2> why; echo $?; cat why");
        assert_eq!(out, format!("1\npipework: {reason}\n"), "{command}");
    }
    // A thread passes standard error on, perhaps after the reply; it is no part of the reply.
    let script =
        "call x; for i in $(seq 3000); do [ $(wc -l < err) = 2 ] && break; sleep 0.01; done; cat err";
    assert_eq!(
        serving("ch -- sh -c 'echo so it is >&2; printf more >&2; echo yes'", script),
        "yes\nso it is\nmore\n"
    );
    fails(127, &["no-such-command", "no request was taken"], "pipework serve ch -- no-such-command");
    fails(126, &["./plain"], ": > plain; pipework serve ch -- ./plain");
    let script = "echo '#!/no/such/shell -e' > script; chmod +x script; pipework serve ch --";
    fails(126, &["./script", "/no/such/shell", "no request was taken"], &format!("{script} ./script"));
    fails(126, &["script", "/no/such/shell"], &format!("PATH=.:$PATH; {script} script"));
}

#[test]
fn reply_ends_when_the_last_process_closes_the_output() {
    let late = "ch -- sh -c '(sleep 0.2; echo late) & echo early'";
    assert_eq!(serving(late, "call x"), "early\nlate\n");
    // A command that closes its output keeps running until it ends.
    let closes = "ch -- sh -c 'echo all; exec >&-; sleep 0.2; touch done'";
    assert_eq!(serving(closes, "call x; ls done"), "all\ndone\n");
}

#[test]
fn stream_sends_each_line_as_a_part_at_once() {
    // The command continues once its first line has arrived.
    let script = "mkfifo go; call --stream 3 > out & until [ -s out ]; do sleep 0.02; done
        cat out; echo > go; wait $!; cat out; call 3 & echo > go; wait $!";
    let command = "--stream ch -- sh -c 'echo \"one of $(cat)\"; read x < go; echo two; printf three'";
    assert_eq!(serving(command, script), "one of 3\none of 3\ntwo\nthreeone of 3\ntwo\nthree");
    let script = "(call --stream --json x; call --stream y; echo $?)";
    let parts = serving("--stream ch -- sh -c 'echo part; echo bad >&2; exit 1' ", &format!("{script} 2>&1"));
    assert!(
        parts.starts_with("{\"index\":1,\"part\":\"part\\n\"}\n{\"index\":1,\"outcome\":\"failed\""),
        "{parts}"
    );
    assert!(parts.ends_with("\"reason\":\"bad\"}\npart\npipework: bad\n1\n"), "{parts}");
    // A line longer than a slot is one part.
    let long = "call --stream --json x | head -c 5000 | wc -l; call --stream x | wc -c";
    assert_eq!(
        serving("--stream ch -- sh -c 'head -c 100000 /dev/zero | tr \"\\0\" x; echo'", long),
        "0\n100001\n"
    );
}

#[test]
fn serve_fails_a_caller_that_takes_no_parts() {
    let script = format!(
        "mkfifo out; exec 3<> out; call --stream x > out 2> why & C=$!; {UNTIL_BEGUN}; until_gone
        cat <&3 > rest & D=$!; wait $C; echo $?; kill $D; cat why"
    );
    let serve = "--stream --part-timeout 0.3 ch -- sh -c 'echo $$ > pid; exec seq 1000000'";
    let out = serving(serve, &script);
    // If an untaken part is still in the slot, the server removes it, and the reason finds no space.
    let reasons =
        ["a part of the reply was not taken in time", "the service has failed, and gives no reason"];
    assert!(reasons.iter().any(|reason| out == format!("1\npipework: {reason}\n")), "{out}");
}

#[test]
fn serve_stops_a_command_whose_caller_has_left() {
    for (options, command) in [("", ENDLESS), ("--grace 0.2", STUBBORN)] {
        let serve = format!("{options} ch -- {command}");
        // One caller gives up, another is killed.
        let gives_up = "call --timeout 2 x 2> why; echo $?; until_gone; cat why";
        assert_eq!(serving(&serve, gives_up), "124\npipework: no reply has come in time\n", "{command}");
        let killed =
            format!("pipework call -w ch x & C=$!; {UNTIL_BEGUN}; kill -9 $C; until_gone; echo gone");
        assert_eq!(sh(&Folder::new(), &served(&serve, &killed)).out, "gone\nserved 0\n", "{command}");
        let slow = "call x 2> why; echo $?; until_gone; cat why";
        let out = serving(&format!("--timeout 1 {serve}"), slow);
        assert_eq!(out, "1\npipework: it took longer than the 1 s that it may\n", "{command}");
    }
}

#[test]
fn serve_finishes_running_requests_after_a_signal() {
    let serve = "ch -- sh -c 'echo $$ > pid; read x < go; echo done'";
    // A caller that comes after the server stopped taking requests learns that no server is left.
    let script = format!(
        "mkfifo go; call x & C=$!; {UNTIL_BEGUN}; kill $S; pipework call ch y 2> why & D=$!; sleep 0.3
        echo > go; wait $C; echo $?; wait $D; echo $?; cat why; true"
    );
    let out = sh(&Folder::new(), &served(serve, &script)).out;
    assert!(
        out.starts_with("done\n0\n5\npipework: ch: no server is attached") && out.ends_with("served 0\n"),
        "{out}"
    );
}

#[test]
fn second_signal_or_grace_ends_running_requests() {
    let begun = format!("call x 2> why & C=$!; {UNTIL_BEGUN}; kill $S;");
    let rest = "wait $C; echo $?; cat why; until_gone; wait $S; echo $?; cat err; exit";
    let expected = "1\npipework: the service was stopped\n1\npipework: 1 running request was cut short\n";
    for (options, again) in [("--drain 0.2", ""), ("", "sleep 1.1; kill $S;")] {
        for command in [ENDLESS, "--lines"] {
            let command = match command {
                "--lines" => format!("--lines ch -- {}", ENDLESS.replace("echo", "read x; echo")),
                command => format!("ch -- {command}"),
            };
            let done = sh(
                &Folder::new(),
                &served(&format!("{options} {command}"), &format!("{begun} {again} {rest}")),
            );
            assert_eq!(done.out, expected, "{options} {command}: {}", done.err);
        }
    }
}

#[test]
fn killed_server_ends_its_commands_and_fails_its_calls() {
    for serve in
        [format!("ch -- {ENDLESS}"), format!("--lines ch -- {}", ENDLESS.replace("echo", "read x; echo"))]
    {
        let script = format!(
            "call x 2> why & C=$!; {UNTIL_BEGUN}; kill -9 $S; wait $C; echo $?; until_gone; cat why; true"
        );
        let out = sh(&Folder::new(), &served(&serve, &script)).out;
        assert_eq!(out, "4\npipework: the server has died with the request\nserved 137\n", "{serve}");
    }
    // A request with --retries goes to the next server.
    let script = format!(
        "call --retries 1 x & C=$!; {UNTIL_BEGUN}; pipework serve ch -- echo second & T=$!
        until [ $(pipework call -n 8 ch 2>&- 1>&- ; echo 1) ]; do :; done; kill -9 $S; wait $C; kill $T; wait $T; true"
    );
    let out = sh(&Folder::new(), &served(&format!("ch -- {ENDLESS}"), &script)).out;
    assert!(out.starts_with("second\n"), "{out}");
}

#[test]
fn serve_runs_as_many_commands_as_workers_says() {
    // Each command waits until three run.
    let command = "sh -c 'touch in.$$; while [ $(ls in.* | wc -l) -lt 3 ]; do sleep 0.02; done; echo met'";
    let script = "printf 'a\\nb\\nc\\n' | call --lines -n 3";
    assert_eq!(serving(&format!("--workers 3 ch -- {command}"), script), "met\nmet\nmet\n");
    let stays = format!(
        "--lines -w 3 ch -- {}",
        command.replace("touch", "while read x; do touch").replace("met'", "met; done'")
    );
    assert_eq!(serving(&stays, script), "met\nmet\nmet\n");
}

#[test]
fn several_servers_share_a_channel() {
    let script = "pipework serve ch -- echo second & T=$!
        until pipework call --json ch x | grep -q second; do :; done
        kill $S; wait $S; echo $?; pipework call ch x; ls ch; kill $T; wait $T; echo $?; ls ch; exit";
    // The server that made the channel leaves first; the channel stays.
    let done = sh(&Folder::new(), &served("ch -- echo first", &format!("call x; {script}")));
    assert_eq!((done.out.as_str(), done.err.as_str()), ("first\n0\nsecond\nch\n0\nch\n", ""));
    fails(
        1,
        &["ch: it exists already, and has --slots 8 --mode 640; leave these options out"],
        &served(
            "--slots 8 --mode 640 ch -- cat",
            "call x > got; pipework serve --slots 9 --reply-bytes 4096 --mode 660 ch -- cat; R=$?; kill $S; wait $S; exit $R",
        ),
    );
    fails(1, &["more than a channel can hold"], "pipework serve --slots 1048576 --reply-bytes 1G ch -- cat");
    assert_eq!(
        serving(
            "--slots 8 --members 9 --request-bytes 100 --reply-bytes 64 --mode 640 ch -- cat",
            "call x; stat -c ' %a' ch"
        ),
        "x 640\n"
    );
    fails(1, &["ch: it is no channel"], "echo text > ch; pipework serve ch -- cat");
    fails(1, &["no/ch: No such file"], "pipework serve no/ch -- cat");
    fails(
        1,
        &["all places for members are taken"],
        &served(
            "--members 2 ch -- cat",
            "until [ -e ch ]; do sleep 0.02; done; pipework serve ch -- cat & T=$!; until pipework ls ch 2> gone | grep -q '2 servers'; do sleep 0.02; done
            pipework call ch x; R=$?; kill $S $T; wait $S; wait $T; exit $R",
        ),
    );
}

#[test]
fn serve_lines_answers_each_request_with_one_record() {
    let sed = "--lines ch -- sed -u s/^/got:/";
    assert_eq!(
        serving(sed, "call a; echo; call b; echo; seq 3 | call --lines; call ''; echo; echo c | call"),
        "got:a\ngot:b\ngot:1\ngot:2\ngot:3\ngot:\ngot:c"
    );
    let refused = "printf 'a\\nb' | call 2>&1; echo $?; call c";
    assert_eq!(
        serving(sed, refused),
        "pipework: a request with a newline inside cannot be one record: --nul, --messages can\n1\ngot:c"
    );
    let nul = "printf 'a\\nb' | call; printf 'a\\0' | call; printf 'a\\0b' | call 2>&1; echo $?";
    assert_eq!(
        serving("--nul ch -- cat", nul),
        "a\nbapipework: a request with a NUL byte inside cannot be one record: --messages can\n1\n"
    );
    let long = "head -c 3000000 /dev/zero | tr '\\0' x > big; call < big | cmp - big; cat big big | tr x '\\n' | call 2>&1 | wc -l";
    assert_eq!(serving("--lines ch -- cat", long), "1\n");
    // Text printed between messages is no reply. A thread writes it, perhaps after the reply.
    let stray = "--messages ch -- pipework recv --exec sh -c 'echo stray; pipework send --mixed'";
    assert_eq!(
        serving(stray, "call hello; echo; until grep -q stray err; do sleep 0.02; done; cat err"),
        "hello\nstray\n"
    );
    // The command ends when its input ends.
    let ends = "--lines ch -- sh -c 'while read x; do echo $x; done; echo bye >&2'";
    assert_eq!(clean(&served(ends, "call x; kill $S; wait $S; cat err; exit")), "xbye\n");
}

#[test]
fn serve_lines_stream_sends_lines_up_to_an_empty_one() {
    let counts = "--lines --stream ch -- sh -c 'while read n; do seq $n; echo; done'";
    assert_eq!(
        serving(counts, "call --stream 3; call 2; call --stream 0; call --stream --json 1 | head -n 1"),
        "1\n2\n3\n1\n2\n{\"index\":1,\"part\":\"1\\n\"}\n"
    );
    // The rest of an abandoned reply is not taken for the next reply.
    let script = "call --stream 100000 | head -n 1 > first; cat first; call 2";
    assert_eq!(serving(counts, script), "1\n1\n2\n");
}

#[test]
fn serve_lines_restarts_a_command_that_died_or_misbehaved() {
    // The command dies while it works on a request.
    let dies =
        "--lines ch -- sh -c 'while read x; do [ $x = die ] && { echo ouch >&2; exit 1; }; echo $x; done'";
    let script = "call a; call die 2> why; echo $?; cat why; call b
        until grep -q again err; do sleep 0.02; done; cat err";
    assert_eq!(
        serving(dies, script),
        "a1\npipework: ouch\nbouch\npipework: sh: exit status: 1; it is started again\n"
    );
    // A request that the dead command had not read goes to its successor without a report.
    assert_eq!(
        serving("--lines ch -- head -n 1", "seq 20 | call --lines | paste -s; cat err"),
        format!("{}\n", (1..=20).map(|n| n.to_string()).collect::<Vec<_>>().join("\t"))
    );
    // But no request is passed on for ever.
    let never = "--lines ch -- sh -c 'echo not today >&2; exit 1'";
    assert_eq!(serving(never, "call a 2>&1; echo $?"), "pipework: not today\n1\n");
    // An unrequested record is not the reply to the next request.
    let talks = "--lines ch -- sh -c 'while read x; do echo $x; echo extra; done'";
    let restarted = "until grep -q extra err; do sleep 0.02; done";
    let script = format!("call a; {restarted}; call b; cat err");
    let out = serving(talks, &script);
    assert!(
        out.starts_with("abpipework: sh: no request has asked for \"extra\"; it is started again\n"),
        "{out}"
    );
    // A command that has closed its input is replaced, however long it lives.
    let once = "--lines ch -- sh -c 'read x; echo $x; exec <&-; sleep 60'";
    assert_eq!(serving(once, "seq 3 | call --lines"), "1\n2\n3\n");
    let never = "--lines ch -- sh -c 'exec <&-; sleep 60'";
    let reason = "pipework: sh: it has closed its input or its output\n1\n";
    assert_eq!(serving(never, "call a 2>&1; echo $?"), reason);
    // A command that exceeds the timeout is replaced before the next request.
    let sleeps =
        "--lines --timeout 1 ch -- sh -c 'while read x; do [ $x = sleep ] && sleep 60; echo $x; done'";
    let script = "call sleep 2>&1; call b";
    assert_eq!(serving(sleeps, script), "pipework: it took longer than the 1 s that it may\nb");
}

#[test]
fn serve_lines_fails_calls_if_its_command_cannot_start() {
    let command = "printf '#!/bin/sh\nread x; echo $x' > command; chmod +x command";
    let script = format!(
        "{command}; {}",
        served(
            "--lines ch -- ./command",
            "call a; echo; rm command; call b 2> why || call b 2> why; echo $?; cat why; sed -n 1p err"
        )
    );
    let why = "cannot run ./command: No such file or directory";
    // The running process may answer once more after its file is removed.
    let out = clean(&script);
    assert!(out.contains(&format!("1\npipework: {why}\n")) || out.contains("b0\n"), "{out}");
    assert!(out.ends_with("served 0\n"), "{out}");
}

#[test]
fn serve_messages_refuses_a_command_that_sends_in_plain_mode() {
    let why = "its messages are to be sent with --mixed, as `pipework send --mixed` does";
    for command in ["cat", "pipework recv --exec pipework send"] {
        let out = serving(&format!("--messages ch -- {command}"), "call x 2>&1; echo $?");
        assert_eq!(out, format!("pipework: {why}\n1\n"), "{command}");
    }
}

#[test]
fn serve_lines_keeps_its_command_when_a_caller_gives_up() {
    let slow =
        "--lines ch -- sh -c 'echo $$ > pid; while read x; do [ $x = wait ] && read y < go; echo $x; done'";
    let script = "mkfifo go; call a > got; call --timeout 1 wait 2> why; echo $?; cp pid before; call b & echo > go; wait $!; echo; cmp pid before";
    assert_eq!(serving(slow, script), "124\nb\n");
    // The server does not wait for an abandoned request when it ends.
    let never = "--lines --grace 0.1 ch -- sh -c 'while read x; do printf %s \"$x\"; done'";
    assert_eq!(serving(never, "call --timeout 1 x 2> why; echo $?"), "124\n");
}

#[test]
fn serve_with_few_descriptors_delays_calls_and_fails_none() {
    let script =
        "(ulimit -n 40; exec pipework serve --workers 30 ch -- sh -c 'sleep 0.2; echo done') 2> err & S=$!
        seq 60 | timeout 60 pipework call --wait --lines -n 60 --json ch > out; kill $S; wait $S; wc -l < out
        grep -c -e done out; cat err";
    let folder = Folder::new();
    let done = outcome(shell(&folder, script).output().unwrap());
    assert_eq!((done.out.as_str(), done.err.as_str()), ("60\n60\n", ""));
}

#[test]
fn ctrl_c_on_a_terminal_lets_running_requests_finish() {
    let folder = Folder::new();
    let serve = "trap : INT; mkfifo go; pipework serve ch -- sh -c \"echo begun >&2; read x < go; echo done\"; echo it ended with $?";
    let mut terminal = Terminal::run(&folder, (24, 80), serve);
    terminal.wait_for("serving ch with sh; Ctrl-C stops it");
    let call = shell(&folder, "timeout 60 pipework call --wait ch x").spawn().unwrap();
    terminal.wait_for("begun");
    terminal.press("\x03");
    terminal.wait_for("^C");
    // Ctrl-C signals the foreground process group, to which the command does not belong.
    fs::write(folder.join("go"), "\n").unwrap();
    assert_eq!(outcome(call.wait_with_output().unwrap()).out, "done\n");
    terminal.wait_for("it ended with 0");
    terminal.end();
}

/// Each of many calls gets the reply to its own request, or fails.
#[test]
fn serve_lines_gives_no_reply_of_another_request() {
    // The command prints a line before it reads the first request.
    let banner = "--lines ch -- sh -c 'echo ready; while read x; do echo got:$x; done'";
    // Two processes in turn get the first request, and both print that line.
    let script = "for x in a b; do call $x > out 2> why; echo $? $(cat out); cat why; done";
    let refused = "1\npipework: sh: no request has asked for \"ready\"\n";
    assert_eq!(serving(banner, script), refused.repeat(2));
    // A superfluous line follows each reply, at once or later, while the next request already waits.
    for extra in ["echo extra", "sleep 0.05; echo extra", "printf ex; sleep 0.02; echo tra"] {
        let serve = format!("--lines ch -- sh -c 'while read x; do echo got:$x; {extra}; done'");
        let script = "seq 12 | call --lines --json -n 4 > out; echo $?; grep -c answered out
            sed -n 's/.*\"index\":\\([0-9]*\\),.*\"data\":\"\\(.*\\)\"}/\\1 \\2/p' out";
        let expected: String = (1..=12).map(|n| format!("{n} got:{n}\n")).collect();
        assert_eq!(serving(&serve, script), format!("0\n12\n{expected}"), "{extra}");
    }
    // The same with parts, which end with an empty line.
    let serve = "--lines --stream ch -- sh -c 'while read x; do echo $x; echo; echo extra; done'";
    let script = "seq 6 | call --lines | grep -v '^$' | paste -s";
    assert_eq!(serving(serve, script), "1\t2\t3\t4\t5\t6\n");
    // A command that replies before the request has ended does not read lines.
    let serve = "--lines ch -- sh -c 'while x=$(head -c 1); do echo $x; done'";
    assert_eq!(serving(serve, "call ab 2> why; echo $?; grep -c asked why"), "1\n1\n");
}

/// A process that has opened the channel and not yet joined would otherwise use a removed file.
#[test]
fn serve_does_not_remove_a_channel_that_another_process_opened() {
    let folder = Folder::new();
    let script = "pipework serve channel -- cat & S=$!; until [ -e channel ]; do sleep 0.01; done
        exec 9< channel; kill $S; wait $S; echo $?; ls channel
        exec 9<&-; pipework serve channel -- cat & S=$!; pipework call --wait channel x; echo; kill $S; wait $S; ls channel
        pipework serve new -- cat & S=$!; pipework call --wait new x; echo; kill $S; wait $S; ls new || echo gone";
    let done = sh(&folder, script);
    assert_eq!(done.out.replace("x\n\n", "x\n"), "0\nchannel\nx\nchannel\nx\ngone\n", "{}", done.err);
}

#[test]
fn call_that_fails_does_not_wait_for_a_process_that_stays_behind() {
    let serve =
        "--stream ch -- sh -c 'sleep 1000 & echo $! >> left; echo one; echo two; echo why >&2; exit 3'";
    let script = "call --stream x 2> failed; echo $?; cat failed; kill $(cat left) && echo 'it stays'";
    assert_eq!(serving(serve, script), "one\ntwo\n1\npipework: why\nit stays\n");
}

#[test]
fn reply_is_complete_when_no_process_holds_standard_output() {
    let serve = "ch -- sh -c 'echo early; (until [ -e go ]; do sleep 0.02; done; echo late) & :'";
    assert_eq!(serving(serve, "call x > out & C=$!; : > go; wait $C; cat out"), "early\nlate\n");
    // The command has ended in time, and what it has left behind has not.
    let serve = "--timeout 0.5 ch -- sh -c 'sleep 1000 & echo early'";
    let out = serving(serve, "call x 2> failed; echo $?; cat failed");
    assert!(out.starts_with("1\n") && out.contains("a process that it left behind"), "{out}");
}
