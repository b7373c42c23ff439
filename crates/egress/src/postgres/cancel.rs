//! Cancelling a statement: a client is given a key of ours, and only we know the server's. Who guesses keys guesses ours.

use super::wire::message;
use super::{Refused, Visit, inside, outside};
use crate::rescue::Failure;
use bytes::{BufMut, BytesMut};
use cofferdam_model::{Body, SqlDecided, Verdict};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::io::AsyncWriteExt;

/// The keys of a session's connections to databases.
#[derive(Default)]
pub(crate) struct Cancels(Mutex<HashMap<(u32, u32), Real>>);

#[derive(Clone)]
struct Real {
    host: String,
    port: u16,
    pid: u32,
    secret: Vec<u8>,
    /// The decision on its session.
    seq: u64,
}

/// A key that is good as long as this lives.
pub(super) struct Key<'a> {
    of: &'a Cancels,
    pub(super) pid: u32,
    pub(super) secret: u32,
}

impl Cancels {
    pub(super) fn put(
        &self,
        visit: &Visit,
        (pid, secret): (u32, Vec<u8>),
        seq: u64,
    ) -> Result<Key<'_>, Refused> {
        let real = Real { host: visit.host.to_string(), port: visit.port, pid, secret, seq };
        let [a, b, c, d, rest @ ..] = random::<8>()?;
        // A number of a process, as clients show it.
        let (pid, secret) = (u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff, u32::from_be_bytes(rest));
        self.lock().insert((pid, secret), real);
        Ok(Key { of: self, pid, secret })
    }

    fn get(&self, pid: u32, secret: &[u8]) -> Option<Real> {
        let secret = u32::from_be_bytes(secret.try_into().ok()?);
        self.lock().get(&(pid, secret)).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(u32, u32), Real>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Key<'_> {
    pub(super) fn write(&self, to: &mut BytesMut) {
        message(to, b'K', |to| {
            to.put_u32(self.pid);
            to.put_u32(self.secret);
        });
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        self.of.lock().remove(&(self.pid, self.secret));
    }
}

impl Visit {
    pub(super) async fn cancel(&self, pid: u32, secret: &[u8]) -> Result<(), Failure> {
        let real = self.session.cancels.get(pid, secret).ok_or(Refused::NoSuchSession)?;
        if real.host != *self.host || real.port != self.port {
            return Err(Refused::NoSuchSession.into());
        }
        self.session.is_open()?;
        let fact = SqlDecided {
            acts: vec!["cancel".to_owned()],
            effect: Verdict::Allow,
            rule: None,
            reason: "the client of this session asks for it".to_owned(),
            statement: String::new(),
            again: false,
        };
        self.session.record.append(Some(real.seq), &Body::SqlDecided(Box::new(fact)))?;
        let rules = self.session.rules.load_full();
        let (mut server, _) = outside::connect(self, &rules).await?;
        let mut bytes = BytesMut::new();
        bytes.put_u32(12 + real.secret.len() as u32);
        bytes.put_u32(80_877_102);
        bytes.put_u32(real.pid);
        bytes.put_slice(&real.secret);
        server.write_all(&bytes).await.map_err(super::broken(&self.host))?;
        // The server closes when it has done so; then the client may know.
        inside::drain(&mut server).await;
        Ok(())
    }
}

/// From the source that TLS draws from.
pub(super) fn random<const N: usize>() -> Result<[u8; N], Refused> {
    let mut bytes = [0; N];
    let source = rustls::crypto::ring::default_provider().secure_random;
    source.fill(&mut bytes).map(|()| bytes).map_err(|_| Refused::NoRandomness)
}
