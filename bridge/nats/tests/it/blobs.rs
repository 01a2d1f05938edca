//! Blobs of requests, replies and parts that pass the bridge.

use crate::harness::{SOON, SUBJECT, Scene, figures, free_port, has_nats, long_way, wait_until, work};
use crate::strangers::{ask, code, stranger};
use async_nats::{Client, HeaderMap, Message as Received, Subject, Subscriber};
use futures_util::StreamExt;
use pipework::ErrorKind;
use pipework::reqrep::{Blob, MAX_BLOBS, Message, Options, Request, Segment};
use std::fs::{self, File};
use std::thread;
use std::time::Duration;

fn bytes(len: usize, first: usize) -> Vec<u8> {
    (0..len).map(|at| ((at + first) * 7 + at / 256) as u8).collect()
}

fn blob(segment: &Segment, bytes: &[u8]) -> Blob {
    let mut draft = segment.blob(bytes.len()).expect("a blob");
    draft.copy_from_slice(bytes);
    draft.freeze().expect("its file is whole")
}

fn blobs(segment: &Segment, lens: &[usize]) -> Vec<Blob> {
    lens.iter().zip(0..).map(|(len, first)| blob(segment, &bytes(*len, first))).collect()
}

fn have(blobs: &[Blob], lens: &[usize]) -> bool {
    let expected = lens.iter().zip(0..).map(|(len, first)| bytes(*len, first));
    blobs.len() == lens.len() && blobs.iter().zip(expected).all(|(blob, expected)| **blob == *expected)
}

/// Answers with the request's payload, flags and blobs.
fn echo_blobs(request: Request<'_>) {
    let (payload, flags, blobs) = (request.to_vec(), request.flags(), request.blobs().to_vec());
    // The caller may have gone.
    let _ = request.reply(Message::new(&payload).flags(flags).attach(&blobs));
}

fn reason(outcome: Result<pipework::reqrep::Reply, pipework::reqrep::CallError>) -> String {
    let error = outcome.expect_err("it fails");
    assert_eq!(error.kind(), ErrorKind::Failed, "{error}");
    String::from_utf8(error.into_reason().expect("a reason").into_vec()).unwrap()
}

#[test]
fn requests_and_replies_arrive_with_the_same_blobs() {
    if !has_nats() {
        return;
    }
    let scene = Scene::new();
    work(scene.server(), echo_blobs);
    let _bridges = scene.bridges(&[]);
    let client = scene.client();
    for lens in [
        &[0][..],
        &[1],
        &[131_071, 131_072, 131_073],
        &[0, 0, 5, 0, 0, 7, 0, 0],
        &[10_000_000, 300_000, 0, 1, 2, 3, 4, 200_000],
    ] {
        for len in [0, 4096, 131_073] {
            let (payload, sent) = (bytes(len, 9), blobs(&scene.here, lens));
            let message = Message::new(&payload).flags(len as u32 + 1).attach(&sent);
            let reply = client.call(message, SOON).expect("a reply");
            assert!(*reply == *payload && have(reply.blobs(), lens), "{lens:?} with {len}");
            assert_eq!(reply.flags(), len as u32 + 1);
        }
    }
    assert_eq!(MAX_BLOBS, 8);
    // Without blobs nothing of an earlier message is left.
    assert_eq!(client.call("none", SOON).unwrap().blobs().len(), 0);
    drop(client);
    wait_until("the far channel is free", || scene.there.audit().unwrap().free == 256);
    for segment in [&scene.here, &scene.there] {
        wait_until("no message names a blob", || segment.blob_audit().named == 0);
    }
}

#[test]
fn parts_of_a_stream_arrive_with_their_own_blobs() {
    if !has_nats() {
        return;
    }
    let scene = Scene::new();
    let lens = |number: usize| vec![number * 60_000; number % 3];
    let there = scene.there.clone();
    work(scene.server(), move |mut request| {
        for number in 0..10 {
            let sent = blobs(&there, &lens(number));
            let part = Message::new("part").flags(number as u32).attach(&sent);
            if !request.part(part, SOON).unwrap() {
                return;
            }
        }
        let last = blobs(&there, &[7, 8]);
        let _ = request.reply(Message::new("").attach(&last));
    });
    let _bridges = scene.bridges(&[]);
    let client = scene.client();
    let mut stream = client.stream("go", SOON).unwrap();
    for number in 0..10 {
        let part = stream.next_part(SOON).unwrap().expect("a part");
        assert_eq!((&*part, part.flags()), (&b"part"[..], number as u32));
        assert!(have(part.blobs(), &lens(number)), "{number}");
    }
    let last = stream.next_part(SOON).unwrap().expect("the last part has blobs");
    assert!(last.is_empty() && have(last.blobs(), &[7, 8]));
    assert!(stream.next_part(SOON).unwrap().is_none());

    // A call gets the blobs of all parts in one reply, which has no place for so many.
    let refused = reason(client.call("go", SOON));
    assert!(refused.contains("the channel was made for fewer `blobs` a message"), "{refused}");
}

#[test]
fn blobs_that_do_not_fit_fail_the_call_with_the_limit_in_its_reason() {
    if !has_nats() {
        return;
    }
    let mut scene = Scene::new();
    let path = |name: &str| scene.folder.0.join(name);
    scene.there = Options::new().blobs(2).open_or_create(path("few")).unwrap();
    let there = scene.there.clone();
    work(scene.server(), move |request| match &*request.to_vec() {
        b"large" => {
            let large = blob(&there, &vec![1; 200_000]);
            let _ = request.reply(Message::new("").attach(&large));
        }
        _ => echo_blobs(request),
    });
    let _expose = scene.bridge("expose", "few", &["--max-message", "1000000"]);
    let _attach = scene.bridge("attach", "here", &["--max-message", "150000"]);
    scene.wait_for_server();
    let client = scene.client();
    let call = |payload: &str, lens: &[usize]| {
        client.call(Message::new(payload).attach(&blobs(&scene.here, lens)), SOON)
    };
    assert!(have(call("", &[1, 2]).unwrap().blobs(), &[1, 2]));
    let refused = reason(call("", &[1, 2, 3]));
    assert!(refused.ends_with("/few: 3 blobs, but the channel was made for 2 a message"), "{refused}");
    let refused = reason(call("", &[600_000, 500_000]));
    assert!(refused.contains("the 1000000 bytes of the bridge's --max-message"), "{refused}");
    let refused = reason(call("large", &[]));
    assert!(refused.contains("the 150000 bytes of the bridge's --max-message"), "{refused}");

    // A file is where the folder of the blobs is to be made.
    let few = scene.there.blob_folder().to_owned();
    let aside = few.with_extension("aside");
    fs::rename(&few, &aside).unwrap();
    File::create(&few).unwrap();
    let refused = reason(call("", &[300_000]));
    let expected = "reqrep blob: the system call failed: Not a directory (os error 20)";
    assert_eq!(refused, format!("{}: {expected}", few.display()));
    fs::remove_file(&few).unwrap();
    fs::rename(&aside, &few).unwrap();
    assert!(have(call("", &[140_000]).unwrap().blobs(), &[140_000]));
    assert_eq!(scene.there.audit().unwrap().free, 256);
}

#[test]
fn plain_nats_client_gets_a_reason_instead_of_blobs() {
    if !has_nats() {
        return;
    }
    let scene = Scene::new();
    let there = scene.there.clone();
    work(scene.server(), move |request| {
        let few = blob(&there, b"few");
        let _ = request.reply(Message::new("reply").attach(&few));
    });
    let _expose = scene.bridge("expose", "there", &[]);
    stranger(&scene, async |client| {
        let answer = ask(&client, &[], b"x".to_vec()).await;
        assert_eq!(code(&answer), Some("500"));
        assert!(answer.payload.ends_with(b"only a caller that sends Pipework-Call can get them"));
        let answer = ask(&client, &[("Pipework-Step", "blob")], b"x".to_vec()).await;
        assert_eq!(code(&answer), Some("400"));
    });
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    pairs.iter().for_each(|(name, value)| headers.insert(*name, *value));
    headers
}

/// A caller that begins a request with a piece of a blob. Returns its inbox and the mailbox to go on
/// at.
async fn begin(client: &Client) -> (Subscriber, Subject) {
    let inbox = client.new_inbox();
    let mut replies = client.subscribe(inbox.clone()).await.unwrap();
    let first = [("Pipework-Call", "1"), ("Pipework-Step", "blob"), ("Pipework-More", "1")];
    client.publish_with_reply_and_headers(SUBJECT, inbox, headers(&first), "1".into()).await.unwrap();
    let control = replies.next().await.unwrap().reply.expect("where to go on");
    (replies, control)
}

#[test]
fn silent_or_hostile_caller_ends_only_its_own_call() {
    if !has_nats() {
        return;
    }
    let scene = Scene::new();
    work(scene.server(), echo_blobs);
    let metrics = format!("127.0.0.1:{}", free_port());
    let _expose = scene.bridge("expose", "there", &["--metrics", &metrics, "--silence", "1"]);
    stranger(&scene, async |client| {
        ask(&client, &[], b"x".to_vec()).await;
        // The first says nothing more, and gets no answer.
        let (_replies, _control) = begin(&client).await;
        // The payload comes before the end of the blob.
        let (mut replies, control) = begin(&client).await;
        let map = headers(&[("Pipework-Step", "part"), ("Pipework-Part", "1")]);
        client.publish_with_headers(control, map, "x".into()).await.unwrap();
        let answer = replies.next().await.unwrap();
        assert_eq!((code(&answer), &*answer.payload), (Some("400"), &b"a payload within a blob"[..]));
        // More blobs than a message may have.
        let (mut replies, control) = begin(&client).await;
        for number in 1..20 {
            let number = number.to_string();
            let map = headers(&[("Pipework-Step", "blob"), ("Pipework-Part", &number)]);
            client.publish_with_headers(control.clone(), map, "".into()).await.unwrap();
        }
        let mut answer = replies.next().await.unwrap();
        while code(&answer).is_none() {
            answer = replies.next().await.unwrap();
        }
        assert_eq!(
            (code(&answer), &*answer.payload),
            (Some("400"), &b"more blobs than a message may have"[..])
        );
        assert_eq!(&*ask(&client, &[], b"still here".to_vec()).await.payload, b"still here");
    });
    wait_until("nothing is in flight", || figures(&metrics).contains("in_flight{side=\"expose\"} 0"));
    assert_eq!(scene.there.audit().unwrap().free, 256);
}

/// A far side that accepts the next request and gives what its caller sends to `go_on`, with the
/// caller's mailbox.
async fn accept(client: &Client, go_on: impl AsyncFnOnce(Subject, Subscriber)) {
    let mut requests = client.subscribe(SUBJECT).await.unwrap();
    let inbox = client.new_inbox();
    let further = client.subscribe(inbox.clone()).await.unwrap();
    let accepted = headers(&[("Pipework-Step", "accepted")]);
    loop {
        let request = requests.next().await.unwrap();
        let to = request.reply.clone().expect("a reply subject");
        client
            .publish_with_reply_and_headers(to.clone(), inbox.clone(), accepted.clone(), "".into())
            .await
            .unwrap();
        if !is_probe(&request) {
            return go_on(to, further).await;
        }
    }
}

fn is_probe(request: &Received) -> bool {
    let step =
        |headers: &HeaderMap| headers.get("Pipework-Step").is_some_and(|step| step.as_str() == "probe");
    request.headers.as_ref().is_some_and(step)
}

#[test]
fn far_side_that_dies_between_pieces_of_a_blob_is_reported() {
    if !has_nats() {
        return;
    }
    let scene = Scene::new();
    let client = scene.client();
    for sends_a_piece in [false, true] {
        let _attach = scene.bridge("attach", "here", &["--silence", "1"]);
        let call = thread::spawn({
            let (client, sent) = (client.clone(), blobs(&scene.here, &[5_000_000]));
            move || client.call(Message::new("x").attach(&sent), SOON).map(drop).map_err(|error| error.kind())
        });
        stranger(&scene, async |client| {
            accept(&client, async |to, _further| {
                let piece =
                    headers(&[("Pipework-Step", "blob"), ("Pipework-Part", "0"), ("Pipework-More", "1")]);
                if sends_a_piece {
                    client.publish_with_headers(to, piece, "1".into()).await.unwrap();
                }
                client.flush().await.unwrap();
            })
            .await;
        });
        assert_eq!(call.join().unwrap(), Err(ErrorKind::PeerDied), "{sends_a_piece}");
    }
    assert_eq!((scene.here.audit().unwrap().free, scene.here.blob_audit().named), (256, 0));
}

#[test]
fn blob_that_loses_bytes_on_its_way_fails_the_call() {
    if !has_nats() {
        return;
    }
    let scene = Scene::new();
    let _attach = scene.bridge("attach", "here", &[]);
    let call = thread::spawn({
        let (client, sent) = (scene.client(), blobs(&scene.here, &[8_000_000]));
        move || client.call(Message::new("x").attach(&sent), SOON)
    });
    stranger(&scene, async |client| {
        accept(&client, async |to, mut further| {
            // All that may be sent without an acknowledgement; its own request is the first.
            for _ in 1..32 {
                further.next().await.unwrap();
            }
            let files = fs::read_dir(scene.here.blob_folder()).unwrap();
            for file in files.map(|entry| entry.unwrap().path()) {
                File::options().write(true).open(file).unwrap().set_len(4096).unwrap();
            }
            let inbox = client.new_inbox();
            let mut rest = client.subscribe(inbox.clone()).await.unwrap();
            let ack = |next: u64| headers(&[("Pipework-Step", "ack"), ("Pipework-Part", &next.to_string())]);
            client.publish_with_headers(to.clone(), ack(32), "".into()).await.unwrap();
            client.publish_with_headers(to, ack(64), "".into()).await.unwrap();
            let cancelled = async {
                while let Some(message) = further.next().await {
                    let step =
                        message.headers.and_then(|headers| Some(headers.get("Pipework-Step")?.to_string()));
                    if step.as_deref() == Some("cancel") {
                        return;
                    }
                }
            };
            tokio::select! { () = cancelled => {}, _ = rest.next() => panic!("nobody writes there") }
        })
        .await;
    });
    let refused = reason(call.join().unwrap());
    assert!(refused.contains("blob check"), "{refused}");
}

/// Both directions: the bridge that is killed has sent or received a part of a blob.
#[test]
fn killed_bridge_between_pieces_of_a_blob_leaves_no_call_waiting() {
    if !has_nats() {
        return;
    }
    for (which, payload) in [("expose", "to"), ("attach", "to"), ("expose", "back"), ("attach", "back")] {
        let scene = Scene::new();
        let there = scene.there.clone();
        work(scene.server(), move |request| {
            let large = blob(&there, &vec![1; 50 << 20]);
            let back = if request.starts_with(b"back") { vec![large] } else { Vec::new() };
            let _ = request.reply(Message::new("").attach(&back));
        });
        // Four MiB in each fifth of a second.
        let url = format!("nats://127.0.0.1:{}", long_way(scene.nats.port, Duration::from_millis(100)));
        let metrics = format!("127.0.0.1:{}", free_port());
        let near = |direction: &str, channel: &str| {
            let options = ["--silence", "2", "--metrics", &metrics];
            let options = if direction == "expose" { &options[..] } else { &options[..2] };
            crate::harness::bridge(direction, &scene.folder.0.join(channel), &url, options)
        };
        let (mut expose, mut attach) = (near("expose", "there"), near("attach", "here"));
        scene.wait_for_server();
        let call = thread::spawn({
            let client = scene.client();
            let sent = if payload == "to" { blobs(&scene.here, &[50 << 20]) } else { Vec::new() };
            move || {
                client.call(Message::new(payload).attach(&sent), SOON).map(drop).map_err(|error| error.kind())
            }
        });
        wait_until("it is on its way", || figures(&metrics).contains("in_flight{side=\"expose\"} 1"));
        if payload == "back" {
            wait_until("the worker has answered", || scene.there.stats().replies == 1);
        }
        if which == "expose" { &mut expose } else { &mut attach }.kill();
        assert_eq!(call.join().unwrap(), Err(ErrorKind::PeerDied), "{which}, {payload}");
        for segment in [&scene.here, &scene.there] {
            wait_until("nothing is left", || {
                segment.recover().unwrap();
                let blobs = segment.blob_audit();
                segment.audit().unwrap().free == 256 && (blobs.named, blobs.left) == (0, 0)
            });
        }
    }
}
