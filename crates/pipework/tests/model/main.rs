//! The shared-memory protocols, searched: every order of every step of several processes, with
//! deaths anywhere.
//!
//! The small scopes run with every test; `make model` searches the large ones. Each rule of the
//! protocol is also left out once: a search that does not find what the rule is for would prove
//! nothing.

mod search;
mod calls;
mod wake;

use std::fmt::Debug;

use calls::Part::{Client, Helper, Server};
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
    for rule in calls::RULES {
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

// ---------------------------------------------------------------- scopes

const ONE: calls::Scope = calls::Scope {
    cast: &[Client, Server],
    slots: 1,
    cells: 2,
    members: 2,
    calls: 1,
    redeliveries: 0,
    deaths: 0,
    cancels: 0,
    leaves: 0,
    returns: true,
    without: None,
};

const CALLS: &[(&str, calls::Scope)] = &[
    (
        "one client, one server, both may die and leave",
        calls::Scope { redeliveries: 1, deaths: 2, leaves: 1, ..ONE },
    ),
    ("the same, with cancelled calls", calls::Scope { calls: 2, deaths: 2, cancels: 1, ..ONE }),
    ("a ring that laps", calls::Scope { calls: 4, deaths: 1, cancels: 4, ..ONE }),
    (
        "two servers",
        calls::Scope { cast: &[Client, Server, Server], members: 3, redeliveries: 1, deaths: 1, ..ONE },
    ),
    (
        "two clients",
        calls::Scope { cast: &[Client, Client, Server], members: 3, deaths: 1, cancels: 1, ..ONE },
    ),
    (
        "two clients, a full ring",
        calls::Scope { cast: &[Client, Client, Server], slots: 2, members: 3, calls: 2, cancels: 1, ..ONE },
    ),
    (
        "somebody who recovers",
        calls::Scope { cast: &[Client, Server, Helper], redeliveries: 1, deaths: 2, ..ONE },
    ),
];

const LARGE_CALLS: &[(&str, calls::Scope)] = &[
    (
        "one client, one server, a number to spare, everything",
        calls::Scope { members: 3, redeliveries: 1, deaths: 2, cancels: 1, leaves: 2, ..ONE },
    ),
    (
        "the same with calls that follow each other",
        calls::Scope { calls: 2, redeliveries: 2, deaths: 3, cancels: 1, leaves: 1, ..ONE },
    ),
    (
        "two slots and a ring of four",
        calls::Scope { slots: 2, cells: 4, calls: 2, redeliveries: 1, deaths: 2, cancels: 1, ..ONE },
    ),
    (
        "two slots and a small ring that laps",
        calls::Scope { slots: 2, calls: 5, deaths: 1, cancels: 5, ..ONE },
    ),
    (
        "two servers, two deaths",
        calls::Scope {
            cast: &[Client, Server, Server],
            members: 3,
            redeliveries: 1,
            deaths: 2,
            cancels: 1,
            ..ONE
        },
    ),
    (
        "two clients, two slots and a small ring",
        calls::Scope {
            cast: &[Client, Client, Server],
            slots: 2,
            members: 3,
            redeliveries: 1,
            deaths: 1,
            cancels: 1,
            ..ONE
        },
    ),
    (
        "somebody who recovers, three deaths",
        calls::Scope { cast: &[Client, Server, Helper], redeliveries: 1, deaths: 3, ..ONE },
    ),
    (
        "two clients, two servers",
        calls::Scope { cast: &[Client, Client, Server, Server], members: 4, deaths: 1, ..ONE },
    ),
];

const WAKES: &[(&str, wake::Scope)] =
    &[("three wait, two wake", wake::Scope { waiters: 3, brings: &[2, 1], deaths: 1, without: None })];

/// In which scope a rule is missed, and what then happens.
fn fault_without(rule: calls::Rule) -> (&'static str, &'static str) {
    use calls::Rule;
    const HANGS: &str = "a call hangs although a server lives";
    const LEAKS: &str = "a slot leaks: recovery leaves it behind";
    const CALL: &str = "a living client was robbed of its call";
    const REQUEST: &str = "a living server was robbed of its request";
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
        Rule::PushAgain => ("one client, one server, both may die and leave", HANGS),
        Rule::DropForTheDead => ("two clients", LEAKS),
    }
}
