//! The layer by itself, with contents of its own: words that members hold, each with the handle of a
//! blob.

#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, slice, thread};

use super::header::{Area, HANDLE, LINE, OWN_AT, Sizes};
use super::liveness::{self, Needs};
use super::mapping::{self, Checks, Contents, Making};
use super::member::{self, Membership};
use super::naming::{HandlePlace, Leaving, NamedBlobs, Naming};
use super::operations::{Operations, operations};
use super::recovery::{Named, Recover};
use super::waiters::{View, Waiters};
use super::watch::{self, Registration, Watcher};
use crate::blob::{Blob, Limits, Name};
use crate::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Event, Wait};
use crate::spin::{Looks, Spin};
use crate::sync::{AtomicU64, Ordering, Reach};
use crate::sys::fault::{Turn, fork, wait};
use crate::sys::{self, For};

const SOON: Duration = Duration::from_secs(20);
const LIMITS: Limits = Limits { pool: 1 << 20, held: u64::MAX };

/// `{ named: 1, holder: 16 }`: the member that holds a word, and whether its handle names a blob.
const NAMED: u64 = 1 << 16;

type Shared = mapping::Shared<Board>;
type Attached = member::Attached<Board>;
type Liveness = liveness::Liveness<Board>;

/// As many words as the first size says.
#[derive(Debug)]
struct Board;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Holder;

impl From<Holder> for u64 {
    fn from(_: Holder) -> u64 {
        7
    }
}

impl Contents for Board {
    const KIND: u32 = 99;
    const OPERATIONS: Operations = operations!("board");
    type Role = Holder;

    fn len(sizes: &Sizes) -> Option<usize> {
        let each = LINE + (2 * HANDLE).next_multiple_of(LINE);
        (sizes.own[0] > 0).then(|| sizes.behind_members() + sizes.own[0] as usize * each + LINE)
    }

    fn words(_: &Sizes) -> Option<impl Iterator<Item = Area>> {
        None::<std::iter::Empty<Area>>
    }

    fn new(_: &Sizes, _: bool) -> Board {
        Board
    }

    fn role(number: u64) -> Option<Holder> {
        (number == 7).then_some(Holder)
    }

    fn naming(shared: &Shared, name: Name, _: u64, most: u32) -> u32 {
        let names = |idx: &u32| named(shared.word(*idx)).naming(shared.handles(*idx), name) > 0;
        ((0..shared.sizes().own[0]).filter(names).count() as u32).min(most)
    }
}

fn named(word: &AtomicU64) -> NamedBlobs {
    let is_named = word.load(Ordering::Acquire) & NAMED != 0;
    NamedBlobs { count: is_named.into(), is_long: false }
}

impl Recover for Board {
    /// The word that was read.
    type Step = u64;

    fn words_of_members(shared: &Shared) -> u32 {
        shared.sizes().own[0]
    }

    fn names(shared: &Shared, idx: u32, are_gone: impl Fn(u16) -> bool) -> Option<Named<u64>> {
        let word = shared.word(idx).load(Ordering::Acquire);
        let number = word as u16;
        (number != 0 && are_gone(number)).then_some(Named { word: idx, number, step: word })
    }

    fn remove(shared: &Shared, Named { word: idx, step, .. }: &Named<u64>, done: impl FnOnce()) {
        if shared.free(*idx, *step) {
            done();
            shared.freed().notify_all(Reach::Machine);
        }
    }

    fn finish(_: &Shared, _: &'static str) -> Result<bool> {
        Ok(true)
    }

    fn finishes_later(_: Holder) -> bool {
        false
    }
}

impl Needs for Board {
    type Known = ();

    fn waits(_: &()) -> bool {
        true
    }

    fn recover_needed(_: &(), me: &Membership<Board>, op: &'static str) -> Result<bool> {
        Ok(me.shared().recover_dead(|_| true, |_| false, op)?.is_done)
    }
}

impl Shared {
    fn word(&self, idx: u32) -> &AtomicU64 {
        // SAFETY: each word has a line of its own behind the members.
        unsafe { self.at(self.sizes().behind_members() + idx as usize * 2 * LINE) }
    }

    fn handles(&self, idx: u32) -> &[HandlePlace] {
        let at = self.sizes().behind_members() + idx as usize * 2 * LINE + LINE;
        // SAFETY: in the line behind the word there are two.
        unsafe { slice::from_raw_parts(self.at(at), 2) }
    }

    /// The event at which all wait for a word.
    fn freed(&self) -> &Event {
        // SAFETY: the first word of the header that is for a module.
        unsafe { self.at(OWN_AT) }
    }

    fn take(&self, idx: u32, me: u16) -> bool {
        self.word(idx).compare_exchange(0, me.into(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Frees a word, if it still is the one that was read.
    fn free(&self, idx: u32, read: u64) -> bool {
        let mut leaving = Leaving::default();
        if read & NAMED != 0 {
            leaving.add(self.blobs(), self.handles(idx), NamedBlobs { count: 1, is_long: false });
        }
        let freed = self.word(idx).compare_exchange(read, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if freed {
            leaving.apply();
        }
        freed
    }

    /// Names a blob in a word that the member `me` holds.
    fn name(&self, idx: u32, me: u16, blob: &Blob) -> Result<()> {
        let naming =
            Naming::new(self.blobs(), (self.handles(idx), idx), None, slice::from_ref(blob), "name")?;
        self.word(idx).store(u64::from(me) | NAMED, Ordering::Release);
        naming.publish();
        Ok(())
    }
}

/// A task or an event loop waits for a word.
#[derive(Debug)]
struct Free {
    shared: Arc<Shared>,
    liveness: Liveness,
}

impl watch::Topic for Free {
    type Contents = Board;
    type Item = u32;

    fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    fn common_event(&self, _: u16) -> &Event {
        self.shared.freed()
    }

    fn event(&self, me: u16, _: &View) -> &Event {
        self.common_event(me)
    }

    fn rouse_elsewhere(&self) {}

    fn waiters(&self) -> Option<&Waiters<Board>> {
        None
    }

    fn free_places(&self) -> usize {
        0
    }

    fn is_deserted(&self) -> bool {
        false
    }

    fn is_stopped(&self) -> bool {
        false
    }

    fn rests_until(&self) -> Option<Deadline> {
        None
    }

    fn is_there(&self, _: usize, _: usize) -> bool {
        false
    }

    fn is_there_for_others(&self) -> bool {
        false
    }

    fn has_items(&self) -> bool {
        true
    }

    fn word(&self, idx: &u32) -> u32 {
        *idx
    }

    fn is_done(&self, idx: &u32) -> bool {
        self.shared.word(*idx).load(Ordering::Acquire) == 0
    }

    fn is_over(&self, _: &u32) -> bool {
        false
    }

    fn looks(&self, _: bool) {}
}

// ---------------------------------------------------------------- the tests

fn making() -> Making {
    Making { sizes: Sizes { own: [4, 0, 0, 0], members: 3, blobs: 1 }, mode: 0o600, sparse: false }
}

fn board() -> Arc<Shared> {
    Shared::in_memory("board", &making()).expect("a segment").with_blobs(LIMITS, false)
}

fn join(shared: &Arc<Shared>) -> (Attached, u16) {
    let attached = Attached::join(Arc::clone(shared), Holder, "join").expect("a place");
    let number = attached.latest();
    (attached, number)
}

fn checks() -> Checks<'static> {
    Checks { any_owner: false, read_only: false, max_bytes: u64::MAX, differs: Box::new(|_| None) }
}

/// A child that joins, takes these words, and lives until the result is dropped or dies.
struct Child {
    pid: i32,
    end: Option<OwnedFd>,
}

impl Child {
    fn holding(shared: &Arc<Shared>, words: &[u32], blob: Option<&[u8]>) -> Child {
        let [(ready, is_ready), (ended, end)] = [sys::pipe().unwrap(), sys::pipe().unwrap()];
        let mut end = Some(end);
        let pid = fork(|| {
            drop(end.take());
            let (attached, number) = join(shared);
            let _never_left = ManuallyDrop::new(attached);
            assert!(words.iter().all(|idx| shared.take(*idx, number)));
            if let Some(bytes) = blob {
                let blob = ManuallyDrop::new(Blob::copy_of(shared.blobs(), bytes, "copy").unwrap());
                shared.name(words[0], number, &blob).unwrap();
            }
            sys::write(is_ready.as_fd(), b"y", sys::Blocking::Native).unwrap();
            let _ = sys::wait(&[ended.as_fd()], For::Reading, Deadline::NEVER);
        });
        drop(is_ready);
        assert_eq!(sys::read(ready.as_fd(), &mut [0]), Ok(1), "it is ready");
        Child { pid, end }
    }

    fn die(&mut self) {
        drop(self.end.take());
        wait(self.pid);
    }
}

#[test]
fn segment_of_another_module_is_refused() {
    let path = std::env::temp_dir().join(format!("pipework-board-{}", std::process::id()));
    let made = Shared::create(&path, &making()).expect("a segment");
    let opened = Shared::open(&path, &checks()).expect("it was made by this module");
    assert_eq!((opened.sizes(), opened.identity()), (made.sizes(), made.identity()));
    let mut bytes = fs::read(&path).unwrap();
    bytes[12] = 98;
    let checksum = super::header::fnv1a(&bytes[..120]);
    bytes[120..128].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let refused = Shared::open(&path, &checks()).expect_err("of another kind");
    fs::remove_file(&path).unwrap();
    assert_eq!(refused, Error::new(ErrorKind::Incompatible, "board open: unknown kind of payload"));
}

#[test]
fn members_have_numbers_until_they_leave() {
    let shared = board();
    let members = || shared.members().filter(|(_, entry)| entry.pid.load(Ordering::Relaxed) > 0).count();
    let ((first, one), (second, two)) = (join(&shared), join(&shared));
    assert_eq!((one, two, members()), (1, 2, 2));
    assert!(!shared.is_gone(one, "look").unwrap() && shared.has(|_| true, "look").unwrap());
    assert!(shared.take(0, one) && shared.take(1, two));
    drop(first);
    assert_eq!(shared.word(0).load(Ordering::Relaxed), 0, "a member that leaves frees its words");
    assert!(shared.is_gone(one, "look").unwrap());
    let ((_again, number), (_third, three)) = (join(&shared), join(&shared));
    assert_eq!((number, three), (1, 3));
    let full = Attached::join(Arc::clone(&shared), Holder, "join").expect_err("there are three places");
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    drop(second);
    assert_eq!(shared.recoveries().dead_members.load(Ordering::Relaxed), 0, "nobody has died");
}

#[test]
fn words_of_a_dead_member_are_recovered() {
    let _turn = Turn::alone();
    let shared = board();
    let (me, number) = join(&shared);
    assert!(shared.take(3, number));
    let mut child = Child::holding(&shared, &[0, 2], None);
    assert_eq!(shared.recover_all("recover"), Ok(0), "it lives");
    child.die();
    assert_eq!(shared.recover_words([0], number, "recover"), Ok(true));
    let words = |idx| shared.word(idx).load(Ordering::Relaxed);
    assert_eq!([0, 1, 2, 3].map(words), [0, 0, 2, number.into()]);
    assert_eq!(shared.recover_all("recover"), Ok(1));
    assert_eq!([0, 1, 2, 3].map(words), [0, 0, 0, number.into()]);
    let counted = shared.recoveries();
    assert_eq!(counted.dead_members.load(Ordering::Relaxed), 1);
    assert_eq!(counted.recovered.load(Ordering::Relaxed), 2);
    drop(me);
}

#[test]
fn waiting_thread_learns_of_a_death() {
    let _turn = Turn::alone();
    let shared = board();
    let (me, number) = join(&shared);
    let mut child = Child::holding(&shared, &[0], None);
    let liveness = Liveness::new(&me);
    let waited = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let (spin, tick) = (Spin::new(Duration::ZERO, Looks::Load), Some(liveness.tick()));
            let (deadline, reach) = (SOON.into(), Reach::Machine);
            let wait = Wait { deadline, spin: &spin, reach, tick, long: None, op: "wait" };
            let look = || Ok(shared.take(0, number).then_some(()));
            shared.freed().wait(&wait, look, || liveness.check([0], "wait"))
        });
        child.die();
        waiting.join().unwrap()
    });
    assert_eq!(waited, Ok(()));
}

#[test]
fn doorbell_and_task_learn_of_a_death() {
    let _turn = Turn::alone();
    let shared = board();
    let (me, _) = join(&shared);
    let mut child = Child::holding(&shared, &[0], None);
    let watcher = Watcher::new();
    let topic = || Free { shared: Arc::clone(&shared), liveness: Liveness::new(&me) };
    let state = watcher.watch(topic, "watch").unwrap();
    let doorbell = state.descriptor("watch").unwrap();
    let rings = |fd: BorrowedFd<'_>, until: Deadline| sys::wait(&[fd], For::Reading, until).unwrap();
    state.expect(0);
    let (woken, is_woken) = std::sync::mpsc::channel();
    let registration = Registration::new(Arc::clone(&state));
    registration.register(Some(0), &waker(move || woken.send(()).unwrap()));
    assert!(!rings(doorbell.as_fd(), Deadline::now()), "the child lives");
    child.die();
    assert!(rings(doorbell.as_fd(), SOON.into()));
    is_woken.recv_timeout(SOON).expect("the task was woken");
    state.looked(0, false);
    assert!(!rings(doorbell.as_fd(), Deadline::now()), "the word was received");
}

fn waker(wake: impl Fn() + Send + Sync + 'static) -> std::task::Waker {
    struct Wakes<F>(F);
    impl<F: Fn() + Send + Sync> std::task::Wake for Wakes<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }
    Arc::new(Wakes(wake)).into()
}

#[test]
fn blob_stays_as_long_as_a_word_names_it_and_goes_with_the_death_of_its_holder() {
    let _turn = Turn::alone();
    let shared = board();
    let (_me, number) = join(&shared);
    let mut child = Child::holding(&shared, &[0], Some(b"kept"));
    let read = |idx| {
        let handle = named(shared.word(idx)).handles(shared.handles(idx)).pop().expect("it names one");
        Blob::receive(shared.blobs(), &handle, usize::MAX, "read")
    };
    let received = read(0).expect("the child holds it");
    assert_eq!(&*received, b"kept");
    assert!(shared.take(1, number));
    shared.name(1, number, &received).unwrap();
    drop(received);
    child.die();
    assert_eq!(shared.recover_all("recover"), Ok(1));
    assert_eq!((shared.blobs().audit().files, shared.blobs().audit().named), (1, 1), "a word names it");
    assert_eq!(&*read(1).expect("it is there"), b"kept");
    assert!(shared.free(1, u64::from(number) | NAMED));
    assert_eq!(shared.blobs().audit().files, 0, "nobody needs it");
}
