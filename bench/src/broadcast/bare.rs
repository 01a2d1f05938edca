//! Bare primitives: a pipe to each receiver, words in shared memory that receivers spin or sleep on,
//! and the steps of a ring that nobody reads.

use std::cell::UnsafeCell;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::thread::futex;

use super::deliveries::{Channel, NUMBER, Publish, Receive, Task, memory, number};
use crate::measure::Failure;
use crate::reqrep::bare::Line;

// ---------------------------------------------------------------- pipes

/// A pipe to each subscriber, into which the publisher writes the message.
pub struct Pipes {
    pipes: Vec<(OwnedFd, OwnedFd)>,
    task: Task,
}

impl Pipes {
    pub fn new(task: &Task) -> Result<Pipes, Failure> {
        let pipes = (0..task.subscribers).map(|_| rustix::pipe::pipe()).collect::<Result<_, _>>()?;
        Ok(Pipes { pipes, task: *task })
    }
}

impl Channel for Pipes {
    type Publisher = PipesPublisher;
    type Subscriber = PipeSubscriber;

    fn publisher(&self) -> Result<PipesPublisher, Failure> {
        let pipes = self.pipes.iter().map(|(_, write)| Ok(write.try_clone()?.into()));
        Ok(PipesPublisher {
            pipes: pipes.collect::<Result<_, Failure>>()?,
            payload: vec![7; self.task.bytes],
        })
    }

    fn subscriber(&self, nth: usize) -> Result<PipeSubscriber, Failure> {
        /// Of a pipe.
        const CAPACITY: usize = 64 << 10;
        let pipe = BufReader::with_capacity(CAPACITY, File::from(self.pipes[nth].0.try_clone()?));
        Ok(PipeSubscriber { pipe, payload: vec![0; self.task.bytes] })
    }
}

pub struct PipesPublisher {
    pipes: Vec<File>,
    payload: Vec<u8>,
}

impl Publish for PipesPublisher {
    fn publish(&mut self, number: u64) -> Result<(), Failure> {
        self.payload[..NUMBER].copy_from_slice(&number.to_ne_bytes());
        self.pipes.iter_mut().try_for_each(|pipe| pipe.write_all(&self.payload))?;
        Ok(())
    }
}

pub struct PipeSubscriber {
    pipe: BufReader<File>,
    payload: Vec<u8>,
}

impl Receive for PipeSubscriber {
    fn receive(&mut self) -> Result<Option<u64>, Failure> {
        self.pipe.read_exact(&mut self.payload)?;
        number(&self.payload).map(Some)
    }
}

// ---------------------------------------------------------------- words

/// How subscribers learn that there is a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// They look at one word all the time.
    Flag,
    /// Each sleeps on a futex of its own, and is woken by a system call of its own.
    FutexEach,
    /// All sleep on the same futex.
    FutexOfAll,
}

const MOST_BYTES: usize = 1024;
const MOST_SUBSCRIBERS: usize = 4;

/// One message at a time, without any check that all have received the one before: the pace of the
/// case sees to that.
#[derive(Clone, Copy)]
pub struct Words {
    shared: &'static Shared,
    signal: Signal,
    task: Task,
}

struct Shared {
    /// How many messages were published: for each subscriber, or the first for all.
    words: [Line<AtomicU32>; MOST_SUBSCRIBERS],
    payload: UnsafeCell<[u8; MOST_BYTES]>,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared { words: Default::default(), payload: UnsafeCell::new([0; MOST_BYTES]) }
    }
}

impl Words {
    pub fn new(task: &Task, signal: Signal) -> Result<Words, Failure> {
        if task.bytes > MOST_BYTES || task.subscribers > MOST_SUBSCRIBERS {
            return Err("there is no space for that".into());
        }
        Ok(Words { shared: memory()?, signal, task: *task })
    }

    fn end(&self, nth: usize) -> WordEnd {
        let nth = if self.signal == Signal::FutexEach { nth } else { 0 };
        WordEnd { words: *self, nth, turn: 0, buffer: vec![7; self.task.bytes] }
    }
}

impl Channel for Words {
    type Publisher = WordEnd;
    type Subscriber = WordEnd;

    fn publisher(&self) -> Result<WordEnd, Failure> {
        Ok(self.end(0))
    }

    fn subscriber(&self, nth: usize) -> Result<WordEnd, Failure> {
        Ok(self.end(nth))
    }
}

pub struct WordEnd {
    words: Words,
    nth: usize,
    turn: u32,
    buffer: Vec<u8>,
}

impl Publish for WordEnd {
    fn publish(&mut self, number: u64) -> Result<(), Failure> {
        let Words { shared, signal, task } = self.words;
        self.turn = self.turn.wrapping_add(1);
        self.buffer[..NUMBER].copy_from_slice(&number.to_ne_bytes());
        // SAFETY: it has the space, and nobody reads: all have received the message before.
        unsafe {
            shared.payload.get().cast::<u8>().copy_from_nonoverlapping(self.buffer.as_ptr(), task.bytes)
        };
        let set = |word: &AtomicU32| word.store(self.turn, Ordering::Release);
        let wake = |word: &AtomicU32, most| futex::wake(word, futex::Flags::empty(), most);
        match signal {
            Signal::Flag => set(&shared.words[0].0),
            Signal::FutexOfAll => {
                set(&shared.words[0].0);
                wake(&shared.words[0].0, i32::MAX as u32)?;
            }
            Signal::FutexEach => {
                for Line(word) in &shared.words[..task.subscribers] {
                    set(word);
                    wake(word, 1)?;
                }
            }
        }
        Ok(())
    }
}

impl Receive for WordEnd {
    fn receive(&mut self) -> Result<Option<u64>, Failure> {
        let Words { shared, signal, task } = self.words;
        self.turn = self.turn.wrapping_add(1);
        let word = &shared.words[self.nth].0;
        loop {
            let now = word.load(Ordering::Acquire);
            if now == self.turn {
                break;
            }
            if signal == Signal::Flag {
                std::hint::spin_loop();
                continue;
            }
            match futex::wait(word, futex::Flags::empty(), now, None) {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(why) => return Err(why.into()),
            }
        }
        // SAFETY: as above; the publisher does not write before all have received it.
        unsafe {
            shared.payload.get().cast::<u8>().copy_to_nonoverlapping(self.buffer.as_mut_ptr(), task.bytes)
        };
        number(&self.buffer).map(Some)
    }
}

// ---------------------------------------------------------------- steps

/// A ring of as many cells of the same size as a channel has by default, to which one publisher writes.
/// Nobody looks at it: only the steps count.
#[derive(Clone, Copy)]
pub struct Steps {
    ring: &'static Ring,
    /// 1: the word of the cell is swapped. 3: that of the tail as well, and that of the cell again when
    /// the message is there.
    swaps: u32,
    task: Task,
}

const CELLS: usize = pipework::defaults::MESSAGES as usize;

struct Ring {
    tail: Line<AtomicU64>,
    cells: [Cell; CELLS],
}

/// With the space for names of blobs that a cell of a channel has.
#[repr(align(64))]
struct Cell {
    word: AtomicU64,
    payload: UnsafeCell<[u8; pipework::defaults::MESSAGE_BYTES as usize]>,
    _names: [AtomicU64; 40],
}

impl Default for Ring {
    fn default() -> Ring {
        const fn cell() -> Cell {
            Cell {
                word: AtomicU64::new(0),
                payload: UnsafeCell::new([0; _]),
                _names: [const { AtomicU64::new(0) }; 40],
            }
        }
        Ring { tail: Line::default(), cells: [const { cell() }; CELLS] }
    }
}

impl Steps {
    pub fn new(task: &Task, swaps: u32) -> Result<Steps, Failure> {
        Ok(Steps { ring: memory()?, swaps, task: *task })
    }
}

impl Channel for Steps {
    type Publisher = StepsPublisher;
    type Subscriber = Nobody;

    fn publisher(&self) -> Result<StepsPublisher, Failure> {
        Ok(StepsPublisher { steps: *self, next: 0, payload: vec![7; self.task.bytes] })
    }

    fn subscriber(&self, _nth: usize) -> Result<Nobody, Failure> {
        Err("nobody can subscribe".into())
    }
}

pub struct StepsPublisher {
    steps: Steps,
    next: u64,
    payload: Vec<u8>,
}

impl Publish for StepsPublisher {
    fn publish(&mut self, number: u64) -> Result<(), Failure> {
        let Steps { ring, swaps, .. } = self.steps;
        self.payload[..NUMBER].copy_from_slice(&number.to_ne_bytes());
        let swap = |word: &AtomicU64, from: u64| {
            word.compare_exchange(from, from + 1, Ordering::AcqRel, Ordering::Relaxed)
                .map_err(|_| "another publisher was there")
        };
        let cell = &ring.cells[self.next as usize % CELLS];
        swap(&cell.word, cell.word.load(Ordering::Acquire))?;
        if swaps > 1 {
            swap(&ring.tail.0, self.next)?;
        }
        let place = cell.payload.get().cast::<u8>();
        // SAFETY: the message fits, and nobody else uses the ring.
        unsafe { place.copy_from_nonoverlapping(self.payload.as_ptr(), self.payload.len()) };
        if swaps > 1 {
            swap(&cell.word, cell.word.load(Ordering::Relaxed))?;
        }
        self.next += 1;
        Ok(())
    }
}

pub enum Nobody {}

impl Receive for Nobody {
    fn receive(&mut self) -> Result<Option<u64>, Failure> {
        match *self {}
    }
}
