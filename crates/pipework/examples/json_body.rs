//! Streams a JSON array of ten million integers into the body of an HTTP request, without ever
//! holding it.
//!
//! A thread writes the document, number by number; the HTTP client takes the other end of the pipe
//! as the request's body; a server on this machine counts the numbers and adds them up. Once over
//! this crate's pipe, once over a pipe of the kernel's, and once over that behind a buffer. All of
//! it runs in this process, so the times include the server's.
//!
//! `cargo run --release --example json_body [COUNT]`

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use pipework::pipe::{CAPACITY, pipe};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Result<()> {
    let count = std::env::args().nth(1).map_or(Ok(10_000_000), |count| count.parse())?;
    println!(
        "{count} integers as the body of a request\n{:28}{:>9}{:>9}{:>9}",
        "", "wall s", "user s", "system s"
    );
    for (name, over) in OVER {
        let begin = (Instant::now(), cpu_time()?);
        over(count)?;
        let (user, system) = cpu_time()?;
        let times = [begin.0.elapsed(), user - begin.1.0, system - begin.1.1].map(|time| time.as_secs_f64());
        println!("{name:28}{:>9.2}{:>9.2}{:>9.2}", times[0], times[1], times[2]);
    }
    Ok(())
}

/// Uploads a document of so many numbers.
pub(crate) type Upload = fn(u64) -> Result<()>;

/// The kinds of pipe between the writing thread and the client. The benchmarks run these, too.
pub(crate) const OVER: [(&str, Upload); 3] = [
    ("pipework", |count| {
        let (reader, writer) = pipe(CAPACITY)?;
        // A producer that returns early leaves half a document: the client gets an error, and sends
        // no end.
        upload(count, writer.must_finish(), reader, |writer| Ok(writer.finish()?))
    }),
    ("kernel pipe", |count| {
        let (reader, writer) = io::pipe()?;
        upload(count, writer, reader, end_by_drop)
    }),
    ("kernel pipe, BufWriter", |count| {
        let (reader, writer) = io::pipe()?;
        upload(count, BufWriter::new(writer), reader, |mut writer| writer.flush())
    }),
];

/// A kernel's pipe has one end, for documents that are done and those that are not.
fn end_by_drop(_: impl Write) -> io::Result<()> {
    Ok(())
}

/// Uploads the document through a pipe, and checks the server's answer.
fn upload<W: Write + Send + 'static>(
    count: u64,
    mut writer: W,
    reader: impl Read,
    finish: fn(W) -> io::Result<()>,
) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = thread::spawn(move || serve(&listener));
    let producer = thread::spawn(move || {
        write_document(&mut writer, count)?;
        finish(writer)
    });
    let answer = post(address, reader)?;
    producer.join().expect("the producer does not panic")?;
    server.join().expect("the server does not panic")?;
    let expected = format!("{count} numbers, sum {}", (0..count).sum::<u64>());
    if answer == expected { Ok(()) } else { Err(format!("the server got {answer}, not {expected}").into()) }
}

/// `[0,1,2]`, written as a serialiser writes: in very small pieces.
fn write_document(to: &mut impl Write, count: u64) -> io::Result<()> {
    to.write_all(b"[")?;
    for number in 0..count {
        let comma = if number > 0 { "," } else { "" };
        write!(to, "{comma}{number}")?;
    }
    to.write_all(b"]")
}

// ---------------------------------------------------------------- a small HTTP client and server

/// Sends a request with this body, of unknown length, and gives the answer's body.
fn post(address: SocketAddr, mut body: impl Read) -> Result<String> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_nodelay(true)?;
    write!(connection, "POST /numbers HTTP/1.1\r\nHost: {address}\r\nTransfer-Encoding: chunked\r\n\r\n")?;
    // A chunk is its length in hexadecimal, a line's end, the bytes, and a line's end.
    const HEAD: usize = "10000\r\n".len();
    let mut chunk = vec![0; HEAD + CAPACITY + 2];
    loop {
        let len = body.read(&mut chunk[HEAD..HEAD + CAPACITY])?;
        chunk[..HEAD].copy_from_slice(format!("{len:05x}\r\n").as_bytes());
        chunk[HEAD + len..HEAD + len + 2].copy_from_slice(b"\r\n");
        connection.write_all(&chunk[..HEAD + len + 2])?;
        if len == 0 {
            break;
        }
    }
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("an answer without a body")?;
    if head.starts_with("HTTP/1.1 200 ") { Ok(body.into()) } else { Err(head.into()) }
}

/// Takes one request, and answers with the contents of its body.
fn serve(listener: &TcpListener) -> Result<()> {
    let mut connection = BufReader::with_capacity(CAPACITY, listener.accept()?.0);
    let mut line = String::new();
    while connection.read_line(&mut line)? > 2 {
        line.clear();
    }
    let (mut numbers, mut chunk) = (Numbers::default(), vec![]);
    loop {
        line.clear();
        connection.read_line(&mut line)?;
        chunk.resize(usize::from_str_radix(line.trim_end(), 16)? + 2, 0);
        connection.read_exact(&mut chunk)?;
        let bytes = chunk.strip_suffix(b"\r\n").ok_or("a chunk has another length than it says")?;
        if bytes.is_empty() {
            break;
        }
        bytes.iter().try_for_each(|byte| numbers.take(*byte))?;
    }
    let body = format!("{} numbers, sum {}", numbers.count, numbers.sum);
    write!(connection.get_mut(), "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{body}")?;
    Ok(())
}

/// Takes a JSON array of natural numbers apart, byte by byte.
#[derive(Default)]
struct Numbers {
    count: u64,
    sum: u64,
    current: Option<u64>,
}

impl Numbers {
    fn take(&mut self, byte: u8) -> Result<()> {
        match byte {
            b'0'..=b'9' => self.current = Some(self.current.unwrap_or(0) * 10 + u64::from(byte - b'0')),
            b',' | b']' => {
                if let Some(number) = self.current.take() {
                    (self.count, self.sum) = (self.count + 1, self.sum + number);
                }
            }
            b'[' => {}
            _ => return Err(format!("byte {byte} in a document of numbers").into()),
        }
        Ok(())
    }
}

// ---------------------------------------------------------------- time

/// User and system time of this process so far, in the kernel's ticks of 10 ms.
fn cpu_time() -> Result<(Duration, Duration)> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // Fields 14 and 15, counted from behind the name, which may hold anything.
    let behind = stat.rsplit_once(')').ok_or("no name")?.1;
    let mut ticks = behind.split_whitespace().skip(11).map(str::parse::<u64>);
    let mut next =
        || -> Result<Duration> { Ok(Duration::from_millis(10 * ticks.next().ok_or("too short")??)) };
    Ok((next()?, next()?))
}

#[test]
fn a_document_that_breaks_off_is_no_body() {
    fn produce(mut to: pipework::pipe::Writer, numbers: [&str; 3]) -> Result<()> {
        for number in numbers {
            writeln!(to, "{},", number.parse::<u64>()?)?;
        }
        Ok(to.finish()?)
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || serve(&listener));
    let (reader, writer) = pipe(CAPACITY).unwrap();
    assert!(produce(writer.must_finish(), ["1", "2", "three"]).is_err());
    let error = post(address, reader).unwrap_err();
    assert_eq!(error.to_string(), "the writer was dropped before the end of the stream");
    assert!(server.join().unwrap().is_err(), "the server took half a document for a whole one");
}

#[test]
fn a_small_document_arrives_over_every_pipe() {
    for (name, over) in OVER {
        over(20_000).unwrap_or_else(|error| panic!("{name}: {error}"));
        over(0).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
