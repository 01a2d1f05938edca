//! `pipework top`: metrics in every form, and the screen on a terminal.

use crate::ls::{segment, wait_until, worker};
use crate::terminal::{self, Terminal};
use crate::{Folder, PIPEWORK, clean, fails, sh, shell};
use pipework::atomic::create_fifo;
use pipework::reqrep::{Client, Segment, Server};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);

/// The objects that a script prints, one a line.
fn objects(folder: &Folder, script: &str) -> Vec<Value> {
    let done = sh(folder, script);
    assert_eq!((done.status, &*done.err), (Some(0), ""), "{}", done.out);
    done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A segment with two calls in progress, one of them with a server.
fn busy(folder: &Folder, name: &str) -> (Segment, Client, Server) {
    let segment = segment(folder.join(name));
    let (client, server) = (segment.client().unwrap(), segment.server().unwrap());
    for text in ["a", "b"] {
        client.send(text, SOON).unwrap();
    }
    server.recv(SOON).unwrap().keep();
    (segment, client, server)
}

#[test]
fn top_shows_the_metrics_of_a_channel() {
    let folder = Folder::new();
    let (_segment, _client, _server) = busy(&folder, "work");
    let [object] = &objects(&folder, "pipework top --once --json --interval 0.3 work")[..] else { panic!() };
    let number = |key: &str| object[key].as_u64();
    assert_eq!(
        (number("waiting"), number("taken"), number("in_use"), number("slots")),
        (Some(1), Some(1), Some(2), Some(4))
    );
    assert_eq!((&object["path"], &object["counters"]["requests"]), (&"work".into(), &2.into()));
    assert_eq!(object["per_second"]["requests"], 0.0);
    // The call waits from the first look to the last.
    assert!(object["age_s"]["p50"].as_f64().unwrap() >= 0.3, "{object}");
    let member = |role: &str| {
        object["members"].as_array().unwrap().iter().find(|member| member["role"] == role).unwrap()
    };
    assert_eq!((&member("client")["calls"], &member("server")["calls"]), (&2.into(), &1.into()));
    assert_eq!(member("client")["pid"], std::process::id());
    assert!(member("client")["command"].as_str().unwrap().contains("/it-"), "{object}");

    let done = sh(&folder, "pipework top --once --interval 0.1 work");
    let lines: Vec<_> = done.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    assert_eq!(
        lines[0],
        ["CALLS/S", "WAIT", "WORK", "DONE", "SLOTS", "TIME", "AGE", "99%", "S/C", "CHANNEL"]
    );
    assert_eq!((&lines[1][..6], &lines[1][8..]), (&["0", "1", "1", "0", "4", "-"][..], &["1/1", "work"][..]));
}

#[test]
fn top_shows_the_metrics_of_pipes() {
    let folder = Folder::new();
    create_fifo(folder.join("jobs")).unwrap();
    let mut child = shell(&folder, "exec 9<>jobs; echo hello >&9; echo; exec sleep 60").spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let [fifo] = &objects(&folder, "pipework top --once --json --interval 0.1 jobs")[..] else { panic!() };
    assert_eq!((&fifo["kind"], &fifo["bytes"], &fifo["path"]), (&"fifo".into(), &6.into(), &"jobs".into()));
    assert_eq!(fifo["readers"][0], serde_json::json!({ "pid": child.id(), "fd": 9 }));
    assert_eq!(fifo["readers"], fifo["writers"]);
    let pipes = objects(&folder, &format!("pipework top --once --json --interval 0.1 {}", child.id()));
    let on = |number: u64| pipes.iter().find(|pipe| pipe["fd"] == number).unwrap();
    assert_eq!((&on(9)["bytes"], &on(1)["writers"][0]["pid"]), (&6.into(), &child.id().into()));
    assert_eq!(on(1)["readers"][0]["pid"], std::process::id());
    let text = sh(&folder, "pipework top --once --interval 0.1 jobs").out;
    assert!(
        text.starts_with("UNREAD     HOLD  READERS  WRITERS  PIPE\n") && text.contains("1  jobs\n"),
        "{text}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    let text = sh(&folder, "pipework top --once --interval 0.1 jobs").out;
    assert!(text.contains("  -  "), "a process has it open: {text}");
}

#[test]
fn top_fails_on_missing_targets() {
    fails(1, &["missing: there is no such channel"], "pipework top missing");
    fails(1, &["text: it is no channel"], "echo > text; pipework top text");
    fails(1, &["no such process"], "pipework top 2147483000");
    fails(2, &["0.1 to 3600"], "pipework top --interval 0.01");
    fails(2, &["loopback"], "pipework top --prometheus 0.0.0.0:9464");
    fails(2, &["--once"], "pipework top --once --prometheus 9464");
    fails(2, &["--sort"], "pipework top --sort age --prometheus 9464");
    fails(1, &["folder: it is a folder"], "mkdir folder; pipework top folder");
}

/// The screen of `pipework top`, with a channel and a FIFO.
fn watched(folder: &Folder, size: (u16, u16), script: &str) -> Terminal {
    let terminal = Terminal::run(folder, size, script);
    terminal.wait_for("q quit");
    assert!(terminal.is_taken() && !terminal.has_cursor());
    terminal
}

fn is_given_back(terminal: &mut Terminal) {
    terminal.wait("the terminal is given back", |terminal| !terminal.is_taken() && terminal.has_cursor());
}

#[test]
fn top_fits_on_a_screen_of_80_by_24() {
    let folder = Folder::new();
    let (_segment, _client, _server) = busy(&folder, "work");
    let _other = busy(&folder, "other");
    create_fifo(folder.join("jobs")).unwrap();
    let _open = File::options().read(true).write(true).open(folder.join("jobs")).unwrap();
    let script = "exec pipework top --interval 0.1 work other jobs";
    let mut terminal = watched(&folder, (24, 80), script);
    let line = |terminal: &Terminal, text: &str| {
        terminal.text().lines().position(|line| line.trim_end().ends_with(text))
    };
    terminal.wait("both channels and the FIFO, by their names", |terminal| {
        line(terminal, "  other") == Some(2)
            && line(terminal, "  work") == Some(3)
            && line(terminal, "  jobs").is_some()
    });
    let text = terminal.text();
    assert!(
        text.lines().next().unwrap().starts_with("pipework top   2 channels, 1 pipe   every 0.1 s"),
        "{text}"
    );
    assert!(text.contains("calls 2   cancelled 0") && text.contains("1  client"), "{text}");
    // Sorting by name again reverses the order; then the pipe is selected.
    terminal.press("n");
    terminal.wait("it is sorted", |terminal| line(terminal, "  work") == Some(2));
    terminal.press("jj");
    terminal.wait_for("reads and writes");
    terminal.press("\u{1b}[A\u{1b}[A");
    terminal.wait_for("calls 2   cancelled 0");

    terminal.resize(10, 40);
    terminal.wait("it is drawn again", |terminal| {
        terminal.text().lines().count() == 10
            && terminal.text().lines().all(|line| line.chars().count() <= 40)
    });
    // On a small screen lines are left out, and the others stay readable.
    terminal.wait("figures with their names", |terminal| {
        terminal.text().contains("CALLS/S  WAIT  WORK  ") && line(terminal, "  work").is_some()
    });
    terminal.resize(30, 120);
    terminal.wait_for("pipework 0.");
    terminal.wait("the keys are in the last line", |terminal| {
        terminal.text().lines().nth(29).is_some_and(|line| line.starts_with("q quit"))
    });
    terminal.press("q");
    assert_eq!(terminal.end().code(), Some(0));
    is_given_back(&mut terminal);
}

#[test]
fn top_restores_the_terminal_after_keys_and_signals() {
    let folder = Folder::new();
    let (_segment, _client, _server) = busy(&folder, "work");
    for end in ["\u{3}", "TERM", "HUP", "INT", "QUIT"] {
        let script = "stty -g > before; sh -c 'echo $$ > id; exec pipework top work'; echo $? > status; stty -g > after";
        let mut terminal = watched(&folder, (24, 80), script);
        if end == "\u{3}" {
            terminal.press(end);
        } else {
            let id = fs::read_to_string(folder.join("id")).unwrap();
            sh(&folder, &format!("kill -{end} {id}"));
        }
        assert_eq!(terminal.end().code(), Some(0), "{end}");
        is_given_back(&mut terminal);
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!((read("status"), read("before")), ("0\n".into(), read("after")), "{end}");
    }
}

#[test]
fn top_ends_when_its_terminal_closes() {
    let folder = Folder::new();
    let (_segment, _client, _server) = busy(&folder, "work");
    // top notices it by a signal, or by the terminal alone.
    for ignoring in ["", "trap '' HUP; "] {
        let script = format!("{ignoring}exec pipework top work");
        let (mut terminal, mut child) = terminal::start(&folder, (24, 80), &script);
        let (mut seen, mut block) = (vec![], [0; 4096]);
        while !String::from_utf8_lossy(&seen).contains("q quit") {
            let len = terminal.read(&mut block).unwrap();
            seen.extend_from_slice(&block[..len]);
        }
        drop(terminal);
        assert_eq!(child.wait().unwrap().code(), Some(0), "{ignoring}");
    }
}

#[test]
fn top_reads_keys_from_the_terminal_whatever_standard_input_is() {
    let folder = Folder::new();
    let (_segment, _client, _server) = busy(&folder, "work");
    for input in ["< /dev/null", "<&-", "< work"] {
        let mut terminal = watched(&folder, (24, 80), &format!("exec pipework top work {input}"));
        terminal.press("q");
        assert_eq!(terminal.end().code(), Some(0), "{input}");
        is_given_back(&mut terminal);
    }
}

#[test]
fn top_prints_tables_on_a_terminal_without_a_cursor() {
    let folder = Folder::new();
    let (_segment, _client, _server) = busy(&folder, "work");
    let mut terminal = Terminal::run(&folder, (24, 80), "TERM=dumb exec pipework top --interval 0.1 work");
    terminal.wait("there are two", |terminal| terminal.text().matches("CALLS/S").count() >= 2);
    assert!(!terminal.is_taken());
    terminal.press("\u{3}");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn top_once_prints_although_a_signal_ends_it() {
    let folder = Folder::new();
    let (_segment, _client, _server) = busy(&folder, "work");
    let script = "pipework top --once --interval 3600 work & sleep 0.2; kill -TERM $!; wait $!";
    assert_eq!(sh(&folder, script).status, Some(143));
}

#[test]
fn top_can_be_suspended_and_resumed() {
    let folder = Folder::new();
    let (_segment, _client, _server) = busy(&folder, "work");
    let mut terminal = Terminal::run(&folder, (24, 80), "PS1='ready> ' exec sh -i");
    terminal.wait_for("ready> ");
    terminal.press("pipework top work; echo ended $?\n");
    for is_key in [true, false] {
        terminal.wait_for("q quit");
        match is_key {
            true => terminal.press("\u{1a}"),
            false => drop(clean(&format!("kill -TSTP {}", terminal_process(&folder)))),
        }
        is_given_back(&mut terminal);
        terminal.wait("the shell is back", |terminal| terminal.text().trim_end().ends_with("ready>"));
        terminal.press("fg\n");
        terminal.wait("it is on the screen again", |terminal| {
            terminal.is_taken() && terminal.text().contains("q quit")
        });
    }
    terminal.press("q");
    is_given_back(&mut terminal);
    terminal.press("exit\n");
    terminal.end();
}

#[test]
fn top_shows_channels_that_vanish_return_or_are_damaged() {
    let folder = Folder::new();
    let (first, _client, _server) = busy(&folder, "work");
    let mut terminal = watched(&folder, (24, 80), "exec pipework top --interval 0.1 work");
    terminal.wait_for("1/1  work");
    first.unlink().unwrap();
    terminal.wait_for("work: gone");
    let second = segment(folder.join("work"));
    let _server = second.server().unwrap();
    terminal.wait_for("1/0  work");
    File::options().write(true).open(folder.join("work")).unwrap().set_len(4096).unwrap();
    terminal.wait_for("work: it is damaged");
    fs::remove_file(folder.join("work")).unwrap();
    fs::write(folder.join("work"), [0; 8192]).unwrap();
    terminal.wait_for("work: it is no channel");
    terminal.press("q");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn ls_top_and_doctor_survive_random_bytes_in_a_channel() {
    let folder = Folder::new();
    let segment = segment(folder.join("work"));
    let file = File::options().write(true).open(folder.join("work")).unwrap();
    let len = file.metadata().unwrap().len();
    let mut command = shell(&folder, "exec pipework top --json --interval 0.1 work");
    let mut top = command.stdout(Stdio::null()).spawn().unwrap();
    let mut random: u64 = 1;
    let mut next = || {
        // The generator of Knuth's MMIX, which is random enough here.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 16
    };
    for round in 0..20 {
        for _ in 0..500 {
            // Half of the writes hit members and the header's counters. None hits the beginning and
            // the end of the file, which prove that it is complete.
            let at = if next() % 2 == 0 { 128 + next() % 4500 } else { 128 + next() % (len - 256) };
            let word = if next() % 4 == 0 { 0 } else { next() << 16 | next() };
            file.write_all_at(&word.to_le_bytes(), at & !7).unwrap();
        }
        let script = "pipework ls work && pipework top --once --interval 0.1 work; pipework doctor work";
        let done = sh(&folder, if round % 5 == 0 { script } else { "pipework doctor --json work" });
        assert!(matches!(done.status, Some(0 | 3)) && done.err.is_empty(), "{done:?}");
    }
    assert!(top.try_wait().unwrap().is_none(), "top has ended");
    sh(&folder, &format!("kill {}", top.id()));
    assert_eq!(top.wait().unwrap().code(), Some(0));
    drop(segment);
}

#[test]
fn top_marks_a_dead_member_and_writes_nothing() {
    let folder = Folder::new();
    let segment = segment(folder.join("work"));
    let _client = segment.client().unwrap();
    _client.send("a", SOON).unwrap();
    let mut server = worker(&segment);
    server.kill().unwrap();
    server.wait().unwrap();
    let before = fs::read(folder.join("work")).unwrap();
    let done = sh(&folder, "pipework top --once --interval 0.1 work");
    assert!(done.out.contains("0/1 !1  work") && done.out.contains("(dead)"), "{}", done.out);
    assert!(fs::read(folder.join("work")).unwrap() == before, "the file has changed");
}

#[test]
fn top_of_a_thousand_slots_takes_less_than_a_hundredth_of_a_cpu() {
    let folder = Folder::new();
    let options = pipework::reqrep::Options::new().slots(1000).members(64);
    let segment = options.create(folder.join("work")).unwrap();
    let client = segment.client().unwrap();
    for _ in 0..1000 {
        client.send("a", SOON).unwrap();
    }
    let mut terminal = watched(&folder, (24, 80), "exec pipework top work");
    terminal.wait_for("1000   ");
    // The CPU time of the process.
    let ran = || {
        let id = terminal_process(&folder);
        let text = fs::read_to_string(format!("/proc/{id}/schedstat")).unwrap();
        Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
    };
    let (begin, before) = (Instant::now(), ran());
    thread::sleep(Duration::from_secs(3));
    let (share, elapsed) = (ran() - before, begin.elapsed());
    assert!(share < elapsed / 100, "{share:?} of {elapsed:?}");
    terminal.press("q");
    terminal.end();
}

/// The `pipework top` that runs in the folder.
fn terminal_process(folder: &Folder) -> String {
    let folder = folder.canonicalize().unwrap();
    let is_it = |id: &String| {
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.starts_with(b"pipework\0top")
            && fs::read_link(format!("/proc/{id}/cwd")).is_ok_and(|cwd| cwd == folder)
    };
    let mut ids =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    ids.find(is_it).unwrap()
}

/// Starts a server of the page; returns it and its address.
pub(crate) fn page(folder: &Folder, targets: &str) -> (Child, String) {
    let mut child = Command::new(PIPEWORK)
        .args(["top", "--interval", "0.1", "--prometheus", "127.0.0.1:0"])
        .args(targets.split(' '))
        .current_dir(&**folder)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = vec![0; 200];
    let len = child.stderr.as_mut().unwrap().read(&mut said).unwrap();
    let said = String::from_utf8(said[..len].to_vec()).unwrap();
    let address = said.split("http://").nth(1).unwrap().split('/').next().unwrap().to_string();
    (child, address)
}

pub(crate) fn ask(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Checks that `body` has every metric and label in an expression of docs/recipes/monitoring.md.
fn metrics_of_the_recipe_are_on(body: &str) {
    let recipe = include_str!("../../../../docs/recipes/monitoring.md");
    let words = recipe.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let metrics: Vec<_> = words.filter(|word| word.starts_with("pipework_")).collect();
    assert!(metrics.len() >= 10, "{metrics:?}");
    for metric in metrics {
        let family = metric.trim_end_matches("_total");
        let kind = if metric.ends_with("_total") { "counter" } else { "gauge" };
        assert!(body.contains(&format!("# TYPE {family} {kind}\n")), "no {metric} in\n{body}");
    }
    for label in ["stage=\"", "role=\"", "alive=\""] {
        for value in recipe.split(label).skip(1).map(|rest| rest.split('"').next().unwrap()) {
            assert!(body.contains(&format!("{label}{value}\"")), "no {label}{value} in\n{body}");
        }
    }
}

#[test]
fn prometheus_page_has_the_metrics_of_channels_and_pipes() {
    let folder = Folder::new();
    let (_segment, client, _server) = busy(&folder, "a\"b");
    create_fifo(folder.join("jobs")).unwrap();
    let (mut child, address) = page(&folder, "a\"b jobs");
    // Idle connections delay no request. Handled one by one, they would for minutes.
    let _idle: Vec<_> = (0..200).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let answer = ask(&address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.0 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0"),
        "{head}"
    );
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
    for line in [
        "# TYPE pipework_requests counter",
        "# TYPE pipework_call_seconds counter",
        "# TYPE pipework_call_age_seconds gauge",
        "pipework_requests_total{channel=\"a\\\"b\"} 2",
        "pipework_calls{channel=\"a\\\"b\",stage=\"waiting\"} 1",
        "pipework_calls{channel=\"a\\\"b\",stage=\"taken\"} 1",
        "pipework_members{channel=\"a\\\"b\",role=\"server\",alive=\"true\"} 1",
        "pipework_pipe_readers{fifo=\"jobs\"} 0",
    ] {
        assert!(body.lines().any(|other| other == line), "no {line} in\n{body}");
    }
    assert!(body.ends_with("\n# EOF\n"));
    let families = body.lines().filter(|line| line.starts_with("# TYPE"));
    let names: std::collections::BTreeSet<_> = families.clone().collect();
    assert_eq!(names.len(), families.count(), "a family comes once");
    metrics_of_the_recipe_are_on(body);
    client.send("c", SOON).unwrap();
    wait_until("the third call is counted", || {
        ask(&address, "GET / HTTP/1.0\r\n\r\n").contains("_total{channel=\"a\\\"b\"} 3")
    });
    // The calls are in progress all the while, between two questions too.
    let value = |body: &str, name: &str| -> f64 {
        let line = body.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in\n{body}")).trim().parse().unwrap()
    };
    let page = || ask(&address, "GET / HTTP/1.0\r\n\r\n");
    let seconds = |body: &str| value(body, "pipework_call_seconds_total{channel=\"a\\\"b\"}");
    let age = |body: &str| value(body, "pipework_call_age_seconds{channel=\"a\\\"b\",quantile=\"0.5\"}");
    let (before, begin) = (page(), std::time::Instant::now());
    wait_until("three calls have been seen for another second", || seconds(&page()) > seconds(&before) + 3.0);
    let after = page();
    assert!(begin.elapsed().as_secs_f64() > 0.5, "three calls take three seconds a second");
    assert!(age(&after) > age(&before) + 0.5, "{before}\n{after}");
    assert!(ask(&address, "GET /other HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 404"));
    assert!(ask(&address, "POST / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 405"));
    assert!(ask(&address, "HEAD / HTTP/1.0\r\n\r\n").ends_with("\r\n\r\n"));
    assert!(ask(&address, "\r\n\r\n").starts_with("HTTP/1.0 405"));
    let taken = sh(&folder, &format!("pipework top --prometheus {address} jobs"));
    assert_eq!(taken.status, Some(1));
    assert!(taken.err.contains(&address) && taken.err.contains("in use"), "{}", taken.err);
    sh(&folder, &format!("kill -TERM {}", child.id()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// docs/top.svg: two services at work, of which one has a slow program, and a FIFO with jobs.
/// PIPEWORK_PICTURE names the file to write.
#[test]
#[ignore = "draws a picture for the documentation; run it when the screen has changed"]
fn picture() {
    let folder = Folder::new();
    let start =
        |script: &str| shell(&folder, script).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    fs::write(folder.join("resize"), "sleep 0.02; cat").unwrap();
    fs::write(folder.join("mail"), "sleep 10; cat").unwrap();
    create_fifo(folder.join("jobs")).unwrap();
    let mut running = vec![
        start("exec pipework serve --workers 4 thumbnails -- sh resize"),
        start("exec pipework serve mailbox -- sh mail"),
        start("exec 9<>jobs; seq 3000 >&9; exec sleep 600"),
    ];
    wait_until("both channels are there", || {
        folder.join("thumbnails").exists() && folder.join("mailbox").exists()
    });
    running.push(start("yes | exec pipework call --lines -n 9 thumbnails"));
    running.push(start("seq 3 | exec pipework call --lines -n 3 --timeout 600 mailbox"));
    running.push(start("exec pipework call --timeout 600 mailbox 'a letter'"));
    let mut terminal = watched(&folder, (16, 80), "exec pipework top --sort rate thumbnails mailbox jobs");
    thread::sleep(Duration::from_secs(5));
    println!("{}", terminal.text());
    fs::write(std::env::var("PIPEWORK_PICTURE").unwrap(), terminal.picture()).unwrap();
    terminal.press("q");
    terminal.end();
    for child in &mut running {
        sh(&folder, &format!("kill {}", child.id()));
        child.wait().unwrap();
    }
}
