//! Credentials that are never sent: their requests carry signatures made with them. The inside signs with
//! placeholders; here is what makes the real signature, so that a key is used where it is kept and shown nowhere.
//!
//! What a signature covers is the caller's to put together: nothing here reads a request or a clock.

mod aws;
mod azure;
mod grant;
mod hmac;
mod parts;
mod scope;

pub use aws::{AwsV4Key, AwsV4aKey};
pub use azure::azure_signature;
pub(crate) use grant::client_file;
pub use grant::{Token, TokenError, TokenRequest, token_address, token_in, token_request};
pub use hmac::{Declaration, Piece, Scheme, SchemeError, Stands};
pub(crate) use parts::{Document, Whole, read as read_document, roles, split};
pub use parts::{DocumentError, Part, Role};
pub use scope::{Scope, ScopeError};
