//! The moment at which a victim dies or stops, and how it gets there.
//!
//! The **points** of an operation are the moments between its instructions, and those inside of a
//! call that sleeps. The first victim is stepped through the whole operation and leaves a
//! [`Trail`]: the next instruction at every point. To get to a point, a later victim runs at full
//! speed from breakpoint to breakpoint, and is stepped only where a loop would meet too many of
//! them. So each point costs about the same wherever it is.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::harness::tracee::{Ran, Tracee, trace};
use crate::harness::{Channel, PROMPT, Random, blob_files, shared};

/// Extra time on top of [`PROMPT`] for a busy machine. If a wait takes longer, the point is tried
/// again.
const TOLERANCE: Duration = Duration::from_millis(250);

/// The next event at every point of an operation. All processes of a run share the trail.
#[derive(Clone, Copy)]
pub(crate) struct Trail {
    /// Addresses of instructions, or [`WAKING`]; with [`VISIBLE`], if other processes can tell the
    /// point after it from the one before.
    events: &'static [AtomicU64],
    len: &'static AtomicU64,
    /// For every point, the result of the last victim that was to die there: 0, [`HIT`] or
    /// [`LATE`].
    hits: &'static [AtomicU64],
    /// The longest wait of a survivor, in microseconds.
    longest_us: &'static AtomicU64,
}

const MAX_EVENTS: usize = 1 << 17;

/// The victim died there, in front of the instruction that the trail has.
const HIT: u64 = 1;
/// The victim died there, and a survivor waited too long.
const LATE: u64 = 2;

/// The next event is the end of a sleep.
const WAKING: u64 = 0;
const VISIBLE: u64 = 1 << 63;

impl Trail {
    pub(crate) fn new() -> Trail {
        let (events, hits, counts) = (shared(MAX_EVENTS), shared(MAX_EVENTS + 1), shared(2));
        Trail { events, len: &counts[0], hits, longest_us: &counts[1] }
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.hits[..=self.len()].iter().for_each(|hit| hit.store(0, SeqCst));
        self.len.store(0, SeqCst);
        self.longest_us.store(0, SeqCst);
    }

    /// The number of instructions and sleeps. There is one point more.
    pub(crate) fn len(&self) -> usize {
        self.len.load(SeqCst) as usize
    }

    /// All events, for [`set`](Trail::set).
    pub(crate) fn events(&self) -> Vec<u64> {
        (0..self.len()).map(|point| self.event(point)).collect()
    }

    pub(crate) fn set(&self, events: &[u64]) {
        self.clear();
        events.iter().for_each(|event| self.append(*event));
    }

    /// Whether a victim has died at that point, in front of the instruction that the trail has, and
    /// the survivors went on in time.
    pub(crate) fn is_hit(&self, point: usize) -> bool {
        self.hits[point].load(SeqCst) == HIT
    }

    /// Whether the last victim of that point kept a survivor waiting too long.
    pub(crate) fn is_late(&self, point: usize) -> bool {
        self.hits[point].load(SeqCst) == LATE
    }

    pub(crate) fn longest(&self) -> Duration {
        Duration::from_micros(self.longest_us.load(SeqCst))
    }

    /// For every point, the breakpoint over which it is reached soonest.
    pub(crate) fn leaps(&self) -> Vec<Leap> {
        let (mut met, mut leap) = (HashMap::new(), Leap::default());
        let mut leaps = vec![leap];
        for point in 1..=self.len() {
            let next = if point < self.len() { self.next(point) } else { WAKING };
            let times = met.entry(next).or_insert(0);
            *times += 1;
            let here = Leap { point, times: *times };
            let steps = |leap: &Leap| leap.times * STOP + point - leap.point;
            if next != WAKING && steps(&here) < steps(&leap) {
                leap = here;
            }
            leaps.push(leap);
        }
        leaps
    }

    /// The first and the last point, all points that others can tell apart, and some more.
    pub(crate) fn sample(&self, more: usize, random: &mut Random) -> BTreeSet<usize> {
        let len = self.len();
        let visible = (0..len).filter(|point| self.event(*point) & VISIBLE != 0).map(|point| point + 1);
        let others = (0..more).map(|_| random.below(len + 1));
        visible.chain(others).chain([0, len]).collect()
    }

    /// Appends an event. The vDSO, which reads the clock, starts over if the clock has ticked
    /// meanwhile; then the trail starts over as well.
    fn push(&self, event: u64, vdso: &Range<u64>) {
        if vdso.contains(&(event & !VISIBLE)) {
            let inside = (0..self.len()).rev().take_while(|point| vdso.contains(&self.next(*point)));
            if let Some(again) = inside.into_iter().find(|point| self.next(*point) == event & !VISIBLE) {
                self.len.store(again as u64, SeqCst);
            }
        }
        self.append(event);
    }

    fn append(&self, event: u64) {
        let at = self.len.fetch_add(1, SeqCst) as usize;
        self.events[at].store(event, SeqCst);
    }

    fn event(&self, point: usize) -> u64 {
        self.events[point].load(SeqCst)
    }

    /// An address, or [`WAKING`].
    fn next(&self, point: usize) -> u64 {
        self.event(point) & !VISIBLE
    }
}

/// How to reach a point at full speed: its instruction is next for the `times`-th time since the
/// start of the operation. 0: not at full speed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Leap {
    point: usize,
    times: usize,
}

/// One stop at a breakpoint takes the time of this many steps.
const STOP: usize = 3;

/// The point at which the victim of one scene dies.
#[derive(Clone, Copy)]
pub(crate) struct Fate {
    pub(crate) trail: Trail,
    pub(crate) end: End,
}

#[derive(Clone, Copy)]
pub(crate) enum End {
    /// At its second mark. The victim records the trail.
    Recording,
    /// At `point`.
    At { leap: Leap, point: usize },
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Recording => write!(f, "at the end"),
            End::At { point, .. } => write!(f, "at point {point}"),
        }
    }
}

/// A process that is stopped at its first mark and will be killed at the second mark or before.
#[must_use]
pub(crate) struct Victim<'a> {
    tracee: Tracee,
    fate: Fate,
    /// The segment that it shares with others, which marks visible points.
    segment: Option<&'a dyn Channel>,
}

impl Fate {
    /// Forks the victim. The operation is the part of `body` between two
    /// [marks](crate::harness::tracee::mark).
    pub(crate) fn victim<'a, C: Channel + 'a>(
        &self,
        segment: impl Into<Option<&'a C>>,
        body: impl FnOnce(),
    ) -> Victim<'a> {
        let segment = segment.into().map(|segment| segment as &dyn Channel);
        Victim { tracee: trace(body), fate: *self, segment }
    }

    /// Whether the victim has done its operation to the end.
    pub(crate) fn is_complete(&self) -> bool {
        match self.end {
            End::Recording => true,
            End::At { point, .. } => point == self.trail.len() && self.trail.is_hit(point),
        }
    }

    /// Records that a survivor which depended on a victim that died at that time has gone on.
    pub(crate) fn got_on(&self, died: Instant) {
        let took = died.elapsed();
        match self.end {
            End::At { point, .. } if took > PROMPT + TOLERANCE => self.trail.hits[point].store(LATE, SeqCst),
            _ => drop(self.trail.longest_us.fetch_max(took.as_micros() as u64, SeqCst)),
        }
    }
}

impl Victim<'_> {
    /// Single-steps all the way. At full speed, a child or another thread of the victim would hit
    /// its breakpoints as well.
    pub(crate) fn on_foot(mut self) -> Self {
        if let End::At { leap, .. } = &mut self.fate.end {
            *leap = Leap::default();
        }
        self
    }

    /// Lets it go on and kills it; returns the time of its death.
    pub(crate) fn die(self) -> Instant {
        self.die_but_first(|| ())
    }

    /// Lets it go on and kills it; returns the time of its death. Calls `asleep` when it first
    /// sleeps, unless it is to die at that moment.
    pub(crate) fn die_but_first(self, asleep: impl FnOnce()) -> Instant {
        self.walk(asleep).0.kill();
        Instant::now()
    }

    /// Lets it go on and stops it.
    pub(crate) fn stop(self) -> Stopped {
        self.stop_but_first(|| ())
    }

    /// As `stop`; calls `asleep` when the victim first sleeps, unless it is to stop at that moment.
    pub(crate) fn stop_but_first(self, asleep: impl FnOnce()) -> Stopped {
        let (tracee, sleeps) = self.walk(asleep);
        if sleeps {
            tracee.halt();
        }
        Stopped { tracee, since: Instant::now() }
    }

    /// Lets it go to its point; returns whether it sleeps there.
    fn walk(self, asleep: impl FnOnce()) -> (Tracee, bool) {
        let Victim { tracee, fate: Fate { trail, end }, segment } = self;
        let walk = Walk { tracee: &tracee, sleeps: Cell::new(false), asleep: Cell::new(Some(asleep)) };
        match end {
            End::Recording => walk.record(&trail, segment),
            End::At { leap, point } => walk.to(&trail, leap, point),
        }
        let sleeps = walk.sleeps.get();
        (tracee, sleeps)
    }
}

/// A victim that is stopped and alive.
#[must_use]
pub(crate) struct Stopped {
    tracee: Tracee,
    pub(crate) since: Instant,
}

impl Stopped {
    /// Lets it go on to its end, and checks that it ends well.
    pub(crate) fn go_on(self) {
        self.tracee.finish();
    }
}

/// A victim on its way from point to point.
struct Walk<'a, F> {
    tracee: &'a Tracee,
    sleeps: Cell<bool>,
    asleep: Cell<Option<F>>,
}

impl<F: FnOnce()> Walk<'_, F> {
    /// Goes to the second mark and records each event.
    fn record(&self, trail: &Trail, segment: Option<&dyn Channel>) {
        let (mut files, vdso) = (segment.map(blobs), vdso());
        let look = |files: &Option<Vec<File>>| segment.zip(files.as_deref()).map(bytes);
        let mut before = look(&files);
        loop {
            let (next, is_call) = (self.next(), !self.sleeps.get() && self.tracee.is_at_call());
            assert!(trail.len() < MAX_EVENTS, "a trail is too short for the operation");
            if !self.advance() {
                break;
            }
            if is_call || next == WAKING {
                files = segment.map(blobs);
            }
            let after = look(&files);
            let is_visible = is_call || next == WAKING || before != after;
            trail.push(if is_visible { next | VISIBLE } else { next }, &vdso);
            before = after;
        }
    }

    /// Goes to a point that is on the trail.
    fn to(&self, trail: &Trail, leap: Leap, point: usize) {
        let leapt = (0..leap.times).all(|_| self.meet(trail.next(leap.point)));
        let arrived = leapt && (leap.point..point).all(|_| self.advance());
        let as_expected = match point < trail.len() {
            true => self.next() == trail.next(point),
            false => self.tracee.is_at_mark(),
        };
        trail.hits[point].store(if arrived && as_expected { HIT } else { 0 }, SeqCst);
    }

    fn next(&self) -> u64 {
        if self.sleeps.get() { WAKING } else { self.tracee.address() }
    }

    /// Goes to the next point; returns false at the second mark.
    fn advance(&self) -> bool {
        if self.sleeps.replace(false) {
            self.fell_asleep();
            self.tracee.rest();
            return true;
        }
        if self.tracee.is_at_mark() {
            return false;
        }
        self.sleeps.set(self.tracee.step() == Ran::Asleep);
        true
    }

    /// Runs until the instruction at `address` is next again; returns false if it reaches the
    /// second mark.
    fn meet(&self, address: u64) -> bool {
        while self.next() == address || self.sleeps.get() {
            if !self.advance() {
                return false;
            }
            if self.next() == address {
                return true;
            }
        }
        self.tracee.run_to(address, || self.fell_asleep())
    }

    fn fell_asleep(&self) {
        if let Some(asleep) = self.asleep.take() {
            asleep();
        }
    }
}

/// The addresses of the code that reads the clock without a system call.
fn vdso() -> Range<u64> {
    let maps = fs::read_to_string("/proc/self/maps").expect("/proc is there");
    let line = maps.lines().find(|line| line.ends_with("[vdso]")).unwrap_or("0-0 ");
    let (start, end) = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
    let number = |text| u64::from_str_radix(text, 16).expect("an address");
    number(start)..number(end)
}

/// The files of a segment's blobs.
fn blobs(segment: &dyn Channel) -> Vec<File> {
    blob_files(segment)
        .into_iter()
        .map(|path| File::open(path).expect("only the victim unlinks it"))
        .collect()
}

/// All bytes of a segment, and the headers of its blobs.
fn bytes((segment, blobs): (&dyn Channel, &[File])) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 16];
    let len = rustix::io::pread(segment.as_fd(), &mut bytes, 0).expect("a segment is a file");
    bytes.truncate(len);
    for blob in blobs {
        let mut header = [0; 64];
        let len = blob.read_at(&mut header, 0).expect("a blob is a file");
        bytes.extend_from_slice(&header[..len]);
    }
    bytes
}
