//! The pages of docs/, which are the book's: each can be read in one go, and its links lead to
//! headings that are there. `make docs` builds the book and checks the rest.

use std::fs;

use pipework::ErrorKind;

use super::lexer::numbered;
use super::{CORE, Fault, File, hold, read, root};

/// Words of a page, without its code.
const MAX_WORDS: usize = 1500;
/// In the book each section of these is a page. So are those of some texts outside of docs/, which
/// `book/build` checks.
const SPLIT: [&str; 2] = ["docs/design.md", "docs/io-fd.md"];

/// The lines that are no code, and their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    numbered(text).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

#[test]
fn pages_can_be_read_in_one_go() {
    fn rule(file: &File) -> Vec<Fault> {
        if !file.path.starts_with("docs/") || !file.path.ends_with(".md") {
            return vec![];
        }
        let (mut faults, mut first, mut words) = (vec![], 1, 0);
        let mut page_ends = |first, words| {
            if words > MAX_WORDS {
                faults.push((first, format!("{words} words, {MAX_WORDS} at most: make two pages of it")));
            }
        };
        for (number, line) in prose(&file.text) {
            if SPLIT.contains(&file.path.as_str()) && line.starts_with("## ") {
                page_ends(first, words);
                (first, words) = (number, 0);
            }
            let is_word = |word: &&str| word.contains(char::is_alphanumeric);
            words += line.split_whitespace().filter(is_word).count();
        }
        page_ends(first, words);
        faults
    }
    let (long, fits) = ("word - ".repeat(1501), "word ".repeat(1490));
    let in_code = format!("{fits}\n```text\n{long}\n```\n");
    let sections = format!("{fits}\n## Next\n{fits}");
    let long_section = format!("{fits}\n## Next\n{long}");
    let bad =
        [("docs/", "a.md", &*long), ("docs/a/", "b.md", &*sections), ("docs/", "design.md", &*long_section)];
    let good = [
        ("docs/", "a.md", &*fits),
        ("docs/", "a.md", &*in_code),
        ("docs/", "design.md", &*sections),
        ("bench/", "README.md", &*long),
    ];
    hold(rule, &bad, &good);
}

#[test]
fn links_lead_to_headings_that_are_there() {
    /// What a forge and the book make of a heading.
    fn anchor(heading: &str) -> String {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
    }
    fn has(text: &str, wanted: &str) -> bool {
        let headings =
            prose(text).filter_map(|(_, line)| Some(line.strip_prefix('#')?.trim_start_matches('#').trim()));
        headings.into_iter().any(|heading| anchor(heading) == wanted)
    }
    fn rule(file: &File) -> Vec<Fault> {
        if !file.path.ends_with(".md") {
            return vec![];
        }
        let place = root().join(&file.path);
        let mut faults = vec![];
        for (number, line) in prose(&file.text) {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
            let local =
                targets.filter_map(|target| target.split_once('#')).filter(|(path, _)| !path.contains(':'));
            for (path, wanted) in local {
                let text = match path {
                    "" => file.text.clone(),
                    path => fs::read_to_string(place.with_file_name("").join(path)).unwrap_or_default(),
                };
                if !has(&text, wanted) {
                    faults.push((number, format!("`{path}#{wanted}` is no heading")));
                }
            }
        }
        faults
    }
    let bad = [
        ("docs/", "a.md", "[a](#nowhere)\n# Somewhere"),
        ("docs/", "a.md", "[a](command.md#nowhere)"),
        ("docs/", "a.md", "[a](#somewhere)\n```\n# Somewhere\n```"),
    ];
    let good = [
        ("docs/", "a.md", "[a](#some-where-else)\n## Some `where`, else"),
        ("docs/rust/", "a.md", "[a](../command.md#services) [b](https://example.org/#c)"),
    ];
    hold(rule, &bad, &good);
}

#[test]
fn every_error_has_its_cause_and_cure() {
    /// The kinds and the explanations that a page says nothing of.
    fn missing(page: &str, kinds: &[ErrorKind], explanations: &[&str]) -> Vec<String> {
        let cells =
            |row: &str| -> Vec<String> { row.split('|').map(|cell| cell.trim().to_string()).collect() };
        let rows: Vec<_> = page.lines().filter(|line| line.starts_with('|')).map(cells).collect();
        let has_row = |begin: &[String]| {
            let said = |cell: &String| !cell.is_empty();
            rows.iter().any(|row| {
                row[1..].starts_with(begin)
                    && row[1 + begin.len()..].iter().filter(|cell| said(cell)).count() >= 2
            })
        };
        let kinds = kinds.iter().map(|kind| vec![format!("`{kind:?}`"), kind.to_string()]);
        let explanations = explanations.iter().map(|text| vec![text.to_string()]);
        let absent = kinds.chain(explanations).filter(|begin| !has_row(begin));
        absent.map(|begin| begin.join(" | ")).collect()
    }
    let sample = "| `Closed` | the other side is closed | it has ended | begin again |\n| it is odd | | |";
    assert_eq!(missing(sample, &[ErrorKind::Closed], &[]), [""; 0]);
    assert_eq!(missing(sample, &[ErrorKind::Torn], &["it is odd"]).len(), 2);

    let source = read(&format!("{CORE}error.rs"));
    let explanations: Vec<&str> = source
        .lines()
        .filter_map(|line| {
            line.trim().strip_prefix("(Explanation::")?.split_once(", \"")?.1.strip_suffix("\"),")
        })
        .collect();
    assert!(explanations.len() >= 15, "the explanations were found");
    let missing = missing(&read("docs/errors.md"), ErrorKind::ALL, &explanations);
    assert!(missing.is_empty(), "docs/errors.md has no row for {missing:#?}");
}
