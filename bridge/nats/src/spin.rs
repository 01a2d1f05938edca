//! How long to poll for an event that is likely to come soon, before this thread sleeps.
//!
//! Waking up takes about as long as a short call, and costs more CPU than polling does. So while
//! one call is in progress, its bridge goes on polling: the channel, and, as the runtime turns, the
//! connection. As in the core, a spin that finds nothing puts the next one off, each further one by
//! twice as many waits. Nothing spins while several calls are in progress, because then other work
//! needs the CPU, nor on a machine with a single CPU. The limit is ten times that of the core, because the wait
//! is for a round trip over sockets, and each sleeper on its way takes some 20 microseconds to wake.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The most waits that follow each other without a spin.
const LONGEST_REST: u32 = 64;

/// The memory that one bridge has of its waits.
#[derive(Debug)]
pub(crate) struct Spin {
    limit: Duration,
    /// By how many waits the last spin that found nothing has put the next one off.
    last: Cell<u32>,
    /// The number of such waits that remain.
    rest: Cell<u32>,
}

impl Spin {
    /// Spins for up to `limit`.
    pub(crate) fn new(limit: Duration) -> Spin {
        let is_alone = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2);
        let limit = if is_alone { Duration::ZERO } else { limit };
        Spin { limit, last: Cell::new(0), rest: Cell::new(0) }
    }

    /// The result of `look` while it `may` spin; `None` if the caller has to wait for it.
    pub(crate) async fn wait<T>(
        &self,
        may: impl Fn() -> bool,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        if let Some(found) = look() {
            return Some(found);
        }
        if self.limit.is_zero() || !may() {
            return None;
        }
        if self.rest.get() > 0 {
            self.rest.set(self.rest.get() - 1);
            return None;
        }
        let begin = Instant::now();
        while may() {
            if begin.elapsed() >= self.limit {
                let next = (2 * self.last.get()).clamp(1, LONGEST_REST);
                self.last.set(next);
                self.rest.set(next);
                return None;
            }
            // Lets other programs on this CPU run, and other tasks of this thread.
            std::thread::yield_now();
            tokio::task::yield_now().await;
            if let Some(found) = look() {
                self.last.set(0);
                return Some(found);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    /// Polls until it is ready, and says how often.
    fn run<T>(future: impl Future<Output = T>) -> (T, u32) {
        let (mut future, mut polls) = (pin!(future), 0);
        loop {
            polls += 1;
            if let Poll::Ready(found) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return (found, polls);
            }
        }
    }

    fn spin(limit: Duration) -> Spin {
        // Independent of the machine that this runs on.
        Spin { limit, last: Cell::new(0), rest: Cell::new(0) }
    }

    #[test]
    fn spin_finds_an_event_that_comes_meanwhile() {
        let (spin, mut looks) = (spin(Duration::from_secs(60)), 0);
        let look = || {
            looks += 1;
            (looks == 5).then_some(looks)
        };
        assert_eq!(run(spin.wait(|| true, look)), (Some(5), 5));
        // Without a turn if it is there.
        assert_eq!(run(spin.wait(|| false, || Some(1))), (Some(1), 1));
        assert_eq!(run(spin.wait(|| false, || None::<()>)), (None, 1));
        assert_eq!(run(super::tests::spin(Duration::ZERO).wait(|| true, || None::<()>)), (None, 1));
    }

    #[test]
    fn failed_spins_delay_the_next_until_one_succeeds() {
        let spin = spin(Duration::from_micros(100));
        let spins = |waits: usize| {
            let each = |_| usize::from(run(spin.wait(|| true, || None::<()>)).1 > 1);
            (0..waits).map(each).sum::<usize>()
        };
        // One, then one after 1, 2, 4, 8, 16, 32, 64 and 64 waits without.
        assert_eq!(spins(1 + 2 + 3 + 5 + 9 + 17 + 33 + 65 + 65), 9);
        assert_eq!(spins(64), 0);
        let mut looks = 0;
        let look = || {
            looks += 1;
            (looks == 2).then_some(())
        };
        assert_eq!(run(spin.wait(|| true, look)).0, Some(()));
        assert_eq!(spins(1 + 2), 2);
    }
}
