//! The door for the engine: listeners in, a handle out. The proxy runs on threads of its own, because those
//! who start it are not asynchronous; the handle changes it while it runs and ends it in order.

use crate::alert::Sighting;
use crate::approvals::{ApprovalError, Approvals, Held, Put};
use crate::dns::{self, Desk, Query, Receive, Stray, Tap};
use crate::front;
use crate::http::decide::is_denied_now;
use crate::http::service::{Conn, serve_h1};
use crate::rules::Rules;
use crate::session::{Config, ControlError, Session, Stats};
use crate::stream::{Accepted, Door};
use cofferdam_model::{Body, Cap, Ending, NameAsked, StrayPacket};
use cofferdam_policy::{Notice, Occasion, Policy};
use cofferdam_vault::Bound;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

/// Sockets in the sandbox's network, made by whoever made the sandbox.
pub struct Listeners {
    /// Clients that speak to a proxy.
    pub proxy: TcpListener,
    /// Streams to anywhere; their own address is where they wanted to go.
    pub transparent: Vec<TcpListener>,
    pub dns_udp: Option<UdpSocket>,
    pub dns_tcp: Option<TcpListener>,
    /// Datagrams to anywhere else, with how to read where they were meant to go.
    pub stray_udp: Vec<(UdpSocket, Receive)>,
}

/// Tells which program has opened a connection.
pub trait Callers: Send + Sync {
    /// `peer` is the program's end, `local` ours. Called once for each connection.
    fn program(&self, peer: SocketAddr, local: SocketAddr) -> Option<Arc<str>>;
}

/// Two threads carry what two cores of a sandbox can ask for; more would only cost memory.
const THREADS: usize = 2;
/// A statement's tree is walked on it; only what is used of it is memory.
const STACK: usize = 4 << 20;
/// Idle connections are closed at this pace.
const SWEEP: Duration = Duration::from_secs(15);
/// How long ending may take before what is left is dropped.
const ENDING: Duration = Duration::from_secs(2);

/// A proxy that runs. Dropping it ends it.
pub struct Handle {
    session: Arc<Session>,
    runtime: Option<Runtime>,
}

/// Begins to serve.
pub fn serve(listeners: Listeners, config: Config, callers: Option<Arc<dyn Callers>>) -> io::Result<Handle> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(2)
        .thread_stack_size(STACK)
        .thread_name("egress")
        .enable_all()
        .build()?;
    let session = Session::new(config);
    let inside = runtime.enter();
    let room = Arc::new(Semaphore::new(session.limits.connections));
    let inlet =
        |is_proxy| Inlet { session: session.clone(), room: room.clone(), callers: callers.clone(), is_proxy };
    inlet(true).listen(listeners.proxy)?;
    for listener in listeners.transparent {
        inlet(false).listen(listener)?;
    }
    let tap: Arc<dyn Tap> = session.clone();
    let desk = Desk::new(session.names.clone(), tap.clone());
    if let Some(socket) = listeners.dns_udp {
        tokio::spawn(dns::serve_udp(socket, desk.clone()));
    }
    if let Some(listener) = listeners.dns_tcp {
        tokio::spawn(dns::serve_tcp(listener, desk));
    }
    for (socket, receive) in listeners.stray_udp {
        tokio::spawn(dns::stray_udp(socket, receive, tap.clone()));
    }
    tokio::spawn(sweep(session.clone()));
    session.alerts.open(session.rules.load().alerts(), Some(runtime.handle().clone()));
    drop(inside);
    Ok(Handle { session, runtime: Some(runtime) })
}

async fn sweep(session: Arc<Session>) {
    let mut pace = tokio::time::interval(SWEEP);
    loop {
        pace.tick().await;
        session.pool.sweep();
        session.tell_repeated(Some(Instant::now()));
    }
}

struct Inlet {
    session: Arc<Session>,
    room: Arc<Semaphore>,
    callers: Option<Arc<dyn Callers>>,
    is_proxy: bool,
}

impl Inlet {
    fn listen(self, listener: TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tokio::spawn(self.run(listener));
        Ok(())
    }

    async fn run(self, listener: tokio::net::TcpListener) {
        loop {
            // With no room left the kernel's queue holds the rest back.
            let Ok(room) = self.room.clone().acquire_owned().await else { return };
            let Ok((stream, peer)) = listener.accept().await else {
                // Out of descriptors: wait for some to be closed instead of spinning.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let Ok(local) = stream.local_addr() else { continue };
            let _ = stream.set_nodelay(true);
            let program = self.callers.as_ref().and_then(|callers| callers.program(peer, local));
            let door = if self.is_proxy { Door::Proxy } else { Door::Transparent(local) };
            let session = self.session.clone();
            tokio::spawn(async move {
                front::serve(session, Accepted { stream: Box::new(stream), door, program }).await;
                drop(room);
            });
        }
    }
}

impl Handle {
    /// Hands over a stream that did not come through a listener, as from a virtual machine's channel.
    pub fn accept(&self, accepted: Accepted) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(front::serve(self.session.clone(), accepted));
        }
    }

    /// Serves what is asked of the proxy itself at one more place, to whoever knows `prefix`. Nothing goes out by it.
    pub fn listen(&self, listener: TcpListener, prefix: &str) -> io::Result<()> {
        let Some(runtime) = &self.runtime else { return Ok(()) };
        let _inside = runtime.enter();
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (session, prefix): (_, Arc<str>) = (self.session.clone(), prefix.into());
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                let conn = Conn::own(session.clone(), prefix.clone());
                tokio::spawn(serve_h1(Arc::new(conn), stream));
            }
        });
        Ok(())
    }

    /// Requests that wait for a person.
    pub fn approvals(&self) -> &Arc<Approvals> {
        &self.session.approvals
    }

    /// Asks people about something that is no request: it is listed with what else waits, and told to whoever the
    /// policy wants told. `event` is where it is on record.
    pub fn put(&self, held: Held, event: u64) -> Result<Put, ApprovalError> {
        let (destination, detail) = (format!("{} {}", held.method, held.url), held.reason.clone());
        let patience = self.session.patience();
        let question = self.session.approvals.ask(held, patience)?;
        self.session.alerts.tell(Notice::Held, &self.session.coffer, || Sighting {
            cause: "review".to_owned(),
            destination,
            detail,
            held: Some(question.number()),
            event: Some(event),
            times: 1,
            ..Sighting::default()
        });
        Ok(Put { question, patience })
    }

    /// The policy that is in force now.
    pub fn policy(&self) -> Arc<Policy> {
        self.session.rules.load().policy().clone()
    }

    /// Something happened elsewhere in the session: does what the policy wants done by itself then.
    pub fn happened(&self, occasion: &Occasion<'_>) {
        self.session.act_on(occasion);
    }

    /// Puts another policy in force: for the next request, and for what is under way, which is cut where the
    /// new one denies it. Says how many were cut.
    pub fn replace_policy(&self, rules: Rules, by: &str) -> Result<u64, ControlError> {
        let rules = Arc::new(rules);
        if let Some(heard) = &self.session.on_policy {
            heard(rules.policy());
        }
        self.session.rules.store(rules.clone());
        self.session.alerts.open(rules.alerts(), None);
        self.session.pool.clear();
        let cut = self.session.live.cut(Ending::PolicyChanged, |exchange| {
            // What was prepared in a session with a database was judged by the old one.
            exchange.asked.scheme == "postgres" || is_denied_now(&exchange.asked, &rules)
        });
        Ok(self.session.changed("policy", String::new(), by, cut)?)
    }

    /// Bounds what the session may still use, for what is under way too.
    pub fn cap(&self, cap: Cap, by: &str) -> Result<(), ControlError> {
        if let Some(heard) = &self.session.on_cap {
            heard(&cap);
        }
        self.session.tallies.set_cap(&cap);
        self.session.changed("cap", cap.to_string(), by, 0)?;
        Ok(())
    }

    /// Nothing goes out and what is under way is cut, until [`Self::resume`].
    pub fn pause(&self, by: &str) -> Result<u64, ControlError> {
        Ok(self.session.pause(by)?)
    }

    pub fn resume(&self, by: &str) -> Result<(), ControlError> {
        self.session.resume(by)?;
        Ok(())
    }

    /// Takes a credential back: refused from the next request on, and what it was sent with is cut.
    pub fn revoke(&self, name: &str, by: &str) -> Result<u64, ControlError> {
        self.session.revoke(name, by)
    }

    /// Gives a credential a new value; what was sent with the old one is cut.
    pub fn rotate(&self, bound: Bound, by: &str) -> Result<u64, ControlError> {
        let name = &bound.credential.name;
        self.session.coffer.renew(name, bound.plain, bound.parts)?;
        let cut = self.session.cut_spent(name);
        Ok(self.session.changed("rotate", name.clone(), by, cut)?)
    }

    pub fn stats(&self) -> Stats {
        self.session.stats()
    }

    /// Ends it: what waits is denied, what is under way is cut and recorded.
    pub fn shutdown(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        self.session.approvals.deny_all("the session's end");
        self.session.live.cut(Ending::SessionEnded, |_| true);
        self.session.tell_repeated(None);
        runtime.block_on(self.session.alerts.close());
        runtime.shutdown_timeout(ENDING);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.end();
    }
}

impl Tap for Session {
    fn knows(&self, name: &str) -> bool {
        self.rules.load().policy().knows(name)
    }

    fn named(&self, name: &str, address: Ipv4Addr) {
        let fact = NameAsked {
            name: self.tellable_name(name.to_owned()),
            record: "A".to_owned(),
            answer: Some(address.to_string()),
            reason: String::new(),
            times: 1,
        };
        // Nothing has left by it: what is asked of the address is recorded for itself, or does not happen.
        let _ = self.record.append(None, &Body::NameAsked(fact));
    }

    fn query(&self, query: Query) {
        let fact = NameAsked {
            name: self.tellable_name(query.name),
            record: query.kind,
            answer: None,
            reason: query.verdict.reason().to_owned(),
            times: query.times,
        };
        let (name, reason, times) = (fact.name.clone(), fact.reason.clone(), fact.times);
        let event = self.record.append(None, &Body::NameAsked(fact)).ok();
        let cause = "name".to_owned();
        self.alerts.tell(Notice::Refused, &self.coffer, || Sighting {
            cause,
            destination: name,
            detail: reason,
            event,
            times,
            ..Sighting::default()
        });
    }

    fn stray(&self, stray: Stray) {
        let fact = StrayPacket {
            protocol: "udp".to_owned(),
            destination: stray.to.map(|to| to.to_string()).unwrap_or_default(),
            bytes: stray.bytes as u64,
            reason: stray.what.to_owned(),
            times: stray.times,
        };
        let (destination, detail, times) = (fact.destination.clone(), fact.reason.clone(), fact.times);
        let event = self.record.append(None, &Body::StrayPacket(fact)).ok();
        let cause = "datagram".to_owned();
        self.alerts.tell(Notice::Refused, &self.coffer, || Sighting {
            cause,
            destination,
            detail,
            event,
            times,
            ..Sighting::default()
        });
    }
}
