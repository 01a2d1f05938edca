//! The items of a reader, as iterators that end with the pipe.

use std::iter::FusedIterator;

use super::item::{Item, Message};
use super::reader::Reader;
use crate::deadline::Deadline;
use crate::error::{ErrorKind, Result};
use crate::interrupt;

impl Reader {
    /// All messages until the end of the pipe. Waits as long as needed, through signals too. A lost
    /// message is an `Err`, and the iterator continues; any other `Err` is its last item.
    pub fn messages(&mut self) -> Messages<'_> {
        Messages { reader: self, done: false }
    }

    /// All items until the end of the pipe. Waits as long as needed, through signals too. An `Err`
    /// is its last item.
    pub fn items(&mut self) -> Items<'_> {
        Items { reader: self, done: false }
    }
}

/// The iterator of [`Reader::messages`].
#[derive(Debug)]
pub struct Messages<'a> {
    reader: &'a mut Reader,
    done: bool,
}

impl Iterator for Messages<'_> {
    type Item = Result<Message<'static>>;

    fn next(&mut self) -> Option<Self::Item> {
        let next =
            until_closed(&mut self.done, || self.reader.recv(Deadline::NEVER).map(Message::into_owned));
        // After the report of a lost message the stream continues; after any other error it does
        // not.
        self.done |= matches!(next, Some(Err(_))) && self.reader.torn().is_none();
        next
    }
}

/// The iterator of [`Reader::items`].
#[derive(Debug)]
pub struct Items<'a> {
    reader: &'a mut Reader,
    done: bool,
}

impl Iterator for Items<'_> {
    type Item = Result<Item<'static>>;

    fn next(&mut self) -> Option<Self::Item> {
        let next =
            until_closed(&mut self.done, || self.reader.next_item(Deadline::NEVER).map(Item::into_owned));
        self.done |= matches!(next, Some(Err(_)));
        next
    }
}

impl FusedIterator for Messages<'_> {}
impl FusedIterator for Items<'_> {}

fn until_closed<T>(done: &mut bool, mut next: impl FnMut() -> Result<T>) -> Option<Result<T>> {
    while !*done {
        match next() {
            Err(error) if error.kind() == ErrorKind::Interrupted && !interrupt::is_hooked() => {}
            Err(error) if error.kind() == ErrorKind::Closed => *done = true,
            other => return Some(other),
        }
    }
    None
}
