//! Tests in one process, or in two by fork: how blobs are made, found, re-used and freed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::file::path_of;
use super::folder::Spent;
use super::{Blob, BlobMut, Detaching, Folder, Handle, Limits, Name, Named, Slots, Store, channels};
use crate::deadline::Deadline;
use crate::error::ErrorKind;
use crate::sys::fault::{Fault, Turn, all_met, fork, order, wait};

/// Slots that name each of some files once.
#[derive(Debug)]
struct Naming(Vec<Name>);

impl Slots for Naming {
    fn naming(&self, name: Name, _near: u64, _most: u32) -> u32 {
        u32::from(self.0.contains(&name))
    }
}

/// A separate folder for each test.
struct Place(PathBuf, #[allow(dead_code, reason = "held, and not read")] Option<Turn>);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Place {
    fn new() -> Place {
        Place::with(Some(Turn::shared()))
    }

    fn with(turn: Option<Turn>) -> Place {
        let number = crate::sync::new_id();
        let path = std::env::temp_dir().join(format!("pipework-blobs-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Place(path, turn)
    }

    /// The state that one process has of the channel.
    fn store_with(&self, pool: u64, mode: u32) -> Arc<Store> {
        let folder = Folder::beside(&self.0.join("channel"), 7, crate::sys::memory::user(), mode);
        Arc::new(Store::new(folder, Limits { pool, held: u64::MAX }, false))
    }

    fn store(&self) -> Arc<Store> {
        self.store_with(64 << 20, 0o600)
    }
}

/// Returns the number of files. Other tests fork, and a child keeps inherited locks until it ends.
/// Such locks can delay freeing, so this looks again until at most `most` files are left.
fn names(most: usize, stores: &[&Arc<Store>]) -> usize {
    let limit = Deadline::after(Duration::from_secs(20));
    loop {
        let files = stores[0].folder().names().len();
        if files <= most || limit.has_passed() {
            return files;
        }
        stores.iter().for_each(|store| store.look_at_left());
        std::thread::yield_now();
    }
}

fn made(store: &Arc<Store>, bytes: &[u8]) -> Blob {
    let mut draft = BlobMut::new(store, bytes.len(), "test").unwrap();
    draft.copy_from_slice(bytes);
    draft.freeze().unwrap()
}

/// Makes a slot name the blob.
fn named(store: &Arc<Store>, blob: &Blob) -> Handle {
    Named::new(store, blob, 0).expect("it is of this channel").handle()
}

/// Makes the slot stop naming it.
fn detach(store: &Arc<Store>, handle: &Handle) {
    Detaching::find(store, handle).unwrap().remove();
}

/// Gives the channel these slots, as long as the result lives.
fn with_slots(store: &Store, names: &[Name]) -> Arc<dyn Slots> {
    let slots: Arc<dyn Slots> = Arc::new(Naming(names.to_vec()));
    store.set_slots(Arc::downgrade(&slots));
    slots
}

fn receive(store: &Arc<Store>, handle: &Handle, most: usize, op: &'static str) -> crate::Result<Blob> {
    Blob::receive(store, handle, most, op).inspect(Blob::share)
}

#[test]
fn receiver_reads_a_blob_that_its_maker_has_dropped() {
    let place = Place::new();
    let (maker, receiver) = (place.store(), place.store());
    let bytes: Vec<u8> = (0..100_000u32).map(|number| number as u8).collect();
    let blob = made(&maker, &bytes);
    let handle = named(&maker, &blob);
    drop(blob);
    maker.close();
    assert_eq!(names(1, &[&maker, &receiver]), 1, "the slot keeps it");
    let received = receive(&receiver, &handle, usize::MAX, "test").unwrap();
    detach(&receiver, &handle);
    assert_eq!((*received == *bytes, received.is_copied(), names(1, &[&maker, &receiver])), (true, false, 1));
    drop(received);
    assert_eq!(names(0, &[&maker, &receiver]), 0);
}

#[test]
fn file_is_freed_by_the_last_of_maker_holder_and_slot_in_any_order() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let place = Place::new();
        let (maker, receiver, other) = (place.store_with(0, 0o600), place.store(), place.store());
        let blob = made(&maker, b"bytes");
        let handle = named(&maker, &blob);
        let (mut blob, mut received) =
            (Some(blob), Some(receive(&receiver, &handle, usize::MAX, "test").unwrap()));
        for (idx, event) in order.into_iter().enumerate() {
            assert_eq!(names(1, &[&maker, &receiver, &other]), 1, "{order:?} before {idx}");
            match event {
                0 => drop(blob.take()),
                1 => drop(received.take()),
                _ => detach(&other, &handle),
            }
        }
        assert_eq!(names(0, &[&maker, &receiver, &other]), 0, "{order:?}");
    }
}

#[test]
fn file_is_reused_only_when_no_process_holds_it_and_no_slot_names_it() {
    let place = Place::new();
    let (maker, receiver) = (place.store(), place.store());
    let blob = made(&maker, b"first");
    let (first, first_at) = (named(&maker, &blob), blob.as_ptr());
    drop(blob);
    let second = made(&maker, b"second");
    assert_ne!(second.as_ptr(), first_at, "a slot names it");
    let received = receive(&receiver, &first, usize::MAX, "test").unwrap();
    detach(&receiver, &first);
    let third = made(&maker, b"third");
    assert_ne!(third.as_ptr(), first_at, "a process holds it");
    assert_eq!(&*received, b"first");
    drop(received);
    let again = made(&maker, b"again");
    assert_eq!(again.as_ptr(), first_at);
    let again = named(&maker, &again);
    assert_eq!((again.name, again.generation), (first.name, first.generation + 1));
    let received = receive(&receiver, &again, usize::MAX, "test").unwrap();
    assert_eq!(&*received, b"again");
    let stale = receive(&receiver, &first, usize::MAX, "test").unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::Corrupt);
}

#[test]
fn receive_returns_the_blob_that_the_process_already_holds() {
    let place = Place::new();
    let maker = place.store();
    let blob = made(&maker, b"bytes");
    let handle = named(&maker, &blob);
    let back = receive(&maker, &handle, usize::MAX, "test").unwrap();
    assert!(std::ptr::eq(back.as_ptr(), blob.as_ptr()));
    drop(blob);
    detach(&maker, &handle);
    assert_eq!(&*back, b"bytes");
    let other = made(&maker, b"other");
    assert_ne!(named(&maker, &other).name, handle.name);
}

#[test]
fn slot_names_a_blob_that_the_process_has_from_another_store_of_the_channel() {
    let place = Place::new();
    let (maker, other, receiver) = (place.store_with(0, 0o600), place.store(), place.store());
    let blob = made(&maker, b"bytes");
    let handle = named(&other, &blob);
    drop(blob);
    let received = receive(&receiver, &handle, usize::MAX, "test").unwrap();
    detach(&other, &handle);
    assert_eq!((&*received, names(1, &[&maker, &other, &receiver])), (&b"bytes"[..], 1));
    drop(received);
    assert_eq!(names(0, &[&maker, &other, &receiver]), 0);
    let elsewhere = Place::with(None).store();
    assert!(Named::new(&elsewhere, &made(&maker, b"bytes"), 0).is_none());
}

#[test]
fn folder_is_removed_by_the_receiver_that_frees_the_last_file_after_all_have_closed() {
    let place = Place::new();
    let (maker, receiver) = (place.store(), place.store());
    let folder = maker.folder().location().to_owned();
    let blob = made(&maker, b"bytes");
    let handle = named(&maker, &blob);
    let received = receive(&receiver, &handle, usize::MAX, "test").unwrap();
    detach(&receiver, &handle);
    drop(blob);
    maker.close();
    receiver.close();
    drop(maker);
    assert!(folder.exists() && &*received == b"bytes");
    drop(received);
    // Children of other tests may have inherited locks.
    let limit = Deadline::after(Duration::from_secs(20));
    while folder.exists() && !limit.has_passed() {
        receiver.close();
        std::thread::yield_now();
    }
    assert!(!folder.exists());
}

#[test]
fn receive_copies_a_blob_that_the_group_may_write() {
    let place = Place::new();
    let (maker, receiver) = (place.store_with(64 << 20, 0o660), place.store_with(64 << 20, 0o660));
    let handle = named(&maker, &made(&maker, b"bytes"));
    let received = receive(&receiver, &handle, usize::MAX, "test").unwrap();
    assert_eq!((&*received, received.is_copied(), receiver.copied()), (&b"bytes"[..], true, 1));
    assert!(Named::new(&receiver, &received, 0).is_none());
}

#[test]
fn handle_with_an_impossible_length_is_refused_and_changes_no_count() {
    let place = Place::new();
    let (maker, receiver) = (place.store(), place.store());
    let handle = named(&maker, &made(&maker, b"bytes"));
    let received = receive(&receiver, &handle, 0, "test").unwrap();
    let other = named(&maker, &made(&maker, b"other"));
    for len in [u64::MAX, u64::MAX - 5, 1 << 40] {
        assert!(receive(&receiver, &Handle { len, ..other }, usize::MAX, "test").is_err());
        assert_eq!(receiver.held(), 5);
    }
    drop(received);
    assert_eq!(receiver.held(), 0);
}

#[test]
fn sweep_frees_files_of_dead_processes_and_corrects_counts() {
    let place = Place::new();
    let (maker, other) = (place.store_with(0, 0o600), place.store());
    let blobs = [made(&maker, b"named by a dead process"), made(&maker, b"named by a slot")];
    let [gone, kept] = blobs.each_ref().map(|blob| named(&maker, blob));
    // This is the state after a process has died between raising the count and publishing the slot.
    named(&maker, &blobs[1]);
    drop(blobs);
    assert_eq!(names(2, &[&maker, &other]), 2);
    let _slots = with_slots(&other, &[kept.name]);
    let mut left = None;
    assert!(!other.sweep(&mut left, || true), "it stops after one file");
    assert!(other.sweep(&mut left, || false));
    assert_eq!((names(1, &[&maker, &other]), receive(&other, &gone, usize::MAX, "test").is_err()), (1, true));
    let received = receive(&other, &kept, usize::MAX, "test").unwrap();
    detach(&other, &kept);
    drop(received);
    assert_eq!(names(0, &[&maker, &other]), 0, "the sweep has corrected the count");
}

#[test]
fn audit_tells_files_that_are_held_or_named_from_those_that_a_death_left() {
    let place = Place::new();
    let (maker, looker) = (place.store_with(0, 0o600), place.store());
    assert_eq!(looker.audit(), super::BlobAudit::default());
    let blobs = [made(&maker, b"held"), made(&maker, &[1; 5000]), made(&maker, b"named by a slot")];
    let [_, left, kept] = blobs.each_ref().map(|blob| named(&maker, blob));
    let _slots = with_slots(&looker, &[kept.name]);
    let [held, dropped, in_slot] = blobs;
    drop((dropped, in_slot));
    // Children of other tests may have inherited locks.
    let limit = Deadline::after(Duration::from_secs(20));
    while looker.audit().held > 1 && !limit.has_passed() {
        std::thread::yield_now();
    }
    let audit = looker.audit();
    assert_eq!((audit.files, audit.held, audit.left), (3, 1, 1));
    assert_eq!((audit.named, audit.bytes, audit.left_bytes), (2, 28672, 12288), "the count of the held one");
    assert_eq!(names(3, &[&maker]), 3, "looking frees nothing");
    assert!(maker.folder().names().contains(&left.name));

    let folder = looker.location().to_owned();
    assert_eq!(super::remove_left(&folder, "test"), Ok(None));
    drop(held);
    while looker.audit().held > 0 && !limit.has_passed() {
        std::thread::yield_now();
    }
    assert_eq!(super::remove_left(&folder, "test").unwrap().unwrap().files, 3);
    assert!(!folder.exists());
}

#[test]
fn last_holder_frees_a_file_that_a_sweep_found_held() {
    let place = Place::new();
    let (maker, receiver, other) = (place.store_with(0, 0o600), place.store(), place.store());
    let handle = named(&maker, &made(&maker, b"bytes"));
    let received = receive(&receiver, &handle, usize::MAX, "test").unwrap();
    let _slots = with_slots(&receiver, &[]);
    assert!(other.sweep(&mut None, || false));
    assert_eq!(names(1, &[&maker, &receiver, &other]), 1);
    drop(received);
    assert_eq!(names(0, &[&maker, &receiver, &other]), 0, "the slot that named it had died with its process");
}

#[test]
fn count_that_was_corrected_after_a_slot_let_go_is_not_lowered_again() {
    let place = Place::new();
    let (maker, other) = (place.store(), place.store());
    let blob = made(&maker, b"bytes");
    let handle = named(&maker, &blob);
    named(&maker, &blob);
    drop(blob);
    maker.close();
    let detaching = Detaching::find(&other, &handle).unwrap();
    // Its slot makes the step now, and another process counts the slots before the count is lowered.
    let _slots = with_slots(&other, &[handle.name]);
    assert!(other.sweep(&mut None, || false));
    detaching.remove();
    assert_eq!(names(1, &[&other]), 1, "a slot names it");
    assert_eq!(&*receive(&other, &handle, usize::MAX, "test").unwrap(), b"bytes");
    assert_eq!(names(1, &[&other]), 1);
    detach(&other, &handle);
    assert_eq!(names(0, &[&other]), 0);
}

#[test]
fn file_without_a_maker_is_freed_by_the_process_that_detaches_it_last() {
    let place = Place::new();
    let (maker, holder, last) = (place.store(), place.store(), place.store());
    let blob = made(&maker, b"bytes");
    let handle = named(&maker, &blob);
    let received = receive(&holder, &handle, usize::MAX, "test").unwrap();
    detach(&holder, &handle);
    drop(blob);
    maker.close();
    // No slot names it at this moment.
    named(&holder, &received);
    drop(received);
    assert_eq!(names(1, &[&holder, &last]), 1, "a slot names it");
    detach(&last, &handle);
    assert_eq!(names(0, &[&holder, &last]), 0);
}

/// The folders of channels without a path.
struct Above(Place);

impl Above {
    fn new() -> Above {
        Above(Place::with(Some(Turn::alone())))
    }

    fn path(&self) -> PathBuf {
        self.0.0.join("above")
    }

    fn folder(&self, random: u64, mode: u32) -> Folder {
        Folder::nested(&self.path(), random, crate::sys::memory::user(), mode)
    }

    fn location(&self, random: u64) -> PathBuf {
        self.folder(random, 0o600).location().to_owned()
    }

    /// A process's state of a channel. It keeps no files.
    fn store_with(&self, random: u64, mode: u32) -> Arc<Store> {
        Arc::new(Store::new(self.folder(random, mode), Limits { pool: 0, held: u64::MAX }, false))
    }

    fn store(&self, random: u64) -> Arc<Store> {
        self.store_with(random, 0o600)
    }

    /// As the first blob of another channel's process does.
    fn remove_unopened(&self) {
        self.remove_unopened_in(Duration::MAX);
    }

    fn remove_unopened_in(&self, limit: Duration) {
        channels::remove_unopened(&self.folder(100, 0o600), &mut Spent::up_to(limit, limit));
    }

    fn files(&self, random: u64) -> usize {
        self.folder(random, 0o600).names().len()
    }
}

/// Ends this process's use of a channel as its death would: without a look at its files.
fn forget(store: Arc<Store>) {
    std::mem::forget(store);
}

#[test]
fn remove_unopened_removes_the_folders_of_channels_that_no_process_has_open() {
    let above = Above::new();
    let live = above.store(2);
    named(&live, &made(&live, b"named by a slot, held by no process"));
    wait(fork(|| {
        let [dies, of_a_group, empty] =
            [(4, 0o600), (6, 0o660), (8, 0o600)].map(|(random, mode)| above.store_with(random, mode));
        for store in [&dies, &of_a_group] {
            named(store, &made(store, b"named by a slot"));
            named(store, &made(store, b"named by another"));
        }
        empty.folder().make().unwrap();
        [dies, of_a_group, empty].into_iter().for_each(forget);
    }));
    assert_eq!([2, 4, 6].map(|random| above.files(random)), [1, 2, 2]);
    // Not made by a channel: a folder with another file, and links to a folder and a file elsewhere.
    let elsewhere = above.0.0.join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::write(elsewhere.join("0".repeat(32)), "not ours").unwrap();
    std::os::unix::fs::symlink(&elsewhere, above.location(10)).unwrap();
    std::fs::create_dir(above.location(12)).unwrap();
    std::fs::write(above.location(12).join("other"), "not ours").unwrap();
    std::os::unix::fs::symlink(elsewhere.join("0".repeat(32)), above.location(12).join("1".repeat(32)))
        .unwrap();

    above.remove_unopened();
    assert_eq!(above.files(2), 1, "a process has it open");
    assert!(!above.location(4).exists() && !above.location(8).exists());
    assert_eq!(above.files(6), 2, "other users may use it");
    assert_eq!(std::fs::read(elsewhere.join("0".repeat(32))).unwrap(), b"not ours");
    assert!(above.location(10).exists() && above.location(12).join("other").exists());
}

#[test]
fn remove_unopened_leaves_the_folder_of_a_channel_that_only_a_forked_child_has_open() {
    use std::io::Read;
    let above = Above::new();
    let (here, mut there) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut here = Some(here);
    wait(fork(|| {
        let store = above.store(2);
        named(&store, &made(&store, b"named by a slot"));
        // It does not use the channel, and ends with this test at the latest.
        fork(|| {
            drop(here.take());
            there.read_exact(&mut [0]).unwrap_err();
        });
        forget(store);
    }));
    drop(there);
    above.remove_unopened();
    assert_eq!(above.files(2), 1, "the child of the dead process has the channel");
    drop(here);
    let limit = Deadline::after(Duration::from_secs(30));
    while above.location(2).exists() && !limit.has_passed() {
        above.remove_unopened();
        std::thread::yield_now();
    }
    assert!(!above.location(2).exists(), "the child has ended");
}

#[test]
fn remove_unopened_stops_when_late_and_goes_on_the_next_time() {
    let above = Above::new();
    wait(fork(|| {
        let dies = above.store(2);
        for _ in 0..3 {
            named(&dies, &made(&dies, b"named by a slot"));
        }
        forget(dies);
    }));
    let left: Vec<_> = (0..3)
        .map(|_| {
            above.remove_unopened_in(Duration::ZERO);
            above.files(2)
        })
        .collect();
    assert_eq!((left, above.location(2).exists()), (vec![2, 1, 0], true));
    above.remove_unopened_in(Duration::ZERO);
    assert!(!above.location(2).exists());
}

#[test]
fn blob_shows_again_that_the_channel_is_open_after_all_folders_were_removed() {
    let above = Above::new();
    let store = above.store(2);
    named(&store, &made(&store, b"bytes"));
    std::fs::remove_dir_all(above.path()).unwrap();
    let handle = named(&store, &made(&store, b"again"));
    above.remove_unopened();
    assert_eq!(&*receive(&above.store(2), &handle, usize::MAX, "test").unwrap(), b"again");
    drop(store);
    above.remove_unopened();
    assert!(!above.location(2).exists(), "no process has it open");
}

#[test]
fn blob_fails_unless_the_process_can_show_that_it_has_the_channel_open() {
    let above = Above::new();
    order("lock", 0, Fault::Errno(libc::ENOLCK));
    let store = above.store(2);
    assert!(all_met());
    order("lock", 0, Fault::Errno(libc::ENOLCK));
    assert_eq!(BlobMut::new(&store, 1, "test").unwrap_err().errno(), Some(libc::ENOLCK));
    assert!(all_met());
    named(&store, &made(&store, b"bytes"));
    above.remove_unopened();
    assert_eq!(above.files(2), 1);
}

#[test]
fn maker_reuses_a_file_after_its_receiver_died() {
    let place = Place::new();
    let (maker, other) = (place.store(), place.store());
    let _slots = with_slots(&maker, &[]);
    let handle = named(&maker, &made(&maker, b"bytes"));
    assert_ne!(named(&maker, &made(&maker, b"before the sweep")).name, handle.name);
    assert!(other.sweep(&mut None, || false));
    let again: Vec<_> = (0..2).map(|_| made(&maker, b"after it")).collect();
    assert!(again.iter().any(|blob| named(&maker, blob).name == handle.name));
}

#[test]
fn draft_tries_again_if_the_folder_is_removed_meanwhile() {
    let place = Place::new();
    let maker = place.store();
    // Tmpfs and ext4 report it in different ways.
    for errno in [libc::ENOENT, libc::EPERM] {
        order("tmpfile", 1, Fault::Errno(errno));
        let folder = maker.folder().location();
        assert!(!folder.exists());
        assert_eq!((&*made(&maker, b"bytes"), all_met()), (&b"bytes"[..], true));
        maker.close();
    }
    order("tmpfile", 0, Fault::Errno(libc::EACCES));
    assert_eq!(BlobMut::new(&maker, 1, "test").unwrap_err().errno(), Some(libc::EACCES));
}

#[test]
fn check_reports_corrupt_when_a_file_is_cut_short() {
    let place = Place::new();
    let (maker, receiver) = (place.store(), place.store());
    let blob = made(&maker, &[7; 100_000]);
    let handle = named(&maker, &blob);
    let received = receive(&receiver, &handle, usize::MAX, "test").unwrap();
    let path = path_of(maker.folder().location(), handle.name);
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(8192).unwrap();
    assert_eq!(received.iter().filter(|byte| **byte == 0).count(), 100_000 - 4096);
    assert_eq!(received.check().unwrap_err().kind(), ErrorKind::Corrupt);
    drop(received);
    assert_eq!(receive(&place.store(), &handle, usize::MAX, "test").unwrap_err().kind(), ErrorKind::Corrupt);
    drop(blob);
    assert_eq!(&*made(&maker, b"the next"), b"the next");
}

#[test]
fn file_cut_short_within_its_last_page_is_corrupt_and_not_reused() {
    let place = Place::new();
    let maker = place.store();
    let blob = made(&maker, &[7; 4096]);
    let handle = named(&maker, &blob);
    let path = path_of(maker.folder().location(), handle.name);
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(8191).unwrap();
    assert_eq!((blob[4095], blob.check().unwrap_err().kind()), (0, ErrorKind::Corrupt));
    detach(&maker, &handle);
    drop(blob);
    assert_ne!(named(&maker, &made(&maker, &[8; 4096])).name, handle.name);
    let mut draft = BlobMut::new(&maker, 4096, "test").unwrap();
    draft.fill(9);
    for name in maker.folder().names() {
        let path = path_of(maker.folder().location(), name);
        std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(8191).unwrap();
    }
    assert_eq!(draft.freeze().unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn dropped_draft_leaves_its_file_to_the_next() {
    let place = Place::new();
    let maker = place.store();
    let place_of = |draft: &BlobMut| draft.as_ptr();
    let first = BlobMut::new(&maker, 10, "test").unwrap();
    let at = place_of(&first);
    drop(first);
    assert_eq!(place_of(&BlobMut::new(&maker, 4096, "test").unwrap()), at);
    maker.close();
    assert!(!maker.folder().location().exists());
}

#[test]
fn draft_beyond_the_blob_limit_is_too_long() {
    let place = Place::new();
    let folder = Folder::beside(&place.0.join("channel"), 7, crate::sys::memory::user(), 0o600);
    let store = Arc::new(Store::new(folder, Limits { pool: 0, held: 10_000 }, false));
    let first = made(&store, &[1; 6000]);
    let refused = BlobMut::new(&store, 6000, "test").unwrap_err();
    assert_eq!((refused.kind(), store.held()), (ErrorKind::TooLong, 6000));
    assert!(refused.explanation().is_some_and(|text| text.contains("blob_limit")));
    drop(first);
    drop(made(&store, &[2; 6000]));
    assert_eq!(store.held(), 0);
}

#[test]
fn child_keeps_blobs_that_its_parent_drops_after_the_fork() {
    use std::io::{Read, Write};
    let place = Place::with(Some(Turn::alone()));
    let (maker, receiver) = (place.store(), place.store());
    let blob = made(&maker, &[7; 5000]);
    let handle = named(&maker, &blob);
    let received = receive(&receiver, &handle, usize::MAX, "test").unwrap();
    detach(&maker, &handle);
    let mut both = Some((blob, received));
    let (mut here, mut there) = std::os::unix::net::UnixStream::pair().unwrap();
    let pid = fork(|| {
        there.read_exact(&mut [0]).unwrap();
        let (blob, received) = both.take().unwrap();
        assert!(blob.iter().chain(received.iter()).all(|byte| *byte == 7));
        assert_eq!(names(2, &[&maker, &receiver]), 2);
        drop((blob, received));
        assert_eq!(names(1, &[&maker, &receiver]), 1, "the last holder frees it");
    });
    // This drops them only in this process: the child has its own copies.
    drop(both.take());
    let next = made(&maker, &[8; 5000]);
    assert_ne!(named(&maker, &next).name, handle.name);
    here.write_all(&[1]).unwrap();
    wait(pid);
}

#[test]
fn drops_after_a_fork_take_as_long_however_many_files_the_child_has() {
    use std::io::Read;
    const COUNT: usize = 200;
    let place = Place::with(Some(Turn::alone()));
    let maker = place.store();
    let blobs: Vec<_> = (0..COUNT).map(|byte| made(&maker, &[byte as u8; 100])).collect();
    let (here, mut there) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut here = Some(here);
    let pid = fork(|| {
        drop(here.take());
        there.read_exact(&mut [0]).unwrap_err();
    });
    // For each blob: a look at its file, a look at another file, and what the next draft asks.
    const MOST: usize = 8;
    order("lock", COUNT * MOST, Fault::Errno(libc::EIO));
    for blob in blobs {
        drop(blob);
        drop(made(&maker, b"another"));
    }
    assert!(!all_met(), "more than {MOST} questions about locks for each blob");
    assert!(maker.folder().names().len() >= COUNT, "the child has them");
    drop(here);
    wait(pid);
    // Each operation frees some of them.
    (0..COUNT).for_each(|_| drop(made(&maker, b"another")));
    assert_eq!(names(1, &[&maker]), 1);
}

#[test]
fn sweep_in_pieces_lists_the_folder_once() {
    let place = Place::new();
    let (maker, other) = (place.store_with(0, 0o600), place.store());
    let blobs: Vec<_> = (0..20).map(|_| made(&maker, b"bytes")).collect();
    order("list blobs", 1, Fault::Errno(0));
    let mut left = None;
    let pieces = (1..).find(|_| other.sweep(&mut left, || true)).unwrap();
    assert_eq!((pieces, all_met()), (blobs.len() + 1, false));
}
