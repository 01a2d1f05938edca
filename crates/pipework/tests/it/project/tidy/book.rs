//! The pages of docs/, which make up the book: links lead to existing headings, and every error is
//! explained. `make docs` builds the book and checks the rest.

use std::fs;

use pipework::ErrorKind;

use super::lexer::numbered;
use super::{CORE, Fault, File, hold, read, root};

/// The lines outside code blocks, and their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    numbered(text).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

#[test]
fn links_lead_to_existing_headings() {
    /// The anchor that a forge and the book derive from a heading.
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
fn errors_page_explains_every_error() {
    /// The kinds and the explanations that a page does not mention.
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
