//! Victims that make segments. Afterwards the path has a whole segment, or nothing.

use std::fs::{self, File};
use std::path::Path;

use pipework::Result;
use pipework::reqrep::{Options, Segment};

use super::calling::answer_all;
use super::serving::{answered, outcome};
use super::{assert_whole, options};
use crate::harness::Folder;
use crate::harness::fate::Fate;
use crate::harness::tracee::mark;

pub(super) fn create(fate: &Fate) {
    make(fate, false, |options, path| options.create(path));
}

pub(super) fn open_or_create(fate: &Fate) {
    make(fate, false, |options, path| options.open_or_create(path));
}

pub(super) fn replace_an_empty_file(fate: &Fate) {
    make(fate, true, |options, path| options.open_or_create(path));
}

fn make(fate: &Fate, over_empty: bool, make: impl Fn(&Options, &Path) -> Result<Segment>) {
    let (folder, options) = (Folder::new(), options(2));
    let path = folder.join("segment");
    if over_empty {
        File::create(&path).unwrap();
    }
    let victim = fate.victim(None::<&Segment>, || {
        mark();
        let segment = make(&options, &path).unwrap();
        mark();
        drop(segment);
    });
    victim.die();
    match options.open(&path) {
        Ok(segment) => assert_whole(&segment),
        Err(_) if over_empty && path.exists() => {
            assert_eq!(path.metadata().unwrap().len(), 0, "the file is unchanged");
            assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left");
            assert_whole(&options.open_or_create(&path).unwrap());
        }
        Err(error) => {
            assert_eq!(error.errno(), Some(libc::ENOENT), "{error}");
            assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0, "nothing is left");
            assert_whole(&options.create(&path).unwrap());
        }
    }
}

/// Attached members stay attached.
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
        assert_eq!(again.waiting(), 1, "it is the same segment");
    }
    answer_all(&server);
    assert_eq!(outcome(&client, ticket), answered("PING"));
    assert_whole(&segment);
}
