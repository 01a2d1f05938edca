//! The text of the demo: a file that was named, or text found where machines keep some.
//!
//! It is held in memory once, and shared with the writer processes as an unnamed file. A record is
//! a line without its newline; lines may be empty and of any length.

use crate::failure::{Failure, at};
use crate::sys;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Folders that hold text on most machines, prose first.
const FOLDERS: &[&str] = &[
    "/usr/share/dict",
    "/usr/share/common-licenses",
    "/usr/share/licenses",
    "/usr/share/perl",
    "/usr/share/perl5",
    "/usr/lib/python3",
    "/usr/include",
    "/usr/share/doc",
    "/usr/share",
];
/// How deep folders are searched.
const DEPTH: usize = 8;
/// Larger files are rarely text that a person wrote.
const LARGEST_FILE: u64 = 4 << 20;

/// Text, and where it came from.
pub(crate) struct Corpus {
    origin: String,
    text: Vec<u8>,
    shared: File,
}

/// A run of whole records.
pub(crate) struct Share {
    /// Its range in the text, in bytes.
    pub(crate) bytes: Range<usize>,
    /// Indices of its records.
    pub(crate) records: Range<u64>,
}

impl Corpus {
    /// Reads a file: all of it, or whole lines of at most `limit` bytes together. A path that is no
    /// regular file may have no end, and is read up to `endless`.
    pub(crate) fn read(path: &Path, limit: Option<usize>, endless: usize) -> Result<Self, Failure> {
        let mut file = File::open(path).map_err(at(path.display()))?;
        let is_file = file.metadata().is_ok_and(|facts| facts.is_file());
        let limit = limit.or((!is_file).then_some(endless));
        let mut text = Vec::new();
        // One byte more than the limit shows whether the file goes on.
        let most = limit.map_or(u64::MAX, |limit| limit as u64 + 1);
        file.by_ref().take(most).read_to_end(&mut text).map_err(at(path.display()))?;
        if text.is_empty() {
            return Err(Failure::new(format!("{}: the file is empty", path.display())));
        }
        if let Some(limit) = limit.filter(|&limit| limit < text.len()) {
            let end = text[..limit].iter().rposition(|&byte| byte == b'\n');
            text.truncate(end.map_or(limit, |end| end + 1));
        }
        Self::new(path.display().to_string(), text)
    }

    /// Gathers about `wanted` bytes of the text on this machine, again and again if it has less.
    pub(crate) fn find(wanted: usize) -> Result<Self, Failure> {
        let mut text = Vec::new();
        let mut origin = Vec::new();
        for folder in FOLDERS {
            let before = text.len();
            let files = gather(Path::new(folder), DEPTH, wanted, &mut text);
            if text.len() > before {
                origin.push(format!("{files} files of {folder}"));
            }
        }
        if text.is_empty() {
            return Err(Failure::new("no text was found on this machine; name a file: `pipework demo FILE`"));
        }
        let once = text.len();
        if once < wanted {
            let times = wanted.div_ceil(once);
            text = text.repeat(times);
            origin.push(format!("{times} times over"));
        }
        Self::new(origin.join(", "), text)
    }

    fn new(origin: String, text: Vec<u8>) -> Result<Self, Failure> {
        let shared = sys::file_in_memory(&text).map_err(at("memory for the text"))?;
        Ok(Self { origin, text, shared })
    }

    /// The source of the text, in words.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// The text as a file, with a position of its own.
    pub(crate) fn file(&self) -> io::Result<File> {
        File::open(format!("/proc/self/fd/{}", self.shared.as_raw_fd()))
    }

    /// The number of records.
    pub(crate) fn records(&self) -> u64 {
        records(&self.text).count() as u64
    }

    /// Cuts the text into `count` shares of about the same size; some may be empty.
    pub(crate) fn shares(&self, count: usize) -> Vec<Share> {
        shares(&self.text, count)
    }

    /// The same of its first `limit` records.
    pub(crate) fn shares_of_first(&self, limit: usize, count: usize) -> Vec<Share> {
        let len = self.text.split_inclusive(|&byte| byte == b'\n').take(limit).map(<[u8]>::len).sum();
        shares(&self.text[..len], count)
    }
}

fn shares(text: &[u8], count: usize) -> Vec<Share> {
    let mut shares: Vec<Share> = Vec::with_capacity(count);
    let (mut start, mut first) = (0, 0);
    for number in 1..=count {
        let aim = (text.len() * number / count).max(start);
        let end = match text[aim..].iter().position(|&byte| byte == b'\n') {
            Some(newline) if number < count => aim + newline + 1,
            _ => text.len(),
        };
        let next = first + records(&text[start..end]).count() as u64;
        shares.push(Share { bytes: start..end, records: first..next });
        (start, first) = (end, next);
    }
    shares
}

/// The records of a text. A newline ends a record; it does not begin another.
pub(crate) fn records(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\n").unwrap_or(line))
}

/// A digest of one record in its place.
pub(crate) fn digest(index: u64, record: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(index);
    hasher.write(record);
    hasher.finish()
}

/// Appends the text files below `folder`, in the order of their names, until the text is long
/// enough.
fn gather(folder: &Path, depth: usize, wanted: usize, text: &mut Vec<u8>) -> usize {
    // A folder that cannot be read has nothing to give.
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut files = 0;
    for path in paths {
        if text.len() >= wanted {
            break;
        }
        // Links are left out: they lead to files that are read anyway, or in circles.
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() && depth > 0 => {
                files += gather(&path, depth - 1, wanted, text);
            }
            Ok(meta) if meta.is_file() && (1..=LARGEST_FILE).contains(&meta.len()) => {
                if let Ok(content) = fs::read_to_string(&path)
                    && !content.contains('\0')
                {
                    text.extend_from_slice(content.as_bytes());
                    if !content.ends_with('\n') {
                        text.push(b'\n');
                    }
                    files += 1;
                }
            }
            _ => {}
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus(text: &str) -> Corpus {
        Corpus::new(String::new(), text.into()).unwrap()
    }

    #[test]
    fn records_splits_text_into_lines() {
        let found = |text: &'static str| records(text.as_bytes()).collect::<Vec<_>>();
        assert_eq!(found(""), [] as [&[u8]; 0]);
        assert_eq!(found("\n"), [b""]);
        assert_eq!(found("a\n\nb"), [b"a" as &[u8], b"", b"b"]);
    }

    #[test]
    fn shares_cover_the_text_once() {
        for text in ["", "x", "a\nbb\n\nccc\n", "one long line without end", "\n\n\n\n"] {
            let corpus = corpus(text);
            for count in 1..6 {
                let shares = corpus.shares(count);
                assert_eq!(shares.len(), count);
                let (mut byte, mut record) = (0, 0);
                for share in &shares {
                    assert_eq!((share.bytes.start, share.records.start), (byte, record));
                    let held = records(&corpus.text()[share.bytes.clone()]).count() as u64;
                    assert_eq!(share.records.end - share.records.start, held);
                    (byte, record) = (share.bytes.end, share.records.end);
                }
                assert_eq!((byte, record), (text.len(), corpus.records()), "{text:?} {count}");
            }
        }
    }
}
