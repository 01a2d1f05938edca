//! How servers stop, and long calls of tasks.

use std::pin::pin;

use super::*;
use crate::harness::{alone, awaited, block_on, fork, poll_once, shared};

#[test]
fn stop_ends_every_wait_of_the_server() {
    let segment = small();
    let (client, server) = ends(&segment);
    let other = segment.server().unwrap();
    thread::scope(|scope| {
        client.send("in hand", PATIENCE).unwrap();
        let in_hand = server.recv(PATIENCE).unwrap();
        let waiting: Vec<_> = (0..4)
            .map(|nth| {
                let server = server.clone();
                scope.spawn(move || {
                    if nth < 2 { kind(server.recv(PATIENCE)) } else { kind(block_on(server.recv_async())) }
                })
            })
            .collect();
        thread::sleep(SHORT);
        let began = Instant::now();
        server.stop();
        assert!(waiting.into_iter().all(|waiting| waiting.join().unwrap() == Some(ErrorKind::Closed)));
        assert!(began.elapsed() < PATIENCE / 10);
        assert_eq!(in_hand.reply("done"), Ok(true));
    });
    // A stopped server takes no new request; it stays queued for other servers.
    let ticket = client.send("new", PATIENCE).unwrap();
    let many = server.recv_many(2, PATIENCE, SHORT);
    for closed in [kind(server.try_recv()), kind(server.drain(9)), kind(many)] {
        assert_eq!(closed, Some(ErrorKind::Closed));
    }
    other.recv(PATIENCE).unwrap().reply("another's").unwrap();
    assert_eq!(*client.recv(ticket, PATIENCE).unwrap(), *b"another's");
}

#[test]
fn tasks_send_receive_and_stream_long_payloads() {
    let segment = small();
    let (client, server) = ends(&segment);
    let long = Random::new(5).bytes(20 * PART + 7);
    thread::scope(|scope| {
        scope.spawn(|| {
            block_on(async {
                for _ in 0..2 {
                    let request = server.recv_async().await.unwrap();
                    let answer = request.to_vec();
                    // The reply blocks until its last part is given; the caller is another thread.
                    request.reply(&answer).unwrap();
                }
                let mut request = server.recv_async().await.unwrap();
                for n in 0u8..50 {
                    assert_eq!(request.part_async(&[n; 3]).await, Ok(true));
                }
                assert_eq!(request.part_async(&long).await, Ok(true));
                request.reply("").unwrap();
                let mut request = server.recv_async().await.unwrap();
                while request.part_async("again").await == Ok(true) {}
            });
        });
        block_on(async {
            assert_eq!(*client.call_async(&long).await.unwrap(), *long);
            let ticket = client.send_async(&long).await.unwrap();
            assert_eq!(*client.recv_async(ticket).await.unwrap(), *long);
            let mut stream = client.stream_async("go").await.unwrap();
            for n in 0u8..50 {
                assert_eq!(*stream.next_part_async().await.unwrap().unwrap(), [n; 3]);
            }
            assert_eq!(*stream.next_part_async().await.unwrap().unwrap(), *long);
            assert!(stream.next_part_async().await.unwrap().is_none());
            let mut stream = client.stream_async("go").await.unwrap();
            assert_eq!(*stream.next_part_async().await.unwrap().unwrap(), *b"again");
        });
    });
    assert_all_free(&segment);
}

#[test]
fn half_sent_request_ends_with_its_future_and_with_its_server() {
    let segment = small();
    let (client, server) = ends(&segment);
    let long = vec![1; 5 * PART];
    {
        let mut sending = pin!(client.send_async(&long));
        assert!(poll_once(sending.as_mut()).is_pending());
        // The first part was taken; a thread waits for the next.
        assert!(server.try_recv().unwrap().is_none());
    }
    let began = Instant::now();
    while segment.audit().unwrap().free < 4 {
        assert!(began.elapsed() < PATIENCE, "the call was cancelled: {:?}", segment.audit());
        thread::sleep(Duration::from_millis(1));
    }
    let mut sending = pin!(client.send_async(&long));
    assert!(poll_once(sending.as_mut()).is_pending());
    assert!(server.try_recv().unwrap().is_none());
    drop(server);
    // That thread has the last handle of the server and notices the death.
    assert!(block_on(sending).is_ok(), "the receiver gets the outcome");
    let began = Instant::now();
    while segment.members().unwrap().len() > 1 {
        assert!(began.elapsed() < PATIENCE / 4, "the server does not leave");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(kind(client.recv_any(PATIENCE)), None);
}

#[test]
fn server_goes_on_after_many_half_sent_requests_were_cancelled() {
    let segment = small();
    let (client, server) = ends(&segment);
    let long = vec![1; 1 << 20];
    thread::scope(|scope| {
        let serving = scope.spawn(|| server.recv(PATIENCE).unwrap().reply("served").unwrap());
        for _ in 0..3 * segment.geometry().slots {
            let began = Instant::now();
            let mut sending = pin!(client.send_async(&long));
            assert!(poll_once(sending.as_mut()).is_pending());
            while segment.audit().unwrap().waiting > 0 {
                assert!(
                    began.elapsed() < PATIENCE && !serving.is_finished(),
                    "the server does not ask for the rest"
                );
                thread::sleep(Duration::from_micros(100));
            }
        }
        assert_eq!(*client.call("whole", PATIENCE).unwrap(), *b"served");
        assert!(serving.join().unwrap());
    });
    assert_all_free(&segment);
}

#[test]
fn task_learns_of_a_client_killed_long_after_its_last_step() {
    alone(|| {
        let segment = small();
        let server = segment.server().unwrap();
        let ready = &shared(1)[0];
        let child = fork(|| {
            let client = segment.client().unwrap();
            let mut stream = client.stream("go", PATIENCE).unwrap();
            stream.next_part(PATIENCE).unwrap();
            ready.store(1, SeqCst);
            thread::sleep(PATIENCE);
        });
        block_on(async {
            let mut request = server.recv_async().await.unwrap();
            assert_eq!(request.part_async("one").await, Ok(true));
            awaited(ready);
            assert_eq!(request.part_async("two").await, Ok(true));
            // Longer than the ticks for which a server remembers that it has waited.
            thread::scope(|scope| {
                let killing = scope.spawn(|| {
                    thread::sleep(Duration::from_secs(3));
                    child.kill();
                    Instant::now()
                });
                assert_eq!(block_on(request.part_async("three")), Ok(false));
                assert!(killing.join().unwrap().elapsed() < PATIENCE / 10);
            });
        });
        segment.recover().unwrap();
        assert_all_free(&segment);
    });
}

#[test]
fn slow_client_does_not_keep_a_server_from_other_clients() {
    let segment = small();
    let (client, server) = ends(&segment);
    let long = vec![1; 5 * PART];
    let mut slow = pin!(client.send_async(&long));
    assert!(poll_once(slow.as_mut()).is_pending());
    thread::scope(|scope| {
        scope.spawn(|| server.recv(PATIENCE).unwrap().reply("quick"));
        let began = Instant::now();
        assert_eq!(*segment.client().unwrap().call("quick", PATIENCE).unwrap(), *b"quick");
        assert!(began.elapsed() < PATIENCE / 10, "{:?}", began.elapsed());
        // The request comes whole once its client continues.
        let serving = scope.spawn(|| server.recv(PATIENCE).unwrap().reply("slow"));
        let ticket = block_on(slow).unwrap();
        assert_eq!(*client.recv(ticket, PATIENCE).unwrap(), *b"slow");
        assert_eq!(serving.join().unwrap(), Ok(true));
    });
    assert_all_free(&segment);
}
