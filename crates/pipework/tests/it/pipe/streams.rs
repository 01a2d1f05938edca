//! Streams arrive unchanged, in every combination of calls of the two ends.

use std::io::{BufRead, Read, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use pipework::ErrorKind;
use pipework::pipe::{CAPACITY, pipe};

use super::combinations;
use super::end;
use crate::harness::{PATIENCE, Random, alone, block_on};

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
fn a_thread_reads_lines_and_lends_space() {
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

/// Futures are polled once and dropped at random, on both sides; unfinished operations are
/// repeated.
#[test]
fn dropping_a_future_loses_nothing() {
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

/// One end moves from thread to task and back in the middle of the stream.
#[test]
fn end_can_move_between_thread_and_task() {
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

#[test]
fn full_pipe_takes_one_byte_for_each_byte_read() {
    alone(|| {
        for spin in [Duration::ZERO, Duration::from_millis(1)] {
            let (mut reader, mut writer) = pipe(CAPACITY).unwrap();
            writer.set_spin(spin);
            let (sender, receiver) = std::sync::mpsc::channel();
            let producer = thread::spawn(move || {
                writer.write_all(&vec![b'x'; CAPACITY]).unwrap();
                for i in 0..10 {
                    sender.send(i).unwrap();
                    writer.write_all(b"y").unwrap();
                }
            });
            for i in 0..10 {
                assert_eq!(receiver.recv_timeout(PATIENCE), Ok(i));
                assert_eq!(reader.recv(&mut [0], PATIENCE), Ok(1));
            }
            producer.join().unwrap();
            assert_eq!(reader.len(), CAPACITY);
        }
    });
}
