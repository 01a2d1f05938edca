//! A request that was taken, for as long as it can be answered.

use std::sync::{Arc, Weak};

use pyo3::prelude::*;

use crate::error::invalid;
use crate::locked::Locked;

/// What can be answered, once.
pub(super) struct Open<T>(Locked<State<T>>);

enum State<T> {
    /// Here to be answered. `lent`: a loop that gave it out may fail it.
    Here {
        request: T,
        lent: bool,
    },
    Answered,
    /// The loop's turn was over.
    Expired,
}

impl<T: Send> Open<T> {
    pub(super) fn new(request: T) -> Open<T> {
        Open(Locked::new(State::Here { request, lent: true }))
    }

    pub(super) fn take(&self, py: Python<'_>) -> PyResult<T> {
        let why = match self.end(State::Answered, |_| true) {
            State::Here { request, .. } => return Ok(request),
            State::Answered => "this request is answered already",
            State::Expired => {
                "the loop that gave this request out has gone on, which failed it: detach() it in the loop"
            }
        };
        Err(invalid(py, "reqrep reply", why))
    }

    /// Lets go of it, which fails the request, if it is not answered.
    pub(super) fn fail(&self) {
        drop(self.end(State::Answered, |_| true));
    }

    pub(super) fn is(&self, look: impl FnOnce(&T) -> bool + Send) -> bool {
        self.0.with(|state| matches!(state, State::Here { request, .. } if look(request)))
    }

    /// From now on it does not end with a loop's turn.
    pub(super) fn detach(&self) {
        self.0.with(|state| {
            if let State::Here { lent, .. } = state {
                *lent = false;
            }
        });
    }

    /// What it was until now, if that is `meant`; and what it is from now on.
    fn end(&self, now: State<T>, meant: impl FnOnce(bool) -> bool + Send) -> State<T> {
        self.0.with(|state| match state {
            State::Here { lent, .. } if meant(*lent) => std::mem::replace(state, now),
            State::Here { .. } | State::Answered => State::Answered,
            State::Expired => State::Expired,
        })
    }
}

/// What a loop gives out.
pub(crate) trait Lent: Send + Sync {
    /// Fails it, if it is neither answered nor detached.
    fn expire(&self);
}

impl<T: Send> Lent for Open<T> {
    fn expire(&self) {
        drop(self.end(State::Expired, |lent| lent));
    }
}

/// What `open` is to the loop that gives it out.
pub(super) fn lent<L: Lent + 'static>(open: &Arc<L>) -> Weak<dyn Lent> {
    let open: Arc<dyn Lent> = Arc::clone(open) as Arc<dyn Lent>;
    Arc::downgrade(&open)
}
