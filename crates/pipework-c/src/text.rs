//! Statuses and errors in words.

use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::sync::OnceLock;

use pipework::{ErrorKind, describe, process_of};

use crate::edge::{In, Name, Space, get};
use crate::error::{PWK_BUG, PWK_LAGGED, PWK_OK, pwk_error, pwk_status};

/// The text for a status. Never NULL; not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_status_text(status: pwk_status) -> *const c_char {
    static TEXTS: OnceLock<Vec<CString>> = OnceLock::new();
    let text_of = |kind: &ErrorKind| CString::new(kind.to_string()).unwrap_or_default();
    get(c"".as_ptr(), || match status {
        PWK_OK => c"no error".as_ptr(),
        PWK_BUG => BUG.as_ptr(),
        _ => match kind_of(status) {
            Some(_) => TEXTS.get_or_init(|| ErrorKind::ALL.iter().map(text_of).collect())
                [status as usize - 1]
                .as_ptr(),
            None => c"unknown status".as_ptr(),
        },
    })
}

/// The errno that says about the same, for programs that report errors in that way; 0 for PWK_OK
/// and for a number that is no status.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_status_errno(status: pwk_status) -> i32 {
    match status {
        PWK_BUG => libc::EIO,
        _ => kind_of(status).map_or(0, ErrorKind::errno),
    }
}

/// Writes an error as one line into `text`, which has space for `size` bytes with the NUL at the
/// end, and cuts it off there. Returns how long the whole line is, without the NUL, as snprintf
/// does; 0 if `error` is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_error_text(error: In<'_, pwk_error>, text: Space<'_, c_char>, size: usize) -> usize {
    get(0, || {
        let line = error.map(pwk_error::to_string).unwrap_or_default();
        write_line(&line, text, size)
    })
}

/// The process for which the call had waited, as numbered in its own pid namespace: after PWK_TIMED_OUT
/// of pwk_publisher_publish, that of the slowest subscriber that must see all. 0 if the error names
/// none, and for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_error_process(error: In<'_, pwk_error>) -> u32 {
    get(0, || error.and_then(|error| process_of(error.os)).unwrap_or(0))
}

// ---------------------------------------------------------------- on this side

/// Writes a line where C wants it, cut off where its space ends, and says how long the whole is.
pub(crate) fn write_line(line: &str, text: Space<'_, c_char>, size: usize) -> usize {
    if let Ok(space) = text.array(size, Name::NONE)
        && let Some(most) = size.checked_sub(1)
    {
        let bytes = line.bytes().take(most).chain([0]);
        space.iter_mut().zip(bytes).for_each(|(place, byte)| _ = place.write(byte as c_char));
    }
    line.len()
}

const BUG: &CStr = c"a broken invariant of pipework";

fn kind_of(status: pwk_status) -> Option<ErrorKind> {
    let idx = usize::try_from(status).ok()?.checked_sub(1)?;
    ErrorKind::ALL.get(idx).copied()
}

impl pwk_error {
    fn op(&self) -> String {
        let bytes = self.op.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0);
        String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
    }
}

impl fmt::Display for pwk_error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match kind_of(self.kind) {
            Some(kind) => describe(f, kind, &self.op(), self.os)?,
            None if self.kind == PWK_BUG => write!(f, "{}: {}", self.op(), BUG.to_string_lossy())?,
            None => f.write_str(if self.kind == PWK_OK { "no error" } else { "unknown status" })?,
        }
        match self.done {
            0 => Ok(()),
            missed if self.kind == PWK_LAGGED => write!(f, "; {missed} missed"),
            done => write!(f, "; {done} done"),
        }
    }
}
