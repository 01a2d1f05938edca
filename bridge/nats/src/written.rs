//! Which messages of a stream are in the pipe already, so that none is written twice.
//!
//! They are kept as ranges of the stream's numbers. With a file, they outlive the program: before a
//! message is written its number is noted, and when it is in the pipe the numbers of all its
//! pieces, or that it is not. A program that is killed between the two leaves one message in doubt,
//! and says so when it starts again. The file is a line that names the stream, then pairs of
//! numbers: a range that is in the pipe, or a number that is in doubt and 0; 0 and 0 takes the
//! doubt back.

use crate::channel::{Failure, at};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const MAGIC: &str = "pipework-nats written 1";
const PAIR: usize = 16;
/// Pairs in the file, from which on it is written anew.
const PAIRS: usize = 1 << 16;
/// Ranges that are remembered. What is beyond them was acknowledged long ago.
const RANGES: usize = 1 << 17;

/// Sets of numbers, as ranges.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn has(&self, number: u64) -> bool {
        self.0.range(..=number).next_back().is_some_and(|(_, last)| *last >= number)
    }

    fn add(&mut self, first: u64, last: u64) {
        let (mut first, mut last) = (first, last);
        // Those that touch it become one with it.
        while let Some((&begin, &end)) = self.0.range(..=last.saturating_add(1)).next_back() {
            if end.saturating_add(1) < first {
                break;
            }
            self.0.remove(&begin);
            (first, last) = (first.min(begin), last.max(end));
        }
        self.0.insert(first, last);
        if self.0.len() > RANGES {
            self.0.pop_first();
        }
    }
}

#[derive(Debug)]
pub(crate) struct Written {
    ranges: Ranges,
    file: Option<Log>,
}

#[derive(Debug)]
struct Log {
    file: File,
    path: PathBuf,
    title: String,
    pairs: usize,
}

impl Written {
    /// Opens the file for the stream that is known by `stream`, or makes it; without one, what was
    /// written is forgotten with the program. Also the message that is in doubt.
    pub(crate) fn open(path: Option<&Path>, stream: &str) -> Result<(Written, Option<u64>), Failure> {
        let Some(path) = path else { return Ok((Written { ranges: Ranges::default(), file: None }, None)) };
        let failed = || at(path.display());
        let title = format!("{MAGIC} {}\n", stream.replace('\n', " "));
        let mut file = open(path).map_err(failed())?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Failure(format!("{}: another program uses this journal", path.display())));
            }
            Err(TryLockError::Error(error)) => return Err(failed()(error)),
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed())?;
        if bytes.is_empty() {
            file.write_all(title.as_bytes()).map_err(failed())?;
            bytes.extend(title.as_bytes());
        }
        if !bytes.starts_with(MAGIC.as_bytes()) {
            let why = "this is no journal of `pipework nats subscribe`";
            return Err(Failure(format!("{}: {why}", path.display())));
        }
        let Some(pairs) = bytes.strip_prefix(title.as_bytes()) else {
            let why = "this journal is of another stream, or of one that was made anew; remove it to begin";
            return Err(Failure(format!("{}: {why}", path.display())));
        };
        let (mut ranges, mut doubt) = (Ranges::default(), None);
        let (pairs, _) = pairs.as_chunks::<PAIR>();
        for pair in pairs {
            let word = |at: usize| u64::from_ne_bytes(pair[at..at + 8].try_into().expect("eight bytes"));
            match (word(0), word(8)) {
                (number, 0) => doubt = (number > 0).then_some(number),
                (first, last) => ranges.add(first, last.max(first)),
            }
        }
        let doubt = doubt.filter(|number| !ranges.has(*number));
        let len = (title.len() + pairs.len() * PAIR) as u64;
        file.seek(SeekFrom::Start(len)).map_err(failed())?;
        let log = Log { file, path: path.into(), title, pairs: pairs.len() };
        Ok((Written { ranges, file: Some(log) }, doubt))
    }

    /// Whether a message is in the pipe.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.ranges.has(number)
    }

    /// A message is about to be written.
    pub(crate) fn begin(&mut self, number: u64) -> Result<(), Failure> {
        self.note(&[(number, 0)])
    }

    /// It is not, or not all of it.
    pub(crate) fn not_written(&mut self) -> Result<(), Failure> {
        self.note(&[(0, 0)])
    }

    /// It is in the pipe, with all its pieces.
    pub(crate) fn done(&mut self, numbers: &[u64]) -> Result<(), Failure> {
        numbers.iter().for_each(|number| self.ranges.add(*number, *number));
        let pairs: Vec<_> = numbers.iter().map(|number| (*number, *number)).collect();
        self.note(&pairs)
    }

    fn note(&mut self, pairs: &[(u64, u64)]) -> Result<(), Failure> {
        let Some(log) = &mut self.file else { return Ok(()) };
        log.pairs += pairs.len();
        let noted = match log.pairs > PAIRS + self.ranges.0.len() && pairs.iter().all(|(_, last)| *last > 0) {
            true => log.begin_anew(&self.ranges),
            false => log.file.write_all(&bytes(pairs.iter().copied())),
        };
        noted.map_err(at(log.path.display()))
    }
}

impl Log {
    /// Writes a file that holds the ranges only, and puts it in the place of this one.
    fn begin_anew(&mut self, ranges: &Ranges) -> io::Result<()> {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let aside = self.path.with_file_name(name);
        let mut file = open(&aside)?;
        file.set_len(0)?;
        file.try_lock().map_err(io::Error::from)?;
        let mut all = self.title.clone().into_bytes();
        all.extend(bytes(ranges.0.iter().map(|(first, last)| (*first, *last))));
        file.write_all(&all)?;
        std::fs::rename(aside, &self.path)?;
        (self.file, self.pairs) = (file, ranges.0.len());
        Ok(())
    }
}

fn bytes(pairs: impl Iterator<Item = (u64, u64)>) -> Vec<u8> {
    pairs.flat_map(|(first, last)| [first.to_ne_bytes(), last.to_ne_bytes()].concat()).collect()
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_grow_together() {
        let mut ranges = Ranges::default();
        let numbers = [5, 3, 9, 4, 8, 1, 7, 7, 6, u64::MAX];
        for (nth, number) in numbers.iter().enumerate() {
            assert_eq!(ranges.has(*number), numbers[..nth].contains(number));
            ranges.add(*number, *number);
            assert!((0..12).all(|each| ranges.has(each) == numbers[..=nth].contains(&each)), "{nth}");
        }
        assert_eq!(ranges.0, [(1, 1), (3, 9), (u64::MAX, u64::MAX)].into());
    }

    #[test]
    fn another_start_knows_what_was_written_and_what_is_in_doubt() {
        let path = std::env::temp_dir().join(format!("pipework-written-{}", std::process::id()));
        let open = |stream| Written::open(Some(&path), stream);
        let (mut written, doubt) = open("s").unwrap();
        assert_eq!(doubt, None);
        assert!(open("s").unwrap_err().0.contains("another program"));
        for number in 1..100_000 {
            written.begin(number).unwrap();
            written.done(&[number]).unwrap();
        }
        written.begin(200_000).unwrap();
        drop(written);
        assert!(std::fs::metadata(&path).unwrap().len() < 2_000_000, "it is written anew");
        // A kill may leave half a pair.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"half").unwrap();
        let (mut written, doubt) = open("s").unwrap();
        assert_eq!(doubt, Some(200_000));
        assert!(written.has(1) && written.has(99_999) && !written.has(100_000));
        written.done(&[200_000, 200_002]).unwrap();
        written.begin(300_000).unwrap();
        written.not_written().unwrap();
        drop(written);
        let (written, doubt) = open("s").unwrap();
        assert!(doubt.is_none() && written.has(200_002) && !written.has(200_001));
        drop(written);
        assert!(open("another").unwrap_err().0.contains("another stream"));
        std::fs::write(&path, "something else").unwrap();
        assert!(open("s").unwrap_err().0.contains("no journal"));
        std::fs::remove_file(&path).unwrap();
    }
}
