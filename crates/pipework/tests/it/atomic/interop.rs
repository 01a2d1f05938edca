//! The same pipe with Atomic::Pipe at its other end: a real Perl process, if a perl is installed
//! that finds the module.
//!
//! Without it, each test reports that on stderr and proves nothing. Point PERL5LIB at an installed
//! copy to run them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pipework::ErrorKind;
use pipework::atomic::{Item, Options, Reader, WriterKey};

const SOON: Duration = Duration::from_secs(60);

#[test]
fn perl_writes_plain() {
    const SCRIPT: &str = r#"
        my $w = Atomic::Pipe->from_fh('>&', \*STDOUT);
        $w->write_message($_) for 'one', map { 'x' x $_ } 4080, 4081, 100_000;
    "#;
    let Some(perl) = perl("perl_writes_plain", SCRIPT) else { return };
    let (mut reader, child) = write_by(perl, Options::new());
    let pid = child.id() as i32;
    for (data, parts) in
        [(b"one".to_vec(), 1), (vec![b'x'; 4080], 1), (vec![b'x'; 4081], 2), (vec![b'x'; 100_000], 25)]
    {
        let message = reader.recv(SOON).unwrap();
        assert_eq!((message.writer, message.parts), (WriterKey { pid, tid: 0 }, parts));
        assert!(*message == data, "{} bytes", data.len());
    }
    assert_eq!(reader.recv(SOON).map(drop).map_err(|error| error.kind()), Err(ErrorKind::Closed));
    finish(child);
}

#[test]
fn perl_prints_between_its_messages() {
    const SCRIPT: &str = r#"
        $| = 1;
        my $w = Atomic::Pipe->from_fh('>&', \*STDOUT);
        $w->set_mixed_data_mode;
        for my $round (1 .. 200) {
            print "line $round\n";
            $w->write_burst("burst $round\n");
            print "a line that ";
            $w->write_message($round x (100 * $round));
            print "goes on\r\n";
        }
        print "the end";
    "#;
    let Some(perl) = perl("perl_prints_between_its_messages", SCRIPT) else { return };
    let (mut reader, child) = write_by(perl, Options::new().mixed(true));
    for round in 1..=200_usize {
        expect(&mut reader, "line", format!("line {round}\n").as_bytes());
        expect(&mut reader, "burst", format!("burst {round}\n").as_bytes());
        expect(&mut reader, "message", round.to_string().repeat(100 * round).as_bytes());
        expect(&mut reader, "line", b"a line that goes on\r\n");
    }
    expect(&mut reader, "line", b"the end");
    assert_eq!(reader.next_item(SOON).map(drop).map_err(|error| error.kind()), Err(ErrorKind::Closed));
    finish(child);
}

#[test]
fn many_perl_writers_share_the_pipe() {
    const WRITERS: usize = 16;
    const MESSAGES: usize = 100;
    const SCRIPT: &str = r#"
        $| = 1;
        my $w = Atomic::Pipe->from_fh('>&', \*STDOUT);
        $w->set_mixed_data_mode;
        for my $nth (1 .. 16) {
            next if fork;
            for my $message (0 .. 99) {
                $w->write_message("$message " x ($message * 37 % 5000 + 1));
                print "writer $nth, message $message\n" if $message % 10 == 0;
            }
            exit 0;
        }
        1 while wait != -1;
    "#;
    let Some(perl) = perl("many_perl_writers_share_the_pipe", SCRIPT) else { return };
    let (mut reader, child) = write_by(perl, Options::new().mixed(true));
    let (mut next, mut lines): (HashMap<i32, usize>, usize) = (HashMap::new(), 0);
    for item in reader.items() {
        match item.unwrap() {
            Item::Line(line) => {
                assert!(line.starts_with(b"writer ") && line.ends_with(b"\n"), "{line:?}");
                lines += 1;
            }
            Item::Message(message) => {
                let number = next.entry(message.writer.pid).or_default();
                let expected = format!("{number} ").repeat(*number * 37 % 5000 + 1);
                assert!(*message == *expected.as_bytes(), "message {number} of {}", message.writer);
                *number += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((next.len(), lines), (WRITERS, WRITERS * MESSAGES / 10));
    assert!(next.values().all(|count| *count == MESSAGES), "{next:?}");
    finish(child);
}

#[test]
fn perl_reads_plain() {
    const SCRIPT: &str = r#"
        binmode STDOUT;
        my $r = Atomic::Pipe->from_fh('<&', \*STDIN);
        while (my $got = $r->read_message(debug => 1)) {
            print pack 'l2 L L/a*', $got->{pid}, $got->{tid}, scalar @{$got->{parts}}, $got->{message};
        }
    "#;
    let messages = [1, 0, 4080, 4081, 12_241, 50, 2000, 9000, 700, 0, 1_000_000, 3].map(counted);
    // Once one by one, once with small messages and the ends of long ones in the same writes.
    for together in [false, true] {
        let Some(perl) = perl("perl_reads_plain", SCRIPT) else { return };
        let (reader, mut writer) = Options::new().pair().unwrap();
        let child = read_by(perl, reader);
        let key = writer.key();
        if together {
            assert_eq!(writer.send_many(&messages, SOON).unwrap(), messages.len());
        } else {
            for message in &messages {
                writer.send(message, SOON).unwrap();
            }
        }
        drop(writer);
        let found = printed_by(child);
        let mut rest = &found[..];
        for message in &messages {
            let (pid, tid) = (number(&mut rest) as i32, number(&mut rest) as i32);
            // Perl ignores the bits of the numbers that do not name the writer.
            let parts_bit = i32::from(message.len() > 4080);
            assert_eq!((WriterKey { pid: pid & 0x3F_FFFF, tid: tid & !1 }, tid & 1), (key, parts_bit));
            let (parts, least) = (number(&mut rest) as usize, message.len().div_ceil(4080).max(1));
            assert!(parts == least || together && parts == least + 1, "{parts} parts");
            assert!(bytes(&mut rest) == message, "{} bytes", message.len());
        }
        assert!(rest.is_empty());
    }
}

#[test]
fn perl_reads_between_lines() {
    const SCRIPT: &str = r#"
        use IO::Select;
        binmode STDOUT;
        my $r = Atomic::Pipe->from_fh('<&', \*STDIN);
        $r->set_mixed_data_mode;
        while (1) {
            my ($type, $data) = $r->get_line_burst_or_data;
            if    (defined $type) { print pack 'L/a* L/a*', $type, $data }
            elsif ($r->eof)       { last }
            else                  { IO::Select->new($r->rh)->can_read }
        }
    "#;
    let Some(perl) = perl("perl_reads_between_lines", SCRIPT) else { return };
    let (reader, mut writer) = Options::new().mixed(true).pair().unwrap();
    let mut print = File::from(writer.as_fd().try_clone_to_owned().unwrap());
    let all_bytes: Vec<u8> = (0..=255).collect();
    // All bytes are in the pipe when Perl starts: Atomic::Pipe 0.032 loses a burst that it reads in
    // two halves.
    print.write_all(b"first\n").unwrap();
    writer.burst("burst", SOON).unwrap();
    print.write_all(b"begun, ").unwrap();
    writer.send(counted(20_000), SOON).unwrap();
    print.write_all(b"ended\r\n").unwrap();
    writer.send_many(&[&all_bytes[..], b"", b"small"], SOON).unwrap();
    writer.burst("", SOON).unwrap();
    writer.burst([b'b'; 4094], SOON).unwrap();
    print.write_all(b"last").unwrap();
    drop((writer, print));
    let found = printed_by(read_by(perl, reader));
    let expected: [(&str, &[u8]); 10] = [
        ("line", b"first\n"),
        ("burst", b"burst"),
        ("message", &counted(20_000)),
        ("line", b"begun, ended\r\n"),
        ("message", &all_bytes),
        ("message", b""),
        ("message", b"small"),
        ("burst", b""),
        ("burst", &[b'b'; 4094]),
        ("line", b"last"),
    ];
    let mut rest = &found[..];
    for (kind, data) in expected {
        assert_eq!(String::from_utf8_lossy(bytes(&mut rest)), kind);
        assert!(bytes(&mut rest) == data, "{kind} of {} bytes", data.len());
    }
    assert!(rest.is_empty());
}

// ---------------------------------------------------------------- the process at the other end

/// A perl with Atomic::Pipe, ready to run `script`; `None` if there is none, and then a line on
/// stderr that the test harness does not capture.
fn perl(test: &str, script: &str) -> Option<Command> {
    let asked = Command::new("perl").args(["-MAtomic::Pipe", "-e1"]).stderr(Stdio::null()).status();
    if !asked.is_ok_and(|status| status.success()) {
        let _ = writeln!(std::io::stderr(), "interop::{test}: not run: no perl here finds Atomic::Pipe");
        return None;
    }
    let mut perl = Command::new("perl");
    perl.args(["-Mstrict", "-MAtomic::Pipe", "-e", script]);
    Some(perl)
}

/// Starts a process that writes to the reader's pipe.
fn write_by(mut perl: Command, options: Options) -> (Reader, Child) {
    let (reader, writer) = options.pair().unwrap();
    let child = perl.stdout(writer.as_fd().try_clone_to_owned().unwrap()).spawn().unwrap();
    (reader, child)
}

fn finish(mut child: Child) {
    assert!(child.wait().unwrap().success());
}

/// Starts a process that reads from the pipe of `reader`, and a thread that collects its output.
fn read_by(mut perl: Command, reader: Reader) -> (Child, JoinHandle<Vec<u8>>) {
    let stdin = reader.as_fd().try_clone_to_owned().unwrap();
    let mut child = perl.stdin(stdin).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let listener = thread::spawn(move || {
        let mut printed = vec![];
        stdout.read_to_end(&mut printed).unwrap();
        printed
    });
    (child, listener)
}

fn printed_by((child, listener): (Child, JoinHandle<Vec<u8>>)) -> Vec<u8> {
    let printed = listener.join().unwrap();
    finish(child);
    printed
}

// ---------------------------------------------------------------- sent and received items

/// Data that differs at each position that a cut could confuse.
fn counted(len: usize) -> Vec<u8> {
    let mut data: Vec<u8> = (0..).flat_map(|number: u32| number.to_be_bytes()).take(len).collect();
    data.reverse();
    data
}

fn expect(reader: &mut Reader, kind: &str, data: &[u8]) {
    let (found, bytes) = match reader.next_item(SOON).unwrap() {
        Item::Line(line) => ("line", line.data),
        Item::Burst(burst) => ("burst", burst.data),
        Item::Message(message) => ("message", message.data),
        Item::Torn(torn) => panic!("{torn} instead of a {kind}"),
    };
    assert_eq!(found, kind);
    assert!(bytes == data, "{kind}: {} instead of {}", bytes.escape_ascii(), data.escape_ascii());
}

/// Takes a number off the front of Perl's packed output.
fn number(rest: &mut &[u8]) -> u32 {
    let (word, after) = rest.split_first_chunk().expect("Perl printed all of it");
    *rest = after;
    u32::from_ne_bytes(*word)
}

/// Takes a string off the front of Perl's packed output.
fn bytes<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let len = number(rest) as usize;
    let (bytes, after) = rest.split_at(len);
    *rest = after;
    bytes
}
