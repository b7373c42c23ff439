//! Messages of the Model Context Protocol, as `mcp wrap` reads them, for the door that answers them itself.

pub use cofferdam_intercept::mcp::LONGEST;
pub use cofferdam_intercept::mcp::message::{Id, Malformed, Message, error, error_value, result};
