//! The protocols of shared memory and of the files of blobs, searched: every order of every step of
//! several processes, with deaths anywhere.
//!
//! The small scopes run with every test; `make model` searches the large ones. Each rule of the
//! protocol is also left out once: a search that does not find what the rule is for would prove
//! nothing.

mod search;
mod calls;
mod wake;
mod blobs;
mod scopes;

use std::fmt::Debug;

use scopes::{BLOBS, CALLS, LARGE_BLOBS, LARGE_CALLS, WAKES};
use search::{Model, search};

/// Set by `make model`.
const LARGE: &str = "PIPEWORK_MODEL";

#[test]
fn calls_survive_everything_in_the_small() {
    for (name, scope) in CALLS {
        sound(name, scope);
    }
}

#[test]
fn calls_survive_everything_in_the_large() {
    if std::env::var_os(LARGE).is_none() {
        println!("not searched: `make model` does");
        return;
    }
    for (name, scope) in LARGE_CALLS {
        sound(name, scope);
    }
}

#[test]
fn no_rule_of_a_call_can_be_left_out() {
    for &rule in calls::RULES {
        let (name, fault) = fault_without(rule);
        let scopes = CALLS.iter().chain(LARGE_CALLS);
        let (_, scope) = scopes.clone().find(|(scope, _)| *scope == name).expect("a scope of that name");
        faulty(&calls::Scope { without: Some(rule), ..scope.clone() }, &format!("{rule:?}"), fault);
    }
}

#[test]
fn no_wake_up_is_lost() {
    for (name, scope) in WAKES {
        sound(name, scope);
    }
}

#[test]
fn no_rule_of_the_wake_up_can_be_left_out() {
    for rule in wake::RULES {
        let fault = match rule {
            wake::Rule::Slices => "a wake-up that died is never made good",
            _ => "a wake-up is lost",
        };
        faulty(&wake::Scope { without: Some(rule), ..WAKES[0].1.clone() }, &format!("{rule:?}"), fault);
    }
}

#[test]
fn blobs_are_unchanged_and_freed_in_small_scopes() {
    for (name, scope) in BLOBS {
        sound(name, scope);
    }
}

#[test]
fn blobs_are_unchanged_and_freed_in_large_scopes() {
    if std::env::var_os(LARGE).is_none() {
        println!("not searched: `make model` does");
        return;
    }
    for (name, scope) in LARGE_BLOBS {
        sound(name, scope);
    }
}

#[test]
fn blobs_search_finds_a_fault_when_a_rule_is_left_out() {
    for &rule in blobs::RULES {
        let (name, fault) = blob_fault_without(rule);
        let scopes = BLOBS.iter().chain(LARGE_BLOBS);
        let (_, scope) = scopes.clone().find(|(scope, _)| *scope == name).expect("a scope of that name");
        faulty(&blobs::Scope { without: Some(rule), ..scope.clone() }, &format!("{rule:?}"), fault);
    }
}

fn sound<M: Model>(name: &str, model: &M) {
    let found = search(model);
    let (states, steps, depth, took) = (found.states, found.steps, found.depth, found.took);
    println!("{name}: {states} states, {steps} steps, at most {depth} deep, {:.1} s", took.as_secs_f64());
    assert!(found.fault.is_none(), "{name}: {:?}", found.fault);
}

fn faulty<M: Model + Debug>(model: &M, name: &str, what: &str) {
    let found = search(model);
    let fault = found.fault.unwrap_or_else(|| panic!("without {name}, nothing is found in {model:?}"));
    println!("without {name}: {what}, after {} steps ({} states)", fault.path.len() - 1, found.states);
    assert_eq!(fault.what, what, "{fault:?}");
}

/// In which scope a rule is missed, and what then happens.
fn fault_without(rule: calls::Rule) -> (&'static str, &'static str) {
    use calls::Rule;
    const HANGS: &str = "a call hangs although a server lives";
    const LEAKS: &str = "a slot leaks: recovery leaves it behind";
    const CALL: &str = "a living client was robbed of its call";
    const REQUEST: &str = "a living server was robbed of its request";
    const PART: &str = "a client has taken a wrong part";
    const READ: &str = "a server has read a wrong part";
    match rule {
        Rule::ProofAfterTheWord => ("two servers", REQUEST),
        Rule::SlotsBeforeRole => ("one client, one server, both may die and leave", LEAKS),
        Rule::StopWhenTakenOver => ("two servers", HANGS),
        Rule::DeliveriesCount => ("two servers", REQUEST),
        Rule::GenerationsCount => ("two clients", CALL),
        Rule::EpochsCount => ("two servers", "a living member has lost its role"),
        Rule::ClaimBeforeUnlink => ("two clients", HANGS),
        Rule::RecoverBeforeJoining => ("two clients", LEAKS),
        Rule::LeaveBeforeUnlocking => {
            ("one client, one server, both may die and leave", "a living member has lost its role")
        }
        Rule::DropWhatIsTaken => ("two clients", REQUEST),
        Rule::CleanOnlyStale => ("two clients, a full ring", HANGS),
        Rule::HintsMayLag => ("a ring that laps", "the ring looks corrupt to an honest process"),
        Rule::PushBeforeRole => ("one client, one server, both may die and leave", HANGS),
        Rule::FirstEntryMayGo => ("forgotten requests, two servers", LEAKS),
        Rule::RecoveryKeepsWhatItPushes => ("forgotten requests, a full ring, two servers", LEAKS),
        Rule::RoleStaysWhenFull => ("forgotten requests, a full ring", LEAKS),
        Rule::OweWhenFull => ("forgotten requests, a full ring", LEAKS),
        Rule::DropForTheDead => ("two clients", LEAKS),
        Rule::DropPartsForTheDead => ("parts both ways", LEAKS),
        Rule::EndPartsOfTheDead => ("parts both ways", LEAKS),
        Rule::DropWhatHasBegun => ("parts both ways", REQUEST),
        Rule::CopyBeforeTaking => ("parts both ways", PART),
        Rule::DiscardWhatWasNotTaken => ("parts, two clients", PART),
        Rule::NoCancelWhileWriting => ("parts, two clients", READ),
        Rule::WholeWhenWritten => ("the same beside another client", "a request ended before its last part"),
        Rule::PushWhatIsForgotten => ("requests forgotten while the ring is full", LEAKS),
        Rule::WithdrawWhatIsForgotten => ("requests forgotten while the ring is full", LEAKS),
        Rule::RecoveryPushesWhatIsForgotten => ("requests forgotten while the ring is full", LEAKS),
        Rule::ServersRecoverForForgotten => (
            "requests forgotten while the ring is full, nobody returns",
            "a forgotten request hangs although a server lives",
        ),
        Rule::ReadBeforeAsking => ("parts both ways", READ),
        Rule::BegunIsNotRedelivered => ("parts both ways", READ),
        Rule::BegunIsNotAdopted => ("a child", PART),
        Rule::AdoptWhatWasTaken => ("a child", REQUEST),
        Rule::AdoptOnce => ("a child of a child", REQUEST),
        Rule::GivingBackCounts => ("a request given back", REQUEST),
        Rule::ClaimWhatFindsNoSpace => ("a request given back, a full ring", HANGS),
        Rule::LookBeforeReplying => ("a child, and a second call", READ),
        Rule::ServersRecoverServers => {
            ("forgotten requests, two servers", "a forgotten request hangs although a server lives")
        }
        Rule::HintBeforeForgetting => (
            "forgotten requests, two servers, two deaths",
            "a forgotten request hangs although a server lives",
        ),
        Rule::ServersRecoverClients => ("parts, two clients, two slots", HANGS),
        Rule::ForgetOnlyWhole => ("forgotten requests", "a request ended before its last part"),
        Rule::ForgottenIsNotDropped => ("forgotten requests, two deaths", "a forgotten request is lost"),
    }
}

/// In which scope a rule of a blob is missed, and what then happens.
fn blob_fault_without(rule: blobs::Rule) -> (&'static str, &'static str) {
    use blobs::Rule;
    const CHANGED: &str = "a blob that is held was changed or freed";
    const LOST: &str = "what a slot names was changed or freed";
    const REVIVED: &str = "garbage is used again";
    const TOO_LOW: &str = "a count goes below zero";
    const LEAKS: &str = "a file is left behind";
    match rule {
        Rule::LookAfterDropping => ("re-use", LEAKS),
        Rule::LookAfterDetaching => ("re-use", LEAKS),
        Rule::LookAfterGivingUp => ("re-use", LEAKS),
        Rule::UnlockBeforeLooking => ("re-use", LEAKS),
        Rule::ReadNamedAgain => ("a request with a blob", LOST),
        Rule::VersionCounts => ("a forwarder", CHANGED),
        Rule::LookAgainIfChanged => ("a request with a blob", LEAKS),
        Rule::AskThroughAnotherOpen => ("re-use", CHANGED),
        Rule::CountBeforePublishing => ("re-use", REVIVED),
        Rule::LowerWhatWasNotPublished => ("a blob that comes back", LEAKS),
        Rule::CountAfterSwap => ("re-use", REVIVED),
        Rule::HoldToDetach => ("a forwarder", LOST),
        Rule::LockBeforeFreeing => ("two files", REVIVED),
        Rule::RequestStaysNamed => ("redelivery", LOST),
        Rule::FillIsNotTrusted => ("a forwarder", TOO_LOW),
        Rule::DiedIsNotHeld => ("a blob that comes back in parts", TOO_LOW),
        Rule::FailureKeepsThePart => ("a blob that comes back in parts", TOO_LOW),
        Rule::PartsUnderOneLock => ("a part that another thread cancels", TOO_LOW),
        Rule::ReadWordAfterProof => ("parts for a client that dies", TOO_LOW),
        Rule::AskBeforeReuse => ("re-use", CHANGED),
        Rule::CountBeforeReuse => ("re-use", LOST),
        Rule::ReadNamedAgainBeforeReuse => ("re-use beside a forwarder", LOST),
        Rule::InterestOnce => ("re-use", REVIVED),
        Rule::ForkedIsClosed => ("a child", REVIVED),
        Rule::CloseBeforeLooking => ("a child", CHANGED),
        Rule::ForkedIsNotReused => ("a child", REVIVED),
        Rule::LookAgainAfterFork => ("a child that is no member", LEAKS),
        Rule::SweepBeforeRole => ("a request with a blob", LEAKS),
        Rule::SweepAfterProof => ("a request with a blob", LEAKS),
        Rule::DoubtAfterDeath => ("redelivery", LEAKS),
        Rule::DoubtAgain => ("a forwarder, two deaths", LEAKS),
        Rule::AskAgainAfterCounting => ("redelivery", CHANGED),
        Rule::CountedIsReadAgain => ("a forwarder", LOST),
        Rule::CorrectWhatWasRead => ("a request with a blob", REVIVED),
        Rule::RenameAtTheEnd => ("files with two names", REVIVED),
    }
}
