//! Sealed secrets and their placeholders: one encrypted file, the sources that values come from, and the texts that
//! stand for them inside a sandbox. The plain value leaves through one call, [`Plain::reveal`].
//!
//! It sends nothing and prints nothing; what needs the kernel's keyring or a person asks through [`Unlock`].

mod credential;
mod draft;
mod host;
mod place;
mod placeholder;
mod plain;
mod preset;
mod sealed;
mod sign;
mod source;
mod value;
mod vault;

pub use credential::{Bound, Credential, CredentialError};
pub use draft::{Draft, Remark};
pub use host::HostError;
pub use place::{Place, PlaceError};
pub use placeholder::PlaceholderError;
pub use plain::Plain;
pub use preset::{PRESETS, Preset, PresetError};
pub use sealed::{KeyKind, Unlock, VaultError};
pub use sign::{
    AwsV4Key, AwsV4aKey, Declaration, DocumentError, Part, Piece, Role, Scheme, SchemeError, Scope,
    ScopeError, Stands, Token, TokenError, TokenRequest, azure_signature, token_address, token_in,
    token_request,
};
pub use source::{CommandError, KvError, Outside, Source, SourceError};
pub use value::ValueError;
pub use vault::{Entry, Kept, SecretError, Vault};
