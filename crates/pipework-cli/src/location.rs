//! The meaning of a path on the command line: a descriptor that is open already, or a file.
//!
//! /dev/stdin, /dev/fd/3 and a shell's names for <(command) and >(command) name descriptors.
//! Opening them again would make another open file, empty a log that was opened for appending, or
//! fail; so the descriptor itself is used.
//!
//! Any other path is opened as it was given. The kernel follows its links, and refuses those that a
//! stranger has put into a shared folder (`fs.protected_symlinks`); a path that was resolved here
//! would get past that.

use crate::failure::{Failure, at};
use crate::{sys, table};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// As many links are followed as the kernel follows.
const LINKS: usize = 40;

/// The source or the target of data.
#[derive(Debug, PartialEq)]
pub(crate) enum Location {
    /// The number of an open descriptor.
    Descriptor(i32),
    /// A path as it was given, which may be a symbolic link.
    Path(PathBuf),
}

impl Location {
    /// The file or descriptor that `path` names; `-` is the descriptor `standard`.
    pub(crate) fn of(path: &Path, standard: i32) -> Self {
        if path == Path::new("-") {
            return Self::Descriptor(standard);
        }
        // Only to see whether a descriptor is named.
        let mut place = path.to_path_buf();
        for _ in 0..LINKS {
            if let Some(number) = number(&place) {
                return Self::Descriptor(number);
            }
            let Ok(target) = fs::read_link(&place) else { break };
            place = place.parent().unwrap_or(Path::new("")).join(target);
        }
        Self::Path(path.to_path_buf())
    }
}

/// Where the kernel finds what is at `path`, for those who must open it without following a link,
/// and more than once.
pub(crate) fn led_to(path: &Path) -> Result<PathBuf, Failure> {
    let Ok(text) = fs::read_link(path) else { return Ok(path.to_path_buf()) };
    let (name, target) = (table::path(path), table::path(&text));
    let found = sys::find(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::new(format!(
            "{name}: it is a symbolic link to {target}, and there is no such FIFO; --create makes one \
             at a path that is no link"
        )),
        _ => at(&name)(error),
    })?;
    let place = fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).unwrap_or_default();
    // A file without a path, like the pipe of another process, is opened through the link alone.
    Ok(if sys::is_file_at(&found, &place) { place } else { path.to_path_buf() })
}

/// The number of the descriptor that a path names.
fn number(path: &Path) -> Option<i32> {
    let path = path.to_str()?;
    match path {
        "/dev/stdin" => Some(0),
        "/dev/stdout" => Some(1),
        "/dev/stderr" => Some(2),
        _ => {
            let folders = ["/dev/fd/", "/proc/self/fd/"];
            let number = folders.into_iter().find_map(|folder| path.strip_prefix(folder))?;
            number.parse().ok().filter(|number| *number >= 0)
        }
    }
}

/// Why what is at a path is refused as a FIFO.
pub(crate) fn no_fifo(path: &Path) -> String {
    let kind = match path.metadata().map(|meta| meta.file_type()) {
        Ok(kind) if kind.is_file() => "a file",
        Ok(kind) if kind.is_dir() => "a folder",
        Ok(kind) if kind.is_socket() => "a socket",
        _ => "something else",
    };
    format!("it is not a FIFO but {kind}; `mkfifo` makes one, and so does `pipework recv --create`")
}

/// A duplicate of a descriptor that the parent process left open; see `sys::inherited`.
pub(crate) fn inherited(number: i32) -> Result<OwnedFd, Failure> {
    if sys::was_closed(number) {
        return Err(Failure::new(format!("descriptor {number} is closed")));
    }
    sys::inherited(number).map_err(at(format!("descriptor {number}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn location_recognizes_paths_of_descriptors() {
        let of = |path: &str| Location::of(Path::new(path), 7);
        for (path, number) in [
            ("-", 7),
            ("/dev/stdin", 0),
            ("/dev/stdout", 1),
            ("/dev/stderr", 2),
            ("/dev/fd/63", 63),
            ("/proc/self/fd/3", 3),
        ] {
            assert_eq!(of(path), Location::Descriptor(number), "{path}");
        }
        for path in ["./-", "/dev/fd/x", "/dev/fd/-1", "/dev/null", "nothing-here"] {
            assert_eq!(of(path), Location::Path(path.into()), "{path}");
        }
    }

    #[test]
    fn location_leaves_links_to_the_kernel() {
        let name = format!("pipework-links-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("file"), "").unwrap();
        for (target, link) in
            [("file", "one"), ("one", "two"), ("/dev/fd/5", "five"), ("gone", "dangling"), ("loop", "loop")]
        {
            symlink(target, folder.join(link)).unwrap();
        }
        let of = |link: &str| Location::of(&folder.join(link), 0);
        assert_eq!(of("five"), Location::Descriptor(5));
        // Opening it asks the kernel to follow the link.
        for link in ["two", "dangling", "loop"] {
            assert_eq!(of(link), Location::Path(folder.join(link)));
        }
        let led_to = |link: &str| led_to(&folder.join(link)).map_err(|failure| failure.to_string());
        let real = folder.canonicalize().unwrap();
        assert_eq!(led_to("two"), Ok(real.join("file")));
        assert_eq!(led_to("file"), Ok(folder.join("file")));
        assert_eq!(led_to("missing"), Ok(folder.join("missing")));
        assert!(led_to("dangling").unwrap_err().contains("symbolic link to gone"));
        assert!(led_to("loop").is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
