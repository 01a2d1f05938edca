//! What only bindings of other languages need. A program in C has no use for it.

use pipework::reqrep::Ticket;

use crate::atomic::writer::pwk_atomic_writer;
use crate::edge::{InOut, Truth, get};

/// Sets a function that is asked, while a call waits, whether to go on: after each signal handler,
/// and every 250 ms. After a false the call ends with PWK_INTERRUPTED, also inside a message, which
/// is then given up and not delivered; nothing else interrupts it. For languages that run their
/// signal handlers themselves. The function must return, and not by a jump; it is called in the
/// thread that waits, and must not use this writer. NULL takes it away; a NULL `writer` is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_atomic_writer_set_interrupt_check(
    writer: InOut<'_, pwk_atomic_writer>,
    go_on: Option<extern "C" fn() -> Truth>,
) {
    get((), || {
        let check = go_on.map(|go_on| move || go_on().is_set());
        writer.into_iter().for_each(|writer| writer.0.set_interrupt_check(check));
    });
}

/// The index of the slot that a ticket names: below pwk_geometry.slots, if it is a ticket of that
/// segment.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_ticket_slot(ticket: u64) -> u32 {
    Ticket::from_bits(ticket).idx()
}
