//! Warmth: leads a stream whose reader keeps up through the same few bytes of the memory again and again.
//!
//! Two threads that go round the whole memory move every byte between the outer caches of two cores. What fits into the nearest ones goes through up to
//! twice as fast. So the writer looks now and then whether all has been read, and if so begins anew in the memory.
//! Where that never happens, the looks cost next to nothing.

use std::hint::spin_loop;

use super::ring::{FREE, Window};

/// So many bytes of memory stay in the nearest cache of a core, together with what is copied there and from there.
pub(super) const WARM: u64 = if cfg!(any(test, loom)) { 1 } else { 16 << 10 };

/// How often to look whether the reader has come so far: for a microsecond or two, less than it takes to write what is [`WARM`].
const LOOKS: u32 = 64;

#[derive(Debug)]
pub(super) struct Warmth {
    /// The position from which on it is worth to look whether all has been read.
    look_at: u64,
    /// The position from which on it is worth to wait a little for that.
    wait_at: u64,
    /// How far that is from the last time: [`WARM`], or more where it was of no use of late.
    stride: u64,
}

impl Warmth {
    pub(super) const NEW: Warmth = Warmth { look_at: WARM, wait_at: WARM, stride: WARM };

    /// To be called before bytes are written. In the middle of a write, the reader has surely not read all without some waiting.
    #[inline]
    pub(super) fn keep(&mut self, window: &mut Window<FREE>, may_wait: bool, in_the_middle: bool) {
        if window.pos() >= self.wait_at || window.pos() >= self.look_at && !in_the_middle {
            self.look(window, may_wait, in_the_middle);
        }
    }

    #[cold]
    fn look(&mut self, window: &mut Window<FREE>, may_wait: bool, in_the_middle: bool) {
        let pos = window.pos();
        let mut begun = window.begin_anew();
        if pos >= self.wait_at {
            // A reader that is further behind is slow, or sleeps.
            if !begun && may_wait && window.buffered() as u64 <= WARM {
                begun = (0..LOOKS).any(|_| {
                    spin_loop();
                    window.begin_anew()
                });
                self.stride = if begun { WARM } else { (2 * self.stride).min(64 * WARM) };
            }
            self.wait_at = pos + self.stride;
        }
        if begun || !in_the_middle {
            self.look_at = pos + WARM;
        }
    }
}
