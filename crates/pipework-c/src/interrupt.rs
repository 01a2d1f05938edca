//! The interrupt hook: a function of the program that says whether waits go on.

use std::sync::OnceLock;

use pipework::interrupt::{Verdict, set_hook};

use crate::edge::{Out, Truth, done, run};
use crate::error::{pwk_error, pwk_status};

static GO_ON: OnceLock<extern "C" fn() -> Truth> = OnceLock::new();

/// Sets the interrupt hook of this process, once and for good: a function that each thread asks
/// while it waits in this library, when a signal handler has run, and every 250 ms. After a true the
/// wait goes on where it is. After a false the call ends with PWK_INTERRUPTED, also inside a message,
/// which is then given up and not delivered. Nothing else interrupts a call then. So a signal that
/// comes just before a call, or that another thread gets, is not slept through:
///
/// ```text
/// static volatile sig_atomic_t is_stopped;
/// static void stop(int signal) { (void)signal; is_stopped = 1; }
/// static bool go_on(void) { return !is_stopped; }
///
/// signal(SIGTERM, stop);
/// pwk_set_interrupt_hook(go_on, NULL);
/// ```
///
/// The function is called in the thread that waits, with no lock of the library held. It may take
/// its time, and use other handles than the one whose call asks. It must return, and not by a jump.
/// Calls that need not wait do not ask, and neither do threads of the library. pwk_atomic_writer_free
/// asks as well, and after a false drops what is pending.
///
/// Fails with PWK_INVALID if a function is set already.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_set_interrupt_hook(
    go_on: Option<extern "C" fn() -> Truth>,
    error: Out<'_, pwk_error>,
) -> pwk_status {
    run("pwk_set_interrupt_hook", error, |name| {
        let go_on = go_on.ok_or(name.invalid())?;
        // Before it can be asked.
        GO_ON.set(go_on).map_err(|_| name.invalid())?;
        done(set_hook(ask))
    })
}

fn ask() -> Verdict {
    let goes_on = GO_ON.get().is_none_or(|go_on| go_on().is_set());
    if goes_on { Verdict::GoOn } else { Verdict::Stop }
}
