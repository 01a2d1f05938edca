//! A search of all states of a model, breadth first, each once.
//!
//! States are remembered by 64 bits of their hash, so that tens of millions fit: two of n states
//! are taken for one with a probability of about n² / 2^65. Faults that are found are real in any
//! case, and come with a shortest path to them.
//!
//! In addition to faults of a step or of a state, it looks for states from which some goal cannot
//! be reached any more, whichever process runs and in whichever order: calls that hang, slots that
//! leak. So every schedule that keeps running each process reaches that goal.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::time::{Duration, Instant};

use foldhash::quality::FixedState;

/// The protocol to search.
pub(crate) trait Model: Sized + 'static {
    type State: Clone + Eq + Hash + fmt::Debug + 'static;

    fn initial(&self) -> Self::State;

    /// All possible next steps.
    fn steps(&self, state: &Self::State, steps: &mut Vec<Step<Self::State>>);

    /// The fault of a state, if it has one.
    fn fault(&self, state: &Self::State) -> Option<&'static str>;

    /// The goals that must stay reachable.
    const PROMISES: &'static [Promise<Self, Self::State>];
}

/// From every state that `asks`, a state that `keeps` can be reached by steps of the kinds in `by`.
pub(crate) struct Promise<M, S> {
    pub(crate) name: &'static str,
    pub(crate) by: &'static [Kind],
    pub(crate) asks: fn(&M, &S) -> bool,
    pub(crate) keeps: fn(&M, &S) -> bool,
}

/// Why a step is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A living process makes progress.
    Work,
    /// An event that comes with time: a new process in the place of a dead one, or the end of a
    /// slice.
    Time,
    /// A process dies, gives up, or leaves.
    Whim,
}

pub(crate) struct Step<S> {
    pub(crate) kind: Kind,
    pub(crate) actor: usize,
    pub(crate) what: &'static str,
    /// The next state, or the fault in this step.
    pub(crate) to: Result<S, &'static str>,
}

/// The result of a search.
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) steps: usize,
    /// The number of steps from the initial state to the farthest one.
    pub(crate) depth: usize,
    pub(crate) took: Duration,
    pub(crate) fault: Option<Fault>,
}

pub(crate) struct Fault {
    pub(crate) what: String,
    /// The path to the fault, a line for each step.
    pub(crate) path: Vec<String>,
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, after {} steps:", self.what, self.path.len())?;
        self.path.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Visits every state, until a fault is found.
pub(crate) fn search<M: Model>(model: &M) -> Found {
    let began = Instant::now();
    let mut search = Search::new(model);
    let fault = search.explore().or_else(|| search.broken_promise());
    Found {
        states: search.came.len(),
        steps: search.edges.len(),
        depth: search.depth,
        took: began.elapsed(),
        fault,
    }
}

struct Search<'a, M: Model> {
    model: &'a M,
    /// The number of each state, by its hash.
    seen: HashMap<u64, u32, BuildHasherDefault<Identity>>,
    /// The state and the step by which each state was first reached.
    came: Vec<(u32, u8)>,
    waiting: VecDeque<M::State>,
    /// For each state and each promise: whether it asks, and whether it keeps.
    marks: Vec<u8>,
    /// Where the steps of each state start in `edges`.
    starts: Vec<usize>,
    edges: Vec<(u32, Kind)>,
    depth: usize,
}

impl<'a, M: Model> Search<'a, M> {
    fn new(model: &'a M) -> Search<'a, M> {
        let mut search = Search {
            model,
            seen: HashMap::default(),
            came: vec![],
            waiting: VecDeque::new(),
            marks: vec![],
            starts: vec![],
            edges: vec![],
            depth: 0,
        };
        search.number(model.initial(), 0, 0);
        search
    }

    fn explore(&mut self) -> Option<Fault> {
        let mut steps = vec![];
        let (mut from, mut level_ends) = (0, 1);
        while let Some(state) = self.waiting.pop_front() {
            if let Some(what) = self.model.fault(&state) {
                return Some(self.fault(what, from, None));
            }
            if from == level_ends {
                self.depth += 1;
                level_ends = self.came.len();
            }
            self.marks.push(self.marks_of(&state));
            self.starts.push(self.edges.len());
            self.model.steps(&state, &mut steps);
            for (which, step) in steps.drain(..).enumerate() {
                match step.to {
                    Ok(next) => {
                        let to = self.number(next, from, which);
                        self.edges.push((to, step.kind));
                    }
                    Err(what) => return Some(self.fault(what, from, Some((step.actor, step.what)))),
                }
            }
            from += 1;
        }
        self.starts.push(self.edges.len());
        None
    }

    /// Returns the number of a state; a new state is queued for its visit.
    fn number(&mut self, state: M::State, from: usize, which: usize) -> u32 {
        let new = u32::try_from(self.came.len()).expect("fewer states than 2^32");
        let number = *self.seen.entry(FixedState::with_seed(1).hash_one(&state)).or_insert(new);
        if number == new {
            self.came.push((from as u32, u8::try_from(which).expect("fewer steps than 256")));
            self.waiting.push_back(state);
        }
        number
    }

    fn marks_of(&self, state: &M::State) -> u8 {
        M::PROMISES.iter().enumerate().fold(0, |marks, (idx, promise)| {
            let asks = u8::from((promise.asks)(self.model, state));
            let keeps = u8::from((promise.keeps)(self.model, state));
            marks | asks << (2 * idx) | keeps << (2 * idx + 1)
        })
    }

    fn broken_promise(&self) -> Option<Fault> {
        for (idx, promise) in M::PROMISES.iter().enumerate() {
            let mut good: Vec<bool> =
                self.marks.iter().map(|marks| marks >> (2 * idx + 1) & 1 == 1).collect();
            // Most steps lead to later states, so one backward round finds nearly all.
            while self.round(&mut good, promise.by) {}
            let asks = |state: &usize| self.marks[*state] >> (2 * idx) & 1 == 1;
            if let Some(state) = (0..good.len()).filter(asks).find(|state| !good[*state]) {
                return Some(self.fault(promise.name, state, None));
            }
        }
        None
    }

    /// Marks the states from which a step of the given kinds leads to a good one; returns false if
    /// all were marked before.
    fn round(&self, good: &mut [bool], by: &[Kind]) -> bool {
        let mut changed = false;
        for state in (0..good.len()).rev() {
            let mut steps = self.edges[self.starts[state]..self.starts[state + 1]].iter();
            if !good[state] && steps.any(|(to, kind)| by.contains(kind) && good[*to as usize]) {
                good[state] = true;
                changed = true;
            }
        }
        changed
    }

    /// A fault in a state, or in a step from it.
    fn fault(&self, what: &str, mut at: usize, step: Option<(usize, &'static str)>) -> Fault {
        let mut way = vec![];
        while at != 0 {
            let (from, which) = self.came[at];
            way.push(usize::from(which));
            at = from as usize;
        }
        let mut state = self.model.initial();
        let mut path = vec![format!("{state:?}")];
        for which in way.into_iter().rev() {
            let mut steps = vec![];
            self.model.steps(&state, &mut steps);
            let step = steps.swap_remove(which);
            state = step.to.expect("a faulty step ends the search");
            path.push(format!("{}: {:<28} {state:?}", step.actor, step.what));
        }
        path.extend(step.map(|(actor, what)| format!("{actor}: {what}")));
        Fault { what: what.into(), path }
    }
}

/// A hasher for keys that are hashes already.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("keys are 64 bits");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}
