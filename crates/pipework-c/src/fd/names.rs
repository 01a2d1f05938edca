//! Temporary names in a folder.

use std::ffi::{OsStr, c_char, c_int};
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;

use pipework::fd::{mkstemp_at, mktemp_at};

use crate::edge::{Number, Out, Space, put, run};
use crate::error::{PWK_OK, pwk_error, pwk_status};

/// Creates a file under a new name: every X at the end of `path`, six of them at least, is replaced
/// by a random letter or digit. A relative path starts from the folder that is open as `folder`;
/// AT_FDCWD is the current one. `fd` is open for reading and writing; the file's mode is 0600.
///
/// Fails with PWK_INVALID if `path` does not end with six X; PWK_OS. `path` is as it was then.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_fd_mkstemp(
    folder: Number,
    path: Space<'_, c_char>,
    fd: Out<'_, c_int>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_fd_mkstemp", error, |name| {
        let (path, fd) = (path.text(name)?, name.given(fd)?);
        let (file, made) = mkstemp_at(folder.folder()?, OsStr::from_bytes(path))?;
        path.copy_from_slice(made.as_bytes());
        put(Some(fd), file.into_raw_fd())
    })
}

/// Replaces the X at the end of `path` as pwk_fd_mkstemp does, so that nothing has that name.
/// Nothing is created: another process may take the name meanwhile.
///
/// Fails as pwk_fd_mkstemp.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_fd_mktemp(
    folder: Number,
    path: Space<'_, c_char>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_fd_mktemp", error, |name| {
        let path = path.text(name)?;
        path.copy_from_slice(mktemp_at(folder.folder()?, OsStr::from_bytes(path))?.as_bytes());
        Ok(PWK_OK)
    })
}
