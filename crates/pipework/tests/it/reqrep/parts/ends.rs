//! Servers that stop, and long calls of tasks.

use super::*;
use crate::harness::{alone, awaited, block_on, fork, shared};

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
fn tasks_send_receive_and_stream_long_messages() {
    let segment = small();
    let (client, server) = ends(&segment);
    let long = Random::new(5).bytes(20 * PART + 7);
    thread::scope(|scope| {
        scope.spawn(|| {
            block_on(async {
                for _ in 0..2 {
                    let request = server.recv_async().await.unwrap();
                    let answer = request.to_vec();
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
fn a_task_hears_of_a_client_that_is_killed_long_after_its_last_step() {
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
            // The wait is longer than the ticks for which a server remembers that it has waited.
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
