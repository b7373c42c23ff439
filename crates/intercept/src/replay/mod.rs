//! Answers a session's requests from the recording of another, so that it runs again with nothing outside. A request
//! is answered with what was recorded for it, once; one that was never recorded is refused with the reason, or goes
//! the way that the rules declare. It guesses nothing and opens no connection.

mod identity;
mod nearest;
mod recording;
mod rules;
mod shelf;
mod tap;
mod volatile;

pub use recording::{Answered, Recorded, Recording, Request, Response};
pub use rules::{Ignore, Path, Rules, RulesError};
pub use shelf::{Found, Missed, Shelf};
pub use tap::{Replay, Tally};
pub use volatile::Class;
