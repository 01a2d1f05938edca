//! What only bindings of other languages need. A program in C has no use for it.

use pipework::reqrep::Ticket;

/// The index of the slot that a ticket names: below pwk_geometry.slots, if it is a ticket of that
/// segment.
#[unsafe(no_mangle)]
pub extern "C" fn pwk_ticket_slot(ticket: u64) -> u32 {
    Ticket::from_bits(ticket).idx()
}
