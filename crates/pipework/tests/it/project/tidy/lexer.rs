//! Just enough Rust for the rules: the code of a line, the tests, the names of a `use`.
//!
//! Every function keeps each line in place, so that a fault can be reported by its number.

pub(super) fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(i, line)| (i + 1, line))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

pub(super) fn first_word(text: &str) -> &str {
    text.split(|c| !is_word(c)).next().unwrap_or(text)
}

/// Whether `word` occurs in `line`, not as the tail of a longer word.
pub(super) fn names(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| !line[..at].ends_with(is_word))
}

/// Whether `word` occurs in `line` as a whole word.
pub(super) fn names_whole(line: &str, word: &str) -> bool {
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(is_word) && !line[at + word.len()..].starts_with(is_word))
}

/// `text` with every comment and literal turned into spaces: the same lines, and only code on them.
pub(super) fn code(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let blank = blank_len(rest, out.ends_with(is_word));
        let len = if blank > 0 { blank } else { rest.chars().next().map_or(1, char::len_utf8) };
        out.extend(rest[..len].chars().map(|c| if blank > 0 && c != '\n' { ' ' } else { c }));
        rest = &rest[len..];
    }
    out
}

/// How many bytes of a comment or a literal `rest` begins with. `in_word`: the byte before belongs
/// to a name.
fn blank_len(rest: &str, in_word: bool) -> usize {
    let to = |from: usize, end: &str| rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len());
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return to(2, "*/");
    }
    if let Some(inside) = rest.strip_prefix('"') {
        let mut escaped = false;
        let end = inside.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        return end.map_or(rest.len(), |at| at + 2);
    }
    if rest.starts_with("'\\") {
        return to(3, "'");
    }
    if let Some(c) = rest.strip_prefix('\'').and_then(|tail| tail.chars().next())
        && rest[1 + c.len_utf8()..].starts_with('\'')
    {
        return 2 + c.len_utf8();
    }
    let raw = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('r').filter(|_| !in_word);
    let hashes = raw.map_or(0, |tail| tail.len() - tail.trim_start_matches('#').len());
    if raw.is_some_and(|tail| tail[hashes..].starts_with('"')) {
        let quote = rest.find('"').expect("it was seen just now");
        return to(quote + 1, &format!("\"{}", "#".repeat(hashes)));
    }
    0
}

/// `code` without items that exist for tests only; the lines stay in place.
pub(super) fn without_tests(code: &str) -> String {
    let mut out = code.to_string();
    let mut from = 0;
    while let Some(at) = out[from..].find("#[cfg(").map(|at| from + at) {
        let attribute = out[at..].find(']').map_or(out.len(), |end| at + end);
        from = attribute;
        if !names_whole(&out[at..attribute], "test") || out[at..attribute].contains("not(test)") {
            continue;
        }
        let end = item_end(&out, attribute);
        let blank: String = out[at..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        out.replace_range(at..end, &blank);
    }
    out
}

/// Where the item that follows `from` ends: at its semicolon, or where its braces close.
fn item_end(code: &str, from: usize) -> usize {
    let mut depth = 0;
    for (at, c) in code[from..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth <= 0 && (c == '}' || c == ';') {
            return from + at + 1;
        }
    }
    code.len()
}

/// `code` with each `use` of a tree of names as whole paths, on the line where it begins.
pub(super) fn flat_uses(code: &str) -> String {
    fn spread(tree: &str, prefix: &str, out: &mut String) {
        let Some((head, body)) = tree.split_once('{') else {
            *out += &format!("{prefix}{} ", tree.trim());
            return;
        };
        let prefix = format!("{prefix}{}", head.trim());
        let mut depth = 0;
        let branches = body.trim_end().strip_suffix('}').unwrap_or(body).split(|c| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            c == ',' && depth == 0
        });
        branches.for_each(|branch| spread(branch, &prefix, out));
    }
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find("use ").filter(|_| rest.contains(';')) {
        out += &rest[..at];
        let len = rest[at..].find(';').unwrap_or(rest.len() - at);
        let tree = &rest[at..at + len];
        if out.ends_with(is_word) {
            out += tree;
        } else {
            spread(&tree[4..], "", &mut out);
            out.extend(tree.chars().filter(|c| *c == '\n'));
        }
        rest = &rest[at + len..];
    }
    out + rest
}

#[test]
fn the_lexer_sees_code_only() {
    let text = "a /* b\n */ c // d\n\"e\\\"\" 'f' '\\'' 'g: br##\"h\"# \"## r\"i\" for\"j\"";
    let seen: String = code(text).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(seen, "a c 'g: for");
    assert_eq!(code(text).lines().count(), text.lines().count());
    assert_eq!(
        without_tests("a\n#[cfg(test)]\nmod b {\n  {}\n}\nc").split_whitespace().collect::<String>(),
        "ac"
    );
    assert_eq!(without_tests("#[cfg(not(test))]\nlet a;").split_whitespace().count(), 3);
    assert_eq!(flat_uses("use a::{b, c::{d, e}};\nuse f;"), "a::b a::c::d a::c::e ;\nf ;");
}
