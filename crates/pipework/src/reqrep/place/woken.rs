//! Nobody sleeps beside a free slot because a wake-up went to a waiter that had no use for it.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::tests::{AT_ONCE, Counter, SOON, awaited, poll, taken, until_waiting};
use crate::reqrep::{Client, ClientOptions, Options, Segment, Ticket};
use crate::sync::Hint;

/// The slices of a wait are 50, 50, 100, 200 and 250 ms long: after this time the last has begun.
const IN_THE_LAST_SLICE: Duration = Duration::from_millis(430);

fn counter() -> Arc<Counter> {
    Arc::new(Counter(Hint::new(0)))
}

/// Sends with `late`, which waits at `space` behind all others; returns after what time it has a
/// slot, counted from the end that `free` brings about.
fn late(late: &Client, free: impl FnOnce()) -> Duration {
    let before = late.sender().waiters.len();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let ticket = late.send("late", SOON).unwrap();
            (Instant::now(), ticket)
        });
        until_waiting(late, before + 1);
        thread::sleep(IN_THE_LAST_SLICE);
        let freed = Instant::now();
        free();
        let (came, ticket) = waiting.join().unwrap();
        assert!(late.cancel(ticket).unwrap().is_none());
        came.saturating_duration_since(freed)
    })
}

/// Three slots: two of them are held by one client, and one by another, which may have no more.
fn limited() -> (Segment, (Client, [Ticket; 2]), (Client, Ticket)) {
    let segment = Options::new().slots(3).members(8).anonymous().unwrap();
    let (holder, limited) =
        (segment.client().unwrap(), segment.client_with(&ClientOptions::new().max_in_flight(1)).unwrap());
    let held = [(); 2].map(|()| holder.try_send("held").unwrap().unwrap());
    let own = limited.try_send("own").unwrap().unwrap();
    (segment, (holder, held), (limited, own))
}

#[test]
fn a_client_at_its_limit_takes_no_wake_up_from_others() {
    let (segment, (holder, held), (limited, own)) = limited();
    let other = segment.client().unwrap();
    thread::scope(|scope| {
        let at_limit = scope.spawn(|| limited.send("waits", SOON).unwrap());
        until_waiting(&limited, 1);
        let took = late(&other, || assert!(holder.cancel(held[0]).unwrap().is_none()));
        // In the last slice of that wait, too.
        let freed = Instant::now();
        assert!(limited.cancel(own).unwrap().is_none());
        let own = at_limit.join().unwrap();
        let came = freed.elapsed();
        assert!(took < AT_ONCE && came < AT_ONCE, "{took:?}, {came:?}");
        assert!(limited.cancel(own).unwrap().is_none());
    });
}

#[test]
fn nor_does_the_watch_thread_of_one() {
    let (segment, (holder, held), (limited, own)) = limited();
    let (other, woken) = (segment.client().unwrap(), counter());
    let mut at_limit = Box::pin(limited.send_async("waits"));
    assert!(poll(at_limit.as_mut(), &woken).is_pending());
    // Its thread parks first.
    thread::sleep(Duration::from_millis(20));
    let took = late(&other, || assert!(holder.cancel(held[0]).unwrap().is_none()));
    assert!(took < AT_ONCE, "{took:?}");
    assert_eq!(woken.0.get(), 0, "it is at its limit");
    let freed = Instant::now();
    assert!(limited.cancel(own).unwrap().is_none());
    awaited(&woken);
    assert!(freed.elapsed() < AT_ONCE, "{:?}", freed.elapsed());
    assert!(poll(at_limit.as_mut(), &woken).is_ready());
}

/// The limit is reached while a thread waits for a slot, and it is parked before all others.
#[test]
fn who_meets_its_limit_while_it_waits_passes_the_wake_up_on() {
    let (segment, (holder, held), (limited, own)) = limited();
    let (other, waiters) = (segment.client().unwrap(), &limited.sender().waiters);
    // Its place goes to a third client, so that there is no slot and no limit at first.
    assert!(limited.cancel(own).unwrap().is_none());
    let third = segment.client().unwrap();
    third.try_send("last").unwrap().unwrap();
    thread::scope(|scope| {
        let at_limit = scope.spawn(|| limited.send("waits", SOON).unwrap());
        until_waiting(&limited, 1);
        let took = late(&other, || {
            assert!(waiters.enter(), "as if another thread had sent a call");
            assert!(holder.cancel(held[0]).unwrap().is_none());
        });
        // It hears that the other call is over.
        let over = Instant::now();
        if waiters.exit() {
            waiters.tell_of_end();
        }
        let ticket = at_limit.join().unwrap();
        let came = over.elapsed();
        assert!(took < AT_ONCE && came < AT_ONCE, "{took:?}, {came:?}");
        assert!(limited.cancel(ticket).unwrap().is_none());
    });
}

/// A task is chosen for a slot and leaves; nobody else is in its line, or a thread that cannot be
/// chosen.
#[test]
fn the_slot_of_a_task_that_leaves_is_offered_to_all() {
    for by_itself in [true, false] {
        let (segment, client, first) = taken();
        let (other, woken) = (segment.client().unwrap(), counter());
        let mut leaving = Box::pin(client.send_async("leaves"));
        assert!(poll(leaving.as_mut(), &woken).is_pending());
        let took = late(if by_itself { &other } else { &client }, || {
            assert!(client.cancel(first).unwrap().is_none());
            awaited(&woken);
            drop(leaving);
        });
        assert!(took < AT_ONCE, "by itself {by_itself}: {took:?}");
    }
}

/// Two tasks are chosen for two slots that are not looked at at once.
#[test]
fn a_chosen_task_looks_at_all_slots() {
    let segment = Options::new().slots(1024).request_bytes(8).reply_bytes(8).anonymous().unwrap();
    let client = segment.client().unwrap();
    let tickets: Vec<_> = std::iter::from_fn(|| client.try_send("a").unwrap()).collect();
    assert_eq!(tickets.len(), 1024);
    let slot = |idx| *tickets.iter().find(|ticket| ticket.idx() == idx).unwrap();
    let [mut one, mut other] = ["b", "c"].map(|text| Box::pin(client.send_async(text)));
    let woken = [(); 2].map(|()| counter());
    assert!(poll(one.as_mut(), &woken[0]).is_pending() && poll(other.as_mut(), &woken[1]).is_pending());
    // The mark stays once the watch thread is parked, until the next tick.
    let began = Instant::now();
    while client.sender().full.get() == 0 {
        assert!(began.elapsed() < SOON && poll(one.as_mut(), &woken[0]).is_pending());
    }
    assert!(client.cancel(slot(100)).unwrap().is_none() && client.cancel(slot(600)).unwrap().is_none());
    assert!(poll(one.as_mut(), &woken[0]).is_ready() && poll(other.as_mut(), &woken[1]).is_ready());
}
