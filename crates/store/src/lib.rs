//! Everything Cofferdam keeps between two runs: the state directory, its keys, the marks of running sessions,
//! and an index over traces.
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
//!   layers/<id>/            writable layers of running sessions
//!   staging/               always empty outside; roots of sandboxes are put together on it
//!   live/<id>               locked while its session runs; says what to clean up if it dies
//!   index.sqlite            the cache
//! ```

mod bundles;
mod catalog;
mod home;
mod index;
mod keys;
mod lease;

pub use bundles::{Bundles, BundlesError, LocalBundles, Stamp};
pub use catalog::{Catalog, CatalogError};
pub use home::{Home, HomeError, default_home};
pub use index::{Index, IndexError, SqliteIndex, Summary, TraceState};
pub use keys::{KeyStoreError, Rotated};
pub use lease::{Estate, Lease, LeaseError, StaleLease};
