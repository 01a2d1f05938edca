//! Unix stream sockets as pipes: Node and others give them to their children as stdin and stdout.
//! Nothing is torn, however many write and however small the buffers; the end, a reset and a
//! half-closed socket behave as with pipes. Promises P1, P2 and P13.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pipework::atomic::{Item, Options, Reader, Writer, Zstd};
use pipework::{Deadline, Error, ErrorKind};
use rustix::fs::OFlags;
use rustix::net::sockopt;

use crate::harness::{
    Folder, PATIENCE, Random, again, alone, fork, is_alone, left_out, let_sigpipe_kill, say, seed, within,
};

const SHORT: Duration = Duration::from_millis(20);

fn kind<T>(outcome: Result<T, Error>) -> ErrorKind {
    outcome.map(drop).expect_err("an error").kind()
}

fn ends(options: &Options) -> (Reader, Writer) {
    let (near, far) = UnixStream::pair().unwrap();
    (options.reader(near).unwrap(), options.writer(far).unwrap())
}

/// The smallest buffers that the kernel allows.
fn narrow(socket: impl AsFd) {
    sockopt::set_socket_send_buffer_size(&socket, 1).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, 1).unwrap();
}

fn fill(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = number.to_ne_bytes().repeat(len / 8 + 1);
    bytes.truncate(len);
    bytes
}

// ---------------------------------------------------------------- never torn

/// Four processes, each with its own end of one socket or with the same one, write plain parts of 5
/// to 4096 bytes and longer messages.
#[test]
fn writes_of_four_processes_into_a_socket_are_never_torn() {
    alone(|| {
        let seed = seed();
        say(&format!("writes_of_four_processes_into_a_socket_are_never_torn: PIPEWORK_SEED={seed}"));
        for (smallest, mixed) in [(false, false), (true, false), (true, true)] {
            const EACH: u64 = 5000;
            let options = Options::new().mixed(mixed);
            let (near, far) = UnixStream::pair().unwrap();
            if smallest {
                narrow(&far);
                narrow(&near);
            }
            let children: Vec<_> = (0..4)
                .map(|who| {
                    fork(|| {
                        let mut writer = options.dup_writer(&far).unwrap();
                        let mut random = Random::new(seed + who);
                        for nth in 0..EACH {
                            // Each number encodes the message's length, writer and position.
                            let len = match nth % 50 {
                                0 => 8 + random.below(40_000),
                                _ => 8 + random.below(writer.max_part() - 7),
                            };
                            let number = (len as u64) << 32 | who << 24 | nth;
                            match nth % 3 {
                                0 => writer.send(fill(number, len), Deadline::NEVER).unwrap(),
                                1 => writer.send(fill(number, len), PATIENCE).unwrap(),
                                _ => loop {
                                    if let Some(parts) = writer.try_send(fill(number, len)).unwrap() {
                                        break parts;
                                    }
                                    writer.flush(PATIENCE).unwrap();
                                },
                            };
                        }
                        writer.close(PATIENCE).unwrap();
                    })
                })
                .collect();
            let mut reader = options.reader(near).unwrap();
            let mut next = HashMap::new();
            for _ in 0..4 * EACH {
                let item = reader.next_item(PATIENCE).unwrap();
                let Item::Message(message) = item else { panic!("{item:?}") };
                let number = u64::from_ne_bytes(message[..8].try_into().unwrap());
                assert!(*message == fill(number, (number >> 32) as usize), "message {number:x}");
                let due = next.entry(message.writer).or_insert(0);
                assert_eq!(number & 0xFF_FFFF, *due, "in the order of its writer");
                *due += 1;
            }
            children.into_iter().for_each(|child| child.join());
            assert_eq!(next.into_values().collect::<Vec<_>>(), [EACH; 4]);
            drop(far);
            assert_eq!(kind(reader.next_item(PATIENCE)), ErrorKind::Closed);
        }
    });
}

/// The rule's basis, without this library: while a write is no longer than the kernel takes at
/// once, no other bytes come between.
#[test]
fn the_kernel_queues_a_small_write_as_one_piece() {
    alone(|| {
        for smallest in [false, true] {
            let (mut near, far) = UnixStream::pair().unwrap();
            if smallest {
                narrow(&far);
            }
            let limit = (sockopt::socket_send_buffer_size(&far).unwrap() / 2 - 64).min(4096);
            let children: Vec<_> = (0..4u8)
                .map(|who| {
                    fork(|| {
                        let mut random = Random::new(who.into());
                        for _ in 0..15_000 {
                            let len = 5 + random.below(limit - 4);
                            let mut bytes = vec![who; len];
                            bytes[1..5].copy_from_slice(&(len as u32).to_ne_bytes());
                            let written = (&far).write(&bytes).unwrap();
                            assert_eq!(written, len);
                        }
                    })
                })
                .collect();
            let (mut bytes, mut writes) = (Vec::new(), 0);
            while writes < 60_000 {
                let before = bytes.len();
                bytes.resize(before + (64 << 10), 0);
                let read = near.read(&mut bytes[before..]).unwrap();
                bytes.truncate(before + read);
                let mut rest = &bytes[..];
                while rest.len() >= 5 {
                    let len = u32::from_ne_bytes(rest[1..5].try_into().unwrap()) as usize;
                    assert!((5..=limit).contains(&len), "torn after {writes} writes");
                    let Some((write, after)) = rest.split_at_checked(len) else { break };
                    assert!(write[5..].iter().all(|byte| *byte == write[0]), "torn after {writes} writes");
                    (rest, writes) = (after, writes + 1);
                }
                bytes = rest.to_vec();
            }
            children.into_iter().for_each(|child| child.join());
        }
    });
}

// ---------------------------------------------------------------- as with pipes

#[test]
fn a_socket_carries_all_that_a_pipe_does() {
    let plain = Options::new();
    for options in [plain.clone(), plain.clone().mixed(true), plain.zstd(Zstd::new().with_level(1))] {
        let (mut reader, mut writer) = ends(&options);
        assert_eq!(kind(reader.next_item(SHORT)), ErrorKind::TimedOut);
        assert_eq!(reader.try_next_item(), Ok(None));
        let sender = thread::spawn(move || {
            let large = Random::new(1).bytes(3_000_000);
            writer.send(&large, Deadline::NEVER).unwrap();
            writer.send(&large, PATIENCE).unwrap();
            writer.send_many(&[&large[..10], &large[..0], &large[..5000]], PATIENCE).unwrap();
            if writer.is_mixed() {
                writer.burst("burst", PATIENCE).unwrap();
            }
            writer.try_send(&large).unwrap();
            let mut twin = writer.try_clone().unwrap();
            writer.close(PATIENCE).unwrap();
            twin.send("the last", PATIENCE).unwrap();
            large
        });
        let mut twin = reader.try_clone().unwrap();
        let mut come = Vec::new();
        loop {
            let reader = if come.len() % 2 == 0 { &mut reader } else { &mut twin };
            match reader.next_item(PATIENCE) {
                Ok(Item::Message(message)) => come.push(message.into_vec()),
                Ok(Item::Burst(burst)) => assert_eq!(&*burst, b"burst"),
                Ok(item) => panic!("{item:?}"),
                Err(error) => break assert_eq!(error.kind(), ErrorKind::Closed, "{error}"),
            }
        }
        let large = sender.join().unwrap();
        let expected = [&large[..], &large, &large[..10], &large[..0], &large[..5000], &large, b"the last"];
        assert!(come.iter().eq(expected), "{:?}", come.iter().map(Vec::len).collect::<Vec<_>>());
    }
}

#[test]
fn send_into_a_full_socket_waits_until_the_deadline() {
    for nonblocking in [false, true] {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(nonblocking).unwrap();
        near.set_nonblocking(nonblocking).unwrap();
        let flags = rustix::fs::fcntl_getfl(&far).unwrap();
        let (mut reader, mut writer) =
            (Options::new().dup_reader(&near).unwrap(), Options::new().dup_writer(&far).unwrap());
        while writer.pending() == 0 {
            writer.try_send([1; 4000]).unwrap().expect("nothing was pending");
        }
        let begin = Instant::now();
        assert_eq!(kind(writer.flush(SHORT)), ErrorKind::TimedOut);
        assert_eq!(writer.try_flush(), Ok(false));
        assert!(begin.elapsed() < PATIENCE);
        let sender = thread::spawn(move || {
            writer.send([2; 400_000], Deadline::NEVER).unwrap();
            writer.send([3; 400_000], PATIENCE).unwrap();
        });
        while *reader.recv(PATIENCE).unwrap() != [3; 400_000] {}
        sender.join().unwrap();
        assert_eq!(kind(reader.recv(SHORT)), ErrorKind::TimedOut);
        assert_eq!(rustix::fs::fcntl_getfl(&far).unwrap(), flags, "the flags belong to the other process");
        assert_eq!(flags.contains(OFlags::NONBLOCK), nonblocking);
    }
}

#[test]
fn send_into_a_socket_whose_reader_left_is_closed_without_a_signal() {
    alone(|| {
        let_sigpipe_kill();
        for unread in [false, true] {
            let (reader, mut writer) = ends(&Options::new());
            if unread {
                writer.send("unread: the socket is reset", PATIENCE).unwrap();
            }
            drop(reader);
            for _ in 0..2 {
                assert_eq!(kind(writer.send("to nobody", PATIENCE)), ErrorKind::Closed);
                assert_eq!(kind(writer.send(vec![0; 100_000], Deadline::NEVER)), ErrorKind::Closed);
                assert_eq!(kind(writer.try_send("to nobody")), ErrorKind::Closed);
            }
        }
        // A writer that waits for space notices it as well.
        for deadline in [Deadline::NEVER, Deadline::from(PATIENCE)] {
            let (reader, mut writer) = ends(&Options::new());
            let sender = thread::spawn(move || kind(writer.send(vec![0; 10_000_000], deadline)));
            thread::sleep(SHORT);
            drop(reader);
            assert_eq!(sender.join().unwrap(), ErrorKind::Closed);
        }
    });
}

#[test]
fn end_of_a_socket_comes_after_all_sent_messages() {
    let message = vec![7; 10_000];
    for way in ["closes", "shuts down", "resets", "resets unseen"] {
        let (near, far) = UnixStream::pair().unwrap();
        let mut writer = Options::new().dup_writer(&far).unwrap();
        if way.starts_with("resets") {
            // If the other side closes with unread bytes, the close becomes a reset.
            (&near).write_all(b"an answer that nobody reads").unwrap();
        }
        let mut reader = Options::new().reader(near).unwrap();
        writer.send(&message, PATIENCE).unwrap();
        let half = &[writer.key().pid.to_ne_bytes(), [1; 4], [1, 0, 0, 0], [4, 0, 0, 0], [9; 4]].concat();
        (&far).write_all(half).unwrap();
        if way == "shuts down" {
            far.shutdown(Shutdown::Write).unwrap();
        } else if way != "resets unseen" {
            drop((writer, far));
        } else {
            let leaves = thread::spawn(move || {
                thread::sleep(SHORT);
                drop((writer, far));
            });
            assert_eq!(*reader.recv(Deadline::NEVER).unwrap(), message);
            assert_eq!(kind(reader.recv(Deadline::NEVER)), ErrorKind::Torn, "{way}");
            assert_eq!(kind(reader.recv(Deadline::NEVER)), ErrorKind::Closed, "{way}");
            leaves.join().unwrap();
            continue;
        }
        assert_eq!(*reader.recv(PATIENCE).unwrap(), message, "{way}");
        assert_eq!(kind(reader.recv(PATIENCE)), ErrorKind::Torn, "{way}");
        for _ in 0..2 {
            assert_eq!(kind(reader.recv(PATIENCE)), ErrorKind::Closed, "{way}");
        }
        assert!(reader.is_eof());
    }
    // A writer whose half is shut down here gets the end, too.
    let (_near, far) = UnixStream::pair().unwrap();
    let mut writer = Options::new().dup_writer(&far).unwrap();
    far.shutdown(Shutdown::Write).unwrap();
    assert_eq!(kind(writer.send("to nobody", PATIENCE)), ErrorKind::Closed);
}

// ---------------------------------------------------------------- refusals

#[test]
fn constructors_refuse_other_descriptors_and_name_their_kind() {
    let folder = Folder::new();
    let listener = UnixListener::bind(folder.join("socket")).unwrap();
    let datagrams = UnixDatagram::pair().unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
    let file = std::fs::File::create(folder.join("file")).unwrap();
    let null = std::fs::File::options().read(true).write(true).open("/dev/null").unwrap();
    let fresh = {
        use rustix::net::{AddressFamily, SocketType, socket};
        socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap()
    };
    let refused = [
        (listener.as_fd(), "not a connected Unix stream socket"),
        (fresh.as_fd(), "not a connected Unix stream socket"),
        (datagrams.0.as_fd(), "not a connected Unix stream socket"),
        (connected.as_fd(), "not a connected Unix stream socket"),
        (tcp.as_fd(), "not a connected Unix stream socket"),
        (file.as_fd(), "it is a file"),
        (null.as_fd(), "it is a device"),
    ];
    for (fd, what) in refused {
        for error in [
            Options::new().dup_reader(fd).map(drop).unwrap_err(),
            Options::new().dup_writer(fd).map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.explanation().is_some_and(|text| text.contains(what)), "{error}");
            assert!(error.to_string().contains(what), "{error}");
        }
    }
    let error = Options::new().dup_writer(&file).map(drop).unwrap_err();
    assert_eq!(error.explanation(), Some("it is a file, where no reader decodes messages"));
    let (near, far) = UnixStream::pair().unwrap();
    assert_eq!(kind(Options::new().end(near)), ErrorKind::Invalid, "a socket is both ends");
    let writer = Options::new().writer(far).unwrap();
    assert_eq!(kind(writer.capacity()), ErrorKind::Unsupported);
}

/// A program that is run by hand, or with its output to a log: no reader decodes messages
/// there, so they are printed as lines.
#[test]
fn or_print_prints_messages_to_a_file() {
    let folder = Folder::new();
    let path = folder.join("log");
    let plain = Options::new().or_print(true);
    for options in
        [plain.clone(), plain.clone().mixed(true), plain.clone().mixed(true).zstd(Zstd::new().with_level(1))]
    {
        let mut writer = options.writer(std::fs::File::create(&path).unwrap()).unwrap();
        assert!(writer.is_printing());
        let long = "long ".repeat(4000);
        writer.send("sent", PATIENCE).unwrap();
        writer.send("with its own end\n", PATIENCE).unwrap();
        writer.send("", PATIENCE).unwrap();
        writer.try_send(&long).unwrap().unwrap();
        writer.send_many(&["one", "two"], PATIENCE).unwrap();
        writer.burst("burst \x0E", PATIENCE).unwrap();
        let mut twin = writer.try_clone().unwrap();
        writer.enqueue(&long).unwrap();
        writer.enqueue("pending").unwrap();
        writer.close(PATIENCE).unwrap();
        twin.send("twin", PATIENCE).unwrap();
        assert_eq!(kind(twin.capacity()), ErrorKind::Unsupported);
        let printed = std::fs::read_to_string(&path).unwrap();
        let expected =
            format!("sent\nwith its own end\n\n{long}\none\ntwo\nburst \x0E\n{long}\npending\ntwin\n");
        assert!(printed == expected, "{printed}");
    }
    // A pipe is still a pipe, and a full or closed one gives an error.
    let (mut reader, mut writer) = ends(&plain);
    assert!(!writer.is_printing());
    writer.send("sent", PATIENCE).unwrap();
    assert_eq!(&*reader.recv(PATIENCE).unwrap(), b"sent");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let error = plain.writer(full).unwrap().send("sent", PATIENCE).unwrap_err();
    assert_eq!(error.errno(), Some(libc::ENOSPC));
    let reading = std::fs::File::open(&path).unwrap();
    assert!(plain.writer(reading).unwrap().send("sent", PATIENCE).is_err());
}

// ---------------------------------------------------------------- Node

/// The messages that the test's own programs send and expect.
fn exchange(number: u64) -> Vec<u8> {
    fill(number, 3000 * number as usize)
}

/// Node starts one of our programs with `stdio: 'pipe'`: it prints and sends on stdout, and
/// receives on stdin the messages that Node sends.
#[test]
fn program_started_by_node_sends_and_receives() {
    const NAME: &str = "atomic::sockets::program_started_by_node_sends_and_receives";
    let options = Options::new().mixed(true);
    if is_alone() {
        let (mut stdin, mut stdout) = (Options::new().stdin().unwrap(), options.stdout().unwrap());
        for message in stdin.messages() {
            let message = message.unwrap();
            println!("printed: {} bytes came", message.len());
            stdout.send(&message, PATIENCE).unwrap();
        }
        return;
    }
    if !Command::new("node").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return left_out(NAME, "there is no node");
    }
    // Every message goes in as one part after the other, and the output goes to a file unchanged.
    const SCRIPT: &str = r#"
        const { spawn } = require('node:child_process');
        const fs = require('node:fs');
        const [input, output, ...command] = process.argv.slice(1);
        const child = spawn(command[0], command.slice(1), { stdio: ['pipe', 'pipe', 'inherit'] });
        const kind = fs.readlinkSync(`/proc/${child.pid}/fd/1`);
        const chunks = [];
        child.stdout.on('data', (chunk) => chunks.push(chunk));
        child.on('close', (code) => {
            fs.writeFileSync(output, Buffer.concat(chunks));
            console.log(kind, code);
        });
        child.stdin.end(fs.readFileSync(input));
    "#;
    let folder = Folder::new();
    let (input, output) = (folder.join("input"), folder.join("output"));
    let mut parts = Vec::new();
    for number in 1..20 {
        let message = exchange(number);
        let chunks: Vec<_> = message.chunks(4000).collect();
        for (nth, chunk) in chunks.iter().enumerate() {
            let words = [1, 7, (chunks.len() - 1 - nth) as u32, chunk.len() as u32];
            parts.extend(words.map(u32::to_ne_bytes).concat());
            parts.extend(*chunk);
        }
    }
    std::fs::write(&input, parts).unwrap();
    let through = ["node", "-e", SCRIPT, input.to_str().unwrap(), output.to_str().unwrap()];
    let mut node = again(&through, NAME).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    node.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(within(PATIENCE, node).success());
    assert!(said.starts_with("socket:[") && said.ends_with("] 0\n"), "{said}");

    // All bytes that Node has received, at once: Node may have cut the stream anywhere.
    let bytes = std::fs::read(&output).unwrap();
    let (read, mut write) = std::io::pipe().unwrap();
    let mut reader = options.read_size(1 << 20).reader(read).unwrap();
    reader.set_capacity(1 << 20).unwrap();
    write.write_all(&bytes).unwrap();
    drop(write);
    let (mut messages, mut printed) = (1, 1);
    for item in reader.items() {
        match item.unwrap() {
            Item::Message(message) => {
                assert!(*message == exchange(messages), "message {messages}");
                messages += 1;
            }
            Item::Line(line) if line.starts_with(b"printed: ") => {
                let text = format!("printed: {} bytes came\n", exchange(printed).len());
                assert_eq!(line.as_ref(), text.as_bytes());
                printed += 1;
            }
            Item::Line(_) => {}
            item => panic!("{item:?}"),
        }
    }
    assert_eq!((messages, printed), (20, 20));
}
