//! Exhaustive searches of the protocols of shared memory and of the files of blobs: every order of
//! every step of several processes, with deaths at any step.
//!
//! The small scopes run with every test; `make model` searches the large ones. Each rule of the
//! protocol is also left out once, and then the search must find the fault that the rule prevents.
//! Otherwise a search without faults would prove nothing.

mod search;
mod calls;
mod wake;
mod blobs;
mod folders;
mod broadcast;
mod scopes;

use std::fmt::Debug;
use std::io::{self, Write};
use std::thread;

use scopes::{
    BLOBS, BROADCAST_WAKES, BROADCASTS, CALLS, FOLDERS, LARGE_BLOBS, LARGE_BROADCASTS, LARGE_CALLS, WAKES,
};
use search::{Model, search};

/// Set by `make model`.
const LARGE: &str = "PIPEWORK_MODEL";

/// Whether `make test` leaves this test to `make test-all`, because of what it does many times.
/// `make test` counts such tests at its end.
fn left_to_test_all(why: &str) -> bool {
    let is_left = std::env::var_os("PIPEWORK_SHORT").is_some();
    if is_left {
        // Past the harness, in one write, because others print at the same time.
        let line = format!("long: {}: {why}\n", thread::current().name().unwrap_or("a test"));
        let _ = io::stderr().write_all(line.as_bytes());
    }
    is_left
}

#[test]
fn calls_end_and_no_slot_leaks_in_small_scopes() {
    if left_to_test_all("millions of states") {
        return;
    }
    for (name, scope) in CALLS {
        sound(name, scope);
    }
}

#[test]
fn calls_end_and_no_slot_leaks_in_large_scopes() {
    if std::env::var_os(LARGE).is_none() {
        println!("not searched here: run `make model`");
        return;
    }
    for (name, scope) in LARGE_CALLS {
        sound(name, scope);
    }
}

#[test]
fn calls_search_finds_a_fault_when_a_rule_is_left_out() {
    if left_to_test_all("a search without each rule") {
        return;
    }
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
fn wake_up_search_finds_a_fault_when_a_rule_is_left_out() {
    for rule in wake::RULES {
        let fault = match rule {
            wake::Rule::Slices => "a lost wake-up is never replaced",
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
        println!("not searched here: run `make model`");
        return;
    }
    for (name, scope) in LARGE_BLOBS {
        sound(name, scope);
    }
}

#[test]
fn blobs_search_finds_a_fault_when_a_rule_is_left_out() {
    for &rule in blobs::RULES {
        // Each of these faults is found after a million other states.
        use blobs::Rule::{
            AskAgainAfterCounting, AskAgainBeforeReuse, ChangedIsNotLowered, CountedIsReadAgain, DoubtAgain,
        };
        let is_large = matches!(rule, ChangedIsNotLowered | DoubtAgain | AskAgainAfterCounting);
        // Since servers lock a file before they claim its request, no scope that was searched needs
        // these. They are kept.
        if matches!(rule, AskAgainBeforeReuse | CountedIsReadAgain) {
            continue;
        }
        if is_large && std::env::var_os(LARGE).is_none() {
            continue;
        }
        let (name, fault) = blob_fault_without(rule);
        let scopes = BLOBS.iter().chain(LARGE_BLOBS);
        let (_, scope) = scopes.clone().find(|(scope, _)| *scope == name).expect("a scope of that name");
        faulty(&blobs::Scope { without: Some(rule), ..scope.clone() }, &format!("{rule:?}"), fault);
    }
}

#[test]
fn folder_of_an_open_channel_stays_and_that_of_a_dead_one_goes() {
    for (name, scope) in FOLDERS {
        sound(name, scope);
    }
}

#[test]
fn folder_search_finds_a_fault_when_a_rule_is_left_out() {
    for rule in folders::RULES {
        let fault = match rule {
            folders::Rule::ShowAtOpening | folders::Rule::ChildShares => {
                "a blob that a message names is gone"
            }
            _ => "a blob that a process makes is gone",
        };
        faulty(&folders::Scope { without: Some(rule), ..FOLDERS[0].1.clone() }, &format!("{rule:?}"), fault);
    }
}

#[test]
fn broadcasts_are_received_in_small_scopes() {
    if left_to_test_all("a million states") {
        return;
    }
    for (name, scope) in BROADCASTS {
        sound(name, scope);
    }
}

#[test]
fn broadcasts_are_received_in_large_scopes() {
    if std::env::var_os(LARGE).is_none() {
        println!("not searched here: run `make model`");
        return;
    }
    for (name, scope) in LARGE_BROADCASTS {
        sound(name, scope);
    }
}

#[test]
fn broadcast_search_finds_a_fault_when_a_rule_is_left_out() {
    for &rule in broadcast::RULES {
        let (name, fault) = broadcast_fault_without(rule);
        let (_, scope) = BROADCASTS.iter().find(|(scope, _)| *scope == name).expect("a scope of that name");
        faulty(&broadcast::Scope { without: Some(rule), ..scope.clone() }, &format!("{rule:?}"), fault);
    }
}

#[test]
fn no_wake_up_of_a_broadcast_is_lost() {
    for (name, scope) in BROADCAST_WAKES {
        sound(name, scope);
    }
}

#[test]
fn wake_up_search_of_broadcast_finds_a_fault_when_a_rule_is_left_out() {
    use broadcast::waking::{RULES, Rule, Scope};
    for rule in RULES {
        let (name, fault) = match rule {
            Rule::WakeUnseen | Rule::ReadBeforeLooking => ("an observer", "a wake-up is lost"),
            Rule::Slices => ("two subscribers", "a lost wake-up is never replaced"),
            _ => ("two subscribers", "a wake-up is lost"),
        };
        let (_, scope) =
            BROADCAST_WAKES.iter().find(|(scope, _)| *scope == name).expect("a scope of that name");
        faulty(&Scope { without: Some(rule), ..scope.clone() }, &format!("{rule:?}"), fault);
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
    let fault = found.fault.unwrap_or_else(|| panic!("without {name}, no fault is found in {model:?}"));
    println!("without {name}: {what}, after {} steps ({} states)", fault.path.len() - 1, found.states);
    assert_eq!(fault.what, what, "{fault:?}");
}

/// The scope in which leaving out a rule shows, and the fault that the search then finds.
fn fault_without(rule: calls::Rule) -> (&'static str, &'static str) {
    use calls::Rule;
    const HANGS: &str = "a call hangs although a server lives";
    const LEAKS: &str = "a slot leaks: recovery leaves it behind";
    const CALL: &str = "a living client lost its call";
    const REQUEST: &str = "a living server lost its request";
    const PART: &str = "a client has taken a wrong part";
    const READ: &str = "a server has read a wrong request";
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
        Rule::DropTakenCalls => ("two clients", REQUEST),
        Rule::CleanOnlyStale => ("two clients, a full ring", HANGS),
        Rule::HintsMayLag => ("a ring that laps", "the ring looks corrupt to an honest process"),
        Rule::PushBeforeRole => ("one client, one server, both may die and leave", HANGS),
        Rule::FirstEntryMayGo => ("forgotten requests, two servers", LEAKS),
        Rule::OwnEntryCounts => {
            ("a request forgotten before its push, behind entries of earlier calls", LEAKS)
        }
        Rule::CleanOnlyItsOwn => {
            ("a request forgotten before its push, whose slot another client gets", HANGS)
        }
        Rule::RecoveryKeepsItsPushes => ("forgotten requests, a full ring, two servers", LEAKS),
        Rule::RoleStaysWhenFull => ("forgotten requests, a full ring", LEAKS),
        Rule::OweWhenFull => ("forgotten requests, a full ring", LEAKS),
        Rule::DropCallsOfDeadClients => ("two clients", LEAKS),
        Rule::DropPartsOfDeadClients => ("parts", LEAKS),
        Rule::EndPartsOfDeadServers => ("parts", LEAKS),
        Rule::DropBegunCalls => ("parts", REQUEST),
        Rule::CopyBeforeTaking => ("parts", PART),
        Rule::DiscardUntakenCopies => ("parts, two clients", PART),
        Rule::PushForgottenRequests => ("requests forgotten while the ring is full", LEAKS),
        Rule::WithdrawForgottenRequests => ("requests forgotten while the ring is full", LEAKS),
        Rule::RecoveryPushesForgottenRequests => ("requests forgotten while the ring is full", LEAKS),
        Rule::ServersRecoverForForgotten => (
            "requests forgotten while the ring is full, no process returns",
            "a forgotten request hangs although a server lives",
        ),
        Rule::BegunIsNotRedelivered => ("parts", PART),
        Rule::BegunIsNotAdopted => ("a child", PART),
        Rule::AdoptTakenDelivery => ("a child", REQUEST),
        Rule::AdoptOnce => ("a child of a child", REQUEST),
        Rule::GivingBackCounts => ("a request given back", REQUEST),
        Rule::ClaimAgainWhenFull => ("a request given back, a full ring", HANGS),
        Rule::LookBeforeReplying => ("a child, and a second call", READ),
        Rule::ServersRecoverServers => {
            ("forgotten requests, two servers", "a forgotten request hangs although a server lives")
        }
        Rule::HintBeforeForgetting => (
            "forgotten requests, two servers, two deaths",
            "a forgotten request hangs although a server lives",
        ),
        Rule::ServersRecoverClients => ("parts, two clients, two slots", HANGS),
        Rule::ForgottenIsNotDropped => ("forgotten requests, two deaths", "a forgotten request is lost"),
    }
}

/// The scope in which leaving out a rule of a blob shows, and the fault that the search then finds.
fn blob_fault_without(rule: blobs::Rule) -> (&'static str, &'static str) {
    use blobs::Rule;
    const CHANGED: &str = "a blob that is held was changed or freed";
    const LOST: &str = "a file that a slot names was changed or freed";
    const REVIVED: &str = "garbage is used again";
    const TOO_LOW: &str = "a count is too low";
    const TORN: &str = "a copy has other bytes than its blob";
    const LEAKS: &str = "a file is left behind";
    const STUCK: &str = "a file that is kept can never be used again";
    match rule {
        Rule::LookAfterDropping => ("re-use", LEAKS),
        Rule::LookAfterDetaching => ("re-use", LEAKS),
        Rule::LookAfterGivingUp => ("re-use", LEAKS),
        Rule::UnlockBeforeLooking => ("re-use", LEAKS),
        Rule::ReadNamedAgain => ("a request with a blob", LOST),
        Rule::VersionCounts => ("a child", CHANGED),
        Rule::LookAgainIfChanged => ("a request with a blob", LEAKS),
        Rule::AskThroughAnotherOpen => ("re-use", CHANGED),
        Rule::CountBeforePublishing => ("re-use", TOO_LOW),
        Rule::LowerUnpublishedCount => ("a blob that is sent back", STUCK),
        Rule::CountAfterSwap => ("re-use", TOO_LOW),
        Rule::LowerOnlyTheWordRead => ("parts for a client that dies", TOO_LOW),
        Rule::LoweredVersionCounts => ("parts for a client that dies", TOO_LOW),
        Rule::NamedBeforeSwap => ("parts for a client that dies", TOO_LOW),
        Rule::DoubtIfChanged => ("a part that another thread cancels", STUCK),
        Rule::ChangedIsNotLowered => ("copies, a child, two slots", TOO_LOW),
        Rule::RaisedKeepsDoubt => ("re-use beside a forwarder", LEAKS),
        Rule::LoweredKeepsDoubt => ("re-use", LEAKS),
        Rule::CorrectedKeepsDoubt => ("re-use", LEAKS),
        Rule::CopyBeforeFreeing => ("copies, two files", TORN),
        Rule::DiscardLostCopies => ("copies of parts of two files that another thread cancels", TORN),
        Rule::AskAgainBeforeReuse => ("re-use, two servers", TOO_LOW),
        Rule::DetachKeepsFromReuse => ("a part that another thread cancels", TOO_LOW),
        Rule::DoubtWhenGivingUp => ("re-use", LEAKS),
        Rule::DoubtAfterFork => ("a child whose parent leaves", LEAKS),
        Rule::DoubtZero => ("re-use beside a forwarder", LEAKS),
        Rule::LockBeforeFreeing => ("two files", REVIVED),
        Rule::RequestStaysNamed => ("redelivery", TOO_LOW),
        Rule::FillIsNotTrusted => ("a forwarder", TOO_LOW),
        Rule::ClaimTheCallSeen => ("re-use", CHANGED),
        Rule::DiedIsNotHeld => ("a blob that is sent back in parts", TOO_LOW),
        Rule::FailureKeepsThePart => ("a blob that is sent back in parts", TOO_LOW),
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
        Rule::DoubtAgain => ("copies, re-use, two deaths", STUCK),
        Rule::AskAgainAfterCounting => ("two slots, a forwarder, redelivery", TOO_LOW),
        Rule::CountedIsReadAgain => ("re-use beside a forwarder", LOST),
        Rule::CorrectOnlyTheWordRead => ("a request with a blob", REVIVED),
        Rule::RenameAtTheEnd => ("files with two names", REVIVED),
    }
}

/// The scope in which leaving out a rule of broadcast shows, and the fault that the search then finds.
fn broadcast_fault_without(rule: broadcast::Rule) -> (&'static str, &'static str) {
    use broadcast::Rule;
    const STUCK: &str = "a process is stuck";
    const OVERTAKEN: &str = "a subscriber that must see all is overtaken";
    const MISSED: &str = "a subscriber that must see all misses a message";
    const TORN: &str = "a subscriber has received what nobody published there";
    const TOO_LOW: &str = "a count is too low";
    match rule {
        Rule::RaisePastClaimed => ("one that may lag", STUCK),
        Rule::RaiseFromClaimed => ("one that may lag", "the ring looks corrupt"),
        Rule::PublishersSkip => ("long messages of two publishers", STUCK),
        Rule::SubscribersSkip => ("one that may lag", STUCK),
        Rule::LookBeforeClaiming => ("two that must see all", OVERTAKEN),
        Rule::LookBeforeDropping => ("long messages that are dropped", MISSED),
        Rule::RemoveDeadCursors => ("one that must see all", STUCK),
        Rule::RemoveOldCursors => ("a lost lock, and a publisher that comes", STUCK),
        Rule::JoinsBeforeLooking => ("one that must see all", OVERTAKEN),
        Rule::JoinsAfterStoring => ("one that must see all", OVERTAKEN),
        Rule::TailAgain => ("two that must see all", OVERTAKEN),
        Rule::EpochInCursor => ("a number that is used again", MISSED),
        Rule::SubscribeBySwap => ("a lost lock, and another subscriber", MISSED),
        Rule::MoveBySwap => ("a lost lock, and another subscriber", MISSED),
        Rule::LookAtOwnCursor => ("a lost lock, and a publisher that comes", OVERTAKEN),
        Rule::WordAgainAfterCopying => ("one that may lag", TORN),
        Rule::AllReadWordAgain => ("a lost lock, and a publisher that comes", TORN),
        Rule::WordAgainAfterHolding => ("long messages", "a blob that is held was changed"),
        Rule::ProofAfterWord => ("a number that is used again", MISSED),
        Rule::RecoverBeforeJoining => ("two publishers", STUCK),
        Rule::CountBeforePublishing => ("long messages", TOO_LOW),
        Rule::TakeNamesBack => ("long messages, a lost lock", "a name is never counted down"),
        Rule::CountDownAfterStep => ("long messages of two publishers", TOO_LOW),
    }
}
