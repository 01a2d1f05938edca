//! The examples of the command in docs/ print the output that the pages show, and the examples of
//! help run.

use crate::ls::segment;
use crate::{Folder, PIPEWORK, clean, sh};
use pipework::atomic::create_fifo;
use std::fs;
use std::net::TcpListener;
use std::path::Path;

/// One console block of a page: the commands behind its prompts, and the output that it shows.
struct Example {
    script: String,
    out: String,
}

fn page(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)).unwrap()
}

/// The blocks of a page that show a console.
fn examples(page: &str) -> Vec<Example> {
    let blocks = page.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.map(example).collect()
}

/// A line behind `$ ` is a command; a `\` at its end continues it on the next line.
fn example(block: &str) -> Example {
    let mut example = Example { script: String::new(), out: String::new() };
    let mut goes_on = false;
    for line in block.split_inclusive('\n') {
        match line.strip_prefix("$ ") {
            Some(command) => example.script.push_str(command),
            None if goes_on => example.script.push_str(line),
            None => {
                example.out.push_str(line);
                continue;
            }
        }
        goes_on = line.ends_with("\\\n");
    }
    example
}

/// Removes the numbers that name a process, because they differ in each run.
fn masked(out: &str) -> String {
    ["\"pid\":", "\"writer\":\"", "\"seconds\":", "\"start\":"].iter().fold(out.to_string(), |out, key| {
        let pieces = out.split(key).enumerate().map(|(n, piece)| match n {
            0 => piece,
            _ => piece.trim_start_matches(|c: char| c.is_ascii_digit() || c == ':' || c == '.'),
        });
        pieces.collect::<Vec<_>>().join(key)
    })
}

#[test]
fn examples_of_the_command_page_print_its_output() {
    page_prints_its_output("command.md", 14);
}

#[test]
fn examples_of_start_and_recipes_print_their_output() {
    for (folder, how_many) in [("start", 3), ("recipes", 6)] {
        let pages =
            fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(folder)).unwrap();
        let names = pages.map(|page| format!("{folder}/{}", page.unwrap().file_name().display()));
        let names: Vec<String> = names.filter(|name| name.ends_with(".md")).collect();
        let found: usize = names.iter().map(|name| examples(&page(name)).len()).sum();
        assert!(found >= how_many, "{found} examples were found in {folder}");
        names.iter().for_each(|name| page_prints_its_output(name, 0));
    }
}

fn page_prints_its_output(name: &str, how_many: usize) {
    let examples = examples(&page(name));
    assert!(examples.len() >= how_many, "{} examples were found", examples.len());
    for example in examples.into_iter().filter(|example| can_run(&example.script)) {
        let script = example.script.replace("/dev/shm/", "");
        let out = example.out.replace("/dev/shm/", "");
        let done = sh(&Folder::new(), &format!("{script}wait\n"));
        assert_eq!((done.status, &*done.err), (Some(0), ""), "{}", example.script);
        assert_eq!(masked(&done.out), masked(&out), "{}", example.script);
    }
}

/// Whether this machine has the optional programs that an example needs.
fn can_run(script: &str) -> bool {
    ["python3", "jq", "make", "man -l"].iter().all(|program| {
        !script.contains(program)
            || sh(&Folder::new(), &format!("command -v {}", program.split(' ').next().unwrap())).status
                == Some(0)
    })
}

#[test]
fn masked_hides_only_process_numbers() {
    let line = r#"{"pid":12,"writer":"12:70000","parts":1}"#;
    assert_eq!(masked(line), r#"{"pid":,"writer":"","parts":1}"#);
    assert_ne!(masked(line), masked(&line.replace("\"parts\":1", "\"parts\":2")));
}

/// The examples of a command's help: the indented lines under each title.
fn of_help(command: &str) -> Vec<String> {
    let help = clean(&format!("pipework {command} --help"));
    let section = help.split("\nExamples:\n").nth(1).unwrap();
    let lines = section.lines().take_while(|line| line.is_empty() || line.starts_with("  "));
    let mut examples: Vec<String> = vec![];
    for line in lines.filter(|line| !line.is_empty()) {
        match line.strip_prefix("    ") {
            Some(code) => examples.last_mut().expect("a title comes first").extend([code, "\n"]),
            None => examples.push(String::new()),
        }
    }
    // A title may take two lines.
    examples.retain(|example| !example.is_empty());
    examples
}

/// Runs the examples of a command's help beside a segment, which they call /dev/shm/work, and a
/// FIFO, /dev/shm/inbox, and with folders of their own for the usual places.
fn run_those_of(command: &str, how_many: usize) {
    let examples = of_help(command);
    assert!(examples.len() >= how_many, "{examples:?}");
    for example in examples {
        let folder = Folder::new();
        fs::create_dir(folder.join("shm")).unwrap();
        let segment = segment(folder.join("shm/work"));
        let _server = segment.server().unwrap();
        create_fifo(folder.join("shm/inbox")).unwrap();
        // Port 0 lets the kernel choose a free one.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let script = example.replace("/dev/shm", "shm").replace("9464", &port.to_string());
        let done =
            sh(&folder, &format!("set -e; export TMPDIR=$PWD/shm XDG_RUNTIME_DIR=$PWD/shm\n{script}wait\n"));
        assert_eq!((done.status, &*done.err), (Some(0), ""), "{example}");
        assert!(!done.out.is_empty(), "{example}");
    }
}

#[test]
fn examples_of_ls() {
    run_those_of("ls", 4);
}

#[test]
fn examples_of_doctor() {
    run_those_of("doctor", 5);
}

#[test]
fn examples_of_top() {
    run_those_of("top", 4);
}

#[test]
fn examples_of_run() {
    let examples = of_help("run");
    assert!(examples.len() >= 7, "{examples:?}");
    for example in examples.into_iter().filter(|example| can_run(example)) {
        let folder = Folder::new();
        fs::write(folder.join("Makefile"), "lint test docs:\n\t@echo $@\n").unwrap();
        fs::write(folder.join("collect"), "echo text; pipework send --mixed '{\"id\":7}'").unwrap();
        let done = sh(&folder, &format!("set -e; chmod +x collect\n{example}"));
        assert_eq!((done.status, &*done.err), (Some(0), ""), "{example}");
        assert!(!done.out.is_empty(), "{example}");
    }
}

/// Runs one example of help between the scripts `before` and `after`.
fn runs(example: &str, before: &str, after: &str, out: &str) {
    let folder = Folder::new();
    let done = sh(&folder, &format!("set -e\n{before}\n{example}\n{after}"));
    assert_eq!((done.status, &*done.out, &*done.err), (Some(0), out, ""), "{example}");
}

#[test]
fn examples_of_send() {
    let examples = of_help("send");
    let [argument, whole, lines, files, mixed] = &examples[..] else { panic!("{examples:?}") };
    runs(argument, "", "", "hello");
    let photos = "mkdir photos; touch photos/one; mkfifo inbox; pipework recv --from inbox | tar t &";
    runs(whole, photos, "wait", "photos/\nphotos/one\n");
    // This example follows a log for ever, so the test ends it.
    let log = "printf 'one\ntwo\n' > access.log; mkfifo inbox; pipework recv --from inbox --lines &";
    runs(&lines.replace("tail -f", "timeout 2 tail -f"), log, "wait", "one\ntwo\n");
    runs(files, "printf 1 > 1.json; printf 2 > 2.json", "", "1\x002\x00");
    let text_and_data = r#"{"type":"line","data":"begin"}
{"type":"message","pid":,"writer":"","parts":1,"data":"data"}
{"type":"line","data":"end"}
"#;
    let done = sh(&Folder::new(), mixed);
    assert_eq!((done.status, &*masked(&done.out), &*done.err), (Some(0), text_and_data, ""));
}

#[test]
fn examples_of_recv() {
    let examples = of_help("recv");
    let [lines, forever, one, worker, each, jobs] = &examples[..] else { panic!("{examples:?}") };
    runs(lines, "", "", "one\ntwo\nthree\n");
    // Each side waits for the other: for the FIFO to exist, or for the message to be printed.
    let until = |sent: &str| {
        format!(
            "until [ -p inbox ]; do sleep 0.05; done; pipework send --to inbox {sent}
            until grep -q {sent} out; do sleep 0.05; done; kill $!; {{ wait $! || cut -c 1-7 out; }} 2> /dev/null"
        )
    };
    runs(&format!("{} > out &", forever.trim_end()), "", &until("hello"), "{\"type\"\n");
    runs(one, "mkfifo inbox; pipework send --to inbox hello &", "wait", "hello");
    let workers =
        "work() { echo \"did $1\"; }; mkfifo jobs; exec 3<> jobs; pipework send --to jobs one two ''";
    runs(worker, workers, "wait", "did one\ndid two\n");
    let sizes = each.replace("$PIPEWORK_PID", "${PIPEWORK_PID:+somebody}");
    let inbox = "mkfifo inbox; pipework send --to inbox one three &";
    runs(&sizes, inbox, "wait", "somebody sent 3 bytes\nsomebody sent 5 bytes\n");
    let work = "printf '#!/bin/sh\necho \"did $(cat)\"' > work; chmod +x work";
    runs(&format!("{} > out &", jobs.trim_end()), work, &until("hello"), "did hel\n");
}

/// Puts programs that print their arguments first in PATH.
fn stand_ins(names: &str) -> String {
    format!(
        "PATH=$PWD:$PATH; for name in {names}; do
            printf '#!/bin/sh\\necho \"${{0##*/}}\" \"$@\"' > $name; chmod +x $name; done"
    )
}

#[test]
fn examples_of_the_main_help() {
    let examples = of_help("");
    let [writers, inbox, build, service] = &examples[..] else { panic!("{examples:?}") };
    let done = sh(&Folder::new(), &format!("{writers} wait"));
    assert_eq!((done.out.len(), &*done.err), ("one\ntwo\n".len(), ""));
    let ready = inbox.replace(" &\n", " > out &\nuntil [ -p inbox ]; do sleep 0.05; done\n");
    let after = "until [ -s out ]; do sleep 0.05; done; kill $!; wait $! || cat out";
    runs(&ready, "", &format!("{{ {after}; }} 2> said"), "a message\n");
    let done = sh(&Folder::new(), &format!("{}; {build}", stand_ins("make npm")));
    let mut lines: Vec<_> = done.out.lines().collect();
    lines.sort();
    assert_eq!(lines, ["[make] make", "[npm] npm run build"], "{}", done.err);
    runs(&service.replace("/dev/shm/", ""), "", "kill $!; wait", "HELLO");
}

#[test]
fn examples_of_demo() {
    let examples = of_help("demo");
    assert_eq!(examples.len(), 2);
    for example in examples {
        let script = example.replace("demo", "demo --quick").replace("/var/log/syslog", "syslog");
        let done = sh(&Folder::new(), &format!("seq 9000 > syslog; {script}"));
        assert_eq!((done.status, &*done.err), (Some(0), ""), "{example}");
        assert!(done.out.contains("every record arrived"), "{example}");
    }
}

#[test]
fn examples_of_nats() {
    let examples = of_help("nats");
    let [machines, help] = &examples[..] else { panic!("{examples:?}") };
    // Only the command lines of both sides are checked; the bridge's own tests run them with NATS.
    let called = |example: &str| {
        let commands: String = example
            .lines()
            .map(|line| line.rsplit("$ ").next().unwrap().trim())
            .fold(String::new(), |all, line| if line.contains(" nats ") { all + line + "\n" } else { all });
        sh(&Folder::new(), &format!("{}; {commands}", stand_ins("pipework-nats"))).out
    };
    let both =
        ["expose", "attach"].map(|word| format!("pipework-nats {word} /dev/shm/upper --subject upper\n"));
    assert_eq!(called(machines), both.concat());
    assert_eq!(called(help), "pipework-nats expose --help\n");
}

#[test]
fn examples_of_completions() {
    let examples = of_help("completions");
    let folders = "export HOME=$PWD; mkdir -p .zfunc .config/fish/completions";
    for (example, word) in examples.iter().zip(["complete -F", "#compdef pipework", "complete -c pipework"]) {
        let done = sh(&Folder::new(), &format!("{folders}; {example} find . -type f -exec cat {{}} +"));
        assert_eq!((done.status, &*done.err), (Some(0), ""), "{example}");
        assert!(done.out.contains(word), "{example}");
    }
    assert_eq!(examples.len(), 3);
}

#[test]
fn examples_of_man() {
    let examples = of_help("man");
    assert_eq!(examples.len(), 2);
    for example in examples.iter().filter(|example| can_run(example)) {
        let done = sh(&Folder::new(), &format!("export HOME=$PWD; {example} find . -type f"));
        assert_eq!((done.status, &*done.err), (Some(0), ""), "{example}");
        let word = if example.contains("man1") { "man1/pipework-serve.1" } else { "PIPEWORK" };
        assert!(done.out.to_uppercase().contains(&word.to_uppercase()), "{example}");
    }
}

#[test]
fn examples_of_bench() {
    let examples = of_help("bench");
    assert_eq!(examples.len(), 2);
    for example in examples {
        let done = sh(&Folder::new(), &example.replace("bench", "bench --quick"));
        assert_eq!((done.status, &*done.err), (Some(0), ""), "{example}");
        assert!(done.out.contains("reqrep: "), "{example}");
    }
}

#[test]
fn examples_of_tee() {
    let examples = of_help("tee");
    assert_eq!(examples.len(), 4);
    for (example, out) in examples.iter().zip(["one\ntwo\n", "begin\ndata", "", ""]) {
        if !can_run(example) {
            continue;
        }
        let done = sh(&Folder::new(), &format!("{example}wait; cat numbers 2> /dev/null | tail -n 1\n"));
        let is_last = example.contains("numbers");
        let err = if is_last { "100000 messages, 488895 bytes, 0 lines of text, 0 damaged\n" } else { "" };
        assert!(done.err.ends_with(err), "{example}\n{}", done.err);
        let out = match example {
            _ if is_last => "100000\n",
            example if example.contains("jq") => "7\n",
            _ => out,
        };
        assert_eq!(done.out, out, "{example}");
    }
}

/// The unit of the page, as far as it can be tried without systemd: its command line is run, and it
/// is stopped as systemd does it.
#[test]
fn unit_of_the_command_page_is_valid_and_serves() {
    let page = page("command.md");
    let unit = page.split("```ini\n").nth(1).unwrap().split("```").next().unwrap();
    let unit = unit.replace("/usr/local/bin/pipework", PIPEWORK);
    // With DynamicUser, systemd keeps the runtime directory under /run/private, which only root may
    // enter.
    assert!(!(unit.contains("DynamicUser=yes") && unit.contains("RuntimeDirectoryPreserve=")), "{unit}");
    let folder = Folder::new();
    fs::write(folder.join("words.service"), &unit).unwrap();
    // systemd-analyze prints nothing for a good unit and fails for a bad one; without systemd
    // nothing runs.
    let verify = "if command -v systemd-analyze > /dev/null; then systemd-analyze verify ./words.service; fi";
    let done = sh(&folder, verify);
    assert_eq!((done.status, &*done.err), (Some(0), ""));

    let command = unit.split("ExecStart=").nth(1).unwrap().split("\n").take(2).collect::<Vec<_>>().join("\n");
    let (python, script) = ("/usr/bin/python3 -u", "/usr/local/lib/words.py");
    assert!(command.contains(python) && command.contains(script), "{command}");
    let command = command.replace(python, "sh").replace(script, "./words");
    fs::write(folder.join("words"), "while read -r line; do echo \"$line\" | wc -w; done").unwrap();
    let script = format!(
        "export RUNTIME_DIRECTORY=$PWD; (exec {command}) & S=$!
        pipework call --wait --timeout 60 calls 'one two'; stat -c ' %a' calls; kill $S; wait $S; ls calls"
    );
    let done = sh(&folder, &script);
    assert_eq!(done.out, "2 660\n", "{}", done.err);
    assert!(done.err.contains("calls") && done.err.contains("No such file"), "{}", done.err);
}

/// The unit of a server that is a program of its own, as far as systemd says whether it is one. The
/// program is tried with the tests of the Python package.
#[test]
fn unit_of_the_systemd_page_is_valid() {
    let page = page("recipes/systemd.md");
    let unit = page.split("```ini\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = Folder::new();
    fs::write(folder.join("words.service"), unit.replace("/usr/bin/python3", PIPEWORK)).unwrap();
    let verify = "if command -v systemd-analyze > /dev/null; then systemd-analyze verify ./words.service; fi";
    let done = sh(&folder, verify);
    assert_eq!((done.status, &*done.err), (Some(0), ""));
}

/// The services of the examples, each with a request and its reply.
const SERVICES: [(&str, &str, &str); 5] = [
    ("upper", "hello", "HELLO"),
    ("sort", "b\na\n", "a\nb\n"),
    ("length", "hello", "5"),
    ("count", "3", "1\n2\n3\n"),
    ("sum", "hello", "3287646509 5\n"),
];

/// The examples of serve's help, each with the name of its channel.
fn services() -> Vec<(String, String)> {
    let examples = of_help("serve").into_iter().filter(|example| can_run(example));
    let named = examples.map(|example| {
        let channel = example.split("/dev/shm/").nth(1).unwrap().split(' ').next().unwrap();
        (channel.to_string(), example.replace("/dev/shm/", ""))
    });
    named.collect()
}

#[test]
fn examples_of_serve() {
    let services = services();
    assert!(services.len() >= 4, "{services:?}");
    for (channel, example) in services {
        let (_, request, reply) = SERVICES.iter().find(|(name, ..)| *name == channel).unwrap();
        let call = format!("printf '{request}' | timeout 60 pipework call --wait {channel}");
        let done = sh(&Folder::new(), &format!("(exec {example}) & S=$!; {call}; kill $S; wait $S"));
        assert_eq!((done.status, &*done.out, &*done.err), (Some(0), *reply, ""), "{example}");
    }
}

#[test]
fn examples_of_call() {
    let start: String =
        services().into_iter().map(|(_, example)| format!("(exec {example}) & P=\"$P $!\"\n")).collect();
    let examples: Vec<_> = of_help("call").into_iter().filter(|example| can_run(example)).collect();
    assert!(examples.len() >= 4, "{examples:?}");
    for example in examples {
        let script = example
            .replace("/dev/shm/", "")
            .replace("pipework call", "timeout 60 pipework call -w")
            .replace(" --wait", "");
        // The machine may lack Python.
        if script.contains(" length ") && !start.contains(" length ") {
            continue;
        }
        let script = format!("echo bob > names\n{start}{script}\nR=$?; kill $P; wait; exit $R");
        let done = sh(&Folder::new(), &script);
        // A job may still wait when its server stops.
        let err = if example.contains("--queue") { "" } else { &*done.err };
        assert_eq!((done.status, err), (Some(0), ""), "{script}");
        let is_silent = example.contains("jq") || example.contains("--queue");
        assert_eq!(done.out.is_empty(), is_silent, "{script}");
    }
}
