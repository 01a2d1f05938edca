//! The words of the protocol and their arithmetic. BROADCAST.md has the meaning of each. Pure.

/// Where a message stands among all that were published, counted from 0. The first users' number is 1.
pub(crate) type Position = u64;

/// The next position. Only a peer that breaks the rules makes it go beyond the last.
#[inline]
pub(crate) fn after(position: Position) -> Position {
    position.wrapping_add(1)
}

/// What a cell holds for its lap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No message: the number is passed over, because its publisher has died.
    Skipped = 0,
    /// The publisher writes the message.
    Writing = 1,
    /// The message is there.
    Done = 2,
    /// The message was there. Its publisher has taken back the blobs in which it was.
    Dropped = 3,
}

/// `{ lap: 46, state: 2, member: 16 }`. The word of a file of zeros is that of an empty cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CellWord(u64);

const LAP_SHIFT: u32 = 18;
const LAPS: u64 = (1 << 46) - 1;

impl CellWord {
    pub(crate) fn new(lap: u64, state: State, member: u16) -> CellWord {
        CellWord((lap & LAPS) << LAP_SHIFT | (state as u64) << 16 | u64::from(member))
    }

    pub(crate) fn from_bits(bits: u64) -> CellWord {
        CellWord(bits)
    }

    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }

    pub(crate) fn state(self) -> State {
        match self.0 >> 16 & 3 {
            0 => State::Skipped,
            1 => State::Writing,
            2 => State::Done,
            _ => State::Dropped,
        }
    }

    /// The member that has claimed the cell.
    pub(crate) fn member(self) -> u16 {
        self.0 as u16
    }

    /// The same lap and member in another state.
    pub(crate) fn with(self, state: State) -> CellWord {
        CellWord(self.0 & !(3 << 16) | (state as u64) << 16)
    }

    /// How many laps this one is ahead of `lap`; negative if it is behind. Laps are counted in a circle.
    pub(crate) fn ahead_of(self, lap: u64) -> i64 {
        let difference = (self.0 >> LAP_SHIFT).wrapping_sub(lap) & LAPS;
        // The sign is bit 45.
        ((difference << LAP_SHIFT) as i64) >> LAP_SHIFT
    }
}

/// The cursor of a subscriber that must see all: `{ position: 47, epoch: 16, active: 1 }`, the next message
/// that it needs, and the epoch of its membership. 0 is no cursor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor(u64);

const POSITION_SHIFT: u32 = 17;

impl Cursor {
    pub(crate) const NONE: Cursor = Cursor(0);

    pub(crate) fn new(position: Position, epoch: u64) -> Cursor {
        Cursor(position << POSITION_SHIFT | (epoch & 0xFFFF) << 1 | 1)
    }

    pub(crate) fn from_bits(bits: u64) -> Cursor {
        Cursor(bits)
    }

    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }

    /// The cursor of the same membership at another position.
    pub(crate) fn at(self, position: Position) -> Cursor {
        Cursor(position << POSITION_SHIFT | self.0 & ((1 << POSITION_SHIFT) - 1))
    }

    /// Whether it is of a membership with this epoch.
    pub(crate) fn is_of(self, epoch: u64) -> bool {
        self.0 >> 1 & 0xFFFF == epoch & 0xFFFF
    }

    pub(crate) fn is_active(self) -> bool {
        self.0 & 1 != 0
    }

    /// How far it is behind `tail`; negative if it is in front. Positions are counted in a circle.
    pub(crate) fn behind(self, tail: Position) -> i64 {
        let difference = tail.wrapping_sub(self.0 >> POSITION_SHIFT);
        ((difference << POSITION_SHIFT) as i64) >> POSITION_SHIFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_word_of_zeros_is_that_of_an_empty_cell() {
        let word = CellWord::from_bits(0);
        assert_eq!((word.state(), word.member(), word.ahead_of(1)), (State::Skipped, 0, -1));
    }

    #[test]
    fn cell_words_keep_what_they_are_made_of() {
        for state in [State::Skipped, State::Writing, State::Done, State::Dropped] {
            let word = CellWord::new(LAPS, state, 0xABCD);
            assert_eq!((word.state(), word.member(), word.ahead_of(LAPS)), (state, 0xABCD, 0));
            assert_eq!(word.with(State::Done), CellWord::new(LAPS, State::Done, 0xABCD));
        }
    }

    #[test]
    fn laps_are_counted_across_their_end() {
        let first = CellWord::new(LAPS + 1, State::Done, 1);
        assert_eq!(first.ahead_of(LAPS), 1);
        assert_eq!(first.ahead_of(LAPS + 1), 0);
        assert_eq!(CellWord::new(LAPS, State::Done, 1).ahead_of(LAPS + 1), -1);
        assert_eq!(CellWord::new(LAPS - 4, State::Done, 1).ahead_of(LAPS + 1), -5);
    }

    #[test]
    fn cursors_are_compared_across_the_end_of_their_positions() {
        let end = 1 << 47;
        let cursor = Cursor::new(end - 2, 7);
        assert!(cursor.is_active() && !Cursor::NONE.is_active());
        assert_eq!((cursor.behind(end - 2), cursor.behind(end + 3), cursor.behind(end - 3)), (0, 5, -1));
        assert_eq!(Cursor::new(end + 1, 0).behind(end - 1), -2);
        assert_ne!(Cursor::new(5, 1), Cursor::new(5, 2), "another membership has another cursor");
    }
}
