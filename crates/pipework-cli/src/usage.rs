//! A command line that was not understood, in words for the user who typed it.
//!
//! The parser finds the mistake; this file reports it as any other failure: a line that names the
//! option and says what it takes, and one that shows the way to more.

use crate::failure::{Failure, USAGE};
use crate::streams;
use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use std::error::Error as _;
use std::io::Write;

/// Handles a command line that names nothing to do: help that was asked for is printed here, and
/// the failure says nothing; any other is a usage error.
pub(crate) fn misread(error: &Error, mut top: Command) -> Failure {
    let help = error.render();
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let words = |terminal: bool| match terminal && !plain {
        true => help.ansi().to_string(),
        false => help.to_string(),
    };
    if !error.use_stderr() {
        let printed = streams::stdout().and_then(|mut stdout| {
            stdout.write_all(words(stdout.is_terminal()).as_bytes()).map_err(Failure::stdout)
        });
        return printed.err().unwrap_or(Failure::silent(0));
    }
    let Some(what) = mistake(error) else {
        let mut stderr = streams::stderr();
        // If it cannot be written, no other place is left to report it.
        let _ = stderr.write_all(words(stderr.is_terminal()).as_bytes());
        return Failure::silent(USAGE);
    };
    top.build();
    let name = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let command = name.and_then(|name| top.find_subcommand(name).cloned()).unwrap_or(top);
    let mut usage = command.clone();
    let (usage, name) = (usage.render_usage().to_string(), command.get_bin_name().unwrap_or("pipework"));
    // A word that is one too many before it is the command, most likely.
    let dashes =
        if what.ends_with(TOO_MANY) && usage.contains(" -- ") { "; the command follows --" } else { "" };
    Failure::new(format!("{what}{dashes}\n{usage}\n`{name} --help` says more")).with_status(USAGE)
}

const TOO_MANY: &str = "is one argument too many";

/// The parser's complaint; `None` if its own text is as good.
fn mistake(error: &Error) -> Option<String> {
    let argument = || Some(plain(&one(error, ContextKind::InvalidArg)?));
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let unknown = argument()?;
            Some(match one(error, ContextKind::SuggestedArg) {
                Some(known) => format!("there is no option {unknown} here; is {known} meant?"),
                None if unknown.starts_with('-') => format!("there is no option {unknown} here"),
                None => format!("'{unknown}' {TOO_MANY}"),
            })
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let (of, value) = (argument()?, one(error, ContextKind::InvalidValue)?);
            let known = all(error, ContextKind::ValidValue);
            let wanted = match error.source() {
                Some(wanted) => wanted.to_string(),
                None if known.is_empty() => "a value".into(),
                None => format!("one of {}", known.join(", ")),
            };
            Some(match value.as_str() {
                "" => format!("{of} takes {wanted}"),
                value => format!("{of} '{value}': it takes {wanted}"),
            })
        }
        ErrorKind::MissingRequiredArgument => {
            let missing: Vec<String> =
                all(error, ContextKind::InvalidArg).iter().map(|argument| plain(argument)).collect();
            Some(format!("missing: {}", missing.join(", ")))
        }
        ErrorKind::ArgumentConflict => {
            let (of, others) = (argument()?, all(error, ContextKind::PriorArg));
            let others: Vec<String> = others.iter().map(|other| plain(other)).collect();
            Some(match others.contains(&of) {
                true => format!("{of} is given more than once"),
                false => format!("{of} does not go together with {}", others.join(", ")),
            })
        }
        ErrorKind::InvalidSubcommand => {
            let unknown = one(error, ContextKind::InvalidSubcommand)?;
            let known = all(error, ContextKind::SuggestedSubcommand);
            Some(match known.is_empty() {
                true => format!("there is no command '{unknown}'"),
                false => format!("there is no command '{unknown}'; is {} meant?", known.join(" or ")),
            })
        }
        _ => None,
    }
}

/// The first word of an argument as the parser shows it, which may go on with its value, and
/// without the brackets of one that has no name.
fn plain(argument: &str) -> String {
    let word = argument.split([' ', '=']).next().unwrap_or_default();
    word.trim_end_matches("...").trim_matches(['<', '>', '[', ']']).into()
}

fn one(error: &Error, kind: ContextKind) -> Option<String> {
    all(error, kind).into_iter().next()
}

fn all(error: &Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(word)) => vec![word.clone()],
        Some(ContextValue::Strings(words)) => words.clone(),
        _ => vec![],
    }
}
