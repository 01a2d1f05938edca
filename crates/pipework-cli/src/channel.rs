//! A channel at a path: the segment of module `reqrep`, which the first server makes, or that of module
//! `broadcast`.
//!
//! Why one is refused is said here, in words for a user, whichever subcommand has asked.

use crate::failure::{Failure, words};
use crate::processes::FileId;
use crate::{sys, table};
use pipework::reqrep::{BlobAudit, Call, Member, Options, Segment, Stage};
use pipework::{ErrorKind, broadcast};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// The flags of a request that is a job: its sender does not wait for a reply, and one that fails
/// is given to a server again.
pub(crate) const JOB: u32 = u32::from_be_bytes(*b"job\0");

/// A channel of either module, of any owner.
pub(crate) enum AnyChannel {
    Calls(Segment),
    Broadcast(broadcast::Segment),
}

impl AnyChannel {
    /// The channel at a path.
    pub(crate) fn open(path: &Path) -> Result<Self, pipework::Error> {
        match Options::new().any_owner(true).open(path) {
            Err(error) if is_other_kind(&error) => {
                broadcast::Options::new().any_owner(true).open(path).map(Self::Broadcast)
            }
            opened => opened.map(Self::Calls),
        }
    }

    /// The channel in an open file.
    pub(crate) fn behind(file: &impl AsFd) -> Result<Self, pipework::Error> {
        match Options::new().any_owner(true).dup_fd(file) {
            Err(error) if is_other_kind(&error) => {
                broadcast::Options::new().any_owner(true).dup_fd(file).map(Self::Broadcast)
            }
            opened => opened.map(Self::Calls),
        }
    }

    /// Recovers what dead members held; returns how many had died.
    pub(crate) fn recover(&self) -> Result<usize, pipework::Error> {
        match self {
            Self::Calls(segment) => segment.recover(),
            Self::Broadcast(segment) => segment.recover(),
        }
    }

    pub(crate) fn blob_audit(&self) -> BlobAudit {
        match self {
            Self::Calls(segment) => segment.blob_audit(),
            Self::Broadcast(segment) => segment.blob_audit(),
        }
    }

    pub(crate) fn blob_folder(&self) -> &Path {
        match self {
            Self::Calls(segment) => segment.blob_folder(),
            Self::Broadcast(segment) => segment.blob_folder(),
        }
    }
}

/// Opens the broadcast at a path to look at it, which changes nothing and needs only the permission to
/// read.
pub(crate) fn open_broadcast(path: &Path) -> Result<broadcast::Segment, pipework::Error> {
    broadcast::Options::new().any_owner(true).read_only(true).open(path)
}

/// Whether the error says that the file is a channel of another module.
pub(crate) fn is_other_kind(error: &pipework::Error) -> bool {
    error.op().ends_with(": unknown kind of payload")
}

/// Whether the file at a path is a broadcast, intact or not.
pub(crate) fn is_broadcast(path: &Path) -> bool {
    let is_other = |kind: Result<(), pipework::Error>| kind.as_ref().is_err_and(is_other_kind);
    is_other(pipework::reqrep::Geometry::of(path).map(drop))
        && !is_other(broadcast::Geometry::of(path).map(drop))
}

/// Opens the channel for calls at `path`; `any_owner` also where it belongs to another user.
pub(crate) fn open(path: &Path, any_owner: bool) -> Result<Segment, Failure> {
    Options::new().any_owner(any_owner).open(path).map_err(|error| refused(path, error))
}

/// Why a channel cannot be opened, made or joined, and how to fix it.
pub(crate) fn refused(path: &Path, error: pipework::Error) -> Failure {
    Failure::new(format!("{}: {}", table::path(path), why(path, error)))
}

/// The same without the channel's name in front.
pub(crate) fn why(path: &Path, error: pipework::Error) -> String {
    let (file, path) = (path, table::path(path));
    // The text behind the operation's name says which of several causes it is.
    let detail = error.op().split_once(": ").map(|(_, detail)| detail);
    match (error.kind(), detail, error.errno()) {
        (_, None, Some(libc::ENOENT)) if error.op() == "reqrep open" => {
            format!("there is no such channel; `pipework serve {path} -- COMMAND` makes it")
        }
        (_, Some("another user's file"), _) => {
            "it belongs to another user; --any-owner trusts all who may write to it".into()
        }
        (_, Some("another format"), _) => {
            "it was made by another version of pipework; remove it when no process uses it".into()
        }
        (_, Some("unknown kind of payload"), _) => {
            match (is_broadcast(file), pipework::reqrep::Geometry::of(file)) {
                (true, _) => "it is a broadcast, and no channel for calls",
                (false, Ok(_)) => "it is a channel for calls, and no broadcast",
                (false, Err(_)) => "it is a channel of a kind that this version of pipework does not know",
            }
            .into()
        }
        (ErrorKind::Incompatible, Some("not a segment"), _) => "it is no channel but another file".into(),
        (ErrorKind::Incompatible, Some("too short for a segment"), _) => {
            "it is no channel: too short for one".into()
        }
        (ErrorKind::Invalid, Some("not a regular file"), _) => "it is no channel: not a regular file".into(),
        (ErrorKind::Invalid, Some("symbolic link"), _) => "it is a symbolic link; name its target".into(),
        (ErrorKind::Invalid, None, None) if error.op() == "reqrep create" => {
            "so many slots of such sizes are more than a channel can hold".into()
        }
        (ErrorKind::Corrupt, _, _) => {
            let detail = detail.unwrap_or("its contents are malformed");
            format!("it is damaged: {detail}; remove it when no process uses it")
        }
        (_, _, Some(libc::EISDIR)) => "it is a folder, and no channel".into(),
        (ErrorKind::WouldBlock, _, _) => {
            "all places for members are taken; `pipework call --wait` waits for one, and `pipework serve \
             --members` makes a channel with more"
                .into()
        }
        (_, _, Some(number)) => words(io::Error::from_raw_os_error(number)),
        (_, Some(detail), _) => match error.explanation() {
            Some(why) => format!("{detail}: {why}"),
            None => format!("{detail}: {}", error.kind()),
        },
        (_, None, _) => error.explanation().map_or(error.kind().to_string(), String::from),
    }
}

/// How many requests wait for a server. Those of dead clients do not.
pub(crate) fn waiting(segment: &Segment, members: &[Member]) -> usize {
    let lives = |number| members.iter().any(|member| member.number == number && member.is_alive);
    let waits = |call: &Call| match call.stage {
        Stage::Waiting => call.client.is_none_or(lives),
        // A job comes back from a server that has died with it.
        Stage::Taken => call.client.is_none() && call.server.is_some_and(|number| !lives(number)),
        _ => false,
    };
    segment.calls().filter(waits).count()
}

/// The result of removing an unused channel.
pub(crate) enum Removal {
    Done,
    /// A process has it open.
    InUse,
    /// Another file has its name now.
    Changed,
    /// So many requests wait in it.
    Waiting(usize),
    /// The file system does not say whether another process has it open.
    Unknown(io::Error),
}

/// Removes the file of a channel if no other process has it open: no process on this machine, in a
/// container or not.
///
/// The kernel leases a file for writing only while no other process has it open or mapped; while it
/// is leased, no other open succeeds. So no process can join from the proof on until the name is
/// gone. This process must not have it open itself.
///
/// A client may have left a job in it a moment ago, so the waiting requests are counted then. More
/// than
/// `may_lose` keep the channel.
///
/// # Errors
/// Fails if the file cannot be opened or removed.
pub(crate) fn remove_unused(path: &Path, id: FileId, may_lose: usize) -> io::Result<Removal> {
    sys::ignore_broken_leases();
    let file = sys::open_to_change(path)?;
    if sys::file_id(&file)? != id {
        return Ok(Removal::Changed);
    }
    match sys::lease(&file) {
        Ok(()) => {
            let channel = AnyChannel::behind(&file);
            let look = |segment: &Segment| Ok::<_, pipework::Error>(waiting(segment, &segment.members()?));
            let waiting = match &channel {
                Ok(AnyChannel::Calls(segment)) => look(segment).unwrap_or(0),
                // Nobody has to receive the messages of a broadcast. A channel that cannot be opened has
                // nothing that could be taken out.
                Ok(AnyChannel::Broadcast(_)) | Err(_) => 0,
            };
            if waiting > may_lose {
                return Ok(Removal::Waiting(waiting));
            }
            if !sys::unlink_file(path, id)? {
                return Ok(Removal::Changed);
            }
            if let Ok(channel) = channel {
                let folder = channel.blob_folder().to_owned();
                // Without the segment, which would look for its blobs when it is dropped. The channel is
                // removed, whatever comes of this.
                drop(channel);
                let _ = Segment::remove_blob_folder(folder);
            }
            Ok(Removal::Done)
        }
        Err(error) if sys::is_temporary(&error) => Ok(Removal::InUse),
        Err(error) => Ok(Removal::Unknown(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Makes the header of a channel that of another kind.
    fn change_kind(path: &Path, kind: u32) {
        let mut bytes = fs::read(path).unwrap();
        bytes[12..16].copy_from_slice(&kind.to_le_bytes());
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3);
        let checksum = bytes[..120].iter().fold(0xCBF2_9CE4_8422_2325, step);
        bytes[120..128].copy_from_slice(&checksum.to_le_bytes());
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn refusal_names_the_kind_of_file() {
        let folder = std::env::temp_dir().join(format!("pipework-channel-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let place = |name: &str| folder.join(name);
        fs::write(place("text"), "hello").unwrap();
        fs::write(place("page"), [b'x'; 8192]).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(place("socket")).unwrap();
        std::os::unix::fs::symlink("text", place("link")).unwrap();
        Options::new().slots(4).members(2).create(place("good")).unwrap();
        broadcast::Options::new().messages(2).members(2).create(place("news")).unwrap();
        fs::copy(place("news"), place("other")).unwrap();
        change_kind(&place("other"), 77);
        let says = |name: &str, word: &str| {
            let failure = open(&place(name), false).map(drop).unwrap_err().to_string();
            assert!(failure.starts_with(&place(name).display().to_string()), "{failure}");
            assert!(failure.contains(word), "{name}: {failure}");
        };
        says("missing", "no such channel");
        says("text", "no channel: too short");
        says("page", "no channel but another file");
        says("link", "symbolic link");
        says("socket", "No such device");
        says(".", "a folder");
        says("news", "it is a broadcast, and no channel for calls");
        says("other", "of a kind that this version of pipework does not know");
        let of_calls = open_broadcast(&place("good")).map(drop).unwrap_err();
        assert_eq!(why(&place("good"), of_calls), "it is a channel for calls, and no broadcast");
        assert_eq!(
            ["good", "news", "other", "page"].map(|name| is_broadcast(&place(name))),
            [false, true, false, false]
        );

        let good = open(&place("good"), false).unwrap();
        let members = [good.client().unwrap(), good.client().unwrap()];
        let full = refused(&place("good"), good.client().unwrap_err()).to_string();
        assert!(full.contains("all places for members are taken") && full.contains("--wait"), "{full}");
        drop(members);
        let other = Options::new().slots(5).open(place("good")).unwrap_err();
        let other = refused(&place("good"), other).to_string();
        assert!(other.contains("slots: ") && other.contains("another size"), "{other}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
