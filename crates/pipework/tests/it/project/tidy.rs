//! Lints the project itself: the rules of ARCHITECTURE.md that no compiler checks.
//!
//! A rule is a function from one file to its faults, each a line number and a sentence that says
//! what to do instead. Every test first shows that its rule finds faults, on samples that break it,
//! and then applies the rule to the whole tree. Rules read code without comments and literals; they
//! do not parse Rust, and do not see code that a macro builds.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

mod lexer;
mod boundaries;
mod order;
mod imports;
mod files;
mod documents;
mod book;

/// The modules of the core in reading order: each may use those before it; public modules use each
/// other only where `MODULE_STANDS_ON` says so.
const ORDER: [&str; 17] = [
    "error",
    "defaults",
    "clock",
    "deadline",
    "interrupt",
    "sys",
    "sync",
    "spin",
    "region",
    "event",
    "blob",
    "fd",
    "pipe",
    "atomic",
    "segment",
    "reqrep",
    "broadcast",
];
const PUBLIC_MODULES: [&str; 5] = ["fd", "pipe", "atomic", "reqrep", "broadcast"];
const MODULE_STANDS_ON: [(&str, &str); 1] = [("atomic", "fd")];

/// The boundaries: names that only the files behind them may use. A file's folder belongs to it.
const BOUNDARIES: [(&[&str], &[&str]); 5] = [
    (&["rustix::", "libc::", "unsafe extern"], &["clock.rs", "sys.rs"]),
    (&["sync::atomic"], &["sync.rs"]),
    (&["futex"], &["sys.rs", "sync.rs"]),
    (
        &["ptr::copy", "copy_to_nonoverlapping", "copy_from_nonoverlapping", "copy_nonoverlapping"],
        &["region.rs"],
    ),
    (&["mmap"], &["sys.rs"]),
];

/// Every file that contains `unsafe`. A new entry is a decision, and is reviewed as one.
const UNSAFE: [&str; 48] = [
    "bench/src/blob/hands.rs",
    "bench/src/blob/peers.rs",
    "bench/src/broadcast/bare.rs",
    "bench/src/broadcast/deliveries.rs",
    "bench/src/broadcast/peers.rs",
    "bench/src/c.rs",
    "bench/src/measure.rs",
    "bench/src/reqrep/bare.rs",
    "bridge/nats/src/ready.rs",
    "crates/pipework-c/src/atomic/options.rs",
    "crates/pipework-c/src/broadcast/channel.rs",
    "crates/pipework-c/src/broadcast/publisher.rs",
    "crates/pipework-c/src/broadcast/subscriber.rs",
    "crates/pipework-c/src/bytes.rs",
    "crates/pipework-c/src/edge.rs",
    "crates/pipework-c/src/reqrep/client.rs",
    "crates/pipework-c/src/reqrep/segment.rs",
    "crates/pipework-c/src/reqrep/server.rs",
    "crates/pipework-cli/src/sys.rs",
    "crates/pipework/src/atomic/check.rs",
    "crates/pipework/src/blob/file.rs",
    "crates/pipework/src/broadcast/shared.rs",
    "crates/pipework/src/fd/raw.rs",
    "crates/pipework/src/pipe/ring.rs",
    "crates/pipework/src/region.rs",
    "crates/pipework/src/reqrep/shared.rs",
    "crates/pipework/src/segment/mapping.rs",
    "crates/pipework/src/segment/tests.rs",
    "crates/pipework/src/sync.rs",
    "crates/pipework/src/sys.rs",
    "crates/pipework/src/sys/file.rs",
    "crates/pipework/src/sys/known.rs",
    "crates/pipework/src/sys/memory.rs",
    "crates/pipework/src/sys/net.rs",
    "crates/pipework/src/sys/raised.rs",
    "crates/pipework/tests/it/harness/damage.rs",
    "crates/pipework/tests/it/harness/process.rs",
    "crates/pipework/tests/it/project/sanitizer.rs",
    "crates/pipework/tests/it/harness/tracee.rs",
    "node/src/descriptor.rs",
    "node/src/memory.rs",
    "node/src/reqrep/blobs.rs",
    "node/src/reqrep/calls.rs",
    "node/src/value.rs",
    "python/src/buffer.rs",
    "python/src/fd/raw.rs",
    "python/src/interpreter.rs",
    "python/src/reqrep/blobs.rs",
];

/// Files that `perl/Makefile.PL` and the Makefile that it writes create.
const PERL_BUILT: [&str; 8] = [
    "Makefile",
    "Makefile.old",
    "MYMETA.json",
    "MYMETA.yml",
    "Pipework.bs",
    "Pipework.c",
    "blib",
    "pm_to_blib",
];

const CORE: &str = "crates/pipework/src/";
const COMMAND: &str = "crates/pipework-cli/src/";
const C_LIBRARY: &str = "crates/pipework-c/src/";
/// The compiled half of the Python package.
const PYTHON: &str = "python/src/";
/// The compiled half of the Node package.
const NODE: &str = "node/src/";

/// A line number, counted from 1, and what to do about it.
type Fault = (usize, String);

pub(super) struct File {
    /// Relative to the root of the project, with `/` between its components.
    pub(super) path: String,
    pub(super) text: String,
}

impl File {
    fn sample(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    /// The path inside the core's source folder, if this is one of its modules and not its map or
    /// its tests.
    fn in_core(&self) -> Option<&str> {
        self.path.strip_prefix(CORE).filter(|path| self.is_source() && *path != "lib.rs")
    }

    /// Whether this is a source file of one of the crates, tests not included.
    fn is_source(&self) -> bool {
        let in_src = self.path.starts_with("crates/") && self.path.contains("/src/");
        (in_src || self.path.starts_with(PYTHON) || self.path.starts_with(NODE))
            && self.is_rust()
            && !self.path.ends_with("/tests.rs")
    }

    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

// ---------------------------------------------------------------- holding a rule

/// Checks that `rule` finds a fault in each of the `bad` samples and none in the `good` ones; then
/// applies it to the tree. A sample is a folder, a file name and a text.
fn hold(rule: fn(&File) -> Vec<Fault>, bad: &[(&str, &str, &str)], good: &[(&str, &str, &str)]) {
    let sample = |(folder, name, text): &(&str, &str, &str)| File::sample(&format!("{folder}{name}"), text);
    for file in bad.iter().map(sample) {
        assert!(
            !rule(&file).is_empty(),
            "the rule does not see what is wrong with {}:\n{}",
            file.path,
            file.text
        );
    }
    for file in good.iter().map(sample) {
        assert_eq!(rule(&file), [], "the rule is too strict with {}:\n{}", file.path, file.text);
    }
    let mut faults = BTreeSet::new();
    for file in tree() {
        faults
            .extend(rule(&file).into_iter().map(|(number, what)| format!("{}:{number}: {what}", file.path)));
    }
    assert!(faults.is_empty(), "\n{}\n", faults.into_iter().collect::<Vec<_>>().join("\n"));
}

// ---------------------------------------------------------------- the tree

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every text file of the project, except build results of cargo, Python, Perl or the fuzzer, and
/// hidden files other than CI's.
pub(super) fn tree() -> Vec<File> {
    fn walk(folder: &Path, path: &str, files: &mut Vec<File>) {
        let found = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in found.map(|entry| entry.expect("a folder can be read to its end")) {
            let name = entry.file_name().into_string().expect("names are UTF-8");
            let place = entry.path();
            // Cargo marks only a folder that it has made itself, and another tool may create
            // `target` first.
            let is_built = place.join("CACHEDIR.TAG").exists()
                || ["target", "corpus", "artifacts", "__pycache__"].contains(&name.as_str())
                || (path == "perl/" && PERL_BUILT.contains(&name.as_str()));
            if is_built || (name.starts_with('.') && name != ".ci") {
                continue;
            }
            let path = format!("{path}{name}");
            if place.is_dir() {
                walk(&place, &format!("{path}/"), files);
            } else if let Ok(text) = fs::read_to_string(&place) {
                files.push(File { path, text });
            }
        }
    }
    let mut files = vec![];
    walk(&root(), "", &mut files);
    assert!(files.iter().any(|file| file.path == "Makefile"), "the tree was found");
    files
}
