//! Packets between two ends: what each calls itself, the keys they agree on, and packets sealed with them (RFC 4253). The
//! same for both roles, because we have both. Who has agreed strictly (no packet may be slipped in before the keys are
//! there) is held to it.

use super::negotiate::{self, Offer};
use bytes::{BufMut, Bytes, BytesMut};
use cofferdam_seal::Hash;
use cofferdam_seal::dsse::Nonces;
use cofferdam_seal::ssh::{Ephemeral, HostKey, Opening, Reader, Sealing, TAG, put_string, verify};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;
use zeroize::Zeroizing;

/// As OpenSSH has it; a standard packet is far shorter.
const MAX_PACKET: usize = 256 << 10;
/// After so many packets under one key it is no longer safe, and nobody sends so many.
const MOST_PACKETS: u64 = 1 << 31;
/// What is sent at once.
const FLUSH: usize = 128 << 10;
const OUR_NAME: &[u8] = b"SSH-2.0-Cofferdam";
/// The longest line in which an end names itself, and what a server may say before it.
const MAX_LINE: usize = 255;
const MAX_LINES: usize = 64;

pub(super) mod msg {
    pub(crate) const DISCONNECT: u8 = 1;
    pub(crate) const IGNORE: u8 = 2;
    pub(crate) const UNIMPLEMENTED: u8 = 3;
    pub(crate) const DEBUG: u8 = 4;
    pub(crate) const SERVICE_REQUEST: u8 = 5;
    pub(crate) const SERVICE_ACCEPT: u8 = 6;
    pub(crate) const EXT_INFO: u8 = 7;
    pub(crate) const KEXINIT: u8 = 20;
    pub(crate) const NEWKEYS: u8 = 21;
    pub(crate) const ECDH_INIT: u8 = 30;
    pub(crate) const ECDH_REPLY: u8 = 31;
    pub(crate) const AUTH_REQUEST: u8 = 50;
    pub(crate) const AUTH_FAILURE: u8 = 51;
    pub(crate) const AUTH_SUCCESS: u8 = 52;
    pub(crate) const AUTH_BANNER: u8 = 53;
    pub(crate) const GLOBAL_REQUEST: u8 = 80;
    pub(crate) const REQUEST_SUCCESS: u8 = 81;
    pub(crate) const REQUEST_FAILURE: u8 = 82;
    pub(crate) const CHANNEL_OPEN: u8 = 90;
    pub(crate) const OPEN_CONFIRMED: u8 = 91;
    pub(crate) const OPEN_FAILURE: u8 = 92;
    pub(crate) const WINDOW_ADJUST: u8 = 93;
    pub(crate) const DATA: u8 = 94;
    pub(crate) const EXTENDED_DATA: u8 = 95;
    pub(crate) const EOF: u8 = 96;
    pub(crate) const CLOSE: u8 = 97;
    pub(crate) const CHANNEL_REQUEST: u8 = 98;
    pub(crate) const CHANNEL_SUCCESS: u8 = 99;
    pub(crate) const CHANNEL_FAILURE: u8 = 100;
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum TransportError {
    #[error("the connection broke ({0})")]
    Io(#[from] io::Error),
    #[error("the connection was closed")]
    Closed,
    #[error("it does not speak SSH 2")]
    NotSsh,
    #[error("a packet says it has {0} bytes")]
    TooLong(usize),
    #[error("a packet cannot be read")]
    Malformed,
    #[error("a packet is not what was sealed")]
    Forged,
    #[error("there is no {0} that both sides know; it offers {1}")]
    NoCommon(&'static str, String),
    #[error("a message of the kind {0} came where it does not belong")]
    Unexpected(u8),
    #[error("the host's proof of its key is wrong")]
    HostProof,
    #[error("it shows another host key than a moment ago")]
    OtherKey,
    #[error("more was sent than there is room for")]
    Window,
    #[error("the keys are spent: connect again")]
    Spent,
    #[error("there is no randomness on this machine")]
    NoRandomness,
    #[error("it ends the connection: {0}")]
    Told(String),
}

pub(super) type Done<T = ()> = Result<T, TransportError>;

/// What both ends know now, and the hash of how they came to know it.
type Agreement = (Zeroizing<Vec<u8>>, Vec<u8>);

fn malformed<T>(found: Option<T>) -> Done<T> {
    found.ok_or(TransportError::Malformed)
}

/// What comes in.
pub(super) struct Reading<R> {
    stream: R,
    held: BytesMut,
    /// The length of the packet at the start, once that is known.
    next: Option<usize>,
    opening: Option<Opening>,
    sequence: u32,
    packets: u64,
}

impl<R: AsyncRead + Unpin> Reading<R> {
    fn new(stream: R) -> Self {
        let held = BytesMut::with_capacity(FLUSH);
        Self { stream, held, next: None, opening: None, sequence: 0, packets: 0 }
    }

    async fn more(&mut self) -> Done {
        self.held.reserve(FLUSH);
        match self.stream.read_buf(&mut self.held).await? {
            0 => Err(TransportError::Closed),
            _ => Ok(()),
        }
    }

    /// A line without its end.
    async fn line(&mut self) -> Done<Vec<u8>> {
        loop {
            if let Some(at) = self.held.iter().take(MAX_LINE + 1).position(|byte| *byte == b'\n') {
                let mut line = self.held.split_to(at + 1);
                line.truncate(at);
                let line = line.strip_suffix(b"\r").unwrap_or(&line);
                return Ok(line.to_vec());
            }
            if self.held.len() > MAX_LINE {
                return Err(TransportError::NotSsh);
            }
            self.more().await?;
        }
    }

    async fn packet(&mut self) -> Done<Bytes> {
        loop {
            if let Some(payload) = self.whole()? {
                return Ok(payload);
            }
            self.more().await?;
        }
    }

    /// What the packet at the start says, if all of it is there.
    fn whole(&mut self) -> Done<Option<Bytes>> {
        let tag = if self.opening.is_some() { TAG } else { 0 };
        let length = match (self.next, self.held.first_chunk::<4>()) {
            (Some(length), _) => length,
            (None, None) => return Ok(None),
            (None, Some(first)) => {
                let length = match &self.opening {
                    Some(opening) => opening.length(self.sequence, *first),
                    None => u32::from_be_bytes(*first),
                };
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                if !(6..=MAX_PACKET).contains(&length) {
                    return Err(TransportError::TooLong(length));
                }
                self.next = Some(length);
                length
            }
        };
        let total = 4 + length + tag;
        if self.held.len() < total {
            return Ok(None);
        }
        let mut packet = self.held.split_to(total);
        self.next = None;
        if let Some(opening) = &mut self.opening {
            opening.open(self.sequence, &mut packet).map_err(|_| TransportError::Forged)?;
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.packets += 1;
        if self.packets > MOST_PACKETS {
            return Err(TransportError::Spent);
        }
        let padding = usize::from(*malformed(packet.get(4))?);
        let end = malformed((4 + length).checked_sub(padding).filter(|end| *end > 5))?;
        let packet = packet.freeze();
        Ok(Some(packet.slice(5..end)))
    }

    fn rekey(&mut self, opening: Opening, strict: bool) {
        self.opening = Some(opening);
        self.packets = 0;
        if strict {
            self.sequence = 0;
        }
    }
}

/// What goes out.
pub(super) struct Writing<W> {
    stream: W,
    out: BytesMut,
    sealing: Option<Sealing>,
    sequence: u32,
    packets: u64,
}

impl<W: AsyncWrite + Unpin> Writing<W> {
    fn new(stream: W) -> Self {
        Self { stream, out: BytesMut::with_capacity(FLUSH), sealing: None, sequence: 0, packets: 0 }
    }

    /// Makes packets ready; they go with the next flush.
    pub(super) fn put(&mut self, payload: &[u8]) -> Done {
        self.put_parts(&[payload])
    }

    pub(super) fn put_parts(&mut self, parts: &[&[u8]]) -> Done {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        // The length itself counts only where it is not sealed.
        let (block, counted, tag) = if self.sealing.is_some() { (16, 0, TAG) } else { (8, 4, 0) };
        let padding = block - (counted + 1 + length) % block;
        let padding = if padding < 4 { padding + block } else { padding };
        let start = self.out.len();
        self.out.reserve(4 + 1 + length + padding + tag);
        self.out.put_u32((1 + length + padding) as u32);
        self.out.put_u8(padding as u8);
        parts.iter().for_each(|part| self.out.put_slice(part));
        self.out.put_bytes(0, padding + tag);
        if let Some(sealing) = &mut self.sealing {
            sealing.seal(self.sequence, &mut self.out[start..]).map_err(|_| TransportError::Forged)?;
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.packets += 1;
        if self.packets > MOST_PACKETS { Err(TransportError::Spent) } else { Ok(()) }
    }

    /// Whether so much is ready that it should go.
    pub(super) fn is_full(&self) -> bool {
        self.out.len() >= FLUSH
    }

    pub(super) async fn flush(&mut self) -> Done {
        self.stream.write_all_buf(&mut self.out).await?;
        self.stream.flush().await?;
        Ok(())
    }

    pub(super) async fn send(&mut self, payload: &[u8]) -> Done {
        self.put(payload)?;
        self.flush().await
    }

    pub(super) async fn end(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    fn rekey(&mut self, sealing: Sealing, strict: bool) {
        self.sealing = Some(sealing);
        self.packets = 0;
        if strict {
            self.sequence = 0;
        }
    }
}

/// Which end we are, and what is shown or wanted of the host's key.
pub(super) enum Role {
    Server(Arc<HostKey>),
    /// The ways in which the host may prove itself.
    Client(Vec<&'static str>),
}

/// One end of a connection. What goes out can be shared; while new keys are agreed on, nobody else sends.
pub(super) struct Link<R, W> {
    pub(super) reading: Reading<R>,
    pub(super) writing: Arc<Mutex<Writing<W>>>,
    role: Role,
    ours: Vec<u8>,
    theirs: Vec<u8>,
    /// The hash of the first agreement, which names the session.
    session: Option<Vec<u8>>,
    strict: bool,
    /// The host's key, as it was shown; for a client.
    pub(super) shown: Option<Vec<u8>>,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Link<R, W> {
    pub(super) fn new(reading: R, writing: W, role: Role) -> Self {
        Self {
            reading: Reading::new(reading),
            writing: Arc::new(Mutex::new(Writing::new(writing))),
            role,
            ours: OUR_NAME.to_vec(),
            theirs: Vec::new(),
            session: None,
            strict: false,
            shown: None,
        }
    }

    pub(super) fn session(&self) -> &[u8] {
        self.session.as_deref().unwrap_or_default()
    }

    /// Names and first keys. A client has to look at the key that was shown before it says anything.
    pub(super) async fn open(&mut self) -> Done {
        {
            let mut writing = self.writing.lock().await;
            let line = [self.ours.as_slice(), b"\r\n"].concat();
            writing.stream.write_all(&line).await?;
            writing.stream.flush().await?;
        }
        let before = if matches!(self.role, Role::Client(_)) { MAX_LINES } else { 0 };
        let mut lines = 0;
        self.theirs = loop {
            let line = self.reading.line().await?;
            if line.starts_with(b"SSH-2.0-") || (before > 0 && line.starts_with(b"SSH-1.99-")) {
                break line;
            }
            // A server may say something first, but not that it is another kind of SSH.
            if lines >= before || line.starts_with(b"SSH-") {
                return Err(TransportError::NotSsh);
            }
            lines += 1;
        };
        self.exchange(None).await
    }

    /// The next message that is about more than the connection itself.
    pub(super) async fn next(&mut self) -> Done<Bytes> {
        loop {
            let packet = self.reading.packet().await?;
            match packet.first().copied().unwrap_or_default() {
                msg::DISCONNECT => return Err(told(&packet)),
                msg::IGNORE | msg::DEBUG | msg::UNIMPLEMENTED | msg::EXT_INFO => {}
                msg::KEXINIT => self.exchange(Some(packet)).await?,
                kind @ (msg::NEWKEYS..50) => return Err(TransportError::Unexpected(kind)),
                _ => return Ok(packet),
            }
        }
    }

    /// The next packet of an agreement that is under way.
    async fn of_exchange(&mut self, expected: u8) -> Done<Bytes> {
        loop {
            let packet = self.reading.packet().await?;
            let kind = packet.first().copied().unwrap_or_default();
            match kind {
                _ if kind == expected => return Ok(packet),
                msg::DISCONNECT => return Err(told(&packet)),
                // Before the first keys nobody vouches for what comes.
                msg::IGNORE | msg::DEBUG | msg::UNIMPLEMENTED if self.session.is_some() || !self.strict => {}
                _ => return Err(TransportError::Unexpected(kind)),
            }
        }
    }

    async fn exchange(&mut self, theirs: Option<Bytes>) -> Done {
        let writing = self.writing.clone();
        let mut writing = writing.lock().await;
        let nonces = Nonces::new();
        let is_first = self.session.is_none();
        let is_client = matches!(self.role, Role::Client(_));
        let offer = match &self.role {
            Role::Server(_) => Offer { host_keys: vec![HostKey::KIND], is_client, is_first },
            Role::Client(ways) => Offer { host_keys: ways.clone(), is_client, is_first },
        };
        let ours = offer.message().ok_or(TransportError::NoRandomness)?;
        writing.send(&ours).await?;
        let (theirs, came_first) = match theirs {
            Some(packet) => (packet, true),
            None => {
                let packet = self.of_exchange(msg::KEXINIT).await?;
                (packet, self.reading.sequence == 1)
            }
        };
        let agreed = negotiate::agree(&offer, &theirs)?;
        if is_first {
            self.strict = agreed.strict;
            if self.strict && !came_first {
                return Err(TransportError::Unexpected(msg::IGNORE));
            }
        }
        if agreed.guessed_wrong {
            self.reading.packet().await?;
        }
        let half = Ephemeral::new(agreed.agreement, &nonces).ok_or(TransportError::NoRandomness)?;
        let (secret, hash) = match is_client {
            true => self.as_client(&mut writing, half, (&ours[..], &theirs[..]), agreed.host_key).await?,
            false => self.as_server(&mut writing, half, (&theirs[..], &ours[..])).await?,
        };
        writing.send(&[msg::NEWKEYS]).await?;
        let session = self.session.get_or_insert_with(|| hash.clone()).clone();
        let known = (&secret[..], &hash[..], &session[..]);
        let (up, down) = agreed.ciphers;
        let (out, back) = if is_client { (up, down) } else { (down, up) };
        writing.rekey(malformed(Sealing::new(out, known, is_client))?, self.strict);
        self.of_new_keys(is_first).await?;
        let opening = Opening::new(back, known, !is_client).ok_or(TransportError::Malformed)?;
        self.reading.rekey(opening, self.strict);
        Ok(())
    }

    async fn as_client(
        &mut self,
        writing: &mut Writing<W>,
        half: Ephemeral,
        inits: (&[u8], &[u8]),
        way: &str,
    ) -> Done<Agreement> {
        let our_half = half.public().to_vec();
        let mut message = vec![msg::ECDH_INIT];
        put_string(&mut message, &our_half);
        writing.send(&message).await?;
        let reply = self.of_exchange(msg::ECDH_REPLY).await?;
        let mut reader = Reader::new(reply.get(1..).unwrap_or_default());
        let key = malformed(reader.string())?;
        let their_half = malformed(reader.string())?;
        let proof = malformed(reader.string())?;
        let secret = malformed(half.agree(their_half))?;
        let hash = self.hash(inits, key, (&our_half, their_half), &secret);
        verify(way, key, &hash, proof).map_err(|_| TransportError::HostProof)?;
        if self.shown.as_deref().is_some_and(|shown| shown != key) {
            return Err(TransportError::OtherKey);
        }
        self.shown = Some(key.to_vec());
        Ok((secret, hash))
    }

    async fn as_server(
        &mut self,
        writing: &mut Writing<W>,
        half: Ephemeral,
        inits: (&[u8], &[u8]),
    ) -> Done<Agreement> {
        let our_half = half.public().to_vec();
        let init = self.of_exchange(msg::ECDH_INIT).await?;
        let their_half = malformed(Reader::new(init.get(1..).unwrap_or_default()).string())?;
        let secret = malformed(half.agree(their_half))?;
        let Role::Server(key) = &self.role else { return Err(TransportError::Malformed) };
        let hash = self.hash(inits, key.public(), (their_half, &our_half), &secret);
        let mut reply = vec![msg::ECDH_REPLY];
        put_string(&mut reply, key.public());
        put_string(&mut reply, &our_half);
        put_string(&mut reply, &key.sign(&hash));
        writing.put(&reply)?;
        Ok((secret, hash))
    }

    /// Nothing may be slipped in before the first keys are used.
    async fn of_new_keys(&mut self, is_first: bool) -> Done<Bytes> {
        if is_first && self.strict {
            let packet = self.reading.packet().await?;
            return match packet.first() {
                Some(&msg::NEWKEYS) => Ok(packet),
                Some(&msg::DISCONNECT) => Err(told(&packet)),
                other => Err(TransportError::Unexpected(other.copied().unwrap_or_default())),
            };
        }
        self.of_exchange(msg::NEWKEYS).await
    }

    /// Over all that was said so far: whoever changed a byte of it has another one.
    fn hash(&self, inits: (&[u8], &[u8]), key: &[u8], halves: (&[u8], &[u8]), secret: &[u8]) -> Vec<u8> {
        let (client, server) = match self.role {
            Role::Client(_) => (&self.ours, &self.theirs),
            Role::Server(_) => (&self.theirs, &self.ours),
        };
        // Large enough for all of it: what is moved on leaves a copy behind.
        let parts = [client, server, inits.0, inits.1, key, halves.0, halves.1];
        let size = parts.iter().map(|part| part.len() + 4).sum::<usize>() + secret.len();
        let mut text = Zeroizing::new(Vec::with_capacity(size));
        for part in parts {
            put_string(&mut text, part);
        }
        text.extend_from_slice(secret);
        Hash::Sha256.digest(&text)
    }
}

/// What an end says that goes away.
fn told(packet: &[u8]) -> TransportError {
    let mut reader = Reader::new(packet.get(1..).unwrap_or_default());
    let text = reader.u32().and_then(|_| reader.string()).map(String::from_utf8_lossy).unwrap_or_default();
    TransportError::Told(text.chars().filter(|c| !c.is_control()).take(200).collect())
}

#[cfg(test)]
mod tests;
