//! Which calls wait and which do not: deadlines, calls that never wait, pending data.
//!
//! Times are only ever compared with a lower bound: a call that does not wait is shown by its not
//! hanging.

use std::thread;
use std::time::{Duration, Instant};

use pipework::atomic::{Item, Message, Options, Reader, Writer, pair};
use pipework::{Deadline, Error, ErrorKind};
use rustix::event::PollFlags;

use crate::harness::{PATIENCE, Random, alone, fork, wait_for};

const SHORT: Duration = Duration::from_millis(20);

fn kind<T>(outcome: Result<T, Error>) -> ErrorKind {
    outcome.err().map(|error| error.kind()).expect("an error")
}

/// Fills a pipe of one page to the last byte with messages, each of which is its number; returns
/// how many there are.
fn fill_up(writer: &mut Writer) -> u128 {
    writer.set_capacity(1).unwrap();
    // With its header, each takes 32 bytes.
    let mut sent = 0u128;
    while writer.pending() == 0 {
        assert!(writer.try_send(sent.to_ne_bytes()).unwrap().is_some());
        sent += 1;
    }
    writer.discard();
    sent - 1
}

/// Reads the messages that [`fill_up`] has sent.
fn drain(reader: &mut Reader, sent: u128) {
    (0..sent).for_each(|n| assert_eq!(reader.try_recv().unwrap().as_deref(), Some(&n.to_ne_bytes()[..])));
}

// ---------------------------------------------------------------- sizes

#[test]
fn every_size_goes_through_every_pipe() {
    alone(|| {
        let sizes = || [0, 1, 2].into_iter().chain(4070..=4100).chain([8153, 8160, 65_536, 1 << 20, 3 << 20]);
        for capacity in [4 << 10, 8 << 10, 64 << 10, 1 << 20] {
            for (mixed, style) in (0..4).flat_map(|style| [(false, style), (true, style)]) {
                let (mut reader, mut writer) = Options::new().mixed(mixed).pair().unwrap();
                assert_eq!(writer.set_capacity(capacity), Ok(capacity));
                let content = |size| Random::new(size as u64).bytes(size);
                let child = fork(|| {
                    let messages: Vec<_> = sizes().map(content).collect();
                    let mut parts = |message: &Vec<u8>| match style {
                        0 => writer.send(message, Deadline::NEVER).unwrap(),
                        1 => writer.send(message, PATIENCE).unwrap(),
                        _ => loop {
                            if let Some(parts) = writer.try_send(message).unwrap() {
                                break parts;
                            }
                            wait_for(&writer, PollFlags::OUT);
                        },
                    };
                    if style == 3 {
                        assert_eq!(writer.send_many(&messages, PATIENCE), Ok(messages.len()));
                    } else {
                        messages.iter().for_each(|message| assert!(parts(message) > 0));
                    }
                    writer.flush(PATIENCE).unwrap();
                });
                let max_part = writer.max_part();
                drop(writer);
                for size in sizes() {
                    let Item::Message(message) = reader.next_item(PATIENCE).unwrap() else {
                        panic!("no message")
                    };
                    assert!(*message == content(size), "{size} bytes, style {style}, capacity {capacity}");
                    let fewest = size.div_ceil(max_part).max(1) as u32;
                    assert!(
                        (fewest..=fewest + 1).contains(&message.parts),
                        "{} for {size} bytes",
                        message.parts
                    );
                }
                assert_eq!(kind(reader.next_item(PATIENCE)), ErrorKind::Closed);
                child.join();
            }
        }
    });
}

// ---------------------------------------------------------------- deadlines

#[test]
fn send_that_times_out_is_torn_and_its_retry_is_whole() {
    alone(|| {
        for mixed in [false, true] {
            let (mut reader, mut writer) = Options::new().mixed(mixed).pair().unwrap();
            writer.set_capacity(8 << 10).unwrap();
            let message = Random::new(1).bytes(100_000);
            let begin = Instant::now();
            assert_eq!(kind(writer.send(&message, SHORT)), ErrorKind::TimedOut);
            assert!(begin.elapsed() >= SHORT);
            assert_eq!(writer.pending(), 0, "the message is the caller's again");
            let retry = thread::spawn(move || {
                let first = writer.send_many(&[&message, &message], Deadline::NEVER);
                (first, writer.send_many(&[&message], PATIENCE))
            });
            let mut torn = 0;
            let mut whole = Vec::new();
            for item in reader.items() {
                match item.unwrap() {
                    Item::Message(message) => whole.push(message),
                    Item::Torn(report) => {
                        assert_eq!((report.kind, report.parts), (ErrorKind::Torn, 2));
                        torn += 1;
                    }
                    item => panic!("{item:?}"),
                }
            }
            assert_eq!(retry.join().unwrap(), (Ok(2), Ok(1)));
            assert_eq!((torn, whole.len()), (1, 3));
            assert!(whole.iter().all(|message| *message.data == Random::new(1).bytes(100_000)));
        }
    });
}

/// The next message of the same writer begins with exactly the id that the rest of the lost one
/// would have had.
#[test]
fn message_after_a_lost_one_is_not_taken_for_its_rest() {
    alone(|| {
        for give_up in [
            |writer: &mut Writer| writer.discard(),
            |writer: &mut Writer| {
                assert_eq!(kind(writer.flush(SHORT)), ErrorKind::TimedOut);
                assert_eq!(kind(writer.send("not sent", SHORT)), ErrorKind::TimedOut);
                writer.discard();
            },
        ] {
            let (mut reader, mut writer) = pair().unwrap();
            writer.set_capacity(1).unwrap();
            let three_parts = vec![3; 3 * writer.max_part()];
            let two_parts = vec![2; 2 * writer.max_part()];
            for by_deadline in [false, true] {
                if by_deadline {
                    assert_eq!(kind(writer.send(&three_parts, SHORT)), ErrorKind::TimedOut);
                } else {
                    assert_eq!(writer.try_send(&three_parts), Ok(Some(3)));
                    give_up(&mut writer);
                }
                assert!(writer.try_send(&two_parts).unwrap().is_some());
                let come = loop {
                    writer.try_flush().unwrap();
                    if let Some(message) = reader.try_recv().unwrap() {
                        break message.into_vec();
                    }
                };
                assert!(come == two_parts);
            }
            writer.close(PATIENCE).unwrap();
            for _ in 0..2 {
                assert_eq!(kind(reader.recv(PATIENCE)), ErrorKind::Torn);
                assert_eq!(reader.torn().map(|torn| (torn.parts, torn.bytes)), Some((1, 4080)));
            }
            assert_eq!(kind(reader.recv(PATIENCE)), ErrorKind::Closed);
        }
    });
}

#[test]
fn deadlines_pass_and_nothing_is_lost() {
    alone(|| {
        let (mut reader, mut writer) = pair().unwrap();
        for deadline in [Deadline::now(), Deadline::after(SHORT), Deadline::at(Instant::now() + SHORT)] {
            assert_eq!(kind(reader.recv(deadline)), ErrorKind::TimedOut);
            assert_eq!(kind(reader.next_item(deadline)), ErrorKind::TimedOut);
            assert_eq!(kind(reader.read_ahead(deadline)), ErrorKind::TimedOut);
            assert!(deadline.has_passed());
        }
        let mut sent = fill_up(&mut writer);
        assert!(writer.enqueue(sent.to_ne_bytes()).is_ok());
        sent += 1;
        for deadline in [Deadline::now(), Deadline::after(SHORT)] {
            assert_eq!(kind(writer.send("not sent", deadline)), ErrorKind::TimedOut);
            assert_eq!(kind(writer.send_many(&["not sent"], deadline)), ErrorKind::TimedOut);
            assert_eq!(kind(writer.burst("not sent", deadline)), ErrorKind::TimedOut);
            assert_eq!(kind(writer.flush(deadline)), ErrorKind::TimedOut);
            assert!(writer.pending() > 0, "pending data stays pending");
        }
        assert!(reader.read_ahead(Deadline::now()).unwrap() > 0);
        assert_eq!(writer.send_many(&["in time", "too"], Deadline::now()), Ok(2));
        drain(&mut reader, sent);
        assert_eq!(reader.recv(Deadline::now()).as_deref(), Ok(&b"in time"[..]));
        assert_eq!(reader.recv(Deadline::NEVER).as_deref(), Ok(&b"too"[..]));
    });
}

/// A short count gives the sent part of a batch; the rest, sent again, arrives once.
#[test]
fn send_many_that_times_out_returns_how_many_were_sent() {
    alone(|| {
        let (mut reader, mut writer) = pair().unwrap();
        // Space for the largest, and not for all.
        writer.set_capacity(16 << 10).unwrap();
        let messages: Vec<Vec<u8>> = (0..60).map(|n| Random::new(n).bytes(300 + 180 * n as usize)).collect();
        let (mut sent, mut come, mut timed_out) = (0, Vec::new(), 0);
        while sent < messages.len() {
            match writer.send_many(&messages[sent..], Deadline::now()) {
                Ok(more) => sent += more,
                Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut),
            }
            timed_out += usize::from(sent < messages.len());
            // Makes space; the next try ends elsewhere.
            reader.read_ahead(PATIENCE).unwrap();
            while let Some(Item::Message(message)) = reader.try_next_item().unwrap() {
                come.push(message.into_vec());
            }
        }
        drop(writer);
        come.extend(reader.items().filter_map(|item| match item.unwrap() {
            Item::Message(message) => Some(message.into_vec()),
            _ => None,
        }));
        assert!(timed_out > 0);
        assert_eq!(come.len(), messages.len());
        assert!(come == messages);
    });
}

// ---------------------------------------------------------------- pending

/// Every message that was taken arrives: a message of no bytes counts like any other.
#[test]
fn drop_writes_pending_messages() {
    alone(|| {
        for pending in [&[""][..], &["", ""], &["some", ""], &["", "some"], &["some"]] {
            for enqueue in [false, true] {
                let (mut reader, mut writer) = pair().unwrap();
                let sent = fill_up(&mut writer);
                for message in pending {
                    if enqueue {
                        assert_eq!(writer.enqueue(message), Ok(1));
                    } else {
                        assert_eq!(writer.try_send(message), Ok(Some(1)));
                    }
                }
                assert!(writer.pending() > 0, "{pending:?}");
                let dropped = thread::spawn(move || drop(writer));
                drain(&mut reader, sent);
                let come: Vec<Message> = reader.messages().map(|message| message.unwrap()).collect();
                assert!(
                    come.iter().map(|message| &*message.data).eq(pending.iter().map(|text| text.as_bytes()))
                );
                dropped.join().unwrap();
            }
        }
    });
}

#[test]
fn try_send_limits_pending_bytes() {
    alone(|| {
        for size in [0, 1, 10, 5000] {
            let (_reader, mut writer) = Options::new().max_pending(20_000).pair().unwrap();
            fill_up(&mut writer);
            let mut taken = 0;
            while writer.try_send(vec![0; size]).unwrap().is_some() {
                taken += 1;
                assert!(taken <= 20_000, "messages of {size} bytes are taken without end");
            }
            assert!(taken > 0 && taken * size <= 20_000);
            writer.discard();
        }
    });
}

#[test]
fn try_calls_never_wait() {
    alone(|| {
        let (mut reader, mut writer) = pair().unwrap();
        let mut clones = (reader.try_clone().unwrap(), writer.try_clone().unwrap());
        for reader in [&mut reader, &mut clones.0] {
            assert_eq!(reader.try_recv(), Ok(None));
            assert_eq!(reader.try_next_item(), Ok(None));
        }
        fill_up(&mut writer);
        for writer in [&mut writer, &mut clones.1] {
            assert_eq!(writer.try_send(vec![0; 100_000]), Ok(Some(25)), "the rest is pending");
            assert_eq!(
                writer.try_send(vec![0; 1 << 20]),
                Ok(None),
                "over the limit together with the pending data"
            );
            assert_eq!(writer.try_burst([0; 16]), Ok(true));
            assert_eq!(writer.try_flush(), Ok(false));
            assert!(writer.pending() > 100_000);
        }
        // Two at once for the same space: it is taken between check and use, again and again.
        thread::scope(|scope| {
            for mut writer in [writer, clones.1] {
                scope.spawn(move || {
                    for _ in 0..100_000 {
                        writer.discard();
                        assert!(writer.try_send("x").unwrap().is_some());
                    }
                });
            }
            drop(clones.0);
            while !matches!(reader.try_next_item(), Err(error) if error.kind() == ErrorKind::Closed) {}
        });
    });
}
