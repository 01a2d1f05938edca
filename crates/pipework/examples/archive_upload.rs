//! Uploads a folder as a tar archive that is never held whole, on either side.
//!
//! Archivers and unpackers are code that blocks; servers and clients are tasks. A thread writes the
//! archive into one end of a pipe, and a task sends the bytes from the other. The server's task
//! writes the received bytes into another pipe, from which a thread unpacks. If the archiver fails
//! half-way, the client gets its error instead of an end, and the server never takes half an
//! archive for a whole one. Both writers must finish: one that is dropped on the way, by an early
//! `?` or with an aborted task, is an error to its reader, too.
//!
//! `cargo run --release --features tokio --example archive_upload [FOLDER]`

use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use pipework::pipe::{CAPACITY, Reader, Writer, pipe};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

fn main() -> io::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or(concat!(env!("CARGO_MANIFEST_DIR"), "/src").into());
    let begin = Instant::now();
    let (sent, received) = upload(Path::new(&folder))?;
    println!("{folder}: {} files with {} bytes, digest {:016x}", sent.files, sent.bytes, sent.digest);
    println!(
        "unpacked: {} files with {} bytes, digest {:016x}",
        received.files, received.bytes, received.digest
    );
    println!("in {:.3} s", begin.elapsed().as_secs_f64());
    if sent == received { Ok(()) } else { Err(io::Error::other("what arrived is not what was sent")) }
}

/// The contents of an archive.
#[derive(Debug, Default, PartialEq)]
struct Contents {
    files: u64,
    bytes: u64,
    digest: u64,
}

impl Contents {
    fn add(&mut self, name: &Path, bytes: &[u8]) {
        let mut hasher = DefaultHasher::new();
        hasher.write(name.as_os_str().as_encoded_bytes());
        hasher.write(bytes);
        self.files += 1;
        self.bytes += bytes.len() as u64;
        // The order of the files does not matter.
        self.digest = self.digest.wrapping_add(hasher.finish());
    }
}

/// Sends a folder to a server of our own; returns the sent and the unpacked contents.
#[tokio::main(flavor = "current_thread")]
async fn upload(folder: &Path) -> io::Result<(Contents, Contents)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let connection = TcpStream::connect(listener.local_addr()?);

    let (body, writer) = pipe(CAPACITY)?;
    let folder = folder.to_owned();
    let archiver = thread::spawn(move || archive(&folder, writer.must_finish()));
    let (reader, unpacked) = pipe(CAPACITY)?;
    let unpacked = unpacked.must_finish();
    let unpacker = thread::spawn(move || unpack(reader));

    let serving = async { receive(listener.accept().await?.0, unpacked).await };
    let sending = async { send(connection.await?, body).await };
    let (served, sent) = tokio::join!(serving, sending);
    let archived = archiver.join().expect("the archiver does not panic");
    let received = unpacker.join().expect("the unpacker does not panic");
    // The client's error is the archiver's, told again; the server's and the unpacker's follow from
    // it.
    sent.and(served)?;
    Ok((archived?, received?))
}

// ---------------------------------------------------------------- the client

/// Writes the archive of a folder, or ends it with an error. A thread's work.
fn archive(folder: &Path, mut writer: Writer) -> io::Result<Contents> {
    let mut contents = Contents::default();
    match append_all(folder, &mut writer, &mut contents) {
        Ok(()) => {
            writer.finish()?;
            Ok(contents)
        }
        Err(error) => {
            writer.close_with_error(io::Error::new(error.kind(), error.to_string()));
            Err(error)
        }
    }
}

fn append_all(folder: &Path, writer: &mut Writer, contents: &mut Contents) -> io::Result<()> {
    let mut archive = tar::Builder::new(writer);
    let mut folders = vec![PathBuf::new()];
    while let Some(inside) = folders.pop() {
        for entry in std::fs::read_dir(folder.join(&inside))? {
            let entry = entry?;
            let (name, kind) = (inside.join(entry.file_name()), entry.file_type()?);
            if kind.is_dir() {
                folders.push(name);
            } else if kind.is_file() {
                let bytes = std::fs::read(entry.path())?;
                let mut header = tar::Header::new_gnu();
                header.set_size(bytes.len() as u64);
                header.set_mode(0o644);
                archive.append_data(&mut header, &name, &bytes[..])?;
                contents.add(&name, &bytes);
            }
        }
    }
    archive.finish()
}

/// Sends the request, with the bytes from the pipe as its body. A task's work.
async fn send(mut connection: TcpStream, body: Reader) -> io::Result<()> {
    let mut body = body.into_async();
    connection
        .write_all(b"PUT /archive HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await?;
    loop {
        // The bytes are sent from where the archiver has put them.
        let chunk = body.fill_buf().await?;
        let len = chunk.len();
        connection.write_all(format!("{len:x}\r\n").as_bytes()).await?;
        connection.write_all(chunk).await?;
        connection.write_all(b"\r\n").await?;
        if len == 0 {
            break;
        }
        AsyncBufReadExt::consume(&mut body, len);
    }
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    if answer.starts_with("HTTP/1.1 204 ") { Ok(()) } else { Err(io::Error::other(answer)) }
}

// ---------------------------------------------------------------- the server

/// Takes one request and writes its body into the pipe. A task's work.
async fn receive(connection: TcpStream, writer: Writer) -> io::Result<()> {
    let mut connection = BufReader::new(connection);
    let mut writer = writer.into_async();
    match receive_body(&mut connection, &mut writer).await {
        Ok(()) => writer.finish()?,
        Err(error) => {
            let told = io::Error::new(error.kind(), error.to_string());
            writer.into_blocking().close_with_error(told);
            return Err(error);
        }
    }
    connection.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").await
}

async fn receive_body(
    connection: &mut BufReader<TcpStream>,
    body: &mut pipework::pipe::AsyncWriter,
) -> io::Result<()> {
    let mut line = String::new();
    while connection.read_line(&mut line).await? > 2 {
        line.clear();
    }
    loop {
        line.clear();
        connection.read_line(&mut line).await?;
        let len = u64::from_str_radix(line.trim_end(), 16).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        if tokio::io::copy_buf(&mut (&mut *connection).take(len), body).await? < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        connection.read_exact(&mut [0; 2]).await?;
        if len == 0 {
            return Ok(());
        }
    }
}

/// Takes the archive apart. A thread's work.
fn unpack(reader: Reader) -> io::Result<Contents> {
    let (mut contents, mut bytes) = (Contents::default(), vec![]);
    let mut archive = tar::Archive::new(reader);
    for file in archive.entries()? {
        let mut file = file?;
        bytes.clear();
        file.read_to_end(&mut bytes)?;
        contents.add(&file.path()?, &bytes);
    }
    // Behind the archive's end there is padding; an error may follow it.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    Ok(contents)
}

#[test]
fn a_folder_arrives_whole_or_with_an_error() {
    let (sent, received) = upload(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))).unwrap();
    assert!(sent.files > 10 && sent == received, "{sent:?} {received:?}");
    let error = upload(Path::new("/nowhere/at/all")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}
