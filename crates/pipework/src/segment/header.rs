//! The offsets that all segments share, and the bytes of their header; FILE.md has the tables. Pure.

use super::operations::Operations;
use crate::error::{Error, ErrorKind, Result};

/// The largest number of members that can be attached to a segment.
pub const MAX_MEMBERS: u32 = u16::MAX as u32;
/// No member has this number.
pub(crate) const NOBODY: u16 = 0;
/// Bytes of the largest segment.
pub(crate) const MAX_LEN: u64 = 1 << 46;

const MAGIC: [u8; 8] = *b"pipework";
const FORMAT: u32 = 5;
/// The only flag: pages that hold only payloads are allocated when they are first written.
const SPARSE: u32 = 1;

/// Bytes of the header, and the offset of the first member.
const HEADER: usize = 4096;
/// Bytes of the header that never change. Their checksum is the last of them.
pub(crate) const FIXED: usize = 128;
/// The offset of the checksum. The file ends with the same number.
pub(crate) const CHECKSUM_AT: usize = FIXED - 8;
/// The offset of the counters of deaths.
pub(crate) const COUNTERS_AT: usize = 128;
/// The offset of the words that the header has for the module, up to [`BIRTHPLACE_AT`].
pub(crate) const OWN_AT: usize = 144;
/// The path at which the segment was made: its length, the checksum of the rest, and its bytes.
pub(crate) const BIRTHPLACE_AT: usize = 512;
const PATH_AT: usize = 16;
/// Bytes of the longest path that the header holds.
const MAX_PATH: usize = HEADER - BIRTHPLACE_AT - PATH_AT;
/// Bytes of the birthplace.
pub(crate) const BIRTHPLACE: usize = PATH_AT + MAX_PATH;

/// Bytes of a member.
pub(crate) const MEMBER: usize = 128;
/// Bytes of a handle, which names a blob.
pub(crate) const HANDLE: usize = 32;
/// Bytes that are copied out together, even if fewer are asked for.
pub(crate) const SMALL: usize = 64;
/// Bytes that the processor's caches transfer together: a cache line.
pub(crate) const LINE: usize = 64;
/// Bytes of a page, or of a part of a larger page.
pub(crate) const PAGE: usize = 4096;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("a segment has up to 2^46 bytes, and so do its offsets");

/// An area of the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Area {
    pub(crate) at: usize,
    /// Bytes of the longest contents.
    pub(crate) len: usize,
    /// Bytes from `at` on that may be read as well.
    pub(crate) space: usize,
}

impl Area {
    pub(crate) fn new(at: usize, len: usize) -> Area {
        Area { at, len, space: len }
    }

    /// How many of its bytes have allocated pages once its first `len` have them.
    pub(crate) fn reserved(&self, len: usize) -> usize {
        ((self.at + len).next_multiple_of(PAGE) - self.at).min(self.len)
    }
}

/// The sizes of a segment. They never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Those that the module gives a meaning.
    pub(crate) own: [u32; 4],
    /// How many members can be attached at the same time.
    pub(crate) members: u32,
    /// How many blobs a message can carry.
    pub(crate) blobs: u32,
}

impl Sizes {
    /// The offset of member `number`, counted from 1; also the byte that it locks.
    pub(crate) fn member(&self, number: u16) -> Option<usize> {
        let idx = usize::from(number).checked_sub(1)?;
        (idx < self.members as usize).then_some(HEADER + idx * MEMBER)
    }

    /// The offset behind the members, where the module's part begins.
    pub(crate) fn behind_members(&self) -> usize {
        HEADER + self.members as usize * MEMBER
    }
}

/// The contents of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The module that the segment is for.
    pub(crate) kind: u32,
    pub(crate) sizes: Sizes,
    pub(crate) sparse: bool,
    /// Bytes of the file.
    pub(crate) len: u64,
    /// Device and inode of the file when it was made; zeros in a segment that may be in any file.
    pub(crate) identity: (u64, u64),
    pub(crate) random: u64,
}

/// The bytes of the header that never change.
pub(crate) fn encode(header: &Header) -> [u8; FIXED] {
    let Header { kind, sizes, sparse, len, identity, random } = header;
    let mut bytes = [0; FIXED];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &MAGIC);
    put(8, &FORMAT.to_le_bytes());
    put(12, &kind.to_le_bytes());
    (16..).step_by(4).zip(sizes.own).for_each(|(at, size)| put(at, &size.to_le_bytes()));
    put(32, &sizes.members.to_le_bytes());
    put(36, &(if *sparse { SPARSE } else { 0 }).to_le_bytes());
    put(40, &len.to_le_bytes());
    put(48, &random.to_le_bytes());
    put(56, &identity.0.to_le_bytes());
    put(64, &identity.1.to_le_bytes());
    put(72, &sizes.blobs.to_le_bytes());
    let checksum = fnv1a(&bytes[..CHECKSUM_AT]);
    bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Decodes the header, and refuses any that this build did not write for this `kind`. Whether its
/// sizes are possible, the module knows.
pub(crate) fn decode(bytes: &[u8; FIXED], kind: u32, ops: &Operations) -> Result<Header> {
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let refused = |kind, op| Err(Error::new(kind, op));
    // Text may start with the magic, as the messages of the command do. The checksum has the same
    // offset in every format.
    let is_sound = mark(bytes) == fnv1a(&bytes[..CHECKSUM_AT]);
    match (bytes[..8] == MAGIC, u32_at(8) == FORMAT) {
        (true, true) if is_sound => {}
        (true, true) => return refused(ErrorKind::Corrupt, ops.damaged),
        (true, false) if is_sound => return refused(ErrorKind::Incompatible, ops.other_format),
        _ => return refused(ErrorKind::Incompatible, ops.no_segment),
    }
    if u32_at(12) != kind {
        return refused(ErrorKind::Incompatible, ops.unknown_kind);
    }
    let sparse = match u32_at(36) {
        0 => false,
        SPARSE => true,
        _ => return refused(ErrorKind::Incompatible, ops.unknown_flags),
    };
    let sizes = Sizes { own: [16, 20, 24, 28].map(u32_at), members: u32_at(32), blobs: u32_at(72) };
    let (len, identity) = (u64_at(40), (u64_at(56), u64_at(64)));
    Ok(Header { kind, sizes, sparse, len, identity, random: u64_at(48) })
}

/// The checksum of a header.
pub(crate) fn mark(header: &[u8; FIXED]) -> u64 {
    u64::from_le_bytes(header[CHECKSUM_AT..].try_into().expect("eight bytes"))
}

/// The bytes of the birthplace; `None` if the path is too long for it.
pub(crate) fn encode_birthplace(path: &[u8], random: u64) -> Option<Vec<u8>> {
    (1..=MAX_PATH).contains(&path.len()).then(|| {
        let len = (path.len() as u64).to_le_bytes();
        [&len, &(fnv1a(path) ^ random).to_le_bytes(), path].concat()
    })
}

/// The path in a birthplace. `None` if there is none, or a peer that breaks the rules has changed it.
pub(crate) fn decode_birthplace(bytes: &[u8], random: u64) -> Option<&[u8]> {
    let u64_at = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let len = usize::try_from(u64_at(0)?).ok().filter(|len| (1..=MAX_PATH).contains(len))?;
    let path = bytes.get(PATH_AT..PATH_AT + len)?;
    (u64_at(8)? == fnv1a(path) ^ random && path[0] == b'/' && !path.contains(&0)).then_some(path)
}

/// FNV-1a with 64 bits (Fowler, Noll, Vo): against damage, not against malice.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3))
}
