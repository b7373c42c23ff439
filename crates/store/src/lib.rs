//! Everything Cofferdam keeps between two runs: the state directory, its keys and an index over traces.
//!
//! The only crate with SQL, and the only one that knows where things lie in the state directory. Traces
//! themselves are files that `trace` writes; here they are only found, listed and removed. The index is a cache:
//! whatever happens to it, it is built again from the traces and no user hears of it.
//!
//! ```text
//! $COFFERDAM_HOME/          0700, owned by the caller
//!   keys/signing.pem        0600, made on first use
//!   trusted/*.pem           public keys whose traces are believed
//!   traces/<id>/            bundles
//!   next/                   an empty bundle for the next trace, made ahead
//!   layers/<id>/            writable layers of running sessions, and journals of commits
//!   conflicts/<name>/       what commits left out: the inside's versions of what was changed outside as well
//!   live/<id>.sock          where a running session is reached
//!   vault.sealed            secrets, encrypted; with vault.key (unless another key is chosen) and vault.lock
//!   staging/*/              always empty outside; sandboxes are put together on them
//!   index.sqlite            the cache
//! ```

mod bundles;
mod catalog;
mod home;
mod index;
mod keys;

pub use bundles::{Bundles, BundlesError, LocalBundles, Stamp};
pub use catalog::{Catalog, CatalogError};
pub use home::{Home, HomeError, default_home};
pub use index::{Index, IndexError, SqliteIndex, Summary, TraceState};
pub use keys::{KeyStoreError, Rotated};
