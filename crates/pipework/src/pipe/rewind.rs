//! Rewinds the ring of a stream whose reader keeps up, so that it stays in the same few bytes.
//!
//! Two threads that go round the whole memory move every byte between the outer caches of two
//! cores. What fits into the nearest ones goes through up to twice as fast. So the writer looks now
//! and then whether all has been read, and if so begins anew in the memory. Where that never
//! happens, the looks cost next to nothing.

use std::hint::spin_loop;

use super::ring::{FREE, Window};

/// So many bytes of memory stay in the nearest cache of a core, together with what is copied there
/// and from there.
pub(super) const NEAR: u64 = if cfg!(any(test, loom)) { 1 } else { 16 << 10 };

/// How often to look whether the reader has come so far: for a microsecond or two, less than it
/// takes to write what is [`NEAR`].
const LOOKS: u32 = 64;

#[derive(Debug)]
pub(super) struct Rewind {
    /// The position from which on it is worth to look whether all has been read.
    look_at: u64,
    /// The position from which on it is worth to wait a little for that.
    wait_at: u64,
    /// How far that is from the last time: [`NEAR`], or more where it was of no use of late.
    stride: u64,
}

impl Rewind {
    pub(super) const NEW: Rewind = Rewind { look_at: NEAR, wait_at: NEAR, stride: NEAR };

    /// To be called before bytes are written. In the middle of a write, the reader has surely not
    /// read all without some waiting.
    #[inline]
    pub(super) fn before_write(&mut self, window: &mut Window<FREE>, may_wait: bool, in_the_middle: bool) {
        if window.pos() >= self.wait_at || window.pos() >= self.look_at && !in_the_middle {
            self.look(window, may_wait, in_the_middle);
        }
    }

    #[cold]
    fn look(&mut self, window: &mut Window<FREE>, may_wait: bool, in_the_middle: bool) {
        let pos = window.pos();
        let mut begun = window.rewind();
        if pos >= self.wait_at {
            // A reader that is further behind is slow, or sleeps.
            if !begun && may_wait && window.buffered() as u64 <= NEAR {
                begun = (0..LOOKS).any(|_| {
                    spin_loop();
                    window.rewind()
                });
                self.stride = if begun { NEAR } else { (2 * self.stride).min(64 * NEAR) };
            }
            self.wait_at = pos + self.stride;
        }
        if begun || !in_the_middle {
            self.look_at = pos + NEAR;
        }
    }
}
