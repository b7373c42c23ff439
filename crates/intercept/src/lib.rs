//! Understands what passes between an agent and the world: model APIs, tools, the browser, workflow steps; and
//! answers from a recording. It sees bytes that others carry; it opens no connection of its own.

mod body;
pub mod browser;
mod budget;
mod exchange;
mod kept;
pub mod mcp;
mod model;
mod otlp;
mod pace;
mod price;
pub mod replay;
mod socket;
pub mod steps;
mod tap;
mod told;

pub use price::{PriceError, Prices};
pub use tap::Observer;
