//! Takes items out of the zstd frames that they came in. Pure.
//!
//! Invariant: the data that it holds is no longer than the reader's `max_message`. Each clone of a
//! reader has an unpacker of its own, so that clones decompress at the same time.

use std::borrow::Cow;

use super::item::{Burst, Item, Message, Torn, Unfit};
use super::zstd::{Decompressor, Zstd};
use crate::error::Result;

/// Unpacks items.
pub(super) struct Unpacker {
    /// How many times its settings have changed.
    version: u64,
    zstd: Option<Decompressor>,
    keep_compressed: bool,
    max_message: usize,
    /// The data that was decompressed last.
    data: Vec<u8>,
}

impl Unpacker {
    /// An unpacker that leaves items as they are.
    pub(super) fn new(max_message: usize) -> Unpacker {
        Unpacker { version: 0, zstd: None, keep_compressed: false, max_message, data: Vec::new() }
    }

    pub(super) fn zstd(&self) -> Option<&Zstd> {
        self.zstd.as_ref().map(Decompressor::settings)
    }

    pub(super) fn set_zstd(&mut self, zstd: Option<Zstd>) -> Result<()> {
        self.zstd = zstd.map(Decompressor::new).transpose()?;
        self.version += 1;
        Ok(())
    }

    pub(super) fn keeps_compressed(&self) -> bool {
        self.keep_compressed
    }

    pub(super) fn set_keep_compressed(&mut self, keep: bool) {
        self.keep_compressed = keep;
        self.version += 1;
    }

    /// Takes over the settings of another one.
    pub(super) fn follow(&mut self, other: &Unpacker) -> Result<()> {
        if self.version != other.version {
            self.set_zstd(other.zstd().cloned())?;
            self.keep_compressed = other.keep_compressed;
            self.max_message = other.max_message;
            self.version = other.version;
        }
        Ok(())
    }

    /// The item as it was sent, or a report of it if it cannot be unpacked.
    #[inline]
    pub(super) fn unpack<'a>(&'a mut self, item: Item<'a>) -> Item<'a> {
        if self.zstd.is_none() {
            return item;
        }
        match item {
            Item::Message(Message { data, writer, parts, .. }) => {
                let bytes = data.len();
                match self.decompress(data) {
                    Ok((data, compressed)) => Item::Message(Message { data, writer, parts, compressed }),
                    Err(unfit) => Item::Torn(Torn::incomplete(Some(writer), parts, bytes).unfit(unfit)),
                }
            }
            Item::Burst(Burst { data, .. }) => {
                let bytes = data.len();
                match self.decompress(data) {
                    Ok((data, compressed)) => Item::Burst(Burst { data, compressed }),
                    Err(unfit) => Item::Torn(Torn::incomplete(None, 1, bytes).unfit(unfit)),
                }
            }
            other => other,
        }
    }

    fn decompress<'a>(&'a mut self, frame: Cow<'a, [u8]>) -> std::result::Result<Unpacked<'a>, Unfit> {
        if let Some(zstd) = &mut self.zstd {
            zstd.decompress(&frame, &mut self.data, self.max_message)?;
        }
        Ok((Cow::Borrowed(&self.data), self.keep_compressed.then_some(frame)))
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn check(&self) {
        assert!(self.data.len() <= self.max_message);
    }
}

/// The data, and the frame that held it, if that is kept.
type Unpacked<'a> = (Cow<'a, [u8]>, Option<Cow<'a, [u8]>>);
