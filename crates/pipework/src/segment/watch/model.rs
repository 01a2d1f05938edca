//! Searches the invariant for a lost notification: one thread registers its interest, another
//! brings something, and the watch thread is between them.

use loom::sync::{Arc, Mutex};

use super::*;
use crate::deadline::Deadline;
use crate::event::Wait;
use crate::spin::Looks;
use crate::sync::{self, AtomicU64, Ordering, Reach};

struct WatchModel {
    event: Event,
    rest: Event,
    is_there: AtomicU64,
    /// `{ wanted, stop }`
    interests: Mutex<(bool, bool)>,
}

#[test]
fn no_interest_waits_while_something_is_there() {
    sync::search(|| {
        let world = Arc::new(WatchModel {
            event: Event::new(),
            rest: Event::new(),
            is_there: AtomicU64::new(0),
            interests: Mutex::new((false, false)),
        });
        let thread = loom::thread::spawn({
            let world = Arc::clone(&world);
            move || {
                let spin = Spin::new(Duration::ZERO, Looks::Load);
                let (deadline, reach) = (Deadline::NEVER, Reach::Machine);
                let wait = Wait { deadline, spin: &spin, reach, tick: None, long: None, op: WATCH };
                let look = || {
                    let (wanted, stop) = *world.interests.lock().unwrap();
                    let due = stop || wanted && world.is_there.load(Ordering::Acquire) == 1;
                    Ok(due.then_some(()))
                };
                // A thread that is never woken is a deadlock, which loom reports.
                world.event.wait(&wait, look, || Ok(())).unwrap();
            }
        });
        let bringer = loom::thread::spawn({
            let world = Arc::clone(&world);
            move || {
                world.is_there.store(1, Ordering::Release);
                world.event.notify(Reach::Machine);
            }
        });
        world.interests.lock().unwrap().0 = true;
        world.rest.notify(Reach::Process);
        if world.is_there.load(Ordering::Acquire) == 1 {
            // The second look found it, so the thread need not report it.
            world.interests.lock().unwrap().1 = true;
            world.event.notify_all(Reach::Machine);
        }
        bringer.join().unwrap();
        thread.join().unwrap();
    });
}
