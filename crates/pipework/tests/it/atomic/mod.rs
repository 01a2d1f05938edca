//! Module `atomic`: whole messages through real pipes, FIFOs and sockets.

mod offers;
mod waiting;
mod ending;
mod clones;
mod beside;
mod fifos;
mod sockets;
mod relays;
mod settings;
mod processes;
mod strangers;
mod storm;
mod vectors;
mod interop;
mod parts;
