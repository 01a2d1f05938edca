//! Tests that need the inside of the crate: the decoder against its naive specification, and system
//! calls that fail on order.

use std::os::fd::AsFd;
use std::time::Duration;

use proptest::prelude::*;

use super::decoder::Tail;
use super::frame::PartHeader;
use super::fuzzing::{self, decode, naive};
use super::*;
use crate::error::ErrorKind;
use crate::fd::NOSIGNAL_REFUSED;
use crate::interrupt::{Verdict, with_hook};
use crate::sys::fault::{Fault, KERNEL, all_met, order, with_deadly_sigpipe};

// -------------------- the decoder and its specification

/// Pieces that make interesting streams: text, frames, and bytes that look like a frame.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let part = |(pid, tid): (i32, i32), id: u32, data: Vec<u8>| {
        let header = PartHeader { pid, tid, id, len: data.len() as u32 };
        [&[0x0E, 0x10][..], &header.to_bytes(), &data, &[0x0F]].concat()
    };
    // How many parts follow: few, or as many as a number can say.
    let id = || prop_oneof![8 => 0u32..4, 1 => u32::MAX - 1..=u32::MAX];
    // Keys of this library, with a check that may be missing, right or wrong.
    let key = prop::sample::select(vec![
        (1, 70_000),
        (1, 70_001),
        (1 | 3 << 22, 70_001),
        (2, 80_001),
        (2 | 9 << 22, 80_000),
    ]);
    prop_oneof![
        4 => "[a-z ]{0,20}(\n|\r\n|\r|)".prop_map(String::into_bytes),
        4 => (1i32..4, id(), prop::collection::vec(any::<u8>(), 0..80)).prop_map(move |(pid, id, data)| part((pid, 1), id, data)),
        8 => (key, id(), any::<bool>(), prop::collection::vec(any::<u8>(), 0..80))
            .prop_map(move |(key, id, first, data)| part(key, id & !(1 << 31) | u32::from(first) << 31, data)),
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
        for (mixed, items) in [(true, 1), (true, 4), (false, 1), (false, 4)] {
            fuzzing::exactly(&stream, mixed, max_message, reads[0], items);
        }
    }

    #[test]
    fn no_bytes_harm_the_decoder(data in prop::collection::vec(any::<u8>(), 0..2000), pieces in prop::collection::vec(piece(), 0..8)) {
        fuzzing::reader(&data);
        fuzzing::mixed(&data);
        fuzzing::frame(&data);
        fuzzing::reader(&[&data[..data.len().min(4)], &pieces.concat()].concat());
    }
}

#[test]
fn decoder_forgets_a_message_after_a_damaged_last_part() {
    let part = |id: u32| {
        let header = PartHeader { pid: 1, tid: 77, id, len: 0 };
        [&[0x0E, 0x10][..], &header.to_bytes(), b"?"].concat()
    };
    // The first may be a message, the second cannot begin one: no message has so many parts.
    let stream = [part(0), part(5 << 24)].concat();
    let lost = fuzzing::PlainItem::Lost(WriterKey { pid: 1, tid: 77 }, 1);
    let expected = [lost, fuzzing::PlainItem::Line(stream.clone())];
    assert_eq!(naive(&stream, 512, 1000), expected);
    assert_eq!(decode(&stream, &[1], 512, 1000), expected);
}

/// A hostile stream without messages, in parts of at most 20 bytes: the parts of `writers` writers,
/// in turn. `id` computes the id of each part from the number of earlier parts of its writer.
fn hostile(mode: Mode, parts: u32, writers: u32, tid: i32, id: impl Fn(u32) -> u32) -> Vec<u8> {
    let mut stream = Vec::new();
    for nth in 0..parts {
        let pid = 1 + (nth % writers) as i32;
        let header = PartHeader { pid, tid, id: id(nth / writers), len: 1 };
        let framed = [&[0x0E, 0x10][..], &header.to_bytes(), b"x", &[0x0F]].concat();
        stream.extend_from_slice(if mode == Mode::Mixed { &framed } else { &framed[2..framed.len() - 1] });
    }
    stream
}

/// The work for any bytes grows linearly with their number, however many of them one read brings.
#[test]
fn decoder_reads_each_header_a_bounded_number_of_times() {
    const PARTS: u32 = 4000;
    const FIRST: u32 = 1 << 31;
    let (marked, untold) = (70_001, 0);
    let many = |nth: u32| (FIRST - 1) - nth;
    let begins = |nth: u32| if nth == 0 { many(0) | FIRST } else { many(nth) };
    for mode in [Mode::Plain, Mode::Mixed] {
        let streams = [
            ("one message without an end", hostile(mode, PARTS, 1, marked, begins)),
            ("the same of Atomic::Pipe", hostile(mode, PARTS, 1, untold, many)),
            ("without a beginning", hostile(mode, PARTS, 1, marked, many)),
            ("without an end, many writers", hostile(mode, PARTS, 50, marked, begins)),
            ("beginnings only", hostile(mode, PARTS, 1, marked, |nth| many(nth) | FIRST)),
            ("beginnings of many writers", hostile(mode, PARTS, PARTS, marked, begins)),
            ("the same part again and again", hostile(mode, PARTS, 1, untold, |_| 7)),
            (
                "a message that is too long",
                hostile(mode, PARTS, 1, marked, |nth| (PARTS - 1 - nth) | if nth == 0 { FIRST } else { 0 }),
            ),
            ("the same of Atomic::Pipe", hostile(mode, PARTS, 1, untold, |nth| PARTS - 1 - nth)),
            (
                "pairs whose second part is missing",
                hostile(mode, PARTS, 1, marked, |nth| (1 + nth % 2) | FIRST),
            ),
            ("text that opens like a part", b"\x0E\x10".repeat(PARTS as usize)),
            ("text that opens like a burst", b"\x0E?".repeat(PARTS as usize)),
        ];
        for (what, stream) in streams {
            for exact in [false, true] {
                let options = Options::new().mixed(mode == Mode::Mixed).max_message(100);
                let mut decoder = options.decoder(4096).unwrap();
                let before = frame::HEADERS_READ.get();
                decoder.space(stream.len()).unwrap().copy_from_slice(&stream);
                if exact {
                    decoder.certain(stream.len(), 1);
                }
                decoder.fed(stream.len());
                let mut items = 0;
                for tail in [Tail::Unknown, Tail::Ended] {
                    while let Ok(Some(_)) = decoder.next(tail) {
                        items += 1;
                        assert!(items <= 2 * PARTS, "{what}, {mode:?}: more items than parts");
                    }
                }
                let reads = frame::HEADERS_READ.get() - before;
                assert!(
                    reads <= u64::from(8 * PARTS),
                    "{what}, {mode:?}: {PARTS} parts, {reads} headers read"
                );
            }
        }
    }
}

/// A relay's damage to a stream: bytes that it loses, or sends twice. Positions and lengths are
/// reduced to the existing range.
#[derive(Clone, Copy, Debug)]
enum Edit {
    Lose(usize, usize),
    Repeat(usize, usize),
}

fn edited(mut stream: Vec<u8>, edits: &[Edit]) -> Vec<u8> {
    for edit in edits {
        let (Edit::Lose(at, len) | Edit::Repeat(at, len)) = *edit;
        let from = at % stream.len().max(1);
        let to = (from + len).min(stream.len());
        let again = if matches!(edit, Edit::Repeat(..)) { stream[from..to].to_vec() } else { vec![] };
        stream.splice(to..to, again);
        if matches!(edit, Edit::Lose(..)) {
            stream.drain(from..to);
        }
    }
    stream
}

/// Messages of three writers, their parts interleaved, with lines in between.
fn stream_of(messages: &[(usize, Vec<u8>)]) -> Vec<u8> {
    let keys: Vec<WriterKey> = (0..3).map(|nth| WriterKey { pid: 9, tid: 70_000 + 2 * nth }).collect();
    let (mut stream, mut queues) = (vec![], vec![vec![]; keys.len()]);
    for (writer, data) in messages {
        queues[*writer].push((data, packer::Cut::new(false)));
    }
    while queues.iter().any(|queue| !queue.is_empty()) {
        for (queue, key) in queues.iter_mut().zip(&keys) {
            let Some((data, cut)) = queue.first_mut() else { continue };
            let mut packer = packer::Packer::new(512, Mode::Mixed, false);
            assert!(packer.push_part(*key, data, cut));
            stream.extend_from_slice(packer.bytes());
            if cut.is_done() {
                queue.remove(0);
                stream.extend_from_slice(b"a line\n");
            }
        }
    }
    stream
}

/// Messages that are much alike, and some that are not.
fn messages() -> impl Strategy<Value = Vec<(usize, Vec<u8>)>> {
    let alike =
        (0u32..100, 1usize..60).prop_map(|(nth, times)| format!("{nth:05}, ").repeat(times).into_bytes());
    let data = prop_oneof![
        4 => (0u32..100_000).prop_map(|nth| format!("line {nth:06}").into_bytes()),
        2 => alike,
        2 => prop::collection::vec(any::<u8>(), 0..2000),
        1 => (0u8..3, 0usize..1500).prop_map(|(byte, len)| vec![byte; len]),
    ];
    prop::collection::vec((0usize..3, data), 1..40)
}

fn edit() -> impl Strategy<Value = Edit> {
    let len = prop_oneof![1usize..100, 1usize..3000, (1usize..20).prop_map(|frames| 30 * frames), Just(512)];
    (any::<bool>(), any::<usize>(), len).prop_map(|(lose, at, len)| match lose {
        true => Edit::Lose(at, len),
        false => Edit::Repeat(at, len),
    })
}

/// Whatever a relay loses or repeats, every message that comes out was sent. A check of 10 bits
/// lets one edit in a thousand pass among those that keep the size of a part, so the cases are
/// always the same, unless PIPEWORK_EDITS asks for that many others.
#[test]
fn decoder_invents_no_message_from_lost_or_repeated_bytes() {
    use proptest::test_runner::{TestRng, TestRunner};

    let asked = std::env::var("PIPEWORK_EDITS").ok().map(|cases| cases.parse().expect("a number"));
    let config =
        ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(asked.unwrap_or(4000)) };
    let fixed = TestRng::deterministic_rng(config.rng_algorithm);
    let mut runner =
        if asked.is_some() { TestRunner::new(config) } else { TestRunner::new_with_rng(config, fixed) };
    let cases = (messages(), prop::collection::vec(edit(), 1..4), prop::collection::vec(1usize..2000, 1..4));
    let (made, lost) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let done = runner.run(&cases, |(messages, edits, reads)| {
        let stream = edited(stream_of(&messages), &edits);
        for event in decode(&stream, &reads, 512, 1 << 20) {
            match event {
                fuzzing::PlainItem::Message(writer, data) => {
                    let nth = (writer.tid - 70_000) as usize / 2;
                    prop_assert!(
                        messages.contains(&(nth, data.clone())),
                        "{writer}: {}",
                        data.escape_ascii()
                    );
                }
                fuzzing::PlainItem::Lost(..) => lost.set(lost.get() + 1),
                _ => {}
            }
        }
        made.set(made.get() + edits.len());
        Ok(())
    });
    done.unwrap_or_else(|failure| panic!("after {} edits: {failure}", made.get()));
    assert!(lost.get() > made.get() / 2, "{} reports of {} edits", lost.get(), made.get());
}

/// A message that lies in the buffer completely is not assembled, and the result must be the same.
#[test]
fn decoder_treats_parts_alike_at_once_or_one_by_one() {
    for mixed in [false, true] {
        let mode = if mixed { Mode::Mixed } else { Mode::Plain };
        let mut writes = vec![];
        for (tid, len) in [(70_000, 3 * 4077), (80_000, 9000), (70_000, 5000), (80_000, 100), (80_000, 8500)]
        {
            let mut packer = packer::Packer::new(4096, mode, false);
            let (data, mut cut) = (vec![tid as u8; len], packer::Cut::new(false));
            while !cut.is_done() {
                assert!(packer.push_part(WriterKey { pid: 9, tid }, &data, &mut cut));
                writes.push(packer.bytes().to_vec());
                packer.written();
            }
        }
        let mut streams = vec![writes.concat()];
        for nth in 0..writes.len() {
            let (mut without, mut damaged) = (writes.clone(), writes.clone());
            without.remove(nth);
            damaged[nth][50] ^= 1;
            writes.swap(nth, 0);
            streams.extend([without.concat(), damaged.concat(), writes.concat()]);
        }
        for (stream, max_message) in streams.iter().flat_map(|stream| [(stream, 8999), (stream, 1 << 20)]) {
            for max_unfinished in [1, 5000, 66_000, 75_000, 1 << 30] {
                let options =
                    Options::new().mixed(mixed).max_message(max_message).max_unfinished(max_unfinished);
                let items = |read| {
                    let mut decoder = options.decoder(4096).unwrap();
                    let mut items = vec![];
                    for block in stream.chunks(read) {
                        decoder.space(block.len()).unwrap().copy_from_slice(block);
                        decoder.fed(block.len());
                        while let Some(found) = decoder.next(decoder::Tail::Unknown).unwrap() {
                            items.push(decoder.item(found).into_owned());
                        }
                    }
                    while let Some(found) = decoder.next(decoder::Tail::Ended).unwrap() {
                        items.push(decoder.item(found).into_owned());
                    }
                    items
                };
                let (at_once, one_by_one) = (items(stream.len()), items(1000));
                assert!(at_once == one_by_one, "{mode:?}, {max_message}, {max_unfinished}: {at_once:?}");
            }
        }
    }
}

#[test]
fn max_unfinished_defaults_to_a_multiple_of_max_message() {
    let unfinished = |options: Options| options.unfinished();
    assert_eq!(unfinished(Options::new()), 8 * (256 << 20));
    assert_eq!(unfinished(Options::new().max_message(1 << 30)), 8 << 30);
    assert_eq!(unfinished(Options::new().max_message(1000)), 1 << 30, "many small ones, too");
    assert_eq!(unfinished(Options::new().max_message(usize::MAX)), usize::MAX);
    assert_eq!(unfinished(Options::new().max_unfinished(7).max_message(1 << 30)), 7, "unless it is said");
}

/// Items, each with the offset of its end.
type Placed = Vec<(u64, Item<'static>)>;

/// The items of `stream` that end behind `after`, and after each block the position to continue
/// from.
fn placed(options: &Options, stream: &[u8], from: u64, after: u64) -> (Placed, Vec<(u64, u64)>) {
    let (mut decoder, mut items, mut places) = (options.decoder(4096).unwrap(), vec![], vec![]);
    for block in stream[from as usize..].chunks(700) {
        decoder.space(block.len()).unwrap().copy_from_slice(block);
        decoder.fed(block.len());
        while let Some(found) = decoder.next(decoder::Tail::Unknown).unwrap() {
            let item = decoder.item(found).into_owned();
            let end = from + decoder.position();
            if end > after && !matches!(item, Item::Torn(_)) {
                items.push((end, item));
            }
            assert!(decoder.settled() <= decoder.position());
        }
        places.push((from + decoder.settled(), from + decoder.position()));
    }
    (items, places)
}

#[test]
fn decoder_started_at_the_settled_position_yields_the_same_items() {
    for mixed in [false, true] {
        let mode = if mixed { Mode::Mixed } else { Mode::Plain };
        let (mut packer, mut stream) = (packer::Packer::new(512, mode, false), vec![]);
        let (data, mut cuts) = (vec![7; 2000], [packer::Cut::new(false); 3]);
        for turn in 0..300usize {
            let nth = turn * turn % 7 % 3;
            let payload = &data[..[10, 2000, 900][nth]];
            assert!(packer.push_part(
                WriterKey { pid: 9, tid: 70_000 + 2 * nth as i32 },
                payload,
                &mut cuts[nth]
            ));
            stream.extend_from_slice(packer.bytes());
            packer.written();
            if cuts[nth].is_done() {
                cuts[nth] = packer::Cut::new(false);
            }
            if mixed {
                stream.extend_from_slice([&b"text "[..], b"and \r", b"", b"its end\n"][turn % 4]);
            }
        }
        let options = Options::new().mixed(mixed);
        let (all, places) = placed(&options, &stream, 0, 0);
        assert!(all.len() > 100 && places.iter().any(|(settled, position)| settled < position));
        for (settled, position) in places {
            let (rest, _) = placed(&options, &stream, settled, position);
            let expected: Vec<_> = all.iter().filter(|(end, _)| *end > position).cloned().collect();
            assert_eq!(rest, expected, "from {settled}");
        }
    }
}

// ---------------------------------------------------------------- system calls that fail

const NOW: Duration = Duration::ZERO;

fn os(errno: i32) -> Fault {
    Fault::Errno(errno)
}

/// The result as its kind and number.
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
fn send_is_interrupted_only_before_its_first_part() {
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
fn failed_write_tears_only_the_message_that_it_cut() {
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
            Some(Torn { writer: Some(key), parts: 1, bytes: 4080, kind: ErrorKind::Torn, limit: None })
        );
        assert_eq!(kind(reader.recv(NOW).map(drop)), Err((ErrorKind::Closed, None)));
    }
}

#[test]
fn send_reports_a_kernel_that_splits_atomic_writes() {
    let (_reader, mut writer) = pair().unwrap();
    order("write", 0, Fault::Short(7));
    assert_eq!(
        kind(writer.send([1; 100], Deadline::NEVER)).map_err(|(kind, _)| kind),
        Err(ErrorKind::Corrupt)
    );
}

#[test]
fn reader_yields_the_same_items_from_short_reads() {
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
fn set_capacity_reports_a_refusal_and_keeps_the_pipe() {
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

// -------------------- kernels that cannot do everything

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

/// Makes the kernel refuse non-blocking calls: once for reading, for writing with RWF_NOSIGNAL and
/// without.
fn refuse_nowait() {
    order("read_nowait", 0, os(libc::EOPNOTSUPP));
    order("write_nowait", 0, os(libc::EOPNOTSUPP));
    order("write_nowait", 0, os(libc::EOPNOTSUPP));
}

#[test]
fn pipe_is_reopened_if_the_kernel_lacks_nowait_per_call() {
    let _turn = KERNEL.lock();
    let (reader, writer) = pair().unwrap();
    refuse_nowait();
    exercise(reader, writer);
    assert!(all_met());
}

#[test]
fn pipe_is_polled_first_if_it_cannot_be_reopened() {
    let _turn = KERNEL.lock();
    let (reader, writer) = pair().unwrap();
    refuse_nowait();
    order("open", 0, os(libc::EACCES));
    order("open", 0, os(libc::EACCES));
    exercise(reader, writer);
    assert!(all_met());
}

#[test]
fn sigpipe_is_blocked_if_the_kernel_lacks_nosignal() {
    let _turn = KERNEL.lock();
    for _ in 0..10_000 {
        order("nosignal", 0, os(libc::EOPNOTSUPP));
    }
    let (reader, writer) = pair().unwrap();
    with_deadly_sigpipe(|| exercise(reader, writer));
    assert!(NOSIGNAL_REFUSED.is_set() && !all_met(), "refused once, and then not tried again");
    NOSIGNAL_REFUSED.set(false);
}

#[test]
fn a_reader_can_be_polled() {
    let (mut reader, mut writer) = pair().unwrap();
    assert_eq!(crate::sys::wait(&[reader.as_fd()], crate::sys::For::Reading, Deadline::now()), Ok(false));
    writer.send("x", Deadline::NEVER).unwrap();
    assert_eq!(crate::sys::wait(&[reader.as_fd()], crate::sys::For::Reading, Deadline::now()), Ok(true));
    assert!(reader.try_recv().unwrap().is_some());
}

// ---------------------------------------------------------------- lines that end with `\r`

/// A mixed reader, and the raw end of its pipe.
fn reader_of_text() -> (Reader, Writer, std::fs::File) {
    let (reader, writer) = Options::new().mixed(true).pair().unwrap();
    let print = std::fs::File::from(writer.as_fd().try_clone_to_owned().unwrap());
    (reader, writer, print)
}

fn line(item: Result<Item<'_>>) -> std::result::Result<String, String> {
    match item {
        Ok(Item::Line(line)) => Ok(String::from_utf8(line.data.into_owned()).unwrap()),
        other => Err(format!("{other:?}")),
    }
}

#[test]
fn line_ending_with_cr_is_given_out_after_a_timeout() {
    use std::io::Write;

    let patience = || Duration::from_secs(60);
    let (mut reader, mut writer, mut print) = reader_of_text();
    // Through a call that waits; with a frame behind it; through calls that do not wait, in an
    // event loop.
    print.write_all(b"10%\r").unwrap();
    assert_eq!(line(reader.next_item(patience())), Ok("10%\r".into()));
    print.write_all(b"20%\r").unwrap();
    writer.send("between", Deadline::NEVER).unwrap();
    assert!(matches!(reader.next_item(patience()), Ok(Item::Message(_))));
    assert_eq!(line(reader.next_item(patience())), Ok("20%\r".into()));
    print.write_all(b"30%\r").unwrap();
    let mut came = None;
    while came.is_none() {
        came = reader.try_next_item().transpose().map(line);
        let Some(due) = reader.next_timeout() else { continue };
        assert!(came.is_none(), "nothing is due any more");
        assert_eq!(crate::sys::wait(&[reader.as_fd()], crate::sys::For::Reading, due), Ok(false));
    }
    assert_eq!(came, Some(Ok("30%\r".into())));
    assert_eq!((reader.next_timeout(), reader.peek()), (None, None));
    // Through clones.
    let mut clone = reader.try_clone().unwrap();
    print.write_all(b"40%\r").unwrap();
    assert_eq!(line(clone.next_item(patience())), Ok("40%\r".into()));
    // The line has ended: later bytes are another line.
    print.write_all(b"\n50%\r\n").unwrap();
    assert_eq!(line(reader.next_item(patience())), Ok("\n".into()));
    assert_eq!(line(reader.next_item(patience())), Ok("50%\r\n".into()));
}

#[test]
fn cr_and_lf_that_arrive_separately_end_one_line() {
    use std::io::Write;

    let (mut reader, mut writer, mut print) = reader_of_text();
    for between in [false, true] {
        print.write_all(b"text\r").unwrap();
        // Its time begins with the first check that finds nothing behind it.
        assert_eq!(reader.try_next_item(), Ok(None));
        if between {
            writer.send("between", Deadline::NEVER).unwrap();
        }
        print.write_all(b"\n").unwrap();
        // However late this is, the reader looks at the content of the pipe first.
        std::thread::sleep(Duration::from_millis(110));
        if between {
            assert!(matches!(reader.try_next_item(), Ok(Some(Item::Message(_)))));
        }
        assert_eq!(line(reader.next_item(NOW)), Ok("text\r\n".into()));
    }
}

// ---------------------------------------------------------------- printing

/// Makes the next write of text take only some bytes of it, and the `agains` that follow take none,
/// as a non-blocking terminal does that is stopped.
fn stand_still_after(bytes: usize, agains: usize) {
    order("write", 0, Fault::Short(bytes));
    (0..agains).for_each(|_| order("write", 0, os(libc::EAGAIN)));
}

#[test]
fn text_that_was_printed_in_part_is_not_printed_again() {
    use std::io::{Read, Seek};

    /// Calls that end while the terminal is stopped, and their expected results.
    type Stops = (&'static str, fn(&mut Writer) -> Result<usize>, std::result::Result<usize, ErrorKind>);
    // Enough for the time that each call has.
    const AGAINS: usize = 1000;
    let stops: [Stops; 5] = [
        (
            "flush",
            |writer| {
                writer.enqueue("hello").and(writer.enqueue("again")).unwrap();
                writer.flush(Deadline::after(Duration::from_millis(20))).map(|()| 0)
            },
            Err(ErrorKind::TimedOut),
        ),
        (
            "try_send",
            |writer| writer.try_send("hello").map(|parts| parts.map_or(9, |parts| parts as usize)),
            Ok(1),
        ),
        ("try_burst", |writer| writer.try_burst("hello").map(|taken| if taken { 1 } else { 9 }), Ok(1)),
        (
            "send",
            |writer| {
                writer.send("hello", Deadline::after(Duration::from_millis(20))).map(|parts| parts as usize)
            },
            Err(ErrorKind::TimedOut),
        ),
        (
            "send_many",
            |writer| writer.send_many(&["hello", "again"], Deadline::after(Duration::from_millis(20))),
            Err(ErrorKind::TimedOut),
        ),
    ];
    let new = || {
        let text = rustix::fs::memfd_create("text", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut text = std::fs::File::from(text);
        let writer = Options::new().or_print(true).writer(text.try_clone().unwrap()).unwrap();
        let printed = move || {
            let mut printed = String::new();
            text.rewind().unwrap();
            text.read_to_string(&mut printed).unwrap();
            printed
        };
        (writer, printed)
    };
    for (what, stop, expected) in stops {
        let (mut writer, mut printed) = new();
        stand_still_after(3, AGAINS);
        assert_eq!(stop(&mut writer).map_err(|error| error.kind()), expected, "{what}");
        assert!(!all_met(), "{what}: the terminal was not asked in a spin");
        assert_eq!(printed(), "hel", "{what}");
        // Pending text continues where it stopped; a message that was given up ends its line.
        writer.send("next", Deadline::NEVER).unwrap();
        let after = match (what, expected) {
            ("flush", _) => "hello\nagain\nnext\n",
            (_, Ok(_)) => "hello\nnext\n",
            (_, Err(_)) => "hel\nnext\n",
        };
        assert_eq!(printed(), after, "{what}");
    }
    // If the interrupt hook lets a call go on, the call continues with the rest.
    let (mut writer, mut printed) = new();
    order("write", 0, Fault::Short(3));
    order("write", 0, os(libc::EINTR));
    order("write", 0, Fault::Short(1));
    order("write", 0, os(libc::EAGAIN));
    order("poll", 0, os(libc::EINTR));
    with_hook(|| Verdict::GoOn, || writer.send("hello", Deadline::NEVER).unwrap());
    assert!(all_met());
    assert_eq!(printed(), "hello\n");
    // Messages that were printed whole count as sent, and only those.
    let (mut writer, mut printed) = new();
    order("write", 1, Fault::Short(1));
    order("write", 1, os(libc::EIO));
    assert_eq!(kind(writer.send_many(&["one", "two", "three"], Deadline::NEVER)), Ok(1));
    assert_eq!(kind(writer.send_many(&["two", "three"], Deadline::NEVER)), Ok(2));
    assert_eq!(printed(), "one\nt\ntwo\nthree\n");
}

// ---------------------------------------------------------------- waits and ends

#[test]
fn send_many_is_interrupted_only_between_messages() {
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
fn exact_reader_leaves_later_bytes_in_the_pipe() {
    for (mixed, shown) in [(false, true), (true, true), (false, false), (true, false)] {
        let (reader, mut writer) = Options::new().mixed(mixed).pair().unwrap();
        let twin = Options::new().mixed(mixed).dup_reader(&reader).unwrap();
        let mut readers = [reader, twin];
        let messages = [vec![1; 9000], vec![2; 10], vec![3; 10_000], vec![4; 100], vec![5; 0], vec![6; 5000]];
        writer.send_many(&messages, Deadline::NEVER).unwrap();
        if !shown {
            (0..100).for_each(|nth| order("tee", nth, os(libc::ENOSYS)));
        }
        let mut expected = messages.iter();
        for (reader, items) in [(0, 1), (1, 2), (0, 3)] {
            let reader = &mut readers[reader];
            reader.set_exact(items);
            for message in expected.by_ref().take(items as usize) {
                assert!(matches!(reader.next_item(NOW), Ok(Item::Message(came)) if *came == **message));
            }
            assert!(reader.is_empty());
        }
        // Forget the orders that were not met.
        all_met();
    }
}

/// Each write into such a pipe is a packet, of which a short read drops the rest.
fn packet_pipe() -> (std::os::fd::OwnedFd, std::os::fd::OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::DIRECT).unwrap()
}

#[test]
fn exact_reader_leaves_later_messages_in_the_same_packet() {
    for mixed in [false, true] {
        let (read, write) = packet_pipe();
        let options = Options::new().mixed(mixed);
        let mut writer = options.writer(write).unwrap();
        let mut readers = [options.dup_reader(&read).unwrap(), options.dup_reader(&read).unwrap()];
        readers.iter_mut().for_each(|reader| reader.set_exact(1));
        let messages: Vec<[u8; 50]> = (0..40).map(|nth| [nth; 50]).collect();
        // A reader that waits has not seen the packet before it arrives.
        std::thread::scope(|scope| {
            let [first, _] = &mut readers;
            let waits = scope.spawn(|| first.next_item(Duration::from_secs(60)).map(Item::into_owned));
            writer.send_many(&messages, Deadline::NEVER).unwrap();
            assert!(matches!(waits.join().unwrap(), Ok(Item::Message(came)) if *came == messages[0]));
        });
        for (nth, message) in messages.iter().enumerate().skip(1) {
            let reader = &mut readers[nth % 2];
            let came = reader.next_item(NOW).unwrap_or_else(|why| panic!("{nth}, mixed {mixed}: {why}"));
            assert!(matches!(came, Item::Message(came) if *came == *message));
            assert!(reader.is_empty());
        }
    }
}

#[test]
fn exact_reader_leaves_later_lines_in_the_same_packet() {
    let (read, write) = packet_pipe();
    let options = Options::new().mixed(true);
    let mut readers = [options.dup_reader(&read).unwrap(), options.dup_reader(&read).unwrap()];
    rustix::io::write(&write, b"one\ntwo\r\nthree\nfour\n").unwrap();
    for (nth, line) in ["one\n", "two\r\n", "three\n", "four\n"].iter().enumerate() {
        readers[nth % 2].set_exact(1);
        let came = readers[nth % 2].next_item(NOW);
        assert!(matches!(came, Ok(Item::Line(came)) if *came == *line.as_bytes()), "line {nth}");
    }
}

/// Taking one message after another looks at a full pipe as often as there are messages.
#[test]
fn exact_reader_looks_ahead_only_as_far_as_small_messages_need() {
    let (mut reader, mut writer) = pair().unwrap();
    writer.send_many(&[[7; 100]; 500], Deadline::NEVER).unwrap();
    writer.send([8; 4000], Deadline::NEVER).unwrap();
    reader.set_exact(1);
    for _ in 0..500 {
        // A second look would fail.
        order("tee", 1, os(libc::EIO));
        assert_eq!(*reader.recv(NOW).unwrap(), [7; 100]);
        assert!(!all_met());
    }
    assert_eq!(*reader.recv(NOW).unwrap(), [8; 4000]);
    // The first look did not copy all of a pipe, so a large message takes more of them, but few.
    let large = vec![9; 40_000];
    for (nth, is_met) in [(1, true), (5, false)] {
        writer.send(&large, Deadline::NEVER).unwrap();
        order("tee", nth, Fault::Short(4096));
        assert_eq!(*reader.recv(NOW).unwrap(), large);
        assert_eq!(all_met(), is_met, "look {nth}");
    }
}

#[test]
fn exact_reader_takes_large_data_in_few_system_calls() {
    let (mut reader, mut writer) = pair().unwrap();
    writer.send_many(&vec![[7; 100]; 500], Deadline::NEVER).unwrap();
    reader.set_exact(500);
    // One read of the bytes that were looked at, and another one; any further read fails.
    order("read_nowait", 2, os(libc::EIO));
    order("read", 2, os(libc::EIO));
    for _ in 0..500 {
        assert_eq!(*reader.recv(NOW).unwrap(), [7; 100]);
    }
    assert!(!all_met());
}

#[test]
fn iterators_end_after_an_error_that_ends_the_stream() {
    let (mut reader, writer) = pair().unwrap();
    let mut pipe = std::fs::File::from(writer.as_fd().try_clone_to_owned().unwrap());
    std::io::Write::write_all(&mut pipe, &[0xFF; 100]).unwrap();
    assert_eq!(reader.items().count(), 1, "Corrupt, and no more");
    assert_eq!(reader.messages().count(), 1);
    reader.set_mixed(true).unwrap();
    assert_eq!(reader.messages().count(), 1, "Invalid, and no more");
}

#[test]
fn clone_is_woken_by_bytes_that_another_clone_read_ahead() {
    let (mut reader, mut writer) = pair().unwrap();
    let mut clone = reader.try_clone().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || clone.recv(Duration::from_secs(60)).map(Message::into_owned));
        for _ in 0..100 {
            std::thread::yield_now();
        }
        writer.send("buffered", Deadline::NEVER).unwrap();
        // Either thread may read it first; the clone must give it out in both cases.
        let _ = reader.read_ahead(Duration::from_millis(50));
        assert_eq!(waiting.join().unwrap().map(Message::into_vec), Ok(b"buffered".to_vec()));
    });
}

#[test]
fn recv_does_not_spin_if_the_deadline_has_passed() {
    let (mut reader, _writer) = Options::new().spin(Duration::MAX).pair().unwrap();
    for _ in 0..100 {
        order("read_nowait", 2, os(libc::EIO));
        assert_eq!(kind(reader.recv(Deadline::now()).map(drop)), Err((ErrorKind::TimedOut, None)));
        assert!(!all_met(), "it looks once before it waits and once while it does");
    }
}

#[test]
fn interrupt_hook_decides_whether_a_send_continues() {
    thread_local! {
        static ANSWERS: std::cell::RefCell<Vec<Verdict>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    fn answer() -> Verdict {
        ANSWERS.with_borrow_mut(Vec::pop).unwrap_or(Verdict::Stop)
    }
    let (mut reader, mut writer) = pair().unwrap();
    with_hook(answer, || {
        // A signal, and the end of a quarter of a second.
        ANSWERS.set(vec![Verdict::Stop, Verdict::GoOn]);
        order("poll", 0, os(libc::EINTR));
        assert_eq!(
            kind(writer.send(vec![1; 1 << 20], Deadline::NEVER).map(drop)),
            Err((ErrorKind::Interrupted, Some(libc::EINTR)))
        );
        assert!(all_met());
        assert!(ANSWERS.with_borrow(Vec::is_empty));

        // The call's time is over, so the hook is not asked.
        let sent = writer.send(vec![2; 1 << 20], Duration::from_millis(1));
        assert_eq!(kind(sent.map(drop)), Err((ErrorKind::TimedOut, None)));

        // A drop does not wait for ever either, and the abandoned message is reported.
        writer.enqueue(vec![3; 1 << 20]).unwrap();
        drop(writer);
    });
    assert!(reader.items().all(|item| matches!(item, Ok(Item::Torn(_)))));
}
