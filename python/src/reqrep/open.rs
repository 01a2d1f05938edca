//! A request that was taken, for as long as it can be answered.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};
use std::task::Waker;

use pipework::reqrep::Request;
use pipework::{Deadline, Result};
use pyo3::prelude::*;

use crate::error::invalid;
use crate::handle::attached;
use crate::locked::Locked;
use crate::wait::{Used, wait};

const OP: &str = "reqrep reply";

/// A request that can be answered, once.
pub(super) struct Open(Locked<State>);

enum State {
    /// Here to be answered. `lent`: a loop that gave it out may fail it.
    Here {
        request: Request<'static>,
        lent: bool,
    },
    /// A call has it, and puts it back. `end`: it was ended meanwhile.
    InUse {
        lent: bool,
        end: Option<End>,
        waker: Option<Waker>,
    },
    Answered,
    /// The loop's turn was over.
    Expired,
}

/// How a request ends without an answer.
enum End {
    /// For this reason.
    Failed(Vec<u8>),
    Expired,
}

impl Open {
    pub(super) fn new(request: Request<'static>) -> Open {
        Open(Locked::new(State::Here { request, lent: true }))
    }

    /// For good, to answer it.
    pub(super) fn take(&self, py: Python<'_>) -> PyResult<Request<'static>> {
        self.take_as(py, |_| State::Answered)
    }

    /// For one call.
    pub(super) fn borrow(self: &Arc<Self>, py: Python<'_>) -> PyResult<InHand> {
        let request = self.take_as(py, |lent| State::InUse { lent, end: None, waker: None })?;
        Ok(InHand { open: Arc::clone(self), request: Some(request) })
    }

    /// Makes `call` with it, again after each interruption, until it ends in something else. In
    /// between others may use it.
    pub(super) fn wait_for<O: Send>(
        self: &Arc<Self>,
        py: Python<'_>,
        deadline: Deadline,
        mut call: impl FnMut(&mut Request<'static>, Deadline) -> Result<O> + Send,
    ) -> PyResult<Result<O>> {
        wait(py, &Used::Turn, || {
            let mut request = self.borrow(py)?;
            Ok(py.detach(|| call(&mut request, deadline)))
        })
    }

    /// Ends it without an answer, if it has none.
    pub(super) fn fail(&self, reason: Vec<u8>) {
        self.end(State::Answered, false, End::Failed(reason));
    }

    /// The result of `look`, while the request is not answered and no call has it.
    pub(super) fn look<O: Send>(&self, look: impl FnOnce(&Request<'static>) -> O + Send) -> Option<O> {
        self.0.with(|state| match state {
            State::Here { request, .. } => Some(look(request)),
            _ => None,
        })
    }

    /// Whether it is still to be answered.
    pub(super) fn is_open(&self) -> bool {
        self.0.with(|state| matches!(state, State::Here { .. } | State::InUse { end: None, .. }))
    }

    /// From now on it does not end with a loop's turn.
    pub(super) fn detach(&self) {
        self.0.with(|state| {
            if let State::Here { lent, .. } | State::InUse { lent, .. } = state {
                *lent = false;
            }
        });
    }

    /// Whether it was ended while a call has it; if not, `waker` is woken when it is.
    pub(super) fn is_ended(&self, waker: &Waker) -> bool {
        let new = waker.clone();
        let (is_ended, _before) = attached(|| {
            self.0.with(|state| match state {
                State::InUse { end: None, waker, .. } => (false, waker.replace(new)),
                _ => (true, None),
            })
        });
        is_ended
    }

    fn take_as(&self, py: Python<'_>, next: impl FnOnce(bool) -> State + Send) -> PyResult<Request<'static>> {
        let taken = self.0.with(|state| match state {
            State::Here { lent, .. } => {
                let next = next(*lent);
                match std::mem::replace(state, next) {
                    State::Here { request, .. } => Ok(request),
                    _ => unreachable!("it was here"),
                }
            }
            State::InUse { .. } => Err("a call of this request is under way"),
            State::Answered => Err("this request is answered already"),
            State::Expired => Err(
                "the loop that gave this request out has gone on, which failed it: detach() it in the loop",
            ),
        });
        taken.map_err(|why| invalid(py, OP, why))
    }

    fn end(&self, next: State, only_lent: bool, end: End) {
        let (ended, waker) = self.0.with(|state| match state {
            State::Here { lent, .. } if *lent || !only_lent => {
                (Some((std::mem::replace(state, next), end)), None)
            }
            State::InUse { lent, end: ended @ None, waker } if *lent || !only_lent => {
                // It was none.
                let _ = ended.replace(end);
                (None, waker.take())
            }
            _ => (None, None),
        });
        if let Some((State::Here { request, .. }, end)) = ended {
            end.act_on(request);
        }
        // Out of the lock, as everything that is woken or dropped.
        waker.into_iter().for_each(Waker::wake);
    }
}

impl End {
    fn act_on(self, request: Request<'static>) {
        match self {
            End::Failed(reason) => _ = request.fail(&reason),
            End::Expired => drop(request),
        }
    }
}

/// A request in the hands of one call, which puts it back when it drops this.
pub(super) struct InHand {
    open: Arc<Open>,
    request: Option<Request<'static>>,
}

impl Deref for InHand {
    type Target = Request<'static>;

    fn deref(&self) -> &Request<'static> {
        self.request.as_ref().expect("it is put back when this is dropped")
    }
}

impl DerefMut for InHand {
    fn deref_mut(&mut self) -> &mut Request<'static> {
        self.request.as_mut().expect("it is put back when this is dropped")
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else { return };
        let put_back = |state: &mut State| {
            let State::InUse { lent, end, .. } = state else { unreachable!("a call has it") };
            let lent = *lent;
            match end.take() {
                None => {
                    let before = std::mem::replace(state, State::Here { request, lent });
                    (None, before)
                }
                Some(end) => {
                    let now = if matches!(end, End::Expired) { State::Expired } else { State::Answered };
                    (Some((request, end)), std::mem::replace(state, now))
                }
            }
        };
        let ended = attached(|| self.open.0.with(put_back));
        if let (Some((request, end)), _) = ended {
            end.act_on(request);
        }
    }
}

/// An object that a loop gives out.
pub(crate) trait Lent: Send + Sync {
    /// Fails it, if it is neither answered nor detached.
    fn expire(&self);
}

impl Lent for Open {
    fn expire(&self) {
        self.end(State::Expired, true, End::Expired);
    }
}

/// `open`, as the loop that gives it out sees it.
pub(super) fn lent(open: &Arc<Open>) -> Weak<dyn Lent> {
    let open: Arc<dyn Lent> = Arc::clone(open) as Arc<dyn Lent>;
    Arc::downgrade(&open)
}
