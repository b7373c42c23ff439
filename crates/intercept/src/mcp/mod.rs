//! Tool calls of the Model Context Protocol, between a client and a server that trust neither each other nor us:
//! every message is read, what does something is judged and put on record before the other side hears of it, and
//! what the protocol does not allow goes nowhere. It carries no bytes itself.

mod call;
mod declared;
mod http;
pub(crate) mod json;
mod judge;
mod listing;
mod mediator;
pub mod message;
mod over;
mod pins;
mod stream;
mod subject;

pub use http::{PinStore, Servers};
pub use judge::{Happened, InForce, Judge};
pub use mediator::{Held, Mediator, Out, Tools};
pub use pins::Pins;

/// The longest message of either side.
pub const LONGEST: usize = 16 << 20;

#[cfg(test)]
mod tests;
