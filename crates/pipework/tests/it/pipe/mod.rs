//! The room `pipe`: its contract in every combination of ends, streams through all of them, and what waiting costs.

mod end;
mod wakers;
mod descriptors;

use std::io::{self, BufRead, Read, Write};
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use pipework::pipe::{CAPACITY, Reader, Writer, pipe};
use pipework::{Deadline, ErrorKind};

use crate::harness::{Folder, PATIENCE, Random, again, alone, is_alone, say, within};
use end::{Farewell, Kind, block_on};

/// Long enough for an end to fall asleep. Where it does not, the test says less, and the same.
const MOMENT: Duration = Duration::from_millis(4);

// ---------------------------------------------------------------- the contract

/// All that a reader and a writer can be, and who comes first.
fn combinations() -> impl Iterator<Item = (Kind, Kind, bool)> {
    let all = Kind::ALL;
    all.iter().flat_map(move |a| all.iter().flat_map(move |b| [(*a, *b, false), (*a, *b, true)]))
}

#[test]
fn a_reader_gets_the_rest_and_then_what_the_writer_left_with() {
    alone(|| {
        for (reading, writing, sleeps) in combinations() {
            for farewell in Farewell::ALL {
                for len in [0, 10, 300] {
                    let (reader, writer) = pipe(100).unwrap();
                    let bytes = Random::new(len as u64).bytes(len);
                    let sent = bytes.clone();
                    let write = move || {
                        let (writer, outcome) = writing.write(writer, &sent);
                        assert!(outcome.is_ok());
                        farewell.leave(writing, writer);
                    };
                    let (got, ended) = if sleeps {
                        let reader = thread::spawn(move || reading.read(reader, usize::MAX));
                        thread::sleep(MOMENT);
                        assert_eq!(thread::spawn(write).join().is_err(), farewell == Farewell::Panic);
                        reader.join().unwrap().1
                    } else {
                        let writer = thread::spawn(write);
                        thread::sleep(MOMENT);
                        let got = reading.read(reader, usize::MAX).1;
                        assert_eq!(writer.join().is_err(), farewell == Farewell::Panic);
                        got
                    };
                    let case = format!("{reading:?} {writing:?} {sleeps} {farewell:?} {len}");
                    assert_eq!(got, bytes, "{case}");
                    assert_eq!(ended.map_err(|error| error.to_string()), farewell.to_reader(), "{case}");
                }
            }
        }
    });
}

#[test]
fn a_writer_gets_what_the_reader_left_with() {
    alone(|| {
        for (reading, writing, sleeps) in combinations() {
            for farewell in Farewell::ALL {
                for taken in [0, 10, 300] {
                    let (reader, writer) = pipe(100).unwrap();
                    let bytes = Random::new(1).bytes(1 << 20);
                    let expected = bytes[..taken].to_vec();
                    let read = move || {
                        let (reader, (got, ended)) = reading.read(reader, taken);
                        assert!(got == expected && ended.is_ok());
                        farewell.leave(reading, reader);
                    };
                    let outcome = if sleeps {
                        let writer = thread::spawn(move || writing.write(writer, &bytes).1);
                        thread::sleep(MOMENT);
                        assert_eq!(thread::spawn(read).join().is_err(), farewell == Farewell::Panic);
                        writer.join().unwrap()
                    } else {
                        let reader = thread::spawn(read);
                        thread::sleep(MOMENT);
                        let outcome = writing.write(writer, &bytes).1;
                        assert_eq!(reader.join().is_err(), farewell == Farewell::Panic);
                        outcome
                    };
                    let case = format!("{reading:?} {writing:?} {sleeps} {farewell:?} {taken}");
                    assert_eq!(
                        outcome.map_err(|error| (error.kind(), error.to_string())),
                        Err(farewell.to_writer()),
                        "{case}"
                    );
                }
            }
        }
    });
}

// ---------------------------------------------------------------- streams

/// Every combination of ends, with pieces of random lengths on both sides.
#[test]
fn a_stream_comes_out_as_it_went_in() {
    alone(|| {
        for (reading, writing, _) in combinations() {
            for (capacity, len) in [(1, 3_000), (7, 20_000), (4096, 1 << 20), (CAPACITY, 2 << 20)] {
                let (reader, writer) = pipe(capacity).unwrap();
                let bytes = Arc::new(Random::new(capacity as u64).bytes(len));
                let sent = Arc::clone(&bytes);
                let writer = thread::spawn(move || assert!(writing.write(writer, &sent).1.is_ok()));
                let (got, ended) = reading.read(reader, usize::MAX).1;
                writer.join().unwrap();
                assert!(ended.is_ok() && got == *bytes, "{reading:?} {writing:?} {capacity}");
            }
        }
    });
}

#[test]
fn a_thread_reads_lines_and_lends_room() {
    alone(|| {
        let (reader, mut writer) = pipe(64).unwrap();
        let producer = thread::spawn(move || {
            for i in 0..10_000 {
                let line = format!("line {i}\n");
                let (first, second) = writer.reserve(line.len(), PATIENCE).unwrap();
                first.iter_mut().chain(second).zip(line.bytes()).for_each(|(to, from)| *to = from);
                writer.commit(line.len()).unwrap();
            }
        });
        for (i, line) in reader.lines().enumerate() {
            assert_eq!(line.unwrap(), format!("line {i}"));
        }
        producer.join().unwrap();
    });
}

/// Futures are polled once and dropped at random, on both sides; what was not done is done again.
#[test]
fn giving_up_a_future_loses_nothing() {
    alone(|| {
        let (reader, writer) = pipe(50).unwrap();
        let bytes = Random::new(3).bytes(200_000);
        let sent = bytes.clone();
        let writer = thread::spawn(move || {
            let (mut writer, mut random, mut done) = (writer.into_async(), Random::new(4), 0);
            while done < sent.len() {
                let len = (1 + random.below(70)).min(sent.len() - done);
                let piece = &sent[done..done + len];
                let given_up = end::poll_once(writer.send(piece)).map(Result::unwrap);
                done += given_up.unwrap_or_else(|| block_on(writer.send(piece)).unwrap());
            }
        });
        let (mut reader, mut random, mut got) = (reader.into_async(), Random::new(5), vec![]);
        loop {
            let mut buf = vec![0; 1 + random.below(70)];
            let given_up = end::poll_once(reader.recv(&mut buf)).map(Result::unwrap);
            let len = given_up.unwrap_or_else(|| block_on(reader.recv(&mut buf)).unwrap());
            if len == 0 {
                break;
            }
            got.extend_from_slice(&buf[..len]);
        }
        writer.join().unwrap();
        assert!(got == bytes);
    });
}

/// One end is handed from thread to task and back in the middle of the stream.
#[test]
fn an_end_may_change_what_it_is() {
    alone(|| {
        let (mut reader, mut writer) = pipe(3).unwrap();
        let producer = thread::spawn(move || {
            for i in 0..5000u32 {
                writer = match i % 2 {
                    0 => {
                        writer.write_all(&i.to_ne_bytes()).unwrap();
                        writer
                    }
                    _ => {
                        let mut task = writer.into_async();
                        let (bytes, mut done) = (i.to_ne_bytes(), 0);
                        while done < bytes.len() {
                            done += block_on(task.send(&bytes[done..])).unwrap();
                        }
                        task.into_blocking()
                    }
                };
            }
        });
        for i in 0..5000u32 {
            let mut bytes = [0; 4];
            reader = match i % 3 {
                0 => {
                    let mut task = reader.into_async();
                    assert_eq!(block_on(task.peek(1)).unwrap().0.len().min(1), 1);
                    assert_eq!(block_on(task.peek(9)).unwrap_err().kind(), ErrorKind::TooLong);
                    task.into_blocking()
                }
                _ => reader,
            };
            reader.read_exact(&mut bytes).unwrap();
            assert_eq!(u32::from_ne_bytes(bytes), i);
        }
        producer.join().unwrap();
        assert_eq!(reader.recv(&mut [0], PATIENCE), Ok(0));
    });
}

/// Where the reader keeps up, little of a large pipe is ever touched.
#[test]
fn a_stream_that_does_not_pile_up_takes_little_memory() {
    alone(|| {
        const CAPACITY: usize = 256 << 20;
        let resident_kib = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it is there");
            line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok()).expect("a number")
        };
        let (mut reader, mut writer) = pipe(CAPACITY).unwrap();
        let bytes = Random::new(6).bytes(10_000);
        let mut got = vec![0; bytes.len()];
        let before = resident_kib();
        for round in 0..CAPACITY / bytes.len() + 1 {
            let len = 1 + round % bytes.len();
            writer.write_all(&bytes[..len]).unwrap();
            reader.read_exact(&mut got[..len]).unwrap();
            assert_eq!(got[..len], bytes[..len]);
        }
        let taken_kib = resident_kib().saturating_sub(before);
        assert!(taken_kib < 4 << 10, "{taken_kib} KiB");
        // All of it is there all the same, whatever the stream's place in it.
        let (first, second) = writer.reserve(CAPACITY, PATIENCE).unwrap();
        assert_eq!(first.len() + second.len(), CAPACITY);
    });
}

/// A writer that is awake may hope for more room than a byte, but it must not insist.
#[test]
fn a_full_pipe_takes_a_byte_for_each_that_is_read() {
    alone(|| {
        for spin in [Duration::ZERO, Duration::from_millis(1)] {
            let (mut reader, mut writer) = pipe(CAPACITY).unwrap();
            writer.set_spin(spin);
            let (tell, told) = std::sync::mpsc::channel();
            let producer = thread::spawn(move || {
                writer.write_all(&vec![b'x'; CAPACITY]).unwrap();
                for i in 0..10 {
                    tell.send(i).unwrap();
                    writer.write_all(b"y").unwrap();
                }
            });
            for i in 0..10 {
                assert_eq!(told.recv_timeout(PATIENCE), Ok(i));
                assert_eq!(reader.recv(&mut [0], PATIENCE), Ok(1));
            }
            producer.join().unwrap();
            assert_eq!(reader.len(), CAPACITY);
        }
    });
}

// ---------------------------------------------------------------- deadlines

#[test]
fn a_deadline_ends_the_wait_of_either_end_and_nothing_is_lost() {
    alone(|| {
        let (mut reader, mut writer) = pipe(10).unwrap();
        let begin = Instant::now();
        assert_eq!(reader.recv(&mut [0; 5], MOMENT).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(reader.peek(1, MOMENT).unwrap_err().kind(), ErrorKind::TimedOut);
        let unfinished = writer.send_all(b"abcdefghijklm", MOMENT).unwrap_err();
        assert_eq!((unfinished.done, unfinished.kind()), (10, ErrorKind::TimedOut));
        assert_eq!(writer.reserve(1, MOMENT).unwrap_err().kind(), ErrorKind::TimedOut);
        let mut buf = [0; 13];
        let unfinished = reader.recv_full(&mut buf, MOMENT).unwrap_err();
        assert_eq!((unfinished.done, unfinished.kind()), (10, ErrorKind::TimedOut));
        assert!(begin.elapsed() >= 5 * MOMENT);
        writer.send_all(b"klm", MOMENT).unwrap();
        drop(writer);
        assert_eq!(reader.recv_full(&mut buf[10..], PATIENCE), Ok(3));
        assert_eq!(&buf, b"abcdefghijklm");
        assert_eq!(reader.recv_until(b'\n', &mut buf, PATIENCE), Ok(0));
    });
}

// ---------------------------------------------------------------- what waiting costs

/// The times that the thread `id` of this process has gone to sleep by itself, and whether it sleeps now.
fn sleeps(id: i32) -> (u64, bool) {
    let status = std::fs::read_to_string(format!("/proc/self/task/{id}/status")).unwrap();
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).expect("it is there").trim();
    (field("voluntary_ctxt_switches:").parse().unwrap(), field("State:").starts_with('S'))
}

fn thread_id() -> i32 {
    let link = std::fs::read_link("/proc/thread-self").unwrap();
    link.file_name().and_then(|id| id.to_str()).and_then(|id| id.parse().ok()).expect("PID/task/TID")
}

#[test]
fn who_waits_sleeps_until_there_is_something() {
    alone(|| {
        let (reader, writer) = pipe(8).unwrap();
        let (told, ids) = std::sync::mpsc::channel();
        let tell = told.clone();
        let waiting_reader = thread::spawn(move || {
            tell.send(thread_id()).unwrap();
            let mut reader = reader;
            let got = reader.recv(&mut [0; 8], Deadline::NEVER).unwrap();
            (reader, got)
        });
        let (mut other_reader, mut full) = pipe(1).unwrap();
        let waiting_writer = thread::spawn(move || {
            told.send(thread_id()).unwrap();
            full.write_all(b"ab").unwrap();
        });
        for id in ids.iter().take(2) {
            let begin = Instant::now();
            while !sleeps(id).1 {
                assert!(begin.elapsed() < PATIENCE, "it does not go to sleep");
                thread::sleep(Duration::from_millis(1));
            }
            let before = sleeps(id);
            thread::sleep(Duration::from_millis(100));
            assert_eq!(sleeps(id), before, "it wakes up for nothing");
        }
        let mut writer = writer;
        writer.write_all(b"abc").unwrap();
        assert_eq!(waiting_reader.join().unwrap().1, 3);
        other_reader.read_exact(&mut [0; 2]).unwrap();
        waiting_writer.join().unwrap();
    });
}

/// Looks at the process from outside: between two marks that it makes, there is no system call at all.
#[test]
fn ends_that_need_not_wait_make_no_system_call() {
    const NAME: &str = "pipe::ends_that_need_not_wait_make_no_system_call";
    const MARKS: [&str; 2] = ["/pipework-mark-begin", "/pipework-mark-end"];
    if is_alone() {
        let (mut reader, mut writer) = pipe(CAPACITY).unwrap();
        let mut task = Context::from_waker(Waker::noop());
        let mut buf = [0; 1024];
        let mut round = |reader: &mut Reader, writer: &mut Writer| {
            for len in 1..buf.len() {
                writer.write_all(&buf[..len]).unwrap();
                reader.read_exact(&mut buf[..len]).unwrap();
                let (room, _) = writer.reserve(1, PATIENCE).unwrap();
                room[0] = 1;
                writer.commit(1).unwrap();
                assert_eq!(reader.peek(1, PATIENCE).unwrap().0.len(), 1);
                reader.consume(1).unwrap();
            }
        };
        round(&mut reader, &mut writer);
        let _ = std::fs::metadata(MARKS[0]);
        round(&mut reader, &mut writer);
        let (mut reader, mut writer) = (reader.into_async(), writer.into_async());
        for len in 1..buf.len() {
            while writer.poll_send(&mut task, &buf[..len]).is_pending() {}
            while reader.poll_recv(&mut task, &mut buf[..len]).is_pending() {}
        }
        let _ = std::fs::metadata(MARKS[1]);
        return;
    }
    let folder = Folder::new();
    let trace = folder.join("trace");
    let through = ["strace", "-f", "-qq", "-e", "signal=none", "-o", trace.to_str().unwrap()];
    if Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .status()
        .map_or(true, |status| !status.success())
    {
        return say(&format!("{NAME} did not run: no strace, or it is not permitted here"));
    }
    let child = again(&through, NAME).stdout(std::process::Stdio::null()).spawn().unwrap();
    assert!(within(PATIENCE, child).success());
    let trace = std::fs::read_to_string(&trace).unwrap();
    let lines: Vec<&str> = trace.lines().collect();
    let [begin, end] = MARKS.map(|mark| lines.iter().position(|line| line.contains(mark)).expect("the mark"));
    // Other threads of the test harness do as they like.
    let who = lines[begin].split_whitespace().next().unwrap();
    let calls: Vec<_> = lines[begin + 1..end].iter().filter(|line| line.starts_with(who)).collect();
    assert!(calls.iter().all(|line| line.contains("resumed")), "{calls:?}");
}

/// The traits as others use them: what is generic over a reader takes ours.
#[test]
fn the_ends_are_those_of_the_standard_library() {
    alone(|| {
        let (mut reader, mut writer) = pipe(16).unwrap();
        let producer = thread::spawn(move || io::copy(&mut &[b'x'; 100_000][..], &mut writer).unwrap());
        let mut first = String::new();
        (&mut reader).take(10).read_to_string(&mut first).unwrap();
        assert_eq!(first, "xxxxxxxxxx");
        assert_eq!(reader.read_until(b'\n', &mut vec![]).unwrap(), 99_990);
        assert_eq!(producer.join().unwrap(), 100_000);
    });
}
