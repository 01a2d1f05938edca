//! Many subscribers, and the smallest and the largest ring.

use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use pipework::broadcast::{MAX_MESSAGES, Options, RecvError, Start, SubscriberOptions};

use crate::harness::{PATIENCE, alone_for, awaited, fork, shared};

fn policy(sees_all: bool) -> SubscriberOptions {
    SubscriberOptions::new().must_see_all(sees_all)
}

#[test]
fn thousand_subscribers_of_one_process_receive_all_messages() {
    const SUBSCRIBERS: usize = 1000;
    alone_for(2 * PATIENCE, || {
        let options = Options::new().messages(64).message_bytes(8).members(SUBSCRIBERS as u32 + 1).blobs(0);
        let segment = options.anonymous().unwrap();
        let publisher = segment.publisher().unwrap();
        let mut subscribers: Vec<_> = (0..SUBSCRIBERS)
            .map(|nth| segment.subscriber_with(&policy(nth % 2 == 0)).expect("a place"))
            .collect();
        for round in 0..10_u64 {
            for nth in 0..32 {
                publisher.publish(&(32 * round + nth).to_le_bytes(), PATIENCE).unwrap();
            }
            for subscriber in &mut subscribers {
                for nth in 0..32 {
                    let received = subscriber.try_recv().unwrap().expect("it was published");
                    assert_eq!(*received, (32 * round + nth).to_le_bytes());
                }
            }
        }
        assert_eq!(segment.members().unwrap().len(), SUBSCRIBERS + 1);
        // The last that must see all holds the publisher up.
        for _ in 0..64 {
            publisher.try_publish(&[0; 8]).unwrap().expect("there is room");
        }
        for subscriber in &mut subscribers[..SUBSCRIBERS - 2] {
            subscriber.recv(PATIENCE).unwrap();
        }
        assert_eq!(publisher.try_publish(&[0; 8]), Ok(None));
        subscribers.truncate(SUBSCRIBERS - 2);
        assert_eq!(publisher.try_publish(&[0; 8]), Ok(Some(32 * 10 + 65)));
    });
}

#[test]
fn subscribers_in_64_processes_receive_all_messages() {
    const PROCESSES: usize = 64;
    const MESSAGES: u64 = 300;
    alone_for(2 * PATIENCE, || {
        let options = Options::new().messages(16).message_bytes(8).members(PROCESSES as u32 + 1);
        let segment = options.anonymous().unwrap();
        let publisher = segment.publisher().unwrap();
        let ready = shared(PROCESSES);
        let children: Vec<_> = (0..PROCESSES)
            .map(|nth| {
                fork(|| {
                    let mut subscriber = segment.subscriber_with(&policy(nth % 4 != 0)).unwrap();
                    ready[nth].store(1, SeqCst);
                    let mut next = 1;
                    while next <= MESSAGES {
                        match subscriber.recv(PATIENCE) {
                            Ok(received) => {
                                assert_eq!((received.number(), &*received), (next, &next.to_le_bytes()[..]));
                                next += 1;
                            }
                            Err(RecvError::Lagged(missed)) if nth % 4 == 0 => next += missed,
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        ready.iter().for_each(|ready| assert_eq!(awaited(ready), 1));
        for number in 1..=MESSAGES {
            assert_eq!(publisher.publish(&number.to_le_bytes(), PATIENCE), Ok(number));
        }
        children.into_iter().for_each(|child| child.join());
    });
}

#[test]
fn smallest_ring_gives_every_message_to_those_that_must_see_all() {
    alone_for(2 * PATIENCE, || {
        let segment = Options::new().messages(2).message_bytes(8).members(8).anonymous().unwrap();
        thread::scope(|scope| {
            let subscribers: Vec<_> = (0..3)
                .map(|_| {
                    let mut subscriber = segment.subscriber_with(&policy(true)).unwrap();
                    scope.spawn(move || {
                        for number in 1..=6000 {
                            assert_eq!(subscriber.recv(PATIENCE).unwrap().number(), number);
                        }
                    })
                })
                .collect();
            for _ in 0..2 {
                let publisher = segment.publisher().unwrap();
                scope.spawn(move || {
                    (0..3000_u64)
                        .for_each(|nth| _ = publisher.publish(&nth.to_le_bytes(), PATIENCE).unwrap());
                });
            }
            subscribers.into_iter().for_each(|subscriber| subscriber.join().unwrap());
        });
    });
}

#[test]
fn largest_ring_keeps_a_million_messages() {
    const ALL: u64 = MAX_MESSAGES as u64;
    alone_for(2 * PATIENCE, || {
        let options = Options::new().messages(MAX_MESSAGES).message_bytes(8).members(4).blobs(0);
        let segment = options.anonymous().unwrap();
        let publisher = segment.publisher().unwrap();
        let mut sees_all = segment.subscriber_with(&policy(true)).unwrap();
        let mut lags = segment.subscriber().unwrap();
        for number in 1..=ALL {
            assert_eq!(publisher.try_publish(&number.to_le_bytes()), Ok(Some(number)));
        }
        assert_eq!(publisher.try_publish("full"), Ok(None));
        for number in 1..=3 {
            assert_eq!(*sees_all.try_recv().unwrap().unwrap(), u64::to_le_bytes(number));
        }
        for number in ALL + 1..=ALL + 3 {
            assert_eq!(publisher.try_publish(&number.to_le_bytes()), Ok(Some(number)));
        }
        assert_eq!(
            publisher.publish("full", Duration::ZERO).unwrap_err().process(),
            Some(std::process::id())
        );
        assert_eq!(lags.try_recv().unwrap_err(), RecvError::Lagged(3));
        for number in 4..=ALL + 3 {
            assert_eq!(*lags.try_recv().unwrap().expect("it is there"), number.to_le_bytes());
        }
        let mut late = segment.subscriber_with(&policy(true).start(Start::After(10))).unwrap();
        assert_eq!(late.try_recv().unwrap().unwrap().number(), 11);
        assert_eq!(segment.audit().unwrap().done, MAX_MESSAGES as usize);
    });
}
