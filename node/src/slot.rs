//! A thing of the core that one task at a time uses. The task gives it back when it ends or is given
//! up.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

pub(crate) struct Slot<T>(Rc<RefCell<State<T>>>);

enum State<T> {
    Here(T),
    InUse,
    Gone,
}

impl<T> Slot<T> {
    pub(crate) fn new(thing: T) -> Slot<T> {
        Slot(Rc::new(RefCell::new(State::Here(thing))))
    }

    /// For one task; `None` if it is in use or gone.
    pub(crate) fn borrow(&self) -> Option<Borrowed<T>> {
        let state = self.0.replace(State::InUse);
        match state {
            State::Here(thing) => Some(Borrowed { slot: Rc::clone(&self.0), thing: Some(thing) }),
            other => {
                self.0.replace(other);
                None
            }
        }
    }

    /// For good; `None` if it is in use or gone.
    pub(crate) fn take(&self) -> Option<T> {
        match self.0.replace(State::Gone) {
            State::Here(thing) => Some(thing),
            other => {
                self.0.replace(other);
                None
            }
        }
    }

    /// The result of `look`, if it is here.
    pub(crate) fn look<O>(&self, look: impl FnOnce(&T) -> O) -> Option<O> {
        match &*self.0.borrow() {
            State::Here(thing) => Some(look(thing)),
            _ => None,
        }
    }
}

pub(crate) struct Borrowed<T> {
    slot: Rc<RefCell<State<T>>>,
    /// Here until it is given back or taken.
    thing: Option<T>,
}

impl<T> Borrowed<T> {
    /// Keeps it for good.
    pub(crate) fn into_inner(mut self) -> T {
        self.slot.replace(State::Gone);
        self.thing.take().expect("here until it is taken")
    }
}

impl<T> Deref for Borrowed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.thing.as_ref().expect("here until it is taken")
    }
}

impl<T> DerefMut for Borrowed<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.thing.as_mut().expect("here until it is taken")
    }
}

impl<T> Drop for Borrowed<T> {
    fn drop(&mut self) {
        if let Some(thing) = self.thing.take() {
            self.slot.replace(State::Here(thing));
        }
    }
}
