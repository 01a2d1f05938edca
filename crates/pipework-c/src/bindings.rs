//! Functions that only bindings of other languages need. A program in C has no use for them.

use pipework::reqrep::Ticket;

/// The index of the slot of a ticket: below pwk_geometry.slots, if it is a ticket of that segment.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_ticket_slot(ticket: u64) -> u32 {
    Ticket::from_bits(ticket).idx()
}
