//! Pages, help texts and signatures that name a default, compared with the constants of
//! `pipework::defaults`.

use std::time::Duration;

use pipework::defaults::*;
use pipework::reqrep::{MAX_BLOBS, MAX_MEMBERS, MAX_PAYLOAD, MAX_QUEUE, MAX_SLOTS};

use super::tidy::tree;

/// Every sentence that names a default gives the core's value, and each sentence of the table
/// exists.
#[test]
fn pages_and_help_name_the_defaults_of_the_core() {
    let is_test = |path: &str| path.contains("tests/") || path.starts_with("perl/t/");
    let pages: Vec<_> = tree()
        .into_iter()
        .filter(|file| !is_test(&file.path))
        .map(|file| (file.path, joined(&file.text)))
        .collect();
    let mut faults = vec![];
    for (before, value) in sentences() {
        let mut is_there = false;
        for (path, text) in &pages {
            for after in text.split(before).skip(1) {
                let said = words(after, value.split(' ').count());
                // Other durations follow `within` as well.
                let is_other = before == "within " && !said.ends_with(" ms");
                if said.starts_with(|c: char| c.is_ascii_digit()) && !is_other {
                    is_there = true;
                    if said != value {
                        faults.push(format!("{path}: `{before}{said}`: the default is {value}"));
                    }
                }
            }
        }
        if !is_there {
            faults.push(format!("no page says `{before}{value}`: take the row out of the table"));
        }
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// The text without line ends and comment marks.
fn joined(text: &str) -> String {
    let lines = text.lines().map(|line| line.trim_start().trim_start_matches(['/', '!', '*']).trim());
    lines.collect::<Vec<_>>().join(" ")
}

/// The first `count` words, without the punctuation after them.
fn words(text: &str, count: usize) -> String {
    let words: Vec<_> = text.split(' ').take(count).collect();
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_ .".contains(c);
    let all = words.join(" ");
    all[..all.find(|c| !is_part(c)).unwrap_or(all.len())].trim_end_matches('.').into()
}

/// The words before a default, and how the default is written there.
fn sentences() -> Vec<(&'static str, String)> {
    let mebibytes = |bytes: usize| format!("{} MiB", bytes >> 20);
    let short = format!("{}M", MAX_MESSAGE >> 20);
    let in_full = |time: Duration| format!("{:?}", time.as_secs_f64());
    let seconds = |time: Duration| time.as_secs().to_string();
    let slice = format!("{} ms", SLICE.as_millis());
    vec![
        ("| slots of a channel | ", SLOTS.to_string()),
        ("in progress at the same time (default ", SLOTS.to_string()),
        ("in all clients together; 1 to 2**20. Default ", SLOTS.to_string()),
        ("for requests and replies of ", REQUEST_BYTES.to_string()),
        ("a longer one goes in a blob (default ", REQUEST_BYTES.to_string()),
        ("a longer one lies in a file in memory. Default ", REQUEST_BYTES.to_string()),
        ("| members of a channel | ", MEMBERS.to_string()),
        ("| messages that a broadcast keeps | ", MESSAGES.to_string()),
        ("attached at the same time (default ", MEMBERS.to_string()),
        ("attached at the same time; 1 to 65535. Default ", MEMBERS.to_string()),
        ("as chmod takes them (default ", format!("{MODE:o}")),
        ("A channel is created with mode ", format!("0{MODE:o}")),
        ("trusted not to disturb. Default ", format!("0o{MODE:o}")),
        ("| a message | ", mebibytes(MAX_MESSAGE)),
        ("up to `max_message` (", mebibytes(MAX_MESSAGE)),
        ("memory allows | `max_message`, ", mebibytes(MAX_MESSAGE)),
        ("in one piece. Default ", mebibytes(MAX_MESSAGE)),
        ("comes in one piece: ", mebibytes(MAX_MESSAGE)),
        (", in bytes (default ", mebibytes(MAX_MESSAGE)),
        ("Bytes of the longest message, request or reply: ", mebibytes(MAX_MESSAGE)),
        ("e.g. 64K, 10M or 1G (default ", short.clone()),
        ("So what is larger than ", short),
        ("keep_compressed=False, \\ max_message=", MAX_MESSAGE.to_string()),
        ("max_in_flight=0, max_message=", MAX_MESSAGE.to_string()),
        ("Server(segment, *, timeout=None, max_message=", MAX_MESSAGE.to_string()),
        ("max_message: int = ", MAX_MESSAGE.to_string()),
        ("max_unfinished=None, read_size=", READ_SIZE.to_string()),
        ("asks for: up to 16 MiB, ", READ_SIZE.to_string()),
        ("asks for, from 1 to 16 MiB. Default ", format!("{} KiB", READ_SIZE >> 10)),
        ("before `try_send` takes no more. Default ", mebibytes(MAX_PENDING)),
        ("while the pipe is full | ", mebibytes(MAX_PENDING)),
        ("\\ max_pending=", MAX_PENDING.to_string()),
        ("reported as `Torn`. Default ", format!("{} s", FRAME_TIMEOUT.as_secs())),
        ("stop for a while. Default ", seconds(FRAME_TIMEOUT)),
        ("while no byte comes (default ", seconds(FRAME_TIMEOUT)),
        ("read_size=65536, frame_timeout=", in_full(FRAME_TIMEOUT)),
        (
            "take for a part of a streamed reply #[arg(long, value_name = \"SECS\", default_value = \"",
            seconds(PART_TIMEOUT),
        ),
        ("max_message=268435456, part_timeout=", in_full(PART_TIMEOUT)),
        ("part_timeout: float = ", in_full(PART_TIMEOUT)),
        ("At most 1 ms. Default ", format!("{} microseconds", SPIN.as_micros())),
        ("Then it spins for up to ", format!("{} microseconds", SPIN.as_micros())),
        ("At most 0.001. Default ", format!("{:.5}", SPIN.as_secs_f64())),
        ("up to a millisecond, ", format!("{:.5}", SPIN.as_secs_f64())),
        ("or_print=False, spin=", "2e-05".into()),
        ("any_owner=False, spin=", "2e-05".into()),
        ("in all clients together. Default ", SLOTS.to_string()),
        ("attached at the same time. Default ", MEMBERS.to_string()),
        ("keeps for its next blobs. Default ", mebibytes(BLOB_POOL as usize)),
        ("Bytes of the longest request and reply. Default ", mebibytes(MAX_MESSAGE)),
        ("take for a part before the request fails. Default ", PART_TIMEOUT.as_millis().to_string()),
        ("bytes that one read asks for. Default ", format!("{} KiB", READ_SIZE >> 10)),
        ("Infinity: until the end. Default ", FRAME_TIMEOUT.as_millis().to_string()),
        ("before `trySend` takes no more. Default ", mebibytes(MAX_PENDING)),
        ("to 22 (smallest), ", ZSTD_LEVEL.to_string()),
        ("text_signature = \"(level=", ZSTD_LEVEL.to_string()),
        ("return { level: ", ZSTD_LEVEL.to_string()),
        ("require_equals = true, default_missing_value = \"", ZSTD_LEVEL.to_string()),
        ("const PART_TIMEOUT = ", format!("{}_000", PART_TIMEOUT.as_secs())),
        ("#define PART_MS ", PART_TIMEOUT.as_millis().to_string()),
        ("at most once in ", slice.clone()),
        ("has run, and every ", slice.clone()),
        ("of 50 ms, doubled up to ", slice.clone()),
        ("within ", slice),
        // Limits, which Node checks before the core sees a value.
        ("slots: whole(1, 2 ** ", MAX_SLOTS.ilog2().to_string()),
        ("queue: whole(1, 2 ** ", MAX_QUEUE.ilog2().to_string()),
        ("requestBytes: whole(0, 2 ** ", MAX_PAYLOAD.ilog2().to_string()),
        ("replyBytes: whole(0, 2 ** ", MAX_PAYLOAD.ilog2().to_string()),
        ("members: whole(1, ", MAX_MEMBERS.to_string()),
        ("blobs: whole(0, ", MAX_BLOBS.to_string()),
    ]
}
