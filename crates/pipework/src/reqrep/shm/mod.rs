//! The lower layer of `reqrep`: the contents of a segment, and every step that changes them. It
//! knows clients and servers only by their numbers.

pub(super) mod layout;
pub(super) mod word;
pub(super) mod queue;
pub(super) mod naming;
pub(super) mod slot;
pub(super) mod ticket;
pub(super) mod mapping;
pub(super) mod blobs;
pub(super) mod payload;
pub(super) mod call;
pub(super) mod handoff;
pub(super) mod parts;
pub(super) mod recovery;
pub(super) mod member;
