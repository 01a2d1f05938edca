//! The two corpora of Atomic::Pipe's published benchmark, generated again: JSON log objects of the
//! same count, sizes and compressibility.
//!
//! Sizes are not drawn but laid out along the wanted distribution and then shuffled, so every run
//! has exactly the same ones; the text comes from a generator with a fixed seed. No record holds a
//! line break, so a corpus is also a file of JSON lines.

use std::fmt::Write;
use std::ops::Range;
use std::sync::LazyLock;

/// Which corpus, by the mean size of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corpus {
    /// 10 MiB: 11,785 objects of 181 to 1977 bytes, 890 on average, 37 % of them under 500.
    Json890,
    /// 100 MiB: 20,407 objects of 187 to 10,000 bytes, evenly spread, 5.1 KB on average.
    Json5k,
}

/// The text of a corpus and where each record ends in it.
pub struct Records {
    text: String,
    ends: Vec<usize>,
}

impl Corpus {
    /// The corpus, made on first use and kept.
    pub fn records(self) -> &'static Records {
        static JSON_890: LazyLock<Records> = LazyLock::new(|| Corpus::Json890.generate());
        static JSON_5K: LazyLock<Records> = LazyLock::new(|| Corpus::Json5k.generate());
        match self {
            Corpus::Json890 => &JSON_890,
            Corpus::Json5k => &JSON_5K,
        }
    }

    fn generate(self) -> Records {
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ self as u64);
        let sizes = self.sizes(&mut random);
        let mut records = Records {
            text: String::with_capacity(sizes.iter().sum()),
            ends: Vec::with_capacity(sizes.len()),
        };
        for (nth, size) in sizes.into_iter().enumerate() {
            match self {
                Corpus::Json890 => request(&mut records.text, &mut random, nth, size),
                Corpus::Json5k => trace(&mut records.text, &mut random, nth, size),
            }
            records.ends.push(records.text.len());
        }
        records
    }

    fn sizes(self, random: &mut Random) -> Vec<usize> {
        let (count, size_at): (usize, fn(f64) -> f64) = match self {
            // Two slopes that meet at 500 bytes; the exponent brings the mean to 890.
            Corpus::Json890 => (11_785, |share| match share {
                _ if share < 0.37 => 181.0 + 319.0 * share / 0.37,
                _ => 500.0 + 1477.0 * ((share - 0.37) / 0.63).powf(1.072),
            }),
            // Almost a straight line; the exponent brings the sum to 100 MiB.
            Corpus::Json5k => (20_407, |share| 187.0 + 9813.0 * share.powf(0.982)),
        };
        let last = (count - 1) as f64;
        let mut sizes: Vec<usize> =
            (0..count).map(|nth| size_at(nth as f64 / last).round() as usize).collect();
        for nth in (1..count).rev() {
            sizes.swap(nth, random.below(nth as u64 + 1) as usize);
        }
        sizes
    }
}

impl Records {
    /// The number of records.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The records of `range`, one after the other without anything between them.
    pub fn text(&self, range: Range<usize>) -> &[u8] {
        let start = range.start.checked_sub(1).map_or(0, |before| self.ends[before]);
        let end = range.end.checked_sub(1).map_or(0, |last| self.ends[last]);
        &self.text.as_bytes()[start..end]
    }

    /// The records of `range`, in order.
    pub fn slices(&self, range: Range<usize>) -> Vec<&[u8]> {
        range.map(|nth| self.text(nth..nth + 1)).collect()
    }
}

/// One line of an access log: short, half of it identifiers, so it compresses to about a half.
fn request(out: &mut String, random: &mut Random, nth: usize, size: usize) {
    let end = out.len() + size;
    write!(
        out,
        r#"{{"ts":{},"level":"{}","service":"{}","trace":"{:016x}","status":{},"us":{},"#,
        1_760_000_000_000 + nth as u64 * 37 + random.below(30),
        random.pick(&LEVELS),
        random.pick(&SERVICES),
        random.next(),
        random.pick(&["200", "201", "204", "304", "404", "500"]),
        random.below(90_000),
    )
    .expect("a String takes everything");
    while out.len() + 190 < end {
        write!(
            out,
            r#""{}_{}":{{"id":"{:06x}","note":"{} {} {}","n":{}}},"#,
            random.pick(&NOUNS),
            random.below(100),
            random.next() >> 40,
            random.pick(&VERBS),
            random.pick(&NOUNS),
            random.pick(&ADVERBS),
            random.below(1_000),
        )
        .expect("a String takes everything");
    }
    message(out, random, end);
}

/// A trace with its steps: long and regular, so it compresses to less than a third.
fn trace(out: &mut String, random: &mut Random, nth: usize, size: usize) {
    let end = out.len() + size;
    write!(
        out,
        r#"{{"timestamp":{},"level":"{}","service":"{}","trace_id":"{:016x}","steps":["#,
        1_760_000_000_000 + nth as u64 * 37 + random.below(30),
        random.pick(&LEVELS),
        random.pick(&SERVICES),
        random.next(),
    )
    .expect("a String takes everything");
    while out.len() + 300 < end {
        out.push_str(r#"{"span":""#);
        token(out, random);
        write!(
            out,
            r#"","name":"{}.{}","state":"{}","duration_ms":{},"retries":{}}},"#,
            random.pick(&NOUNS),
            random.pick(&VERBS),
            random.pick(&ADVERBS),
            random.below(90),
            random.below(4),
        )
        .expect("a String takes everything");
    }
    out.push_str(r#"{}],"#);
    message(out, random, end);
}

/// Ends a record with a sentence that makes it exactly as long as wanted.
fn message(out: &mut String, random: &mut Random, end: usize) {
    out.push_str(r#""message":""#);
    while out.len() < end - 2 {
        let words = random.pick(&[&VERBS[..], &NOUNS, &ADVERBS]);
        out.push_str(random.pick(words));
        out.push(' ');
    }
    out.truncate(end - 2);
    out.push_str(r#""}"#);
}

/// A random identifier in the alphabet of base64url: of all that logs hold, the least compressible.
fn token(out: &mut String, random: &mut Random) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut bits = (u128::from(random.next()) << 64) | u128::from(random.next());
    for _ in 0..13 {
        out.push(char::from(ALPHABET[bits as usize % 64]));
        bits >>= 6;
    }
}

const LEVELS: [&str; 4] = ["debug", "info", "warn", "error"];
const SERVICES: [&str; 8] =
    ["checkout", "search", "accounts", "gateway", "billing", "catalogue", "mailer", "inventory"];
const NOUNS: [&str; 24] = [
    "request", "session", "cart", "invoice", "payment", "query", "index", "cache", "replica", "shard",
    "token", "user", "order", "parcel", "refund", "upload", "image", "template", "worker", "queue", "batch",
    "lease", "quota", "region",
];
const VERBS: [&str; 16] = [
    "accepted",
    "rejected",
    "retried",
    "loaded",
    "stored",
    "expired",
    "merged",
    "checked",
    "resolved",
    "started",
    "finished",
    "cancelled",
    "renewed",
    "moved",
    "queued",
    "signed",
];
const ADVERBS: [&str; 12] = [
    "quickly",
    "late",
    "twice",
    "partially",
    "again",
    "remotely",
    "locally",
    "early",
    "silently",
    "eventually",
    "fully",
    "alone",
];

/// Sebastiano Vigna's splitmix64, <https://prng.di.unimi.it/splitmix64.c> (public domain): a few
/// operations a number.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number under `bound`, which is far too small for the bias of this shortcut to matter.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Raw size over compressed size, each record a frame of its own.
    fn ratio(records: &[&[u8]], level: i32) -> f64 {
        let mut compressor = zstd::bulk::Compressor::new(level).unwrap();
        let raw: usize = records.iter().map(|record| record.len()).sum();
        let wire: usize = records.iter().map(|record| compressor.compress(record).unwrap().len()).sum();
        raw as f64 / wire as f64
    }

    fn check(corpus: Corpus, count: usize, sizes: (usize, usize), mib: f64, ratios: [(i32, f64); 2]) {
        let made = corpus.records();
        let records = made.slices(0..made.len());
        assert_eq!(records.len(), count);
        assert_eq!(records.iter().map(|record| record.len()).min(), Some(sizes.0));
        assert_eq!(records.iter().map(|record| record.len()).max(), Some(sizes.1));
        let total = made.text.len() as f64 / f64::from(1 << 20);
        assert!((total / mib - 1.0).abs() < 0.01, "{total} MiB");
        for record in records.iter().step_by(97) {
            let object: serde_json::Value = serde_json::from_slice(record).expect("a record is JSON");
            assert!(object.is_object() && !record.contains(&b'\n'));
        }
        let sample: Vec<&[u8]> = records.iter().copied().step_by(10).collect();
        for (level, wanted) in ratios {
            let got = ratio(&sample, level);
            assert!((got / wanted - 1.0).abs() < 0.1, "level {level}: {got:.2} instead of {wanted}");
        }
    }

    #[test]
    fn small_json_is_as_published() {
        check(Corpus::Json890, 11_785, (181, 1977), 10.0, [(1, 2.03), (-3, 1.5)]);
        let made = Corpus::Json890.records();
        let small = made.slices(0..made.len()).iter().filter(|record| record.len() < 500).count();
        assert!((0.36..0.38).contains(&(small as f64 / 11_785.0)));
    }

    #[test]
    fn larger_json_is_as_published() {
        check(Corpus::Json5k, 20_407, (187, 10_000), 100.0, [(1, 3.27), (-3, 2.81)]);
    }

    #[test]
    fn generating_twice_gives_the_same_text() {
        assert_eq!(Corpus::Json890.generate().text, Corpus::Json890.records().text);
    }
}
