//! Module `broadcast`: one message to many receivers.

mod vectors;
