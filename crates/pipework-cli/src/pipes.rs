//! How full a pipe is, asked without joining in.
//!
//! A process that opens a FIFO to look at it counts as a reader or a writer to all others: a
//! program that waits for one would go on. So a descriptor that a process has is duplicated. If
//! that is refused, the pipe is opened again, but only for an end that some process has open
//! already, so that this ends no other process's wait. If neither way works, the facts are unknown.

use crate::processes::{FileId, Use};
use crate::sys;
use std::os::fd::{AsFd, OwnedFd};

/// The contents of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    /// Bytes that are not read yet.
    pub(crate) unread: u64,
    /// Bytes of full pages that it can hold.
    pub(crate) capacity: u64,
}

/// The contents of the pipe `file`, which these processes have open.
pub(crate) fn fill(file: FileId, uses: &[Use]) -> Option<Fill> {
    let uses: Vec<Use> = uses.iter().copied().filter(|found| found.reads || found.writes).collect();
    let uses = &uses;
    let duplicated = || uses.iter().find_map(|found| sys::descriptor_of(found.id, found.number).ok());
    let pipe = duplicated().filter(|pipe| is(pipe, file)).or_else(|| opened(file, uses))?;
    Some(Fill { unread: sys::unread(&pipe), capacity: sys::capacity(&pipe)? })
}

/// One more end, of a kind that is there already.
fn opened(file: FileId, uses: &[Use]) -> Option<OwnedFd> {
    let first = uses.first()?;
    // A writer more postpones the end of the stream for a moment. A reader more would hide from the
    // writers for a moment that theirs has left. A FIFO without a reader is not opened for writing.
    let end = match uses.iter().any(|found| found.writes) {
        true => sys::FifoEnd::Writing,
        false => sys::FifoEnd::Reading,
    };
    sys::open_again(&first.path(), end).ok().filter(|pipe| is(pipe, file))
}

fn is(pipe: impl AsFd, file: FileId) -> bool {
    sys::file_id(pipe).is_ok_and(|found| found == file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Write};
    use std::os::fd::AsRawFd;

    #[test]
    fn fill_is_found_through_either_end() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(&[0; 100]).unwrap();
        let end = |number, reads| Use { id: std::process::id() as i32, number, reads, writes: !reads };
        let uses = [end(reader.as_raw_fd(), true), end(writer.as_raw_fd(), false)];
        let file = sys::file_id(&reader).unwrap();
        let capacity = sys::capacity(&reader).unwrap();
        assert_eq!(fill(file, &uses), Some(Fill { unread: 100, capacity }));
        assert_eq!(fill((file.0, file.1 + 1), &uses), None);
        for uses in [&uses[..], &uses[..1]] {
            let again = opened(file, uses).unwrap();
            assert_eq!((sys::unread(&again), sys::capacity(&again)), (100, Some(capacity)));
        }
    }
}
