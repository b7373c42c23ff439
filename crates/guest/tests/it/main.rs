//! The real guest at the end of a socket, without a sandbox around it.

mod commands;
mod faults;
mod harness;
mod streams;
mod terminal;
