//! The guarantees of the ends to each other, in every combination of them, and how long they wait.

use std::io::{self, BufRead, Read};
use std::thread;
use std::time::Instant;

use pipework::ErrorKind;
use pipework::pipe::pipe;

use super::end::Farewell;
use super::{MOMENT, combinations};
use crate::harness::{PATIENCE, Random, alone};

#[test]
fn reader_gets_the_rest_and_then_the_writers_end_or_error() {
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
fn writer_gets_closed_or_the_readers_error() {
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

/// The traits as other code uses them: code that is generic over a reader takes ours.
#[test]
fn ends_work_with_generic_code_of_the_standard_library() {
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
