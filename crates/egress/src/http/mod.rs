//! One request from its head to the end of its answer; a file per step.

pub(crate) mod body;
pub(crate) mod decide;
mod doh;
pub(crate) mod flow;
pub(crate) mod forward;
pub(crate) mod hop;
pub(crate) mod identify;
mod mended;
pub(crate) mod mint;
mod prepare;
mod rewrite;
pub(crate) mod service;
mod tapped;
pub(crate) mod upgrade;
mod websocket;
