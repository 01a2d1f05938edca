//! A few bits that verify a payload: they detect what a relay has lost, repeated or joined. Pure.
//!
//! The sums are position-dependent, and a processor computes them for 32 bytes at a time. They are
//! no defence against an attacker who wants them to match. `WIRE.md` is the normative text.
//!
//! The unsafe code here is one call, to code for processors that were checked for AVX2.

#![allow(unsafe_code)]

use std::num::NonZeroU32;

/// A check: from 1 to [`Check::MAX`], so that 0 can stand for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Check(NonZeroU32);

/// Numbers of 32 bits that are added in parallel.
const LANES: usize = 8;
const ROW: usize = 4 * LANES;
/// From this many rows on, adding several in parallel is faster.
const MANY: usize = 32;

impl Check {
    /// The largest value of 10 bits.
    const MAX: u64 = 1023;

    pub(super) fn of(payload: &[u8]) -> Check {
        let mut sums = Sums::new();
        sums.add(payload);
        sums.check(payload)
    }

    pub(super) fn number(self) -> u32 {
        self.0.get()
    }

    /// `None` for 0.
    pub(super) fn from_number(number: u32) -> Option<Check> {
        NonZeroU32::new(number).map(Check)
    }
}

/// The sums of a payload that grows.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    /// The sum of each lane.
    plain: [u32; LANES],
    /// The sum of `plain` after each row: early rows count more often.
    placed: [u32; LANES],
    /// Bytes that have been added: whole rows.
    len: usize,
}

impl Sums {
    pub(super) fn new() -> Sums {
        Sums { plain: [0; LANES], placed: [0; LANES], len: 0 }
    }

    /// Adds the whole rows of `payload`, which begins with the bytes that were added before.
    pub(super) fn add(&mut self, payload: &[u8]) {
        let (rows, _) = payload[self.len..].as_chunks::<ROW>();
        let rest = if rows.len() < MANY { rows } else { self.add_many(rows) };
        for row in rest {
            self.add_row(row);
        }
        self.len += rows.len() * ROW;
    }

    /// Adds rows in parallel, as many as the processor has registers for; returns those left over.
    fn add_many<'a>(&mut self, rows: &'a [[u8; ROW]]) -> &'a [[u8; ROW]] {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            let (groups, rest) = rows.as_chunks();
            // SAFETY: the processor has AVX2.
            unsafe { self.add_fours(groups) };
            return rest;
        }
        let (groups, rest) = rows.as_chunks();
        self.add_pairs(groups);
        rest
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn add_fours(&mut self, groups: &[[[u8; ROW]; 4]]) {
        self.add_groups(groups);
    }

    // Not inlined: inlined with sums that all start at zero, the compiler would not add a whole row
    // at once.
    #[inline(never)]
    fn add_pairs(&mut self, groups: &[[[u8; ROW]; 2]]) {
        self.add_groups(groups);
    }

    /// Adds the rows of each group in parallel. Each addition to a sum waits for the one before it,
    /// on some processors for two cycles, so each place in a group has sums of its own, which do
    /// not wait for each other.
    ///
    /// If *n* groups of *k* rows are left, its own among them, the row at place *i*, from 0, counts
    /// *kn* - *i* times, and the rows that were added before all groups count *kn* times.
    #[inline(always)]
    fn add_groups<const SIDE_BY_SIDE: usize>(&mut self, groups: &[[[u8; ROW]; SIDE_BY_SIDE]]) {
        let mut places: [Sums; SIDE_BY_SIDE] = std::array::from_fn(|_| Sums::new());
        places[0].plain = self.plain;
        for group in groups {
            for (sums, row) in places.iter_mut().zip(group) {
                sums.add_row(row);
            }
        }
        self.plain = [0; LANES];
        for (place, sums) in places.iter().enumerate() {
            for lane in 0..LANES {
                let placed = sums.placed[lane].wrapping_mul(SIDE_BY_SIDE as u32);
                let too_many = sums.plain[lane].wrapping_mul(place as u32);
                self.placed[lane] = self.placed[lane].wrapping_add(placed).wrapping_sub(too_many);
                self.plain[lane] = self.plain[lane].wrapping_add(sums.plain[lane]);
            }
        }
    }

    #[inline(always)]
    fn add_row(&mut self, row: &[u8; ROW]) {
        let (words, _) = row.as_chunks::<4>();
        for ((plain, placed), word) in self.plain.iter_mut().zip(&mut self.placed).zip(words) {
            *plain = plain.wrapping_add(u32::from_ne_bytes(*word));
            *placed = placed.wrapping_add(*plain);
        }
    }

    /// The check of `payload`, all of whose whole rows have been added.
    pub(super) fn check(&self, payload: &[u8]) -> Check {
        let mut last = words(&payload[self.len..]);
        let mut all = payload.len() as u64;
        for ((plain, placed), factor) in self.plain.iter().zip(&self.placed).zip(FACTORS) {
            let plain = plain.wrapping_add(last.next().unwrap_or(0));
            let both = u64::from(plain) | (u64::from(placed.wrapping_add(plain)) << 32);
            all = all.wrapping_add(both.wrapping_mul(factor));
        }
        // The upper half of a product depends on all bits of the lower half.
        let mixed = (all ^ (all >> 32)).wrapping_mul(FACTORS[0]) >> 32;
        Check(NonZeroU32::MIN.saturating_add((mixed % Check::MAX) as u32))
    }
}

/// The numbers of an incomplete row, padded with zeros.
fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let (words, rest) = bytes.as_chunks::<4>();
    let byte = |nth: usize| rest.get(nth).copied().unwrap_or(0);
    let last = u32::from_ne_bytes([byte(0), byte(1), byte(2), 0]);
    words.iter().map(|word| u32::from_ne_bytes(*word)).chain([last])
}

/// Odd numbers without a pattern: the golden ratio, 0x9E3779B97F4A7C15 (Knuth, volume 3, 6.4),
/// times 1, 3, 5 and so on.
const FACTORS: [u64; LANES] = {
    let mut factors = [0; LANES];
    let mut lane = 0;
    while lane < LANES {
        factors[lane] = 0x9E37_79B9_7F4A_7C15u64.wrapping_mul(2 * lane as u64 + 1);
        lane += 1;
    }
    factors
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of WIRE.md, sentence by sentence.
    fn naive(payload: &[u8]) -> u32 {
        let mut padded = payload.to_vec();
        padded.resize((payload.len() / 32 + 1) * 32, 0);
        let word = |row: usize, lane: usize| {
            let at = 32 * row + 4 * lane;
            u128::from(u32::from_ne_bytes(padded[at..at + 4].try_into().unwrap()))
        };
        let rows = padded.len() / 32;
        let mut all = payload.len() as u128;
        for lane in 0..8 {
            let plain: u128 = (0..rows).map(|row| word(row, lane)).sum();
            let placed: u128 = (0..rows).map(|row| word(row, lane) * (rows - row) as u128).sum();
            let both = plain % (1 << 32) + ((placed % (1 << 32)) << 32);
            let factor = 0x9E37_79B9_7F4A_7C15 * (2 * lane as u128 + 1) % (1 << 64);
            all = (all + both * factor % (1 << 64)) % (1 << 64);
        }
        let mixed = (all ^ (all >> 32)) * 0x9E37_79B9_7F4A_7C15 % (1 << 64);
        1 + ((mixed >> 32) % 1023) as u32
    }

    #[test]
    fn check_matches_the_specification_for_growing_payloads() {
        let payload: Vec<u8> =
            (0..1250_u32).flat_map(|n| n.wrapping_mul(0x9E37_79B9).to_ne_bytes()).collect();
        for len in (0..200).chain(1020..1100).chain(4990..5000) {
            let payload = &payload[..len];
            assert_eq!(Check::of(payload).number(), naive(payload), "{len} bytes");
            let mut sums = Sums::new();
            for some in [len / 3, len / 2, len] {
                sums.add(&payload[..some]);
            }
            assert_eq!(sums.check(payload), Check::of(payload), "{len} bytes in pieces");
        }
    }

    /// Each processor takes one of the ways; all of them give the same sums.
    #[test]
    fn parallel_and_serial_sums_are_equal() {
        let row = |nth: u32| [nth.wrapping_mul(0x9E37_79B9).to_ne_bytes(); LANES].concat();
        let bytes: Vec<u8> = (1..=101).flat_map(row).collect();
        let (rows, _) = bytes.as_chunks::<ROW>();
        let added = |add: &dyn Fn(&mut Sums)| {
            let mut sums = Sums::new();
            sums.add_row(&rows[100]);
            add(&mut sums);
            (sums.plain, sums.placed)
        };
        let one_by_one = added(&|sums| rows[..100].iter().for_each(|row| sums.add_row(row)));
        assert_eq!(added(&|sums| sums.add_pairs(rows[..100].as_chunks().0)), one_by_one);
        assert_eq!(added(&|sums| sums.add_groups::<4>(rows[..100].as_chunks().0)), one_by_one);
    }

    /// Edits that keep the size of a part: about one in a thousand goes unnoticed.
    #[test]
    fn check_detects_a_payload_joined_from_two() {
        let record = |nth: usize| format!("{{\"id\": {nth:06}, \"left\": {:06}}}\n", 999_999 - nth).repeat(3);
        let (mut joined, mut unnoticed) = (0, 0);
        for nth in 0..2000 {
            let (one, two) = (record(nth).into_bytes(), record(nth * 7 + 1).into_bytes());
            for cut in (1..one.len()).step_by(11) {
                let both = [&one[..cut], &two[cut..]].concat();
                if both != one && both != two {
                    joined += 1;
                    unnoticed += u32::from(Check::of(&one) == Check::of(&both));
                }
            }
        }
        assert!(unnoticed * 500 < joined, "{unnoticed} of {joined}");
    }
}
