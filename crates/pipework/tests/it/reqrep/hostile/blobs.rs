//! Peers that damage the files of blobs while a client and a server exchange blobs. Client and
//! server get errors; neither dies, hangs, or accepts wrong bytes.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use pipework::reqrep::{Blob, Client, Message, Segment, Server};
use pipework::{Error, ErrorKind};

use super::{small, works};
use crate::harness::damage::leave_no_core;
use crate::harness::{Child, Folder, PATIENCE, Random, alone_for, blob_folder, fork, say, seed, shared};

/// How many times each damage is done.
const TURNS: usize = 200;

type Damage = fn(&Segment, &mut Random);

/// Each damage with the number on the board that it raises, and whether wrong bytes always come
/// with an error. If the headers are gone, nothing shows that a file is in use.
const DAMAGES: [(&str, Damage, usize, bool); 7] = [
    ("with their folder removed", remove_folder, ERRORS, true),
    ("without a folder", put_a_file_there, ERRORS, true),
    ("unlinked", unlink, ERRORS, true),
    ("renamed", rename, ERRORS, true),
    ("cut short", cut, ERRORS, true),
    ("of another owner or mode", change_owner_and_mode, COPIED, true),
    ("scribbled over", scribble, ERRORS, false),
];

#[test]
fn damaged_blob_files_cause_errors_but_no_crash_hang_or_wrong_bytes() {
    alone_for(10 * PATIENCE, || {
        leave_no_core();
        let seed = seed();
        say(&format!("damage to blobs with PIPEWORK_SEED={seed}"));
        for (name, damage, expected, checks) in DAMAGES {
            let folder = Folder::new();
            let segment = small().create(folder.join("segment")).unwrap();
            let mut random = Random::new(seed);
            let pair = Pair::new(&segment, checks);
            pair.wait(ANSWERED, 20);
            let began = Instant::now();
            for turn in 0.. {
                if turn >= TURNS && pair.board[expected].load(SeqCst) > 0 {
                    break;
                }
                assert!(began.elapsed() < PATIENCE, "{name}: neither errors nor copies");
                damage(&segment, &mut random);
                thread::sleep(Duration::from_micros(random.below(3000) as u64));
            }
            let [answered, errors, copied] = pair.stop();
            say(&format!("blobs {name}: {answered} calls answered, {errors} errors, {copied} copied"));
            works(&segment);
        }
    });
}

// ---------------------------------------------------------------- damages

fn remove_folder(segment: &Segment, _: &mut Random) {
    let _ = fs::remove_dir_all(blob_folder(segment));
}

fn put_a_file_there(segment: &Segment, random: &mut Random) {
    let folder = blob_folder(segment);
    let _ = fs::remove_dir_all(&folder);
    if File::create_new(&folder).is_ok() {
        thread::sleep(Duration::from_micros(random.below(2000) as u64));
        fs::remove_file(&folder).unwrap();
    }
}

fn unlink(segment: &Segment, random: &mut Random) {
    // The file may be gone by now, here and below.
    one_of(segment, random).map(fs::remove_file);
}

fn rename(segment: &Segment, random: &mut Random) {
    if let Some(path) = one_of(segment, random) {
        let name = format!("{:016x}{:016x}", random.next(), random.next());
        let _ = fs::rename(&path, path.with_file_name(name));
    }
}

fn cut(segment: &Segment, random: &mut Random) {
    if let Some(file) = one_of(segment, random).and_then(open) {
        let len = file.metadata().unwrap().len() as usize;
        file.set_len([0, random.below(len.max(1)), (len / 2) & !4095][random.below(3)] as u64).unwrap();
    }
}

fn change_owner_and_mode(segment: &Segment, random: &mut Random) {
    if let Some(path) = one_of(segment, random) {
        let mode = [0o600, 0o666, 0o000][random.below(3)];
        let _ = fs::set_permissions(&path, Permissions::from_mode(mode));
        // Only root can change a file's owner.
        let _ = chown(&path, Some([0, 1][random.below(2)]), None);
    }
}

fn scribble(segment: &Segment, random: &mut Random) {
    if let Some(file) = one_of(segment, random).and_then(open) {
        for _ in 0..random.below(8) {
            let word = [0, 1, u64::MAX, random.next(), 1 << 32 | 3][random.below(5)];
            file.write_all_at(&word.to_le_bytes(), 8 * random.below(6) as u64).unwrap();
        }
    }
}

fn one_of(segment: &Segment, random: &mut Random) -> Option<PathBuf> {
    let folder = blob_folder(segment);
    let mut files: Vec<_> = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    (!files.is_empty()).then(|| files.swap_remove(random.below(files.len())))
}

fn open(path: impl AsRef<Path>) -> Option<File> {
    File::options().write(true).open(path).ok()
}

// ---------------------------------------------------------------- the peers

/// A client and a server, and their counters.
struct Pair {
    peers: [Child; 2],
    board: &'static [AtomicU64],
}

const STOP: usize = 0;
const ANSWERED: usize = 1;
const ERRORS: usize = 2;
const COPIED: usize = 3;

impl Pair {
    fn new(segment: &Segment, checks: bool) -> Pair {
        let board = shared(4);
        let peer = Peer { board, checks };
        let path = segment.path().unwrap();
        let client = fork(|| peer.call(&small().open(path).unwrap()));
        // The server keeps no file open in a pool.
        let server = fork(|| peer.serve(&small().blob_pool(0).open(path).unwrap()));
        Pair { peers: [client, server], board }
    }

    /// Waits until a number of the board has grown to `least`.
    fn wait(&self, number: usize, least: u64) {
        let began = Instant::now();
        while self.board[number].load(SeqCst) < least {
            assert!(began.elapsed() < PATIENCE, "stuck for {PATIENCE:?}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops both and checks that they end well; returns how many calls were answered, failed, and
    /// copied.
    fn stop(self) -> [u64; 3] {
        self.board[STOP].store(1, SeqCst);
        self.peers.into_iter().for_each(Child::join);
        [ANSWERED, ERRORS, COPIED].map(|number| self.board[number].load(SeqCst))
    }
}

struct Peer {
    board: &'static [AtomicU64],
    checks: bool,
}

impl Peer {
    fn call(&self, segment: &Segment) {
        let client = segment.client().unwrap();
        for turn in 0u32.. {
            if self.board[STOP].load(SeqCst) != 0 {
                break;
            }
            match self.call_once(segment, &client, 1 + (turn % 255) as u8) {
                Ok(()) => self.add(ANSWERED),
                Err(error) => self.count(&error),
            }
            client.call("no blob", PATIENCE).expect("a call without a blob is answered");
        }
        // The last request that the server takes.
        client.call("stop", PATIENCE).unwrap();
    }

    fn call_once(&self, segment: &Segment, client: &Client, byte: u8) -> Result<(), Error> {
        let mut draft = segment.blob(4096 + 200 * usize::from(byte))?;
        draft.fill(byte);
        let blob = draft.freeze()?;
        let reply = client.call(Message::new(&[byte]).attach(&blob), PATIENCE).map_err(Error::from)?;
        for blob in reply.blobs() {
            self.check(blob, byte)?;
        }
        Ok(())
    }

    fn serve(&self, segment: &Segment) {
        let server = segment.server().unwrap();
        let mut goes_on = true;
        while goes_on {
            match self.serve_once(&server) {
                Ok(is_last) => goes_on = !is_last,
                Err(error) => self.count(&error),
            }
        }
    }

    /// Hands the blobs back; returns whether that was the last request.
    fn serve_once(&self, server: &Server) -> Result<bool, Error> {
        let request = server.recv(PATIENCE)?;
        let (payload, blobs) = (request.to_vec(), request.blobs().to_vec());
        for blob in &blobs {
            self.check(blob, payload[0])?;
            self.board[COPIED].fetch_add(u64::from(blob.is_copied()), SeqCst);
        }
        request.reply(Message::new("").attach(&blobs))?;
        Ok(payload == b"stop")
    }

    /// Reads all bytes. Bytes that were cut off read as zero, and then `check` fails.
    fn check(&self, blob: &Blob, byte: u8) -> Result<(), Error> {
        let is_right = blob.iter().all(|found| *found == byte);
        blob.check()?;
        assert!(is_right || !self.checks, "wrong bytes where {byte} should be");
        Ok(())
    }

    fn count(&self, error: &Error) {
        let expected = [ErrorKind::Corrupt, ErrorKind::Os, ErrorKind::Failed];
        assert!(expected.contains(&error.kind()), "{error}");
        self.add(ERRORS);
    }

    fn add(&self, number: usize) {
        self.board[number].fetch_add(1, SeqCst);
    }
}
