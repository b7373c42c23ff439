//! A session's browser, driven by the DevTools protocol: every command of a client passes through here before the
//! browser hears of it. What a person would call an action (a click, a text, a place to go) is described, judged by
//! the policy and put on record; the rest is carried. Clients cannot see or steer each other.
//!
//! It is asked message by message and says what to send where; it listens nowhere and starts nothing.

mod act;
mod clients;
mod element;
mod endpoint;
mod events;
mod judge;
mod mask;
mod mediator;
mod message;
mod state;
mod subject;
#[cfg(test)]
mod tests;

pub use endpoint::Where;
pub use mediator::{Held, Mediator, Out};

/// The longest message of a client.
pub const LONGEST: usize = 16 << 20;
/// The longest of the browser: pictures and whole documents come in one.
pub const LONGEST_ANSWER: usize = 128 << 20;
