//! What needs the inside of the crate: the decoder against its naive specification, and system calls that fail on order.

use std::os::fd::AsFd;
use std::time::Duration;

use proptest::prelude::*;

use super::fuzzing::{self, decode, naive};
use super::*;
use crate::error::ErrorKind;
use crate::fd::NOSIGNAL_REFUSED;
use crate::sys::fault::{Fault, all_met, order, with_deadly_sigpipe};

// ---------------------------------------------------------------- the decoder and its specification

/// Pieces that make interesting streams: text, frames, and what looks like one.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let part = |pid: i32, id: u32, data: Vec<u8>| {
        let header = frame::Header { writer: WriterKey { pid, tid: 1 }, id, len: data.len() as u32 };
        [&[0x0E, 0x10][..], &header.to_bytes(), &data, &[0x0F]].concat()
    };
    prop_oneof![
        4 => "[a-z ]{0,20}(\n|\r\n|\r|)".prop_map(String::into_bytes),
        4 => (1i32..4, 0u32..4, prop::collection::vec(any::<u8>(), 0..80)).prop_map(move |(pid, id, data)| part(pid, id, data)),
        2 => "[a-z\r\n]{0,30}".prop_map(|text| [b"\x0E", text.as_bytes(), b"\x0F"].concat()),
        2 => prop::collection::vec(prop::sample::select(vec![0x0E, 0x0F, 0x10, b'\r', b'\n', b'x']), 0..8),
        1 => prop::collection::vec(any::<u8>(), 0..40),
        1 => prop::collection::vec(prop::sample::select(vec![0x0E, b'y']), 500..530),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_decoder_agrees_with_the_naive_scanner(
        pieces in prop::collection::vec(piece(), 0..24),
        reads in prop::collection::vec(1usize..200, 1..8),
        max_message in 1usize..300,
    ) {
        let stream = pieces.concat();
        let expected = naive(&stream, 512, max_message);
        prop_assert_eq!(&decode(&stream, &reads, 512, max_message), &expected);
        prop_assert_eq!(&decode(&stream, &[1], 512, max_message), &expected);
        prop_assert_eq!(&decode(&stream, &[stream.len().max(1)], 512, max_message), &expected);
    }

    #[test]
    fn no_bytes_harm_the_decoder(data in prop::collection::vec(any::<u8>(), 0..2000), pieces in prop::collection::vec(piece(), 0..8)) {
        fuzzing::reader(&data);
        fuzzing::mixed(&data);
        fuzzing::frame(&data);
        fuzzing::reader(&[&data[..data.len().min(4)], &pieces.concat()].concat());
    }
}

// ---------------------------------------------------------------- system calls that fail

const NOW: Duration = Duration::ZERO;

fn os(errno: i32) -> Fault {
    Fault::Errno(errno)
}

/// The outcome as its kind and number.
fn kind<T>(result: Result<T>) -> std::result::Result<T, (ErrorKind, Option<i32>)> {
    result.map_err(|error| (error.kind(), error.errno()))
}

#[test]
fn every_constructor_reports_the_call_that_failed() {
    let calls: [(&str, i32); 4] =
        [("pipe", libc::EMFILE), ("fstat", libc::EIO), ("fcntl", libc::EMFILE), ("fcntl", libc::EIO)];
    for (call, errno) in calls {
        for nth in 0..2 {
            order(call, nth, os(errno));
            let outcome = kind(pair().map(drop));
            if all_met() {
                assert_eq!(outcome, Err((ErrorKind::Os, Some(errno))), "{call} {nth}");
            } else {
                assert_eq!(outcome, Ok(()), "{call} is called {nth} times or fewer");
            }
        }
    }
    let (reader, writer) = pair().unwrap();
    order("fcntl", 0, os(libc::EMFILE));
    assert_eq!(kind(writer.try_clone().map(drop)), Err((ErrorKind::Os, Some(libc::EMFILE))));
    order("eventfd", 0, os(libc::EMFILE));
    assert_eq!(kind(reader.try_clone().map(drop)), Err((ErrorKind::Os, Some(libc::EMFILE))));
    assert!(all_met());
}

#[test]
fn a_signal_before_the_first_part_is_returned_and_later_ones_are_not() {
    let (mut reader, mut writer) = pair().unwrap();
    order("write", 0, os(libc::EINTR));
    assert_eq!(
        kind(writer.send([1; 10_000], Deadline::NEVER)),
        Err((ErrorKind::Interrupted, Some(libc::EINTR)))
    );
    assert_eq!(writer.pending(), 0);
    for nth in 1..3 {
        order("write", nth, os(libc::EINTR));
        assert_eq!(kind(writer.send([2; 10_000], Deadline::NEVER)), Ok(3));
        assert!(all_met());
        assert_eq!(reader.recv(NOW).unwrap().into_vec(), [2; 10_000]);
    }
    order("read", 0, os(libc::EINTR));
    assert_eq!(
        kind(reader.recv(Deadline::NEVER).map(drop)).map_err(|(kind, _)| kind),
        Err(ErrorKind::Interrupted)
    );
    writer.send("after", Deadline::NEVER).unwrap();
    assert_eq!(&*reader.recv(Deadline::NEVER).unwrap(), b"after");
}

#[test]
fn a_write_that_fails_half_way_tears_one_message_and_no_other() {
    for (call, errno, expected) in [
        ("write", libc::EIO, ErrorKind::Os),
        ("write", libc::EPIPE, ErrorKind::Closed),
        ("write_nowait", libc::EIO, ErrorKind::Os),
    ] {
        let (mut reader, mut writer) = pair().unwrap();
        let deadline =
            if call == "write" { Deadline::NEVER } else { Deadline::after(Duration::from_secs(60)) };
        let key = writer.key();
        order(call, 1, os(errno));
        assert_eq!(kind(writer.send([1; 10_000], deadline)), Err((expected, Some(errno))));
        assert!(all_met());
        assert_eq!(
            (writer.send("next", deadline), reader.recv(NOW).unwrap().into_vec()),
            (Ok(1), b"next".to_vec())
        );
        drop(writer);
        assert_eq!(kind(reader.recv(NOW).map(drop)), Err((ErrorKind::Torn, None)));
        assert_eq!(
            reader.torn(),
            Some(Torn { writer: Some(key), parts: 1, bytes: 4080, kind: ErrorKind::Torn })
        );
        assert_eq!(kind(reader.recv(NOW).map(drop)), Err((ErrorKind::Closed, None)));
    }
}

#[test]
fn a_kernel_that_cuts_atomic_writes_is_refused() {
    let (_reader, mut writer) = pair().unwrap();
    order("write", 0, Fault::Short(7));
    assert_eq!(
        kind(writer.send([1; 100], Deadline::NEVER)).map_err(|(kind, _)| kind),
        Err(ErrorKind::Corrupt)
    );
}

#[test]
fn short_reads_change_nothing() {
    let (mut reader, mut writer) = Options::new().mixed(true).pair().unwrap();
    writer.send(vec![3; 20_000], Deadline::NEVER).unwrap();
    writer.burst("burst", Deadline::NEVER).unwrap();
    for nth in 0..200 {
        order("read_nowait", nth, Fault::Short(1 + nth % 97));
        order("read", nth, Fault::Short(1 + nth % 89));
    }
    drop(writer);
    assert!(
        matches!(reader.next_item(Deadline::NEVER), Ok(Item::Message(message)) if *message == [3; 20_000])
    );
    assert!(matches!(reader.next_item(Deadline::NEVER), Ok(Item::Burst(burst)) if *burst == *b"burst"));
    assert_eq!(kind(reader.next_item(Deadline::NEVER).map(drop)), Err((ErrorKind::Closed, None)));
    all_met();
}

#[test]
fn a_failed_read_or_poll_is_reported_and_loses_nothing() {
    let (mut reader, mut writer) = pair().unwrap();
    writer.send("kept", Deadline::NEVER).unwrap();
    order("read_nowait", 0, os(libc::EIO));
    assert_eq!(kind(reader.recv(Deadline::NEVER).map(drop)), Err((ErrorKind::Os, Some(libc::EIO))));
    assert_eq!(&*reader.recv(Deadline::NEVER).unwrap(), b"kept");
    order("poll", 0, os(libc::EINTR));
    assert_eq!(
        kind(reader.recv(Duration::from_secs(60)).map(drop)).map_err(|(kind, _)| kind),
        Err(ErrorKind::Interrupted)
    );
    order("read_nowait", 0, os(libc::EAGAIN));
    assert_eq!(kind(reader.try_recv().map(|message| message.is_some())), Ok(false));
    assert!(all_met());
}

#[test]
fn a_refused_capacity_is_reported_and_the_pipe_lives() {
    let (mut reader, mut writer) = pair().unwrap();
    let before = writer.capacity().unwrap();
    order("fcntl", 0, os(libc::EPERM));
    assert_eq!(kind(writer.set_capacity(1 << 20)), Err((ErrorKind::Os, Some(libc::EPERM))));
    assert_eq!(reader.capacity(), Ok(before));
    assert_eq!(writer.set_capacity(1 << 19), Ok(1 << 19));
    assert!(reader.set_capacity_or_max(usize::MAX).unwrap() >= 1 << 19);
    writer.send("alive", Deadline::NEVER).unwrap();
    assert_eq!(&*reader.recv(Deadline::NEVER).unwrap(), b"alive");
}

// ---------------------------------------------------------------- kernels that cannot do everything

/// Sends and receives through every kind of wait, and fills the pipe until it refuses.
fn exercise(mut reader: Reader, mut writer: Writer) {
    let second = Duration::from_secs(60);
    for round in 0..3 {
        writer.send([round; 9000], second).unwrap();
        assert_eq!(reader.recv(second).unwrap().into_vec(), [round; 9000]);
        assert_eq!(kind(reader.recv(NOW).map(drop)), Err((ErrorKind::TimedOut, None)));
        assert_eq!(reader.try_recv().map(|message| message.is_none()), Ok(true));
    }
    let mut taken = 0;
    while writer.try_send([9; 4000]).unwrap().is_some() {
        taken += 1;
    }
    assert!(writer.pending() > 0, "the pipe was full before the queue");
    assert_eq!(kind(writer.send("more", NOW)), Err((ErrorKind::TimedOut, None)));
    for _ in 0..taken {
        assert_eq!(
            reader.recv(NOW).map(|message| message.len()).or_else(|_| writer.try_flush().map(|_| 0)),
            Ok(4000)
        );
        let _ = writer.try_flush().unwrap();
    }
    drop(reader);
    assert_eq!(kind(writer.send("nobody", second)).map_err(|(kind, _)| kind), Err(ErrorKind::Closed));
    assert_eq!(kind(writer.try_send("nobody")).map_err(|(kind, _)| kind), Err(ErrorKind::Closed));
}

/// What is learnt of the kernel is learnt for the whole process, so tests that pretend another one take turns.
static KERNEL: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Refuses to be asked per call: for reading once, for writing with RWF_NOSIGNAL and without.
fn refuse_nowait() {
    order("read_nowait", 0, os(libc::EOPNOTSUPP));
    order("write_nowait", 0, os(libc::EOPNOTSUPP));
    order("write_nowait", 0, os(libc::EOPNOTSUPP));
}

#[test]
fn without_nowait_per_call_the_pipe_is_opened_anew() {
    let _turn = KERNEL.lock();
    let (reader, writer) = pair().unwrap();
    refuse_nowait();
    exercise(reader, writer);
    assert!(all_met());
}

#[test]
fn without_either_the_pipe_is_polled_first() {
    let _turn = KERNEL.lock();
    let (reader, writer) = pair().unwrap();
    refuse_nowait();
    order("open", 0, os(libc::EACCES));
    order("open", 0, os(libc::EACCES));
    exercise(reader, writer);
    assert!(all_met());
}

#[test]
fn without_nosignal_sigpipe_is_held_back() {
    let _turn = KERNEL.lock();
    for _ in 0..10_000 {
        order("nosignal", 0, os(libc::EOPNOTSUPP));
    }
    let (reader, writer) = pair().unwrap();
    with_deadly_sigpipe(|| exercise(reader, writer));
    assert!(NOSIGNAL_REFUSED.is_known() && !all_met(), "it was refused, and then not tried again");
    NOSIGNAL_REFUSED.forget();
}

#[test]
fn a_reader_can_be_polled() {
    let (mut reader, mut writer) = pair().unwrap();
    assert_eq!(crate::sys::wait(&[reader.as_fd()], crate::sys::For::Reading, Deadline::now()), Ok(false));
    writer.send("x", Deadline::NEVER).unwrap();
    assert_eq!(crate::sys::wait(&[reader.as_fd()], crate::sys::For::Reading, Deadline::now()), Ok(true));
    assert!(reader.try_recv().unwrap().is_some());
}

// ---------------------------------------------------------------- waits and ends

#[test]
fn a_batch_is_interrupted_between_messages_only() {
    let (mut reader, mut writer) = pair().unwrap();
    let messages = [vec![1; 3000], vec![2; 3000], vec![3; 9000], vec![4; 3000]];
    // The writes hold: 1; 2 and the first part of 3; its second; its third; 4.
    for (nth, sent) in [(1, 1), (2, 4), (3, 4), (4, 3)] {
        order("write", nth, os(libc::EINTR));
        assert_eq!(kind(writer.send_many(&messages, Deadline::NEVER)), Ok(sent), "write {nth}");
        assert!(all_met());
        for message in &messages[..sent] {
            assert_eq!(reader.recv(NOW).unwrap().into_vec(), *message);
        }
        assert_eq!(reader.try_recv(), Ok(None));
    }
}

#[test]
fn exact_reads_leave_what_lies_behind_in_the_pipe() {
    for mixed in [false, true] {
        let (mut reader, mut writer) = Options::new().mixed(mixed).pair().unwrap();
        reader.set_exact(true);
        let mut twin = Options::new().mixed(mixed).dup_reader(&reader).unwrap();
        writer.send_many(&[vec![1; 9000], vec![2; 10]], Deadline::NEVER).unwrap();
        assert!(matches!(reader.next_item(NOW), Ok(Item::Message(message)) if *message == [1; 9000]));
        assert!(matches!(twin.next_item(NOW), Ok(Item::Message(message)) if *message == [2; 10]));
    }
}

#[test]
fn an_iterator_ends_with_what_ends_the_stream() {
    let (mut reader, writer) = pair().unwrap();
    let mut pipe = std::fs::File::from(writer.as_fd().try_clone_to_owned().unwrap());
    std::io::Write::write_all(&mut pipe, &[0xFF; 100]).unwrap();
    assert_eq!(reader.items().count(), 1, "Corrupt, and no more");
    assert_eq!(reader.messages().count(), 1);
    reader.set_mixed(true).unwrap();
    assert_eq!(reader.messages().count(), 1, "Invalid, and no more");
}

#[test]
fn a_clone_is_woken_by_what_another_filled_in() {
    let (mut reader, mut writer) = pair().unwrap();
    let mut clone = reader.try_clone().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || clone.recv(Duration::from_secs(60)).map(Message::into_owned));
        for _ in 0..100 {
            std::thread::yield_now();
        }
        writer.send("buffered", Deadline::NEVER).unwrap();
        // Whoever is first reads it; either way the clone must give it out.
        let _ = reader.fill(Duration::from_millis(50));
        assert_eq!(waiting.join().unwrap().map(Message::into_vec), Ok(b"buffered".to_vec()));
    });
}

#[test]
fn a_deadline_that_has_passed_is_not_spun_away() {
    let (mut reader, _writer) = Options::new().spin(Duration::MAX).pair().unwrap();
    for _ in 0..100 {
        order("read_nowait", 2, os(libc::EIO));
        assert_eq!(kind(reader.recv(Deadline::now()).map(drop)), Err((ErrorKind::TimedOut, None)));
        assert!(!all_met(), "it looks once before it waits and once while it does");
    }
}

thread_local! {
    /// How often the next writer that asks whether to go on is told that it should.
    static PATIENCE: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

#[test]
fn who_pays_attention_decides_whether_a_message_goes_on() {
    let patient = || PATIENCE.replace(PATIENCE.get().saturating_sub(1)) > 0;
    let (mut reader, mut writer) = pair().unwrap();
    writer.set_attention(Some(patient));

    // A signal, and the end of a quarter of a second: asked twice, and told to go on once.
    PATIENCE.set(1);
    order("write_nowait", 5, os(libc::EINTR));
    assert_eq!(
        kind(writer.send(vec![1; 1 << 20], Deadline::NEVER).map(drop)),
        Err((ErrorKind::Interrupted, Some(libc::EINTR)))
    );
    assert!(all_met());
    assert_eq!(PATIENCE.get(), 0);

    // Nobody need be asked about the time that the call was given.
    let sent = writer.send(vec![2; 1 << 20], Duration::from_millis(1));
    assert_eq!(kind(sent.map(drop)), Err((ErrorKind::TimedOut, None)));

    // A drop does not wait for ever either, and what was given up is told.
    writer.enqueue(vec![3; 1 << 20]).unwrap();
    drop(writer);
    assert!(reader.items().all(|item| matches!(item, Ok(Item::Torn(_)))));
}
