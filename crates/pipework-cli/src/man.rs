//! `pipework man`: the man pages, made from the definitions of the options.
//!
//! In the text that follows the options in `--help`, the first paragraphs are the description.
//! Examples, forms and exit status become sections of their own, and indented text there keeps its
//! lines: an example that is refilled is no example.

use crate::failure::{Failure, at};
use crate::streams;
use clap::{Args, Command, ValueHint};
use clap_mangen::Man;
use std::fs;
use std::io;
use std::path::PathBuf;

/// Options of `pipework man`.
#[derive(Args)]
pub(crate) struct ManArgs {
    /// The folder for the pages, which is made if need be; without it they are printed
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: Option<PathBuf>,
}

/// The text of `--help` beside the options.
pub(crate) const HELP: &str = "\
Examples:
  Where man(1) finds them:
    pipework man ~/.local/share/man/man1

  To read them at once:
    pipework man | man -l -";

/// Prints all pages of the command `top` one after another, as `man -l -` takes them, or writes a
/// file for each.
pub(crate) fn man(args: &ManArgs, top: Command) -> Result<u8, Failure> {
    let dir = args.dir.as_deref();
    // It would be listed as a page, and has none.
    let mut top = top.disable_help_subcommand(true);
    top.build();
    if let Some(dir) = dir {
        fs::create_dir_all(dir).map_err(at(dir.display()))?;
    }
    for command in std::iter::once(&top).chain(top.get_subcommands()) {
        let (name, page) = page(command).map_err(at("man page"))?;
        match dir.map(|dir| dir.join(name)) {
            Some(path) => fs::write(&path, page).map_err(at(path.display()))?,
            None => streams::print(&page)?,
        }
    }
    Ok(0)
}

/// The file name and the text of a page.
fn page(command: &Command) -> io::Result<(String, Vec<u8>)> {
    let more = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let (description, more) = split(&more);
    let about = command.get_long_about().map(ToString::to_string).unwrap_or_default();
    let about = [&about, description].map(str::trim_end).join("\n\n");
    let mut plain = command.clone().after_long_help(None);
    // A page with neither is described by the text behind its name.
    if !about.trim().is_empty() {
        plain = plain.long_about(about.trim().to_string());
    }
    let man = Man::new(plain);
    let mut page = Vec::new();
    man.render(&mut page)?;
    page.extend_from_slice(sections(more).as_bytes());
    // The page of the whole command lists the others; section 3 has the C library.
    let other = if man.get_filename() == "pipework.1" { "pipework (3)" } else { "pipework (1)" };
    page.extend_from_slice(format!(".SH SEE ALSO\n.BR {other}\n").as_bytes());
    Ok((man.get_filename(), page))
}

/// The text before the first section, and the rest.
fn split(text: &str) -> (&str, &str) {
    let mut at = 0;
    for (line, next) in text.split_inclusive('\n').zip(text.lines().skip(1)) {
        if title(line.trim_end(), next).is_some() {
            return text.split_at(at);
        }
        at += line.len();
    }
    (text, "")
}

/// The name of the section that begins with this line: "Words:" alone, above an indented line.
fn title<'a>(line: &'a str, next: &str) -> Option<&'a str> {
    line.strip_suffix(':').filter(|_| !line.starts_with(' ') && next.starts_with(' '))
}

/// Sections of plain text as roff; indented lines stay lines.
fn sections(text: &str) -> String {
    let mut roff = String::new();
    let mut filled = true;
    for (line, next) in text.lines().zip(text.lines().skip(1).chain([""])) {
        let indented = line.starts_with(' ');
        match title(line, next) {
            Some(title) => {
                if !filled {
                    roff.push_str(".fi\n");
                    filled = true;
                }
                roff.push_str(&format!(".SH {}\n", title.to_uppercase()));
                continue;
            }
            None if line.is_empty() && filled => {
                roff.push_str(".PP\n");
                continue;
            }
            None => {}
        }
        if !line.is_empty() && indented == filled {
            roff.push_str(if indented { ".nf\n" } else { ".fi\n.PP\n" });
            filled = !indented;
        }
        let line = line.strip_prefix("  ").unwrap_or(line);
        // Without \& a line that begins with one of these would be an instruction.
        let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        let escaped = line.replace('\\', "\\e").replace('-', "\\-");
        roff.push_str(&format!("{guard}{escaped}\n"));
    }
    if !filled {
        roff.push_str(".fi\n");
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_turns_text_into_roff() {
        let text = "Examples:\n  One:\n    a -b\n\n  Two:\n    'c'\n\nSome words\nmore\n\nLast:\n  .x";
        let roff = ".SH EXAMPLES\n.nf\nOne:\n  a \\-b\n\nTwo:\n  'c'\n\n.fi\n.PP\nSome words\nmore\n\
                    .PP\n.SH LAST\n.nf\n\\&.x\n.fi\n";
        assert_eq!(sections(text), roff);
    }

    #[test]
    fn split_separates_the_description_from_the_sections() {
        let (prose, rest) = ("It does this:\nnothing.\n\nMore\n\n", "Examples:\n  One:\n    a\n");
        assert_eq!(split(&[prose, rest].concat()), (prose, rest));
        assert_eq!(split(prose), (prose, ""));
        assert_eq!(split(rest), ("", rest));
        assert_eq!(sections("Like this:\nwords\n"), "Like this:\nwords\n");
    }
}
