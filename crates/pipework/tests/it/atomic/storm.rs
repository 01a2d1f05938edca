//! Promise P1 under SIGKILL: many processes write into one pipe, some of them are killed at any
//! point, and the reader knows to the byte what must come out.
//!
//! The n-th deed of a writer (a message, a burst or a line of text) is a function of the run's
//! seed, the writer's number and n. So the reader needs no checksums, and no space for them in a
//! message of 0 bytes: it knows each writer's next deed. Anything that was lost, doubled, spliced
//! or out of order differs from that. Shared memory records what each writer had begun and what it
//! had certainly delivered.
//!
//! PIPEWORK_KILLS=1000000 for a release; PIPEWORK_SEED repeats a run's choices (but not the moments
//! of its kills).

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::ops::AddAssign;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::sleep;
use std::time::Duration;

use pipework::atomic::{Item, Options, Writer, Zstd};
use pipework::{Deadline, ErrorKind};
use rustix::event::PollFlags;

use crate::harness::{
    Child, Doomed, PATIENCE, Random, alone, alone_for, fork, left_to_test_all, say, seed, setting, shared,
    wait_for,
};
use check::{Check, unfinished};

mod check;

/// Writers of a run that are not killed, one of each [`Style`].
const SURVIVORS: usize = 4;
/// Writers that live at the same time and will be killed.
const VICTIMS: usize = 6;
/// Kills of one run. The unfinished messages of killed writers stay in the reader's memory until
/// the pipe ends, so there are no more.
const KILLS_A_RUN: usize = 625;

#[test]
fn killed_writers_do_not_damage_other_messages() {
    if left_to_test_all("10,000 kills") {
        return;
    }
    let kills = setting("PIPEWORK_KILLS").unwrap_or(10_000) as usize;
    alone_for(PATIENCE * 2 + Duration::from_millis(20) * kills as u32, || {
        let seed = seed();
        say(&format!("storm: PIPEWORK_SEED={seed} PIPEWORK_KILLS={kills}"));
        let (mut all, mut round) = (Tally::default(), 0);
        while all.kills < kills {
            let run = Run::new(seed, round, KILLS_A_RUN.min(kills - all.kills));
            all += run.hold();
            round += 1;
        }
        say(&format!("storm: {round} runs, {all:?}"));
        assert!(all.torn > 0 || kills < 1000, "no writer was killed inside a message: {all:?}");
    });
}

#[test]
fn torn_counts_the_bytes_of_a_killed_writer_exactly() {
    alone(|| {
        for (mixed, blocks) in (0..6).flat_map(|blocks| [(false, blocks), (true, blocks)]) {
            let (mut reader, mut writer) = Options::new().mixed(mixed).pair().unwrap();
            let capacity = writer.set_capacity(1).unwrap();
            assert_eq!(capacity, writer.pipe_buf(), "a pipe of one page");
            let max_part = writer.max_part();
            let child =
                fork(|| assert!(writer.send([7; 100_000], Deadline::NEVER).is_err(), "the writer is killed"));
            drop(writer);
            for _ in 0..blocks {
                wait_for(&reader, PollFlags::IN);
                reader.read_ahead(PATIENCE).unwrap();
            }
            wait_for(&reader, PollFlags::IN);
            let pid = child.pid();
            child.kill();

            let Item::Torn(torn) = reader.next_item(PATIENCE).unwrap() else { panic!("no report") };
            assert_eq!((torn.writer.map(|writer| writer.pid), torn.kind), (Some(pid), ErrorKind::Torn));
            assert_eq!((torn.parts as usize, torn.bytes), (blocks + 1, (blocks + 1) * max_part));
            assert_eq!(reader.next_item(PATIENCE).unwrap_err().kind(), ErrorKind::Closed);
            assert!(reader.is_eof());
        }
    });
}

// ---------------------------------------------------------------- a run

/// One pipe and everything that happens to it.
struct Run {
    seed: u64,
    kills: usize,
    capacity: usize,
    mixed: bool,
    zstd: bool,
    slow: bool,
    take: Take,
    /// Whether the bytes are recorded first and read by a [`Reader`] later, to compare its reports
    /// with the record. Plain mode only.
    recorded: bool,
}

/// The calls of the reader.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Take {
    Wait,
    Deadline,
    Poll,
    Recv,
}

/// The calls of a writer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Style {
    Wait,
    Deadline,
    Try,
    Many,
}

#[derive(Debug, Default)]
struct Tally {
    kills: usize,
    messages: usize,
    bytes: usize,
    bursts: usize,
    lines: usize,
    torn: usize,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, more: Tally) {
        self.kills += more.kills;
        self.messages += more.messages;
        self.bytes += more.bytes;
        self.bursts += more.bursts;
        self.lines += more.lines;
        self.torn += more.torn;
    }
}

/// The progress of a writer, in memory that outlives it.
struct Progress<'a> {
    /// Deeds that the writer has begun.
    begun: &'a AtomicU64,
    /// Deeds that are certainly in the pipe.
    done: &'a AtomicU64,
}

impl Run {
    /// Sixteen kinds of run: four capacities, plain and mixed, fast and slow; the other settings
    /// change from one run to the next.
    fn new(seed: u64, round: usize, kills: usize) -> Run {
        let mixed = round / 4 % 2 == 1;
        let slow = round / 8 % 2 == 1;
        let takes = [Take::Wait, Take::Poll, Take::Deadline, if mixed { Take::Wait } else { Take::Recv }];
        Run {
            seed: Random::new(seed ^ round as u64).next(),
            kills,
            capacity: [4 << 10, 8 << 10, 64 << 10, 1 << 20][round % 4],
            mixed,
            zstd: round % 5 == 2,
            slow,
            take: takes[(round + round / 4) % 4],
            recorded: !mixed && !slow && round.is_multiple_of(2),
        }
    }

    fn options(&self) -> Options {
        let options = Options::new().mixed(self.mixed).max_pending(100_000);
        if self.zstd { options.zstd(Zstd::new().with_level(1)) } else { options }
    }

    fn hold(&self) -> Tally {
        let page = shared(1 + 2 * (SURVIVORS + self.kills));
        let (mut reader, mut writer) = self.options().pair().unwrap();
        reader.set_capacity(self.capacity).unwrap();
        let driver = fork(|| self.drive(page, &mut writer));
        drop(writer);
        let mut check = Check::new(self, page);
        if self.recorded {
            let file = |end: BorrowedFd<'_>| File::from(end.try_clone_to_owned().expect("a duplicate"));
            let mut bytes = Vec::new();
            file(reader.as_fd()).read_to_end(&mut bytes).expect("a pipe can be read");
            let replay = self.options().pair().unwrap();
            let child = fork(|| file(replay.1.as_fd()).write_all(&bytes).expect("a reader is there"));
            reader = replay.0;
            drop(replay.1);
            check.read(&mut reader);
            child.join();
            assert_eq!(check.reports, unfinished(&bytes), "the reports match the unfinished messages");
        } else {
            check.read(&mut reader);
        }
        driver.join();
        check.settle()
    }

    /// Forks the writers and kills the victims among them.
    fn drive(&self, page: &[AtomicU64], writer: &mut Writer) {
        let mut random = Random::new(self.seed);
        let mut start = |number| fork(|| self.work(page, number, writer));
        let survivors: Vec<Child> = (0..SURVIVORS).map(&mut start).collect();
        let (mut victims, mut dying) = (Vec::new(), VecDeque::new());
        for number in SURVIVORS.. {
            if number < SURVIVORS + self.kills {
                victims.push(start(number));
            } else if victims.is_empty() {
                break;
            }
            if victims.len() >= VICTIMS || number >= SURVIVORS + self.kills {
                sleep(Duration::from_micros(random.below(1000) as u64));
                dying.push_back(victims.swap_remove(random.below(victims.len())).doom());
            }
            if dying.len() > VICTIMS {
                dying.drain(..1).for_each(Doomed::bury);
            }
        }
        dying.into_iter().for_each(Doomed::bury);
        page[0].store(1, SeqCst);
        survivors.into_iter().for_each(Child::join);
    }

    /// Does one deed after the other until the writer is killed, or must stop.
    fn work(&self, page: &[AtomicU64], number: usize, inherited: &mut Writer) {
        // The killer must get its turn among all the busy processes.
        rustix::process::nice(5).expect("any process may lower its priority");
        let style = [Style::Wait, Style::Deadline, Style::Try, Style::Many][number % 4];
        let progress = Progress::of(page, number);
        let inherits = number.is_multiple_of(3);
        let mut own = (!inherits).then(|| self.options().dup_writer(&*inherited).unwrap());
        let writer = own.as_mut().unwrap_or(inherited);
        let mut n = 0;
        while number >= SURVIVORS || page[0].load(SeqCst) == 0 {
            let mut deeds = vec![self.deed(number, n)];
            while style == Style::Many && deeds.len() < 8 && matches!(deeds.last(), Some(Deed::Message(_))) {
                deeds.push(self.deed(number, n + deeds.len() as u64));
            }
            n += deeds.len() as u64;
            progress.begun.store(n, SeqCst);
            perform(writer, style, &deeds);
            if writer.pending() == 0 {
                progress.done.store(n, SeqCst);
            }
        }
        if inherits {
            writer.flush(PATIENCE).unwrap();
        }
        // A writer of its own writes its pending data when it is dropped.
        drop(own);
        progress.done.store(n, SeqCst);
    }

    /// The `n`-th action of the writer of that number.
    fn deed(&self, number: usize, n: u64) -> Deed {
        let mut random = Random::new(self.seed ^ (number as u64) << 40 ^ n << 1);
        random.next();
        match random.below(12) {
            // Announces which key belongs to the writer, so it is whole whenever anything of the
            // writer arrives.
            _ if n == 0 => Deed::Message(format!("writer {number}").into()),
            0 if self.mixed => Deed::Burst(format!("burst {number} {n} {:x}", random.next()).into()),
            1 | 2 if self.mixed => {
                // Output that no program should print: a control byte that opens a burst or a part,
                // and then neither.
                let stray = ["", "\u{e}", "\u{e}\u{10}"][random.below(3)];
                let tail = "stray control bytes, if any. ".repeat(random.below(40) + 1);
                Deed::Line(format!("line {number} {n} {stray}{tail}\n").into())
            }
            _ => Deed::Message({
                let len = size(&mut random);
                random.bytes(len)
            }),
        }
    }
}

#[derive(Debug, PartialEq)]
enum Deed {
    Message(Vec<u8>),
    Burst(Vec<u8>),
    Line(Vec<u8>),
}

/// Mostly small, often at the border between one part and two, occasionally a megabyte.
fn size(random: &mut Random) -> usize {
    match random.below(200) {
        0 => 300_000 + random.below(900_000),
        1..20 => 5_000 + random.below(60_000),
        20..30 => 0,
        30..40 => 1,
        40..80 => 4070 + random.below(30),
        _ => random.below(900),
    }
}

fn perform(writer: &mut Writer, style: Style, deeds: &[Deed]) {
    let messages: Vec<&[u8]> = deeds.iter().filter_map(Deed::message).collect();
    if style == Style::Many {
        assert_eq!(writer.send_many(&messages, PATIENCE).unwrap(), messages.len());
    } else if let Some(data) = messages.first() {
        match style {
            Style::Wait => assert!(writer.send(data, Deadline::NEVER).unwrap() > 0),
            Style::Deadline => assert!(writer.send(data, PATIENCE).unwrap() > 0),
            _ => until_taken(writer, |writer| writer.try_send(data).unwrap().is_some()),
        }
    }
    match deeds.last() {
        Some(Deed::Burst(data)) if style == Style::Try => {
            until_taken(writer, |writer| writer.try_burst(data).unwrap());
        }
        Some(Deed::Burst(data)) => writer.burst(data, Deadline::NEVER).unwrap(),
        Some(Deed::Line(line)) => {
            writer.flush(PATIENCE).unwrap();
            assert_eq!(rustix::io::write(&*writer, line), Ok(line.len()), "a line is printed in one piece");
        }
        _ => {}
    }
}

/// Calls until the writer takes it; waits for space in between.
fn until_taken(writer: &mut Writer, mut call: impl FnMut(&mut Writer) -> bool) {
    while !call(writer) {
        wait_for(&*writer, PollFlags::OUT);
    }
}

impl Deed {
    fn message(&self) -> Option<&[u8]> {
        if let Deed::Message(data) = self { Some(data) } else { None }
    }
}

impl<'a> Progress<'a> {
    /// The progress of writer `number`, after the word that makes the survivors stop.
    fn of(page: &'a [AtomicU64], number: usize) -> Progress<'a> {
        Progress { begun: &page[1 + 2 * number], done: &page[2 + 2 * number] }
    }
}
