//! NATS clients without pipework, and hostile ones.

use crate::harness::{Nats, SOON, SUBJECT, Scene, echo, figures, free_port, has_nats, wait_until, work};
use async_nats::{Client, HeaderMap, Message};
use futures_util::StreamExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Runs a task of a stranger, connected to the scene's server.
pub(crate) fn stranger<T>(scene: &Scene, task: impl AsyncFnOnce(Client) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = async_nats::connect(scene.nats.url()).await.unwrap();
        tokio::time::timeout(SOON, task(client)).await.expect("it ends")
    })
}

/// One request, and its one answer; asked again until a bridge answers.
pub(crate) async fn ask(client: &Client, headers: &[(&str, &str)], payload: Vec<u8>) -> Message {
    let mut map = HeaderMap::new();
    headers.iter().for_each(|(name, value)| map.insert(*name, *value));
    loop {
        match client.request_with_headers(SUBJECT, map.clone(), payload.clone().into()).await {
            Ok(answer) => return answer,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

pub(crate) fn code(message: &Message) -> Option<&str> {
    message.headers.as_ref()?.get("Nats-Service-Error-Code").map(|code| code.as_str())
}

#[test]
fn plain_nats_client_can_call_a_worker() {
    if !has_nats() {
        return;
    }
    let scene = Scene::new();
    work(scene.server(), |mut request| match &*request.to_vec() {
        b"fail" => {
            let _ = request.fail("no");
        }
        b"parts" => {
            let _ = request.part("one ", SOON);
            let _ = request.part("two ", SOON);
            let _ = request.reply("three");
        }
        b"long" => {
            let _ = request.reply(&vec![0; 2 << 20]);
        }
        _ => echo(request),
    });
    let _expose = scene.bridge("expose", "there", &[]);
    stranger(&scene, async |client| {
        let answer = ask(&client, &[], b"hello".to_vec()).await;
        assert_eq!((&*answer.payload, answer.headers), (&b"hello"[..], None));
        let answer = ask(&client, &[("Pipework-Flags", "7")], b"flags".to_vec()).await;
        assert_eq!(answer.headers.unwrap().get("Pipework-Flags").unwrap().as_str(), "7");
        let answer = ask(&client, &[], vec![b'x'; 1_000_000]).await;
        assert_eq!(answer.payload.len(), 1_000_000);
        let answer = ask(&client, &[], b"parts".to_vec()).await;
        assert_eq!(&*answer.payload, b"one two three");
        let answer = ask(&client, &[], b"fail".to_vec()).await;
        assert_eq!((code(&answer), &*answer.payload), (Some("500"), &b"no"[..]));
        assert_eq!(code(&ask(&client, &[], b"long".to_vec()).await), Some("413"));
    });
}

#[test]
fn malformed_message_ends_only_its_own_call() {
    if !has_nats() {
        return;
    }
    let scene = Scene::new();
    work(scene.server(), echo);
    let metrics = format!("127.0.0.1:{}", free_port());
    let expose = scene.bridge(
        "expose",
        "there",
        &["--metrics", &metrics, "--silence", "1", "--max-message", "100000"],
    );
    stranger(&scene, async |client| {
        for wrong in [
            ("Pipework-Call", "9"),
            ("Pipework-Call", "x"),
            ("Pipework-Flags", "-1"),
            ("Pipework-Flags", "99999999999"),
            ("Pipework-Timeout", "soon"),
            ("Pipework-More", "1"),
            ("Pipework-Step", "dance"),
        ] {
            assert_eq!(code(&ask(&client, &[wrong], Vec::new()).await), Some("400"), "{wrong:?}");
        }
        // The largest time that can be named, and none at all.
        let answer = ask(&client, &[("Pipework-Timeout", "18446744073709551615")], b"x".to_vec()).await;
        assert_eq!(&*answer.payload, b"x");
        assert_eq!(code(&ask(&client, &[("Pipework-Timeout", "0")], b"x".to_vec()).await), Some("408"));
        // Replies without a receiver, to all receivers, and to the subject itself.
        client.publish(SUBJECT, "x".into()).await.unwrap();
        client.publish_with_reply(SUBJECT, SUBJECT, "x".into()).await.unwrap();

        // A client that begins a long request and goes on with nonsense.
        let steps = [("Pipework-Call", "1"), ("Pipework-More", "1")];
        for nonsense in [
            vec![("Pipework-Step", "part"), ("Pipework-Part", "7")],
            vec![("Pipework-Step", "part"), ("Pipework-Part", "x")],
            vec![("Pipework-Step", "ack"), ("Pipework-Part", "18446744073709551615")],
            vec![("Pipework-Step", "cancel")],
            vec![("Nats-Service-Error-Code", "500")],
        ] {
            let inbox = client.new_inbox();
            let mut replies = client.subscribe(inbox.clone()).await.unwrap();
            let mut map = HeaderMap::new();
            steps.iter().for_each(|(name, value)| map.insert(*name, *value));
            client.publish_with_reply_and_headers(SUBJECT, inbox, map, "x".into()).await.unwrap();
            let accepted = replies.next().await.unwrap();
            let control = accepted.reply.expect("where to go on");
            let mut map = HeaderMap::new();
            nonsense.iter().for_each(|(name, value)| map.insert(*name, *value));
            for _ in 0..200 {
                client
                    .publish_with_headers(control.clone(), map.clone(), vec![0; 1000].into())
                    .await
                    .unwrap();
            }
        }
        // More than the limit, piece by piece.
        let inbox = client.new_inbox();
        let mut replies = client.subscribe(inbox.clone()).await.unwrap();
        let mut map = HeaderMap::new();
        steps.iter().for_each(|(name, value)| map.insert(*name, *value));
        client.publish_with_reply_and_headers(SUBJECT, inbox, map, vec![0; 90_000].into()).await.unwrap();
        let control = replies.next().await.unwrap().reply.unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in [("Pipework-Step", "part"), ("Pipework-Part", "1"), ("Pipework-More", "1")] {
            map.insert(name, value);
        }
        client.publish_with_headers(control, map, vec![0; 90_000].into()).await.unwrap();
        assert_eq!(code(&replies.next().await.unwrap()), Some("413"));

        assert_eq!(&*ask(&client, &[], b"still here".to_vec()).await.payload, b"still here");
    });
    let page = || figures(&metrics);
    wait_until("nothing is in flight", || page().contains("in_flight{side=\"expose\"} 0"));
    let page = page();
    assert!(page.starts_with("HTTP/1.0 200"), "{page}");
    for line in ["refused_total{reason=\"malformed\"} 7", "refused_total{reason=\"no_reply_subject\"}"] {
        assert!(page.contains(line), "{line} in {page}");
    }
    assert_eq!(scene.there.audit().unwrap().free, 256);
    assert!(expose.stop().success());
}

#[test]
fn secrets_are_refused_on_the_command_line_and_not_shown() {
    if !has_nats() {
        return;
    }
    let scene = Scene::with(&["--user", "me", "--pass", "hidden"]);
    let run = |url: Option<&str>, env: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pipework-nats"));
        command.arg("expose").arg(scene.folder.0.join("there")).args(["--subject", SUBJECT]);
        if let Some(url) = url {
            command.args(["--server", url]);
        }
        command.envs(env.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let port = scene.nats.port;
    let shown = run(Some(&format!("nats://me:hidden@127.0.0.1:{port}")), &[]).output().unwrap();
    assert_eq!(shown.status.code(), Some(2));
    let said = String::from_utf8_lossy(&shown.stderr).into_owned();
    assert!(!said.contains("hidden") && said.contains("NATS_URL"), "{said}");

    work(scene.server(), echo);
    let url = scene.nats.url();
    let env = [("NATS_URL", url.as_str()), ("NATS_USER", "me"), ("NATS_PASSWORD", "hidden")];
    let _expose = crate::harness::Process::start(&mut run(None, &env));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = async_nats::ConnectOptions::with_user_and_password("me".into(), "hidden".into());
        let client = options.connect(&url).await.unwrap();
        assert_eq!(&*ask(&client, &[], b"x".to_vec()).await.payload, b"x");
    });
}

#[test]
fn connection_can_be_encrypted() {
    if !has_nats() {
        return;
    }
    let folder = crate::harness::Folder::new();
    let (cert, key) = (folder.0.join("cert.pem"), folder.0.join("key.pem"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    openssl.args([
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
    ]);
    openssl.arg("-keyout").arg(&key).arg("-out").arg(&cert).stderr(Stdio::null());
    if !openssl.status().is_ok_and(|status| status.success()) {
        return;
    }
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let tls = ["--tls", "--tlscert", &text(&cert), "--tlskey", &text(&key)].map(str::to_owned);
    let nats = Nats::start(&tls.iter().map(String::as_str).collect::<Vec<_>>());
    let channel = |name: &str| pipework::reqrep::Options::new().create(folder.0.join(name)).unwrap();
    let (here, there) = (channel("here"), channel("there"));
    work(there.server().unwrap(), echo);
    let url = format!("tls://localhost:{}", nats.port);
    let options = ["--tls", "--tls-ca", &text(&cert)].map(str::to_owned);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let _expose = crate::harness::bridge("expose", &folder.0.join("there"), &url, &options);
    let _attach = crate::harness::bridge("attach", &folder.0.join("here"), &url, &options);
    assert_eq!(&*here.client().unwrap().call("hidden", SOON).unwrap(), b"hidden");
}
