//! A tool server on stdin and stdout (JSON-RPC, one object a line) whose libraries may print.
//!
//! A print on stdout breaks such servers: the host takes it for a broken answer. Here the
//! answers go through stdout as messages, in mixed mode, and all other output, by the
//! server or by a program that a tool starts, comes out as lines beside them.
//!
//! `cargo run --example tool_server` is a host that starts the server and calls its tools. With
//! `-- --serve` it is the server alone, whose answers are lines where stdout is a terminal: try
//! `{"id": 1, "method": "add", "params": [2, 40]}`.

use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, Command, Stdio};

use pipework::Deadline;
use pipework::atomic::{Item, Options, Reader};
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    if std::env::args().any(|argument| argument == "--serve") {
        return serve();
    }
    let mut server = Command::new(std::env::current_exe()?);
    server.arg("--serve");
    let mut host = Host::start(server)?;
    println!("2 + 40 = {}", host.call("add", json!([2, 40]))?);
    println!("this folder: {} KiB", host.call("disk_usage", json!(["."]))?);
    if let Err(error) = host.call("add", json!([2])) {
        println!("refused: {error}");
    }
    print!("printed meanwhile:\n{}", host.printed);
    host.end()
}

// ---------------------------------------------------------------- the server

/// Takes a request a line, until there are no more. Each answer is a message.
fn serve() -> Result<()> {
    let mut answers = Options::new().mixed(true).or_print(true).stdout()?;
    for line in std::io::stdin().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let answer = match run(request["method"].as_str().unwrap_or(""), &request["params"]) {
            Ok(result) => json!({"jsonrpc": "2.0", "id": request["id"], "result": result}),
            Err(error) => {
                let error = json!({"code": -32000, "message": error.to_string()});
                json!({"jsonrpc": "2.0", "id": request["id"], "error": error})
            }
        };
        answers.send(answer.to_string(), Deadline::NEVER)?;
    }
    Ok(())
}

/// The result of a tool.
fn run(tool: &str, params: &Value) -> Result<Value> {
    match tool {
        "add" => {
            println!("DEBUG: in add(), and this line was to be removed");
            let [one, other] = [&params[0], &params[1]].map(Value::as_i64);
            Ok(json!(one.ok_or("no number")? + other.ok_or("no second number")?))
        }
        "disk_usage" => {
            let path = params[0].as_str().ok_or("no path")?;
            // It prints on the stdout that it inherits.
            Command::new("echo").args(["progress: looking at", path]).status()?;
            let said = String::from_utf8(Command::new("du").args(["-sk", path]).output()?.stdout)?;
            Ok(json!(said.split('\t').next().unwrap_or("").parse::<u64>()?))
        }
        _ => Err("no such tool".into()),
    }
}

// ---------------------------------------------------------------- the host

/// A server that runs as a child process.
struct Host {
    child: Child,
    requests: ChildStdin,
    answers: Reader,
    printed: String,
    last: u64,
}

impl Host {
    fn start(mut server: Command) -> Result<Host> {
        let (answers, writer) = Options::new().mixed(true).pair()?;
        server.stdin(Stdio::piped()).stdout(writer.as_fd().try_clone_to_owned()?);
        let mut child = server.spawn()?;
        let requests = child.stdin.take().expect("it is piped");
        // The writing ends are dropped here, so the pipe ends with the server.
        Ok(Host { child, requests, answers, printed: String::new(), last: 0 })
    }

    /// The tool's result, or its failure.
    fn call(&mut self, tool: &str, params: Value) -> Result<Value> {
        self.last += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.last, "method": tool, "params": params});
        writeln!(self.requests, "{request}")?;
        loop {
            // An error, `Closed`, if the server has ended.
            match self.answers.next_item(Deadline::NEVER)? {
                Item::Line(line) => self.printed += &String::from_utf8_lossy(&line),
                Item::Message(answer) => {
                    let mut answer: Value = serde_json::from_slice(&answer)?;
                    return match &answer["error"]["message"] {
                        Value::String(why) => Err(why.as_str().into()),
                        _ => Ok(answer["result"].take()),
                    };
                }
                Item::Burst(_) | Item::Torn(_) => {}
            }
        }
    }

    /// Lets the server end, which it does when there are no more requests.
    fn end(mut self) -> Result<()> {
        drop(self.requests);
        match self.child.wait()? {
            status if status.success() => Ok(()),
            status => Err(format!("the server ended with {status}").into()),
        }
    }
}

/// The server of the test: this program is the test runner, whose prints are strays as well.
#[test]
#[ignore = "its requests come from the other test"]
fn the_server() {
    serve().unwrap();
}

#[test]
fn answers_come_beside_prints() {
    let mut server = Command::new(std::env::current_exe().unwrap());
    server.args(["--ignored", "--exact", "the_server", "--nocapture"]);
    let mut host = Host::start(server).unwrap();
    assert_eq!(host.call("add", json!([2, 40])).unwrap(), 42);
    assert!(host.call("disk_usage", json!(["."])).unwrap().as_u64().unwrap() > 0);
    assert_eq!(host.call("add", json!([2])).unwrap_err().to_string(), "no second number");
    assert_eq!(host.call("divide", json!([2, 0])).unwrap_err().to_string(), "no such tool");
    for printed in ["running 1 test\n", "DEBUG: in add()", "progress: looking at .\n"] {
        assert!(host.printed.contains(printed), "{}", host.printed);
    }
    host.end().unwrap();
}
