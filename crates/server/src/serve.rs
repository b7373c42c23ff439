//! The life of the service: keys, address, sessions, connections; then, when it is told to go, what is under way ends
//! first.

use crate::app::{App, State, now_us};
use crate::build::Fetched;
use crate::config::Config;
use crate::guard::Guard;
use crate::keys::{KeyKind, Keys, KeysError};
use crate::log::{Log, Tell};
use crate::owners::Owners;
use crate::rest::Gates;
use crate::route::{self, Target};
use crate::sandbox::Sandboxes;
use crate::tls::{self, TlsError};
use crate::{e2b, guard, health, life, listen, rest};
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use cofferdam_engine::{Engine, EngineError, Stop, until_signalled};
use http::Request;
use hyper_util::server::graceful::GracefulShutdown;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use serde::Serialize;
use serde_json::json;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{0}")]
    Engine(#[from] EngineError),
    #[error("{0}")]
    Keys(#[from] KeysError),
    #[error("{0}")]
    Tls(#[from] TlsError),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: String, source: io::Error },
    #[error("{doing}: {source}")]
    Io { doing: &'static str, source: io::Error },
}

/// What people are told once, when it serves. The keys only when they were just made.
#[derive(Debug, Serialize)]
pub struct Started {
    pub url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// What clients have to trust, where it is of our own making.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authority: Option<PathBuf>,
}

/// Serves until a signal ends it.
pub fn serve(
    engine: Engine,
    config: Config,
    tell: Tell,
    started: impl FnOnce(&Started),
) -> Result<(), ServeError> {
    let stop = Stop::new()?;
    // Signals are blocked before any thread is made, so that all of them arrive in one place.
    until_signalled(&stop, || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .thread_name("serve")
            .build()
            .map_err(|source| ServeError::Io { doing: "start the service's threads", source })?;
        runtime.block_on(run(engine, config, Log(tell), started, &stop))
    })?
}

async fn run(
    engine: Engine,
    config: Config,
    log: Log,
    started: impl FnOnce(&Started),
    stop: &Stop,
) -> Result<(), ServeError> {
    let address = config.listen.clone();
    let listening = |source| ServeError::Listen { address: address.clone(), source };
    let listener = TcpListener::bind(&address).await.map_err(listening)?;
    let local = listener.local_addr().map_err(listening)?;
    let keys = Keys::open(engine.home().path())?;
    let tls = tls::open(&config.tls, config.domain.as_deref(), engine.home().path())?;
    let url = url(&config, local, tls.is_some());
    let authority = tls.as_ref().and_then(|tls| tls.authority.clone());
    let held = log.clone();
    let house = engine.hold_here(Arc::new(move |line| held.warn("session", json!({ "what": line }))))?;
    let reading = |source| ServeError::Io { doing: "read the service's sandboxes", source };
    let (sandboxes, kept) = Sandboxes::open(engine.home().path()).map_err(reading)?;
    let (draining, domain) = (AtomicBool::new(false), config.domain.clone());
    let owners = Owners::open(engine.home().path()).map_err(reading)?;
    let fetched = Fetched::open(engine.home().path()).map_err(reading)?;
    let (guard, gates) = (Guard::default(), Gates::default());
    let app: App = Arc::new(State {
        engine,
        house,
        config,
        keys,
        sandboxes,
        log,
        draining,
        owners,
        fetched,
        guard,
        gates,
        builds: Default::default(),
        calls: Default::default(),
    });
    life::recover(&app, kept);
    // Last of what may fail: keys are told once, and those of a start that failed would be known to nobody.
    let told = Started { domain, authority, ..first_keys(&app.keys, url)? };
    app.log.info("serving", json!({ "address": local.to_string() }));
    started(&told);
    accept(&app, &listener, tls.map(|tls| tls.acceptor), stop).await?;
    drop(listener);
    app.log.info("gone", json!({}));
    Ok(())
}

fn url(config: &Config, local: SocketAddr, tls: bool) -> String {
    let scheme = if tls { "https" } else { "http" };
    config.public_url.clone().unwrap_or_else(|| match local.ip().is_unspecified() {
        true => format!("{scheme}://127.0.0.1:{}", local.port()),
        false => format!("{scheme}://{local}"),
    })
}

/// The first ones, made when there are none.
fn first_keys(keys: &Keys, url: String) -> Result<Started, ServeError> {
    let mut told = Started { url, api_key: None, admin_key: None, domain: None, authority: None };
    if keys.list()?.is_empty() {
        let now = now_us();
        told.admin_key = Some(keys.create(KeyKind::Admin, "default", "first start", now)?.secret);
        told.api_key = Some(keys.create(KeyKind::Api, "default", "first start", now)?.secret);
    }
    Ok(told)
}

/// Takes connections until it is told to go; then waits for what is under way, and ends every session in order.
async fn accept(
    app: &App,
    listener: &TcpListener,
    tls: Option<TlsAcceptor>,
    stop: &Stop,
) -> Result<(), ServeError> {
    let failed = |source| ServeError::Io { doing: "wait for the end", source };
    let told = stop.as_fd().try_clone_to_owned().map_err(failed)?;
    let (tell, mut told_to_go) = tokio::sync::oneshot::channel();
    std::thread::Builder::new()
        .name("stop".into())
        .spawn(move || {
            let mut waited = [PollFd::new(&told, PollFlags::IN)];
            while let Err(Errno::INTR) = rustix::event::poll(&mut waited, None) {}
            let _ = tell.send(());
        })
        .map_err(failed)?;
    let places = Arc::new(Semaphore::new(app.config.limits.connections));
    let graceful = GracefulShutdown::new();
    let service = health::router()
        .merge(rest::router())
        .merge(e2b::router())
        .layer(axum::middleware::from_fn_with_state(app.clone(), guard::pass))
        .with_state(app.clone());
    let door = Door { app: app.clone(), service, tls };
    loop {
        let accepted = tokio::select! {
            _ = &mut told_to_go => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => take(&door, stream, &places, &graceful),
            // Out of descriptors, mostly: those who wait are served when others have gone.
            Err(error) => {
                app.log.warn("a connection could not be taken", json!({ "why": error.to_string() }));
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }
    app.draining.store(true, Ordering::SeqCst);
    app.log.info("draining", json!({ "connections": graceful.count() }));
    let _ = tokio::time::timeout(app.config.drain.0, graceful.shutdown()).await;
    life::leave(app).await;
    Ok(())
}

fn take(door: &Door, stream: TcpStream, places: &Arc<Semaphore>, graceful: &GracefulShutdown) {
    // One too many is closed at once: it is better told so than left to wait.
    let Ok(place) = places.clone().try_acquire_owned() else { return };
    let _ = stream.set_nodelay(true);
    let (door, watcher) = (door.clone(), graceful.watcher());
    tokio::spawn(async move {
        let counts = &door.app.clone().guard.counts;
        counts.connections.fetch_add(1, Ordering::Relaxed);
        match door.tls.clone() {
            None => listen::connection(door, stream, watcher).await,
            Some(tls) => {
                let shaken =
                    tokio::time::timeout(door.app.config.limits.patience.0, tls.accept(stream)).await;
                // Who does not speak it, or too slowly, is not spoken to.
                if let Ok(Ok(stream)) = shaken {
                    listen::connection(door, stream, watcher).await;
                }
            }
        }
        counts.connections.fetch_sub(1, Ordering::Relaxed);
        drop(place);
    });
}

/// What a connection leads to.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) app: App,
    service: Router,
    tls: Option<TlsAcceptor>,
}

impl Door {
    /// One request.
    pub(crate) async fn answer(self, request: Request<Body>) -> Response {
        let counts = &self.app.guard.counts;
        let began = std::time::Instant::now();
        match route::target(&self.app, &request) {
            Target::Sandbox { id, port } => {
                counts.traffic.fetch_add(1, Ordering::Relaxed);
                route::traffic(self.app, id, port, request).await
            }
            Target::Service => {
                let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
                let client = request.headers().get("package_version").and_then(|v| v.to_str().ok());
                let client = client.map(|client| client.chars().take(40).collect::<String>());
                let service = self.service.clone();
                let response = service.oneshot(request).await.unwrap_or_else(|never| match never {});
                counts.answered(response.status());
                self.app.log.debug(
                    "request",
                    json!({
                        "method": method, "path": path, "status": response.status().as_u16(), "client": client,
                        "us": began.elapsed().as_micros() as u64,
                    }),
                );
                response
            }
        }
    }
}
