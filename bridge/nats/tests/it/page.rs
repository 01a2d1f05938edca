//! The page docs/nats.md, as a reader follows it: each machine is a folder.

use crate::harness::{Folder, free_port, has_nats};
use async_nats::ConnectOptions;
use async_nats::jetstream::{self, stream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The commands that the page has people type, and the output that it shows. The installation of
/// the programs is left out.
fn page(folder: &Path, port: u16) -> (String, String) {
    let page = include_str!("../../../../docs/nats.md");
    let blocks = page.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next());
    let (mut script, mut shown) = (String::new(), String::new());
    for line in blocks.filter(|block| !block.contains("cargo install")).flat_map(str::lines) {
        let Some((machine, command)) = line.split_once("$ ") else {
            shown.push_str(line);
            continue;
        };
        let channel = folder.join(machine).display().to_string();
        let store = folder.join("store").display().to_string();
        let server = format!("nats-server -a 127.0.0.1 -p {port} -sd {store}");
        let command = command
            .replace("/dev/shm/upper", &channel)
            .replace("nats-server", &server)
            .replace("hub:4222", &format!("127.0.0.1:{port}"));
        script.push_str(&command);
        script.push('\n');
    }
    (script, shown)
}

/// In a process of its own: adds the stream that the tool of NATS is asked for.
#[test]
fn tool() {
    let Ok(asked) = std::env::var("PIPEWORK_TEST_STREAM") else { return };
    assert_eq!(asked, "stream add JOBS --subjects jobs --defaults");
    let env = |name| std::env::var(name).expect(name);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = ConnectOptions::with_user_and_password(env("NATS_USER"), env("NATS_PASSWORD"));
        let client = options.connect(env("NATS_URL")).await.unwrap();
        let subjects = vec!["jobs".to_owned()];
        let config = stream::Config { name: "JOBS".into(), subjects, ..Default::default() };
        jetstream::new(client).create_stream(config).await.unwrap();
    });
}

/// PIPEWORK_COMMAND is the command `pipework`; `make nats` builds it.
#[test]
fn commands_of_the_page_print_its_output() {
    let Some(command) = std::env::var_os("PIPEWORK_COMMAND").map(PathBuf::from).filter(|_| has_nats()) else {
        return;
    };
    let folder = Folder::new();
    let (script, shown) = page(&folder.0, free_port());
    assert_eq!(shown, "HELLOHELLOa job");
    // The tool of NATS, as far as the page uses it.
    let tool = folder.0.join("nats");
    let program = std::env::current_exe().expect("this program");
    let text =
        format!("#!/bin/sh\nPIPEWORK_TEST_STREAM=\"$*\" exec {} page::tool --exact >&2\n", program.display());
    std::fs::write(&tool, text).expect("a script");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).expect("it may run");
    let beside = [command.parent(), Path::new(env!("CARGO_BIN_EXE_pipework-nats")).parent()];
    let beside = beside.map(|folder| folder.expect("a folder").display().to_string()).join(":");
    let path = format!("{}:{beside}:{}", folder.0.display(), std::env::var("PATH").unwrap_or_default());
    let script = format!("trap 'kill $(jobs -p); wait' EXIT\n{script}");
    let mut shell = Command::new("timeout");
    shell.args(["60", "bash", "-c", &script]).env("PATH", path).current_dir(&folder.0);
    let run = shell.stdin(Stdio::null()).stderr(Stdio::null()).output().expect("a shell");
    assert_eq!(String::from_utf8_lossy(&run.stdout), shown, "{script}");
}
