//! Which messages of a stream are in the pipe already, so that none is written twice.
//!
//! They are kept as ranges of the stream's numbers, and by their [names](crate::names). With a
//! file that outlives the program: before a message is written its number is noted, and when it is
//! in the pipe its name and the numbers of all its pieces, or that it is not. A program that is
//! killed between the two leaves one message in doubt, and says so when it starts again. The file
//! is a line that names the stream, then records of 48 bytes in the machine's byte order: a word
//! that has the kind in its lowest byte and a check of all else in the others, and five words.

use crate::channel::{Failure, at};
use crate::journal::Place;
use crate::names::{Name, Names, digest};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const MAGIC: &str = "pipework-nats written 2";
const WORDS: usize = 5;
const RECORD: usize = 8 * (1 + WORDS);
/// When this many records are not needed any more, the file is written again without them.
const STALE: usize = 1 << 16;
/// Ranges that are remembered. Ranges before them were acknowledged long ago.
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

/// The records of the file, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    /// The message of this number is about to be written.
    Doubt(u64),
    /// It is not, or not all of it.
    NoDoubt,
    /// These numbers are in the pipe.
    Range(u64, u64),
    /// This name is, of a message that the stream took at this time.
    Name(Name, u64),
}

impl Record {
    fn bytes(&self) -> [u8; RECORD] {
        let (kind, words) = match *self {
            Record::Doubt(number) => (1, [number, 0, 0, 0, 0]),
            Record::NoDoubt => (2, [0; WORDS]),
            Record::Range(first, last) => (3, [first, last, 0, 0, 0]),
            Record::Name(Name::Span { journal, after, place }, _) => {
                (4, [journal, after.end, after.nth, place.end, place.nth])
            }
            Record::Name(Name::Other(digest), time) => {
                (5, [(digest >> 64) as u64, digest as u64, time, 0, 0])
            }
        };
        let mut bytes = [0; RECORD];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip([kind].into_iter().chain(words)) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        let checked = kind | (digest(&bytes) as u64) << 8;
        bytes[..8].copy_from_slice(&checked.to_ne_bytes());
        bytes
    }

    /// `None` if this program did not write these bytes.
    fn read(bytes: &[u8; RECORD]) -> Option<Record> {
        let word = |at: usize| u64::from_ne_bytes(bytes[8 * at..8 * at + 8].try_into().expect("eight bytes"));
        let place = |at| Place { end: word(at), nth: word(at + 1) };
        let record = match word(0) & 0xff {
            1 => Record::Doubt(word(1)),
            2 => Record::NoDoubt,
            3 => Record::Range(word(1), word(2)),
            4 => Record::Name(Name::Span { journal: word(1), after: place(2), place: place(4) }, 0),
            5 => Record::Name(Name::Other(u128::from(word(1)) << 64 | u128::from(word(2))), word(3)),
            _ => return None,
        };
        Some(record).filter(|record| record.bytes() == *bytes)
    }
}

#[derive(Debug)]
pub(crate) struct Written {
    ranges: Ranges,
    names: Names,
    file: Option<Log>,
}

#[derive(Debug)]
struct Log {
    file: File,
    path: PathBuf,
    title: String,
    records: usize,
}

impl Written {
    /// Kept in memory only, for a stream with this duplicate window, in nanoseconds.
    pub(crate) fn unkept(window: u64) -> Written {
        Written { ranges: Ranges::default(), names: Names::new(window), file: None }
    }

    /// Opens the file for the stream that is known by `stream`, or makes it. Also the message that
    /// is in doubt.
    pub(crate) fn open(path: &Path, stream: &str, window: u64) -> Result<(Written, Option<u64>), Failure> {
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
        // Nothing, or as much of its first line as a full disk took.
        if title.as_bytes().starts_with(&bytes) && bytes.len() < title.len() {
            file.rewind().and_then(|()| file.write_all(title.as_bytes())).map_err(failed())?;
            bytes = title.clone().into_bytes();
        }
        if !bytes.starts_with(MAGIC.as_bytes()) {
            let why = "this is no journal of `pipework nats subscribe`";
            return Err(Failure(format!("{}: {why}", path.display())));
        }
        let Some(records) = bytes.strip_prefix(title.as_bytes()) else {
            let why = "this journal is of another stream, or of a recreated one; remove it to begin";
            return Err(Failure(format!("{}: {why}", path.display())));
        };
        let (mut written, mut doubt, mut damaged) = (Written::unkept(window), None, 0);
        let (records, _) = records.as_chunks::<RECORD>();
        for record in records {
            match Record::read(record) {
                Some(Record::Doubt(number)) => doubt = Some(number),
                Some(Record::NoDoubt) => doubt = None,
                Some(Record::Range(first, last)) => written.ranges.add(first, last.max(first)),
                Some(Record::Name(name, time)) => written.names.add(&name, time),
                None => damaged += 1,
            }
        }
        if damaged > 0 {
            eprintln!(
                "pipework nats: {}: {damaged} of {} records are damaged; what they were about may be \
                 written twice",
                path.display(),
                records.len()
            );
        }
        let doubt = doubt.filter(|number| !written.ranges.has(*number));
        let len = (title.len() + records.len() * RECORD) as u64;
        file.set_len(len).and_then(|()| file.seek(SeekFrom::Start(len))).map_err(failed())?;
        written.file = Some(Log { file, path: path.into(), title, records: records.len() });
        Ok((written, doubt))
    }

    /// Whether a message is in the pipe, by its number.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.ranges.has(number)
    }

    /// Whether it is there by its name; `time` is when the stream took it.
    pub(crate) fn has_name(&self, name: &Name, time: u64) -> bool {
        self.names.has(name, time)
    }

    /// A message is about to be written.
    pub(crate) fn begin(&mut self, number: u64) -> Result<(), Failure> {
        self.note(&[Record::Doubt(number)])
    }

    /// It is not, or not all of it.
    pub(crate) fn not_written(&mut self) -> Result<(), Failure> {
        self.note(&[Record::NoDoubt])
    }

    /// It is in the pipe, with all its pieces; the time is that at which the stream took it.
    pub(crate) fn done(&mut self, numbers: &[u64], name: Option<(Name, u64)>) -> Result<(), Failure> {
        numbers.iter().for_each(|number| self.ranges.add(*number, *number));
        if let Some((name, time)) = &name {
            self.names.add(name, *time);
        }
        // The name first: the name alone is enough to recognize a repeated message.
        let name = name.map(|(name, time)| Record::Name(name, time));
        let numbers = numbers.iter().map(|number| Record::Range(*number, *number));
        let records: Vec<_> = name.into_iter().chain(numbers).collect();
        let needed = self.ranges.0.len() + self.names.len();
        match &mut self.file {
            Some(log) if log.records > STALE + needed => {
                log.begin_anew(&self.ranges, &self.names).map_err(at(log.path.display()))
            }
            _ => self.note(&records),
        }
    }

    fn note(&mut self, records: &[Record]) -> Result<(), Failure> {
        let Some(log) = &mut self.file else { return Ok(()) };
        log.records += records.len();
        let bytes: Vec<u8> = records.iter().flat_map(Record::bytes).collect();
        log.file.write_all(&bytes).map_err(at(log.path.display()))
    }
}

impl Log {
    /// Writes a file that holds only the current state, and replaces this file with it.
    fn begin_anew(&mut self, ranges: &Ranges, names: &Names) -> io::Result<()> {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let aside = self.path.with_file_name(name);
        let mut file = open(&aside)?;
        file.set_len(0)?;
        file.try_lock().map_err(io::Error::from)?;
        let mut all = self.title.clone().into_bytes();
        let ranges = ranges.0.iter().map(|(first, last)| Record::Range(*first, *last));
        let names = names.iter().map(|(name, time)| Record::Name(name, time));
        let before = all.len();
        ranges.chain(names).for_each(|record| all.extend(record.bytes()));
        file.write_all(&all)?;
        std::fs::rename(aside, &self.path)?;
        (self.file, self.records) = (file, (all.len() - before) / RECORD);
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_ranges_merge() {
        let mut ranges = Ranges::default();
        let numbers = [5, 3, 9, 4, 8, 1, 7, 7, 6, u64::MAX];
        for (nth, number) in numbers.iter().enumerate() {
            assert_eq!(ranges.has(*number), numbers[..nth].contains(number));
            ranges.add(*number, *number);
            assert!((0..12).all(|each| ranges.has(each) == numbers[..=nth].contains(&each)), "{nth}");
        }
        assert_eq!(ranges.0, [(1, 1), (3, 9), (u64::MAX, u64::MAX)].into());
    }

    fn span(after: u64, end: u64) -> Name {
        Name::Span { journal: 7, after: Place { end: after, nth: 0 }, place: Place { end, nth: 0 } }
    }

    #[test]
    fn written_and_doubtful_ranges_survive_a_restart() {
        let path = std::env::temp_dir().join(format!("pipework-written-{}", std::process::id()));
        let open = |stream| Written::open(&path, stream, 100);
        let (mut written, doubt) = open("s").unwrap();
        assert_eq!(doubt, None);
        assert!(open("s").unwrap_err().0.contains("another program"));
        for number in 1..100_000 {
            written.begin(number).unwrap();
            written.done(&[number], Some((span(10 * number, 10 * number + 10), 0))).unwrap();
        }
        let others = [b"a", b"b"].map(|id| Name::Other(digest(id)));
        written.done(&[150_000], Some((others[0], 5000))).unwrap();
        written.begin(200_000).unwrap();
        drop(written);
        assert!(std::fs::metadata(&path).unwrap().len() < 10_000_000, "it was not rewritten");
        // A kill may leave half a record.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"half").unwrap();
        let (mut written, doubt) = open("s").unwrap();
        assert_eq!(doubt, Some(200_000));
        assert!(written.has(1) && written.has(99_999) && !written.has(100_000));
        assert!(written.has_name(&span(10, 20), 0) && written.has_name(&span(10, 1_000_000), 0));
        assert!(!written.has_name(&span(1_000_000, 1_000_010), 0));
        assert!(written.has_name(&others[0], 5100) && !written.has_name(&others[1], 5100));
        written.done(&[200_000, 200_002], None).unwrap();
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

    /// Overwrite or cut any part: nothing is known that was not written.
    #[test]
    fn damaged_file_yields_only_written_ranges() {
        let path = std::env::temp_dir().join(format!("pipework-damaged-{}", std::process::id()));
        let open = || Written::open(&path, "s", 100);
        let (mut written, _) = open().unwrap();
        for number in (10..100).step_by(10) {
            written.begin(number).unwrap();
            written.done(&[number], Some((span(number, number + 1), 0))).unwrap();
        }
        drop(written);
        let whole = std::fs::read(&path).unwrap();
        let is_right = |known: usize| {
            let (written, _) = open().unwrap();
            let numbers: Vec<_> = (0..120).filter(|number| written.has(*number)).collect();
            let names: Vec<_> =
                (0..120).filter(|number| written.has_name(&span(*number, number + 1), 0)).collect();
            assert!(numbers.iter().chain(&names).all(|number| number % 10 == 0), "{numbers:?} {names:?}");
            assert!(numbers.len().max(names.len()) >= known, "{numbers:?} {names:?}");
        };
        let title = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for at in 0..whole.len() {
            std::fs::write(&path, &whole[..at]).unwrap();
            // If its first line is cut, it starts again from nothing.
            is_right(at.saturating_sub(title) / (3 * RECORD));
            if at >= title {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << (at % 8);
                std::fs::write(&path, damaged).unwrap();
                is_right(8);
                // As a machine leaves it that lost its power.
                let mut zeros = whole[..at].to_vec();
                zeros.resize(whole.len(), 0);
                std::fs::write(&path, zeros).unwrap();
                is_right((at - title) / (3 * RECORD));
            }
        }
        std::fs::remove_file(&path).unwrap();
    }
}
