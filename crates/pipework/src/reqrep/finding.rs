//! How a server finds the next request and claims it, and how it waits for one.

use std::time::Duration;

use super::queue::{Claim, Entry};
use super::receipt::Receipt;
use super::server::Server;
use super::slot::SlotWord;
use crate::deadline::{Deadline, Later};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Reach;
use crate::sys;

const RECV: &str = "reqrep recv";

/// For how long a server that lacks something waits for it, before it reports the error.
pub(super) const SHORT: Duration = Duration::from_millis(100);

impl Server {
    /// Claims the first request that waits, and returns its word after that step. Waits poll this
    /// function and not the payload, to move the payload as rarely as possible. Only blobs are
    /// received before the claim, into the receipt. If this process lacks what they take, it fails,
    /// and the request stays.
    // Always, as below.
    #[inline(always)]
    pub(super) fn find(&self, receipt: &mut Receipt<'_>) -> Result<Option<(u32, SlotWord)>> {
        if self.serving().readiness().is_stopped() {
            return Err(Error::new(ErrorKind::Closed, RECV));
        }
        let (shared, number) = (self.shared(), self.serving().membership().present(RECV)?);
        let mut shortage = None;
        let claim = |entry: Entry| {
            let Some(slot) = shared.slot(entry.slot()) else { return Claim::Stale };
            match slot.claim(entry, number) {
                Some(taken) => Claim::Claimed((entry.slot(), taken)),
                None => self.claim_with_blobs(entry, number, receipt, &mut shortage),
            }
        };
        let popped = shared.queue().pop(claim, RECV)?;
        if popped.claimed.is_some() || popped.stale > 0 {
            shared.ring_may_have_space();
        }
        if popped.claimed.is_none() {
            self.serving().liveness().meet_failure(RECV)?;
        }
        match shortage {
            Some(error) => Err(self.is_short(error)),
            None => Ok(popped.claimed),
        }
    }

    /// Claims the call of an entry if it waits for a server.
    #[cold]
    fn claim_with_blobs(
        &self,
        entry: Entry,
        number: u16,
        receipt: &mut Receipt<'_>,
        shortage: &mut Option<Error>,
    ) -> Claim<(u32, SlotWord)> {
        let (shared, idx) = (self.shared(), entry.slot());
        let Some(slot) = shared.slot(idx) else { return Claim::Stale };
        for _ in 0..self.turns() {
            let sent = slot.load();
            if !shared.is_waiting(entry) {
                return Claim::Stale;
            }
            match receipt.claim(shared, (idx, slot, sent), number, self.serving().max_message()) {
                Ok(Some(taken)) => return Claim::Claimed((idx, taken)),
                // Another server was faster, or the slot has another call by now.
                Ok(None) => {}
                Err(error) => {
                    *shortage = Some(error);
                    return Claim::Left;
                }
            }
        }
        Claim::Left
    }

    /// Leaves a request to other servers, because this process lacks what it takes to receive it.
    #[cold]
    fn is_short(&self, error: Error) -> Error {
        self.serving().readiness().is_short();
        // The wake-up may have been for a server that lacks nothing.
        self.shared().requests().notify_all(Reach::Machine);
        error
    }

    #[inline]
    pub(super) fn find_until(
        &self,
        receipt: &mut Receipt<'_>,
        deadline: Later<'_>,
    ) -> Result<(u32, SlotWord)> {
        match self.find(receipt) {
            Ok(Some(found)) => Ok(found),
            found => self.find_later(found, receipt, deadline()),
        }
    }

    /// Waits after a look that has `found` no request.
    #[cold]
    fn find_later(
        &self,
        mut found: Result<Option<(u32, SlotWord)>>,
        receipt: &mut Receipt<'_>,
        deadline: Deadline,
    ) -> Result<(u32, SlotWord)> {
        loop {
            found = match found {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => self.find_waiting(receipt, deadline).map(Some),
                Err(error) if receipt.is_short() => self.find_while_short(error, receipt, deadline),
                Err(error) => return Err(error),
            };
        }
    }

    fn find_waiting(&self, receipt: &mut Receipt<'_>, deadline: Deadline) -> Result<(u32, SlotWord)> {
        self.found_none()?;
        let (shared, check) = (self.shared(), || self.serving().liveness().check(None, RECV));
        let found =
            shared.requests().wait(&self.serving().waiting(deadline, RECV), || self.find(receipt), check);
        // The wake-up may have been for a request that this server leaves to others.
        found.inspect_err(|_| {
            if shared.has_request() {
                shared.requests().notify(Reach::Machine)
            }
        })
    }

    /// Looks again for a while after a look has found this process short of something: other threads
    /// may give back what they hold. They cannot wake this one, so it looks every few milliseconds.
    fn find_while_short(
        &self,
        mut error: Error,
        receipt: &mut Receipt<'_>,
        deadline: Deadline,
    ) -> Result<Option<(u32, SlotWord)>> {
        let limit = Deadline::after(SHORT);
        let mut pause = Duration::from_millis(1);
        while receipt.forget_shortage() && !limit.has_passed() && !deadline.has_passed() {
            sys::sleep(deadline.remaining().unwrap_or(pause).min(pause)).map_err(|errno| errno.at(RECV))?;
            pause = (pause * 2).min(Duration::from_millis(10));
            match self.find(receipt) {
                Err(again) => error = again,
                found => return found,
            }
        }
        Err(error)
    }
}
