//! What every request has at hand.

use crate::build::Builds;
use crate::build::Fetched;
use crate::config::Config;
use crate::guard::Guard;
use crate::keys::Keys;
use crate::log::Log;
use crate::owners::Owners;
use crate::rest::{Calls, Gates};
use crate::sandbox::Sandboxes;
use cofferdam_engine::{Engine, EngineError, House};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) type App = Arc<State>;

pub(crate) struct State {
    pub(crate) engine: Engine,
    /// The sessions of this state directory, in this process.
    pub(crate) house: House,
    pub(crate) config: Config,
    pub(crate) keys: Keys,
    pub(crate) sandboxes: Sandboxes,
    pub(crate) log: Log,
    pub(crate) owners: Owners,
    pub(crate) fetched: Fetched,
    pub(crate) guard: Guard,
    pub(crate) gates: Gates,
    /// Of tools, over HTTP.
    pub(crate) calls: Calls,
    pub(crate) builds: Builds,
    /// Nothing new is begun.
    pub(crate) draining: AtomicBool,
}

/// Does what waits (for a session, for a file) where waiting holds up no other request.
pub(crate) async fn blocking<T: Send + 'static>(
    app: &App,
    act: impl FnOnce(&State) -> Result<T, EngineError> + Send + 'static,
) -> Result<T, EngineError> {
    let app = app.clone();
    let joined = tokio::task::spawn_blocking(move || act(&app)).await;
    joined.unwrap_or_else(|_| Err(EngineError::Declined("the request failed inside the service".into())))
}

pub(crate) fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}
