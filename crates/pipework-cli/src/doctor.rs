//! `pipework doctor`: faults of segments, FIFOs and the system, and fixes for them.
//!
//! Examining changes nothing. Each fix is confirmed by the user first, one by one, and before a
//! file is removed, the kernel has proved after the answer that it is unused.

mod args;
mod blobs;
mod removal;
mod system;

use crate::channel::{self, AnyChannel};
use crate::failure::{DAMAGE, Failure, during};
use crate::look::{self, Broadcast, Find, State, What};
use crate::progress::size;
use crate::table::{self, count};
use crate::{form, ls, streams, sys};
use pipework::ErrorKind;
use pipework::reqrep::{BlobAudit, Role};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::Path;
use system::{Check, Level};

pub(crate) use args::{DoctorArgs, HELP};

/// Runs `pipework doctor`.
pub(crate) fn doctor(args: &DoctorArgs, quiet: bool) -> Result<u8, Failure> {
    let mut report = Report { answer: Answer::of(args)?, json: args.json, is_sick: false };
    if !args.system {
        let paths = if args.paths.is_empty() { look::usual_places() } else { args.paths.clone() };
        let finds = look::at_all(&paths, sys::user()).map_err(look::failure)?;
        let folders = blobs::at_all(&paths, sys::user());
        if finds.is_empty() && folders.is_empty() && !quiet && !args.json {
            look::say_nothing_found(&paths);
        }
        for find in finds {
            report.examine(&find, args.fifos)?;
        }
        for folder in folders {
            report.examine_blobs(&folder)?;
        }
    }
    if args.paths.is_empty() {
        for check in system::checks() {
            report.say_check(&check)?;
        }
    }
    Ok(if report.is_sick { DAMAGE } else { 0 })
}

/// How a fix is confirmed.
#[derive(Clone, Copy, PartialEq)]
enum Answer {
    /// No question: every fix is confirmed.
    Yes,
    /// The person at the terminal.
    Ask,
    /// No question: it only reports.
    No,
}

impl Answer {
    fn of(args: &DoctorArgs) -> Result<Self, Failure> {
        let has_person = || streams::stdin().is_ok_and(streams::Stream::is_terminal);
        Ok(match args.yes {
            true => Self::Yes,
            false if !args.json && streams::stdout()?.is_terminal() && has_person() => Self::Ask,
            false => Self::No,
        })
    }
}

/// The possible fix of a finding.
#[derive(Clone, Copy, PartialEq)]
enum Remedy {
    Recover,
    Remove,
    /// As above, but something would be lost: not without being asked.
    RemoveIfAsked,
}

/// A fault, in words.
struct Finding {
    text: String,
    remedy: Option<Remedy>,
}

struct Report {
    answer: Answer,
    json: bool,
    /// It has a fault that was not fixed.
    is_sick: bool,
}

impl Report {
    fn examine(&mut self, find: &Find, fifos: bool) -> Result<(), Failure> {
        let findings = findings(find, fifos);
        let place = table::path(&find.path);
        if !self.json {
            let first = if findings.is_empty() { ": nothing is wrong" } else { "" };
            streams::print(
                format!("{place}: {}, {}{first}\n", find.state().word(), find.users()).as_bytes(),
            )?;
        }
        let mut said = vec![];
        for Finding { text, remedy } in &findings {
            let outcome = self.fix(find, text, *remedy)?;
            let (is_fixed, words) = match &outcome {
                Some(Ok(words)) => (true, Some(words)),
                Some(Err(words)) => (false, Some(words)),
                None => (false, None),
            };
            self.is_sick |= !is_fixed;
            if !self.json
                && let Some(words) = words
            {
                print(&format!("    {words}"))?;
            }
            said.push(json!({ "text": text, "fixed": is_fixed, "outcome": words }));
        }
        if self.json {
            let mut object = ls::object(find);
            object["findings"] = said.into();
            streams::print(format!("{object}\n").as_bytes())?;
        }
        Ok(())
    }

    /// A folder of blobs that has no channel any more.
    fn examine_blobs(&mut self, folder: &Path) -> Result<(), Failure> {
        const TEXT: &str = "the channel of these blobs is gone";
        if !self.json {
            print(&format!("{}: left, blobs\n  {TEXT}", table::path(folder)))?;
        }
        let is_wanted = match self.answer {
            Answer::Yes => true,
            Answer::Ask => asked("remove it?")?,
            Answer::No => false,
        };
        let outcome = is_wanted.then(|| blobs::remove(folder));
        let is_fixed = matches!(outcome, Some(Ok(_)));
        let words = outcome.map(|outcome| match outcome {
            Ok(found) => format!("removed {} in {}", size(found.bytes), count(found.files, "file")),
            Err(why) => format!("not removed: {why}"),
        });
        self.is_sick |= !is_fixed;
        if self.json {
            let (key, path) = form::path(folder);
            let findings = [json!({ "text": TEXT, "fixed": is_fixed, "outcome": words })];
            let object = json!({ key: path, "kind": "blobs", "state": "left", "findings": findings });
            return streams::print(format!("{object}\n").as_bytes());
        }
        words.map_or(Ok(()), |words| print(&format!("    {words}")))
    }

    /// Reports a finding, and fixes it if that is wanted. The report says what it did, or why it
    /// did not.
    fn fix(
        &self,
        find: &Find,
        text: &str,
        remedy: Option<Remedy>,
    ) -> Result<Option<Result<String, String>>, Failure> {
        if !self.json {
            print(&format!("  {text}"))?;
        }
        let Some(remedy) = remedy else { return Ok(None) };
        let question = if remedy == Remedy::Recover { "take it back?" } else { "remove it?" };
        let is_wanted = match self.answer {
            Answer::Yes => remedy != Remedy::RemoveIfAsked,
            Answer::Ask => asked(question)?,
            Answer::No => false,
        };
        Ok(is_wanted.then(|| match remedy {
            Remedy::Recover => recover(find).map_err(|failure| failure.to_string()),
            Remedy::Remove | Remedy::RemoveIfAsked => {
                removal::remove(find).map(|()| "removed".into()).map_err(|why| format!("not removed: {why}"))
            }
        }))
    }

    fn say_check(&mut self, check: &Check) -> Result<(), Failure> {
        self.is_sick |= check.level == Level::Problem;
        let Check { name, level, value, meaning } = check;
        let text = match self.json {
            true => Value::to_string(&json!({
                "check": name, "level": level.word(), "value": value, "meaning": meaning,
            })),
            false => format!("{:<8}{name}: {value}\n        {meaning}", level.word()),
        };
        print(&text)
    }
}

/// Prints a line, which may hold what strangers have named.
fn print(text: &str) -> Result<(), Failure> {
    streams::print(format!("{}\n", table::plain_lines(text)).as_bytes())
}

/// The faults of a segment or FIFO.
fn findings(find: &Find, fifos: bool) -> Vec<Finding> {
    let removable = |text: String| Finding { text, remedy: Some(Remedy::Remove) };
    let noted = |text: String| Finding { text, remedy: None };
    let mut findings = vec![];
    match (&find.what, find.state()) {
        (What::Fifo(_), State::Unused) if fifos => {
            findings.push(removable("no process is seen to have it open".into()))
        }
        (What::Fifo(Some(fill)), _) if fill.unread > 0 && find.readers() == 0 => {
            findings.push(noted(format!("{} wait, and no process reads", size(fill.unread))));
        }
        (What::Fifo(_), _) => {}
        (What::Segment(Err(error)) | What::Broadcast(Err(error)), State::Broken) if is_elsewhere(error) => {
            findings.push(Finding {
                text: "no process can use it from here; it may be intact where it was made".into(),
                remedy: Some(Remedy::RemoveIfAsked),
            });
        }
        (What::Segment(Err(_)) | What::Broadcast(Err(_)), State::Broken) => {
            findings.push(removable("no process can use it any more".into()));
        }
        (What::Segment(Err(_)) | What::Broadcast(Err(_)), _) => {
            findings.push(noted("it cannot be examined".into()));
        }
        (What::Broadcast(Ok(found)), state) => {
            findings.extend(inside_broadcast(find, found));
            if state == State::Left {
                let text = format!("no process is seen to use it, and it takes {}", size(find.bytes));
                findings.push(removable(text));
            }
        }
        (What::Segment(Ok(found)), state) => {
            findings.extend(inside(find));
            if found.waiting > 0 && found.living(Role::Server) == 0 {
                let requests = count(found.waiting, "request");
                findings.push(match state {
                    State::Left => Finding {
                        text: format!(
                            "no process is seen to use it; {requests} without a server would be lost"
                        ),
                        remedy: Some(Remedy::RemoveIfAsked),
                    },
                    _ => noted(format!("{requests} without a server: is it still to be started?")),
                });
            } else if state == State::Left {
                let text = format!("no process is seen to use it, and it takes {}", size(find.bytes));
                findings.push(removable(text));
            }
        }
    }
    findings
}

/// Whether the finding is about a copy of a channel, or a channel on another mount, which a process
/// has made on purpose.
fn is_elsewhere(error: &pipework::Error) -> bool {
    error.kind() == ErrorKind::Incompatible && error.op().ends_with(" open") && error.explanation().is_some()
}

/// The faults that an audit shows.
fn inside(find: &Find) -> Vec<Finding> {
    let audited = channel::open(&find.path, true).and_then(|segment| {
        let audit = segment.audit().map_err(during(find.path.display()))?;
        let dead = segment.members().map_err(during(find.path.display()))?;
        Ok((audit, dead.iter().filter(|member| !member.is_alive).count(), segment.blob_audit()))
    });
    let mut findings = vec![];
    match audited {
        // It has changed since it was found.
        Err(failure) => findings.push(Finding { text: failure.to_string(), remedy: None }),
        Ok((audit, dead, blobs)) => {
            if audit.damaged > 0 {
                let slots = count(audit.damaged, "slot");
                let text = format!(
                    "{slots} hold what no member writes: memory was damaged, or a program writes into it"
                );
                findings.push(Finding { text, remedy: None });
            }
            if dead > 0 || audit.orphaned > 0 {
                let (members, slots) = (count(dead, "member"), count(audit.orphaned, "slot"));
                let text = format!("{members} died without leaving, with {slots}");
                findings.push(Finding { text, remedy: Some(Remedy::Recover) });
            }
            let taken =
                audit.filling + audit.waiting + audit.taken + audit.dropped + audit.in_parts + audit.done;
            findings.extend(left_blobs(&blobs));
            if audit.free == 0 && taken > 0 {
                let text = "every slot is taken: callers wait, or make it with more slots".into();
                findings.push(Finding { text, remedy: None });
            }
        }
    }
    findings
}

/// The faults that an audit of a broadcast shows.
fn inside_broadcast(find: &Find, found: &Broadcast) -> Vec<Finding> {
    let mut findings = vec![];
    let orphaned = channel::open_broadcast(&find.path).and_then(|segment| Ok(segment.audit()?.orphaned));
    match orphaned {
        // It has changed since it was found.
        Err(error) => findings.push(Finding { text: channel::why(&find.path, error), remedy: None }),
        Ok(orphaned) if found.dead() > 0 || orphaned > 0 => {
            let members = count(found.dead(), "member");
            let text = match orphaned {
                0 => format!("{members} died without leaving"),
                _ => format!("{members} died without leaving, and others may wait for what they held"),
            };
            findings.push(Finding { text, remedy: Some(Remedy::Recover) });
        }
        Ok(_) => {}
    }
    findings.extend(left_blobs(&found.blobs));
    findings.extend(found.holding_up().map(|member| Finding {
        text: format!(
            "publishers wait for process {}, which must see all and is {} behind",
            member.pid,
            count(member.lag as usize, "message")
        ),
        remedy: None,
    }));
    findings
}

fn left_blobs(blobs: &BlobAudit) -> Option<Finding> {
    let (files, bytes) = (count(blobs.left, "file"), size(blobs.left_bytes));
    let text = format!("dead processes left blobs: {files}, {bytes}");
    (blobs.left > 0).then_some(Finding { text, remedy: Some(Remedy::Recover) })
}

fn recover(find: &Find) -> Result<String, Failure> {
    let channel = AnyChannel::open(&find.path).map_err(|error| channel::refused(&find.path, error))?;
    let before = channel.blob_audit();
    let dead = channel.recover().map_err(during(find.path.display()))?;
    let freed = before.bytes.saturating_sub(channel.blob_audit().bytes);
    // Members of the same moment may have been quicker.
    let from = count(dead, "dead member");
    Ok(match freed {
        0 => format!("taken back from {from}"),
        _ => format!("taken back from {from}, and {} of blobs", size(freed)),
    })
}

/// Asks the person at the terminal. Anything but a yes is a no.
fn asked(question: &str) -> Result<bool, Failure> {
    streams::stdout()?.write_all(format!("    {question} [y/N] ").as_bytes()).map_err(Failure::stdout)?;
    let (mut line, mut stdin) = (vec![], streams::stdin()?);
    let mut byte = [0];
    while stdin.read(&mut byte).is_ok_and(|len| len == 1) && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    Ok(matches!(line.trim_ascii().to_ascii_lowercase().as_slice(), b"y" | b"yes"))
}
