//! Compression of whole messages and bursts, each into one zstd frame.
//!
//! Invariant: nothing is decompressed past the reader's `max_message`, whatever a frame claims; and
//! a frame made with a dictionary carries a checksum, so that a wrong dictionary is an error and
//! never yields other bytes.

use std::path::Path;
use std::sync::Arc;

use zstd::zstd_safe::{self, CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer};

use super::item::{Limit, Unfit};
use crate::defaults;
use crate::error::{Error, ErrorKind};

type Result<T, E = Error> = std::result::Result<T, E>;

/// How to compress. Both ends of a pipe must agree on whether to compress, and on the dictionary;
/// the writer alone chooses the level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zstd {
    level: i32,
    dictionary: Option<Arc<[u8]>>,
    unchecked: bool,
}

impl Default for Zstd {
    fn default() -> Zstd {
        Zstd { level: defaults::ZSTD_LEVEL, dictionary: None, unchecked: false }
    }
}

impl Zstd {
    /// Level 3, no dictionary.
    pub fn new() -> Zstd {
        Zstd::default()
    }

    /// From -131072 (fastest) to 22 (smallest). 1 and 3 suit most messages; -3 if CPU time is
    /// scarce. The call that takes this setting refuses any other number as `Invalid`.
    pub fn with_level(self, level: i32) -> Zstd {
        Zstd { level, ..self }
    }

    /// Raw bytes that resemble the messages, for instance one of them. It helps most where messages
    /// are small and alike.
    pub fn with_dictionary(self, bytes: impl Into<Vec<u8>>) -> Zstd {
        Zstd { dictionary: Some(bytes.into().into()), ..self }
    }

    /// The contents of a file as the dictionary; read once, now.
    ///
    /// # Errors
    /// `Os` with the kernel's number if the file cannot be read.
    pub fn with_dictionary_file(self, path: impl AsRef<Path>) -> Result<Zstd> {
        let bytes = crate::sys::read_file(path.as_ref()).map_err(|errno| errno.at("read zstd dictionary"))?;
        Ok(self.with_dictionary(bytes))
    }

    /// Lets a reader that has a dictionary take frames without a checksum too, which Atomic::Pipe
    /// writes. A wrong dictionary may then give wrong bytes. By default such a frame is `Corrupt`.
    pub fn accept_unchecked(self, accept: bool) -> Zstd {
        Zstd { unchecked: accept, ..self }
    }

    /// The level of this setting.
    pub fn level(&self) -> i32 {
        self.level
    }

    /// The dictionary of this setting.
    pub fn dictionary(&self) -> Option<&[u8]> {
        self.dictionary.as_deref()
    }

    /// Whether this setting accepts frames without a checksum if it has a dictionary.
    pub fn accepts_unchecked(&self) -> bool {
        self.unchecked
    }

    fn check(&self) -> Result<()> {
        let levels = zstd_safe::min_c_level()..=zstd_safe::max_c_level();
        let invalid = Error::new(ErrorKind::Invalid, "set zstd level");
        if levels.contains(&self.level) { Ok(()) } else { Err(invalid) }
    }
}

/// The writer's half.
pub(super) struct Compressor {
    settings: Zstd,
    context: CCtx<'static>,
}

impl Compressor {
    pub(super) fn new(settings: Zstd) -> Result<Compressor> {
        const OP: &str = "set zstd compression";
        settings.check()?;
        let invalid = |_| Error::new(ErrorKind::Invalid, OP);
        let mut context = CCtx::create();
        context.set_parameter(CParameter::CompressionLevel(settings.level)).map_err(invalid)?;
        if let Some(dictionary) = &settings.dictionary {
            context.load_dictionary(dictionary).map_err(invalid)?;
            context.set_parameter(CParameter::ChecksumFlag(true)).map_err(invalid)?;
        }
        Ok(Compressor { settings, context })
    }

    pub(super) fn settings(&self) -> &Zstd {
        &self.settings
    }

    /// Puts one frame that holds `data` into `frame`.
    pub(super) fn compress(&mut self, data: &[u8], frame: &mut Vec<u8>, op: &'static str) -> Result<()> {
        let needed = zstd_safe::compress_bound(data.len());
        frame.clear();
        give_back(frame, needed);
        frame.reserve(needed);
        self.context.compress2(frame, data).map(drop).map_err(|_| Error::new(ErrorKind::TooLong, op))
    }
}

/// The reader's half.
pub(super) struct Decompressor {
    settings: Zstd,
    context: DCtx<'static>,
}

impl Decompressor {
    pub(super) fn new(settings: Zstd) -> Result<Decompressor> {
        const OP: &str = "set zstd decompression";
        settings.check()?;
        let mut context = DCtx::create();
        if let Some(dictionary) = &settings.dictionary {
            context.load_dictionary(dictionary).map_err(|_| Error::new(ErrorKind::Invalid, OP))?;
        }
        Ok(Decompressor { settings, context })
    }

    pub(super) fn settings(&self) -> &Zstd {
        &self.settings
    }

    /// Puts the content of `frame` into `data`. Unfit if it is not one whole, sound frame, or
    /// exceeds `max` bytes.
    pub(super) fn decompress(&mut self, frame: &[u8], data: &mut Vec<u8>, max: usize) -> Result<(), Unfit> {
        data.clear();
        if frame_len(frame) != Some(frame.len()) || !self.may_trust(frame) {
            return Err(Unfit::Corrupt);
        }
        match zstd_safe::get_frame_content_size(frame) {
            Ok(Some(len)) => {
                let len = usize::try_from(len)
                    .ok()
                    .filter(|len| *len <= max)
                    .ok_or(Unfit::TooLong(Limit::MaxMessage))?;
                give_back(data, len);
                reserve(data, len)?;
                self.context.decompress(data, frame).map(drop).map_err(|_| Unfit::Corrupt)
            }
            Ok(None) => self.decompress_unsized(frame, data, max),
            Err(_) => Err(Unfit::Corrupt),
        }
    }

    /// A frame that does not give the size of its content.
    fn decompress_unsized(&mut self, frame: &[u8], data: &mut Vec<u8>, max: usize) -> Result<(), Unfit> {
        const STEP: usize = 1 << 16;
        // A frame also asks for a window of memory. 8 MiB is the most that a level below 20 may
        // need (RFC 8878 recommends supporting it).
        const WINDOW: usize = 8 << 20;
        let window_log = (max.clamp(WINDOW, (1 << 27) - 1) + 1).next_power_of_two().ilog2();
        self.context.reset(zstd_safe::ResetDirective::SessionOnly).map_err(|_| Unfit::Corrupt)?;
        self.context.set_parameter(DParameter::WindowLogMax(window_log)).map_err(|_| Unfit::Corrupt)?;
        let mut input = InBuffer::around(frame);
        loop {
            let filled = data.len();
            // One byte past the limit distinguishes a message of exactly that size from a longer
            // one.
            reserve(data, filled.max(STEP).min(max.saturating_add(1) - filled))?;
            let left = {
                let mut output = OutBuffer::around_pos(data, filled);
                self.context.decompress_stream(&mut output, &mut input).map_err(|_| Unfit::Corrupt)?
            };
            if data.len() > max {
                data.clear();
                return Err(Unfit::TooLong(Limit::MaxMessage));
            }
            if left == 0 {
                return Ok(());
            }
            if data.len() == filled && input.pos() == frame.len() {
                return Err(Unfit::Corrupt);
            }
        }
    }

    fn may_trust(&self, frame: &[u8]) -> bool {
        self.settings.dictionary.is_none() || self.settings.unchecked || has_checksum(frame)
    }
}

/// Reserves space for `more` bytes. A frame may claim more than there is memory for.
fn reserve(data: &mut Vec<u8>, more: usize) -> Result<(), Unfit> {
    data.try_reserve_exact(more).map_err(|_| Unfit::TooLong(Limit::Memory))
}

/// Releases memory that one large message needed and the next `needed` bytes do not.
fn give_back(scratch: &mut Vec<u8>, needed: usize) {
    if scratch.capacity() > (1 << 20) && needed < scratch.capacity() / 4 {
        *scratch = Vec::new();
    }
}

/// The first bytes of a zstd frame (RFC 8878, 3.1.1).
const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

pub(super) fn is_frame(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// The length of the frame at the start of `bytes`; `None` if it is incomplete or no frame.
pub(super) fn frame_len(bytes: &[u8]) -> Option<usize> {
    if !is_frame(bytes) {
        return None;
    }
    zstd_safe::find_frame_compressed_size(bytes).ok()
}

/// Bit 2 of the frame header descriptor (RFC 8878, 3.1.1.1.1).
fn has_checksum(frame: &[u8]) -> bool {
    frame.get(MAGIC.len()).is_some_and(|descriptor| descriptor & 0b100 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(write: Zstd, read: Zstd, data: &[u8], max: usize) -> Result<Vec<u8>, Unfit> {
        let (mut frame, mut out) = (Vec::new(), Vec::new());
        Compressor::new(write).unwrap().compress(data, &mut frame, "test").unwrap();
        Decompressor::new(read).unwrap().decompress(&frame, &mut out, max).map(|()| out)
    }

    #[test]
    fn every_level_round_trips() {
        let data = b"{\"level\":\"info\",\"n\":12345}".repeat(500);
        for level in [-131072, -5, -3, -1, 0, 1, 3, 7, 19, 22] {
            assert_eq!(
                round_trip(Zstd::new().with_level(level), Zstd::new(), &data, data.len()),
                Ok(data.clone()),
                "level {level}"
            );
        }
        assert_eq!(round_trip(Zstd::new(), Zstd::new(), b"", 0), Ok(Vec::new()));
        for level in [23, -131073, i32::MIN, i32::MAX] {
            assert_eq!(
                Compressor::new(Zstd::new().with_level(level)).err().map(|e| e.kind()),
                Some(ErrorKind::Invalid),
                "level {level}"
            );
        }
    }

    #[test]
    fn a_wrong_dictionary_is_an_error() {
        let data = b"the quick brown fox jumps over the lazy dog".repeat(3);
        let with = |text: &[u8]| Zstd::new().with_dictionary(text.repeat(20));
        let right = with(b"the quick brown fox jumps over the lazy dog. ");
        let wrong = with(b"THE SLOW GREEN CAT CRAWLS UNDER A BUSY COW?! ");
        assert_eq!(round_trip(right.clone(), right.clone(), &data, 1 << 20), Ok(data.clone()));
        assert_eq!(round_trip(right.clone(), wrong, &data, 1 << 20), Err(Unfit::Corrupt));
        assert_eq!(round_trip(right.clone(), Zstd::new(), &data, 1 << 20), Err(Unfit::Corrupt));
        // A frame without a checksum is accepted only on request.
        assert_eq!(round_trip(Zstd::new(), right.clone(), &data, 1 << 20), Err(Unfit::Corrupt));
        assert_eq!(round_trip(Zstd::new(), right.accept_unchecked(true), &data, 1 << 20), Ok(data));
    }

    #[test]
    fn decompression_bomb_is_refused_before_memory_is_allocated() {
        let mut bomb = Vec::new();
        Compressor::new(Zstd::new()).unwrap().compress(&vec![0; 256 << 20], &mut bomb, "test").unwrap();
        assert!(bomb.len() < 64 << 10, "{} bytes", bomb.len());
        let mut out = Vec::new();
        assert_eq!(
            Decompressor::new(Zstd::new()).unwrap().decompress(&bomb, &mut out, 1 << 20),
            Err(Unfit::TooLong(Limit::MaxMessage))
        );
        assert_eq!(out.capacity(), 0);
    }

    #[test]
    fn frame_that_claims_more_than_memory_is_reported_as_too_long() {
        // Magic, descriptor (8 bytes of size, one segment), 2^62 bytes, one empty last block.
        let claim = [[0x28, 0xB5, 0x2F, 0xFD, 0xE0, 0, 0, 0], [0, 0, 0, 0, 0x40, 0x01, 0, 0]].concat();
        let mut out = Vec::new();
        let mut decompressor = Decompressor::new(Zstd::new()).unwrap();
        assert_eq!(decompressor.decompress(&claim, &mut out, usize::MAX), Err(Unfit::TooLong(Limit::Memory)));
    }

    #[test]
    fn frame_with_a_window_over_the_limit_is_refused() {
        // Magic, descriptor (no size, no checksum), a window descriptor of 2^27 bytes, one empty
        // last block.
        let frame = [0x28, 0xB5, 0x2F, 0xFD, 0x00, (27 - 10) << 3, 0x01, 0x00, 0x00];
        let mut out = Vec::new();
        let mut decompressor = Decompressor::new(Zstd::new()).unwrap();
        assert_eq!(decompressor.decompress(&frame, &mut out, 1000), Err(Unfit::Corrupt));
        assert_eq!(decompressor.decompress(&frame, &mut out, 1 << 27), Ok(()));
        assert_eq!(decompressor.decompress(&frame, &mut out, usize::MAX), Ok(()));
    }

    #[test]
    fn frame_of_unknown_size_is_held_to_max_message() {
        let data = vec![7u8; 300_000];
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
        std::io::Write::write_all(&mut encoder, &data).unwrap();
        let frame = encoder.finish().unwrap();
        assert_eq!(zstd_safe::get_frame_content_size(&frame).ok(), Some(None));
        let mut out = Vec::new();
        let mut decompressor = Decompressor::new(Zstd::new()).unwrap();
        assert_eq!(decompressor.decompress(&frame, &mut out, data.len()), Ok(()));
        assert_eq!(out, data);
        assert_eq!(
            decompressor.decompress(&frame, &mut out, data.len() - 1),
            Err(Unfit::TooLong(Limit::MaxMessage))
        );
        assert!(out.capacity() <= data.len() + 1, "{}", out.capacity());
        assert_eq!(
            decompressor.decompress(&frame[..frame.len() - 1], &mut out, data.len()),
            Err(Unfit::Corrupt)
        );
        assert_eq!(
            decompressor.decompress(&[&frame[..], &frame[..]].concat(), &mut out, data.len()),
            Err(Unfit::Corrupt)
        );
        assert_eq!(
            decompressor.decompress(&frame, &mut out, data.len()),
            Ok(()),
            "and is none the worse for it"
        );
    }
}
