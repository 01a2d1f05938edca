//! Temporary names in a folder: `mkstemp` and `mktemp`, relative to a folder's descriptor like the
//! other calls that end in `at`.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::error::Result;
use crate::sys::{self, Errno, file};

/// The smallest number of X that a template ends with.
const MIN_XS: usize = 6;
/// The number of names to try before giving up.
const TRIES: usize = 100;
const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Creates a file under a new name, and returns both: every X at the end of `template` becomes a
/// random letter or digit.
///
/// The file is open for reading and writing, close-on-exec, and of mode 0600. A relative `template`
/// starts from `folder`; [`CWD`](super::CWD) is the current one.
///
/// # Errors
///
/// `Invalid` if `template` does not end with at least six X.
///
/// # Examples
///
/// ```
/// use pipework::fd::{CWD, mkstemp_at};
///
/// let template = std::env::temp_dir().join("log-XXXXXX");
/// let (fd, path) = mkstemp_at(CWD, template.as_os_str())?;
/// # std::fs::remove_file(&path).unwrap();
/// # drop(fd);
/// # Ok::<(), pipework::Error>(())
/// ```
pub fn mkstemp_at(folder: impl AsFd, template: &OsStr) -> Result<(OwnedFd, OsString)> {
    let made = fresh(template, |name| match file::create_new(folder.as_fd(), name) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::EXIST) => Ok(None),
        Err(errno) => Err(errno),
    });
    made.map_err(|errno| errno.at("fd mkstemp"))
}

/// Returns an unused name, chosen as by [`mkstemp_at`].
///
/// It creates nothing, so another program may take the name meanwhile; if that matters, use
/// [`mkstemp_at`].
///
/// # Errors
///
/// As with [`mkstemp_at`].
pub fn mktemp_at(folder: impl AsFd, template: &OsStr) -> Result<OsString> {
    let free = fresh(template, |name| Ok((!file::exists(folder.as_fd(), name)?).then_some(())));
    free.map(|((), name)| name).map_err(|errno| errno.at("fd mktemp"))
}

/// Tries names until `take` succeeds with one.
fn fresh<T>(
    template: &OsStr,
    mut take: impl FnMut(&OsStr) -> sys::Result<Option<T>>,
) -> sys::Result<(T, OsString)> {
    let mut name = template.as_bytes().to_vec();
    let xs = name.iter().rev().take_while(|byte| **byte == b'X').count();
    if xs < MIN_XS {
        return Err(Errno::INVAL);
    }
    let start = name.len() - xs;
    for _ in 0..TRIES {
        for letters in name[start..].chunks_mut(5) {
            // 62 to the fifth power fits into 32 bits four times over, so all letters are almost
            // equally likely.
            let mut random = sys::random()?;
            for letter in letters {
                *letter = LETTERS[random as usize % LETTERS.len()];
                random /= LETTERS.len() as u32;
            }
        }
        if let Some(taken) = take(OsStr::from_bytes(&name))? {
            return Ok((taken, OsString::from_vec(name)));
        }
    }
    Err(Errno::EXIST)
}
