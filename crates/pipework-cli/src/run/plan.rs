//! The commands to run, and their names.

use crate::failure::words;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The placeholder for an argument, as for xargs -I{} and GNU parallel.
const PLACE: &[u8] = b"{}";

/// A command, not started yet.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) words: Vec<OsString>,
    /// The name that marks its output.
    pub(crate) name: OsString,
    /// The name that distinguishes it from others of that name.
    full_name: OsString,
    kind: Kind,
    /// The origin of its argument.
    origin: Option<String>,
}

#[derive(Clone, Copy)]
enum Kind {
    Command,
    Shell,
}

impl Plan {
    /// A command, called by its file name.
    pub(crate) fn command(words: &[OsString]) -> Self {
        let path = Path::new(&words[0]);
        let name = path.file_name().unwrap_or(path.as_os_str()).to_os_string();
        let full_name = words[1..].iter().fold(name.clone(), |name, word| join(&name, word));
        Self { words: words.to_vec(), name, full_name, kind: Kind::Command, origin: None }
    }

    /// A line for the shell, called by its first word.
    pub(crate) fn shell(line: &OsString) -> Self {
        let text = line.to_string_lossy();
        let first = text.split(|c: char| c.is_whitespace() || ";|&()".contains(c));
        let name = first.into_iter().find(|word| !word.is_empty()).unwrap_or("sh").into();
        let full_name = OsStr::from_bytes(line.as_bytes().trim_ascii()).into();
        let words = vec!["sh".into(), "-c".into(), line.clone()];
        Self { words, name, full_name, kind: Kind::Shell, origin: None }
    }

    /// The same with an argument, at its place or behind all others. It is called by the argument;
    /// `among_others` says that the argument has other commands as well.
    pub(super) fn with_argument(&self, argument: &[u8], among_others: bool) -> Self {
        let mut plan = self.clone();
        let argument = OsStr::from_bytes(argument);
        plan.name = if among_others { join(&self.name, argument) } else { argument.into() };
        match self.kind {
            Kind::Command => {
                let mut placed = false;
                for word in &mut plan.words {
                    placed |= replace(word, argument.as_bytes());
                }
                if !placed {
                    plan.words.push(argument.into());
                }
            }
            // The shell puts it in, so that it stays one word and no part of it is understood.
            Kind::Shell => {
                let line = &mut plan.words[2];
                if !replace(line, br#""$1""#) {
                    line.push(r#" "$1""#);
                }
                plan.words.extend(["sh".into(), argument.into()]);
            }
        }
        plan
    }

    /// The same, with an argument from `origin`.
    pub(super) fn from(self, origin: String) -> Self {
        Self { origin: Some(origin), ..self }
    }

    /// Why it cannot be started, in words that name the command.
    pub(super) fn refused(&self, error: &io::Error) -> String {
        let why = match error.kind() {
            io::ErrorKind::InvalidInput => "it holds a NUL byte, which no argument can".to_string(),
            _ => words(error),
        };
        let name = self.words[0].display();
        match &self.origin {
            Some(origin) => format!("cannot run {name} with {origin}: {why}"),
            None => format!("cannot run {name}: {why}"),
        }
    }
}

fn join(one: &OsStr, other: &OsStr) -> OsString {
    let mut both = one.to_os_string();
    both.push(" ");
    both.push(other);
    both
}

const QUOTED: &str = "write {} without quotes; it is one word, whatever it holds";
const COUNTED: &str = "{} cannot be part of arithmetic; give it a name first, as in n={}; echo $((n * n))";

/// Why an argument cannot have its place in a line for the shell, if it cannot. Between quotes it
/// would not be one word, or not be put in at all; in arithmetic its text would be an expression.
pub(super) fn misplaced(line: &OsStr) -> Option<&'static str> {
    // The brackets that are opened and not closed: quotes, `(` of a command, `[` of arithmetic, and
    // `,` for a bracket within that.
    let mut open = Vec::new();
    let mut bytes = line.as_bytes();
    while let Some((&byte, rest)) = bytes.split_first() {
        let quoted = open.last() == Some(&b'"');
        let counts = matches!(open.last(), Some(b'[' | b','));
        if (quoted || counts) && bytes.starts_with(PLACE) {
            return Some(if counts { COUNTED } else { QUOTED });
        }
        bytes = rest;
        match byte {
            b'\\' => bytes = rest.get(1..).unwrap_or_default(),
            b'\'' if !quoted => {
                let end = rest.iter().position(|byte| *byte == b'\'').unwrap_or(rest.len());
                if rest[..end].windows(PLACE.len()).any(|window| window == PLACE) {
                    return Some(QUOTED);
                }
                bytes = rest.get(end + 1..).unwrap_or_default();
            }
            b'"' | b'`' if open.last() == Some(&byte) => drop(open.pop()),
            b'"' | b'`' => open.push(byte),
            b'$' if rest.starts_with(b"((") && is_arithmetic(&rest[2..]) => {
                open.push(b'[');
                bytes = &rest[2..];
            }
            b'$' if rest.starts_with(b"(") => {
                open.push(b'(');
                bytes = &rest[1..];
            }
            b'(' if !quoted => open.push(if counts { b',' } else { b'(' }),
            b')' if open.last() == Some(&b'[') => {
                open.pop();
                bytes = rest.get(1..).unwrap_or_default();
            }
            b')' if matches!(open.last(), Some(b'(' | b',')) => drop(open.pop()),
            _ => {}
        }
    }
    None
}

/// Whether `$((` begins arithmetic, by what follows: `))` closes it. Otherwise it begins a command in
/// brackets within another one.
fn is_arithmetic(rest: &[u8]) -> bool {
    let mut depth = 2;
    let closes = rest.iter().position(|byte| {
        depth += match byte {
            b'(' => 1,
            b')' => -1,
            _ => 0,
        };
        depth == 1
    });
    closes.is_some_and(|at| rest.get(at + 1) == Some(&b')'))
}

/// Replaces the placeholder by `bytes`; returns whether the word has one.
fn replace(word: &mut OsString, bytes: &[u8]) -> bool {
    let mut rest = word.as_bytes();
    let mut whole = Vec::new();
    while let Some(at) = rest.windows(PLACE.len()).position(|window| window == PLACE) {
        whole.extend_from_slice(&rest[..at]);
        whole.extend_from_slice(bytes);
        rest = &rest[at + PLACE.len()..];
    }
    let found = rest.len() < word.len();
    whole.extend_from_slice(rest);
    *word = OsString::from_vec(whole);
    found
}

/// Calls those that have one name by all their words, and numbers those that are still the same:
/// NAME.1, NAME.2.
pub(super) fn tell_apart(plans: &mut [Plan]) {
    let shared = |plans: &[Plan]| -> Vec<bool> {
        let same = |one: &Plan| plans.iter().filter(|other| other.name == one.name).count() > 1;
        plans.iter().map(same).collect()
    };
    for (place, shared) in shared(plans).into_iter().enumerate() {
        if shared && !plans[place].full_name.is_empty() {
            plans[place].name = plans[place].full_name.clone();
        }
    }
    let shared = shared(plans);
    let names: Vec<OsString> = plans.iter().map(|plan| plan.name.clone()).collect();
    for place in (0..names.len()).filter(|place| shared[*place]) {
        let number = names[..=place].iter().filter(|other| **other == names[place]).count();
        plans[place].name.push(format!(".{number}"));
    }
}

/// A name as a person reads it at the beginning of a line: one line, and not too long.
pub(super) fn label(name: &OsStr) -> String {
    const LONGEST: usize = 40;
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let name = name.to_string_lossy();
    let length = name.chars().count();
    if length <= LONGEST {
        return name.chars().map(plain).collect();
    }
    // Paths and addresses differ at their ends, commands in front.
    let half = LONGEST / 2;
    let (front, back) = (name.chars().take(half - 1), name.chars().skip(length - half));
    front.chain(['…']).chain(back).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str) -> Plan {
        Plan::shell(&line.into())
    }

    fn command(words: &[&str]) -> Plan {
        Plan::command(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn names_of_commands_are_distinct() {
        let mut plans = [
            command(&["/bin/make", "a"]),
            shell("(cd x; ls)"),
            command(&["make"]),
            shell(" "),
            shell("make b; make c"),
            command(&["make", "a"]),
            shell(" "),
        ];
        tell_apart(&mut plans);
        let names: Vec<_> = plans.iter().map(|plan| &*plan.name).collect();
        assert_eq!(names, ["make a.1", "cd", "make", "sh.1", "make b; make c", "make a.2", "sh.2"]);
    }

    #[test]
    fn with_argument_fills_the_places() {
        let with = |plan: Plan, argument: &str| plan.with_argument(argument.as_bytes(), false).words;
        assert_eq!(with(command(&["cp", "{}", "{}.old"]), "a b"), ["cp", "a b", "a b.old"]);
        assert_eq!(with(command(&["echo", "-n"]), "{}"), ["echo", "-n", "{}"]);
        let line = with(shell("cp {} x{}"), "a b");
        assert_eq!(line, ["sh", "-c", r#"cp "$1" x"$1""#, "sh", "a b"]);
        assert_eq!(with(shell("ls"), "$(a)"), ["sh", "-c", r#"ls "$1""#, "sh", "$(a)"]);
        assert_eq!(command(&["cp"]).with_argument(b"x", false).name, "x");
        assert_eq!(command(&["cp"]).with_argument(b"x", true).name, "cp x");
    }

    #[test]
    fn misplaced_detects_quoted_places_and_arithmetic() {
        for line in ["echo '{}'", "echo \"{}\"", "a \"b{}c\"", "$(echo \"{}\")", "sh -c 'ls {}'", "\"`a`{}\""]
        {
            assert_eq!(misplaced(line.as_ref()), Some(QUOTED), "{line}");
        }
        for line in ["echo $(({} * 2))", "echo \"$((2 * (1 + {})))\"", "n=$(( $(ls | wc -l) + {}))"] {
            assert_eq!(misplaced(line.as_ref()), Some(COUNTED), "{line}");
        }
        for line in [
            "echo {}",
            "'a'{}\"b\"",
            "\"$(echo {})\"",
            "\\'{}",
            "\"`ls {}`\"",
            "(a; b {}) \"c\"",
            "'",
            "n={}; echo $((n * n)) {}",
            "echo $(( $(wc -c < {}) + 1 ))",
            "echo $((ls {}) | wc -l)",
            "$((",
        ] {
            assert_eq!(misplaced(line.as_ref()), None, "{line}");
        }
    }

    #[test]
    fn label_is_one_short_line() {
        let label = |name: &str| label(name.as_ref());
        assert_eq!(label("a\nb"), "a b");
        let long = format!("{}{}", "a".repeat(100), "b".repeat(20));
        assert_eq!(label(&long), format!("{}…{}", "a".repeat(19), "b".repeat(20)));
        assert_eq!(label(&long).chars().count(), 40);
    }
}
