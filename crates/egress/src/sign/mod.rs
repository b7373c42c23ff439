//! Signatures made anew: the inside signs with placeholders, which no server knows; here its signature is taken off,
//! checked against the request it covers, and one made with the real key put in its place. The key stays in the vault.
//!
//! A signature of someone else is no business of ours: it is left as it is, and never made anew. Bodies stream; only
//! where a signature covers a body whose hash is not told in the head is the body gathered, within the session's bound.

pub(crate) mod aws;
mod azure;
mod error;
pub(crate) mod frames;
mod hmac;

pub use error::SignError;

use crate::swap::state::{Entry, State};
use crate::swap::{At, Destination, Refusal, Used};
use bytes::Bytes;
use http::request::Parts;
use std::sync::Arc;

/// A signature of ours, taken off a head, and what is needed to make the real one.
pub(crate) struct Taken {
    state: Arc<State>,
    /// Whose it is, by its place in the state.
    entry: usize,
    scheme: Taking,
}

enum Taking {
    Aws(Box<aws::Taken>),
    Azure(azure::Taken),
    Hmac(Box<hmac::Taken>),
}

/// What there is of a body when a head is signed.
#[derive(Clone, Copy)]
pub(crate) enum Payload<'a> {
    Whole(&'a [u8]),
    /// It follows, and passes through what [`Taken::sign`] gives.
    Live,
}

/// Where and when a request goes out, as its signature has it.
pub(crate) struct Sending<'a> {
    /// As the `host` field will say it.
    pub(crate) authority: &'a str,
    /// Seconds since 1970.
    pub(crate) now: i64,
    /// The policy changed the request after it was signed: what its client signed cannot be told any more.
    pub(crate) rewritten: bool,
}

/// Takes a signature off that was made with a placeholder; none if there is none.
pub(crate) fn take(
    state: &Arc<State>,
    to: &Destination<'_>,
    head: &mut Parts,
) -> Result<Option<Taken>, Refusal> {
    if state.entries.iter().all(|entry| !entry.credential.signs()) {
        return Ok(None);
    }
    let of = |(entry, scheme)| Some(Taken { state: Arc::clone(state), entry, scheme });
    if let Some((entry, taken)) = aws::take(state, to, head)? {
        return Ok(of((entry, Taking::Aws(Box::new(taken)))));
    }
    if let Some((entry, taken)) = azure::take(state, to, head)? {
        return Ok(of((entry, Taking::Azure(taken))));
    }
    Ok(hmac::take(state, to, head)?.and_then(|(entry, taken)| of((entry, Taking::Hmac(Box::new(taken))))))
}

impl Taken {
    fn entry(&self) -> Option<&Entry> {
        self.state.entries.get(self.entry)
    }

    /// Tells that the credential goes along with a request.
    pub(crate) fn spend(&self, used: &mut Used) {
        if let Some(entry) = self.entry() {
            used.add(&entry.name, entry.generation);
        }
    }

    /// Whether the head can be signed only when all of the body is here.
    pub(crate) fn needs_whole(&self) -> bool {
        match &self.scheme {
            Taking::Aws(taken) => taken.needs_whole(),
            Taking::Azure(_) => false,
            Taking::Hmac(taken) => taken.needs_whole(),
        }
    }

    fn at(&self) -> At {
        match &self.scheme {
            Taking::Aws(taken) => taken.at(),
            Taking::Azure(_) => At::Header("authorization".into()),
            Taking::Hmac(taken) => taken.at(),
        }
    }

    /// Signs the head as it is now, and gives what the body has to pass through.
    pub(crate) fn sign(
        &self,
        sending: &Sending<'_>,
        head: &mut Parts,
        payload: Payload<'_>,
    ) -> Result<Option<Resign>, Refusal> {
        let Some(entry) = self.entry() else { return Ok(None) };
        let signed = match &self.scheme {
            Taking::Aws(taken) => taken.sign(entry, sending, head, payload),
            Taking::Azure(taken) => taken.sign(entry, sending, head).map(|()| None),
            Taking::Hmac(taken) => taken.sign(entry, sending, head, payload).map(|()| None),
        };
        signed.map_err(|why| entry.refuse(&self.at(), why.into()))
    }
}

/// In a time that does not tell how nearly.
fn signature_fits(ours: &str, theirs: &str) -> bool {
    cofferdam_seal::same(ours.as_bytes(), theirs.as_bytes())
}

/// Without percent escapes.
fn unescaped(text: &str) -> String {
    aws::unescaped(text)
}

/// A body under a signature: looked at, or its own signatures made anew, as it passes.
pub(crate) struct Resign {
    name: Arc<str>,
    stream: aws::Stream,
}

impl Resign {
    pub(crate) fn push(&mut self, chunk: Bytes) -> Result<Bytes, Refusal> {
        self.stream.push(chunk).map_err(|why| self.refused(why))
    }

    /// The rest, when the body has ended.
    pub(crate) fn finish(&mut self) -> Result<Bytes, Refusal> {
        self.stream.finish().map_err(|why| self.refused(why))
    }

    fn refused(&self, why: SignError) -> Refusal {
        Refusal::of(&self.name, At::Body, why.into())
    }
}
