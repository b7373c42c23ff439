//! How others come to know of a session that begins: by an entry in the register and a socket, both made while its
//! sandbox comes into being. Who asks it before it stands waits.

use super::mail::{Mailbox, Post, mailbox};
use super::meter::Meter;
use super::{plead, register};
use crate::Engine;
use crate::control::{Desk, Socket};
use crate::error::EngineError;
use crate::relay::Relay;
use crate::standing::Standing;
use cofferdam_model::{Counters, LiveState, SessionId, SessionInfo, SessionSpec};
use std::path::Path;
use std::time::{Duration, Instant};

/// What is on file of a session that begins.
pub(super) fn entry(
    session: &SessionId,
    spec: &SessionSpec,
    workdir: &Path,
    (started_us, ttl, policy): (u64, Option<Duration>, bool),
) -> SessionInfo {
    SessionInfo {
        session: session.clone(),
        state: LiveState::Running,
        reason: None,
        live: Some(spec.live.clone()),
        started_us,
        until_us: ttl.map(|ttl| started_us + ttl.as_micros() as u64),
        workdir: workdir.to_owned(),
        policy,
        running: 0,
        browser: None,
        transactions: 0,
        execs: Vec::new(),
        usage: Counters::default(),
    }
}

/// Has others know of a session: who asks it waits until it stands.
pub(super) fn announce(engine: &Engine, entry: &SessionInfo) -> Result<Socket, EngineError> {
    register::enter(&engine.home, entry)?;
    Socket::of(&engine.home, &entry.session)
}

/// What a session that stands needs to be held: a way to its guest and one for people, and what counts its use.
pub(super) fn reached(
    standing: &mut Standing,
    spec: &SessionSpec,
    socket: Socket,
) -> Result<(Relay, Mailbox, Post, Meter), EngineError> {
    if spec.live.idle.is_some() {
        // What is to pause by itself must be able to.
        standing.sandbox.pause()?;
        standing.sandbox.resume()?;
    }
    let channel = standing.sandbox.take_channel().ok_or(EngineError::NoChannel)?;
    let meter = Meter::new(&standing.home, &standing.session, Instant::now());
    let (mailbox, post) = mailbox()?;
    standing.control = Some(socket.answered_by(Desk {
        home: standing.home.clone(),
        session: standing.session.clone(),
        handle: standing.egress.as_ref().map(|egress| egress.handle.clone()),
        derived: standing.egress.as_ref().map(|egress| egress.derived.clone()).unwrap_or_default(),
        mail: Some(mailbox.clone()),
    })?);
    Ok((plead::relay(channel, spec)?, mailbox, post, meter))
}
