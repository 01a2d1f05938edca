//! Victims that make segments: there is a whole one at its path, or nothing.

use std::fs;
use std::path::Path;

use pipework::Result;
use pipework::reqrep::{Options, Segment};

use super::calling::answer_all;
use super::fate::Fate;
use super::serving::{answered, outcome};
use super::{assert_whole, options};
use crate::harness::Folder;
use crate::harness::tracee::mark;

pub(super) fn create(fate: &Fate) {
    make(fate, |options, path| options.create(path));
}

pub(super) fn open_or_create(fate: &Fate) {
    make(fate, |options, path| options.open_or_create(path));
}

fn make(fate: &Fate, make: impl Fn(&Options, &Path) -> Result<Segment>) {
    let (folder, options) = (Folder::new(), options(2));
    let path = folder.join("segment");
    let victim = fate.victim(None, || {
        mark();
        let segment = make(&options, &path).unwrap();
        mark();
        drop(segment);
    });
    victim.die();
    match options.open(&path) {
        Ok(segment) => assert_whole(&segment),
        Err(error) => {
            assert_eq!(error.errno(), Some(libc::ENOENT), "{error}");
            assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0, "nothing is left");
            assert_whole(&options.create(&path).unwrap());
        }
    }
}

/// Whoever is attached stays so.
pub(super) fn unlink(fate: &Fate) {
    let (folder, options) = (Folder::new(), options(2));
    let path = folder.join("segment");
    let segment = options.create(&path).unwrap();
    let (server, client) = (segment.server().unwrap(), segment.client().unwrap());
    let ticket = client.try_send("ping").unwrap().unwrap();
    let victim = fate.victim(&segment, || {
        mark();
        assert_eq!(segment.unlink(), Ok(true));
        mark();
    });
    victim.die();
    if let Ok(again) = options.open(&path) {
        assert_eq!(again.len(), 1, "it is the same segment");
    }
    answer_all(&server);
    assert_eq!(outcome(&client, ticket), answered("PING"));
    assert_whole(&segment);
}
