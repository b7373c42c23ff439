//! One channel of the client's: what is on its way in either direction, and how far both sides have come with ending it.

use super::outside::Exit;
use super::pipe::Pipe;
use super::transport::{Done, TransportError, Writing, msg};
use cofferdam_seal::ssh::{put_string, put_u32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::AsyncWrite;
use tokio::sync::Notify;

/// What may be sent before a command runs, and then; as OpenSSH grants it.
pub(super) const FIRST_WINDOW: u32 = 0;
pub(super) const WINDOW: u32 = 2 << 20;
/// The most in one packet, either way.
pub(super) const PACKET: u32 = 64 << 10;
/// What is taken from one channel before the others have their turn.
const TURN: usize = 512 << 10;

pub(super) struct Channel {
    /// Its number there.
    theirs: u32,
    packet: usize,
    pub(super) up: Arc<Pipe>,
    pub(super) down: Arc<Pipe>,
    pub(super) errors: Arc<Pipe>,
    /// The client wants no more of it.
    pub(super) gone: Notify,
    state: Mutex<State>,
    wake: Arc<Notify>,
    upward: Arc<Notify>,
}

struct State {
    /// What we may send.
    window: u64,
    /// What the client may send.
    granted: u64,
    /// More that it may be told of.
    extra: u32,
    protocol: Option<String>,
    started: bool,
    exit: Option<Exit>,
    closed: bool,
}

impl Channel {
    /// `wake` is whoever sends to the client.
    pub(super) fn new(theirs: u32, window: u32, packet: u32, wake: Arc<Notify>, upward: Arc<Notify>) -> Self {
        let down = || Arc::new(Pipe::new(wake.clone(), upward.clone()));
        Self {
            theirs,
            packet: usize::try_from(packet.min(PACKET)).unwrap_or(1).max(1),
            up: Arc::new(Pipe::new(upward.clone(), wake.clone())),
            down: down(),
            errors: down(),
            gone: Notify::new(),
            state: Mutex::new(State {
                window: window.into(),
                granted: FIRST_WINDOW.into(),
                extra: 0,
                protocol: None,
                started: false,
                exit: None,
                closed: false,
            }),
            wake,
            upward,
        }
    }

    /// Whoever sends to the host waits for this.
    pub(super) fn upward(&self) -> Arc<Notify> {
        self.upward.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn theirs(&self) -> u32 {
        self.theirs
    }

    /// Whether this is the first thing to run on it.
    pub(super) fn start(&self) -> bool {
        !std::mem::replace(&mut self.state().started, true)
    }

    /// The version of git's protocol that the client asks for.
    pub(super) fn protocol(&self) -> Option<String> {
        self.state().protocol.clone()
    }

    pub(super) fn set_protocol(&self, text: &str) {
        self.state().protocol = Some(text.to_owned());
    }

    /// There is somebody now who takes what comes.
    pub(super) fn widen(&self) {
        let mut state = self.state();
        state.extra = WINDOW - FIRST_WINDOW;
        drop(state);
        self.wake.notify_one();
    }

    pub(super) fn adjusted(&self, more: u32) {
        let mut state = self.state();
        state.window = (state.window + u64::from(more)).min(u32::MAX.into());
        drop(state);
        self.wake.notify_one();
    }

    /// Data from the client.
    pub(super) fn came(&self, data: &[u8]) -> Done {
        let mut state = self.state();
        state.granted = state.granted.checked_sub(data.len() as u64).ok_or(TransportError::Window)?;
        drop(state);
        self.up.push(data);
        Ok(())
    }

    /// What has come and not gone on is for nobody any more.
    pub(super) fn drop_rest(&self) {
        self.down.clear();
        self.errors.clear();
    }

    /// Nothing more comes from the other side.
    pub(super) fn finish(&self, exit: Exit) {
        self.state().exit = Some(exit);
        self.down.end();
        self.errors.end();
        self.wake.notify_one();
    }

    /// The client closes it. Whether that was said to it before.
    pub(super) fn close(&self) -> bool {
        let before = std::mem::replace(&mut self.state().closed, true);
        self.up.end();
        self.gone.notify_one();
        before
    }

    /// Ask with what goes out in hand, or it may be so a moment later.
    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Makes ready what can go to the client; whether there was anything, and there may be more.
    pub(super) fn fill<W: AsyncWrite + Unpin>(&self, out: &mut Writing<W>) -> Done<bool> {
        let mut state = self.state();
        if state.closed {
            return Ok(false);
        }
        let more = u32::try_from(self.up.freed()).unwrap_or(0) + std::mem::take(&mut state.extra);
        if more > 0 {
            state.granted += u64::from(more);
            out.put_parts(&[&head(msg::WINDOW_ADJUST, self.theirs), &more.to_be_bytes()])?;
        }
        let mut turn = TURN;
        while turn > 0 && state.window > 0 && !out.is_full() {
            let most = self.packet.min(usize::try_from(state.window).unwrap_or(usize::MAX)).min(turn);
            let errors = self.errors.take(most);
            let is_error = errors.is_some();
            let Some(bytes) = errors.or_else(|| self.down.take(most)) else { break };
            state.window -= bytes.len() as u64;
            turn -= bytes.len();
            put_data(out, self.theirs, is_error, &bytes)?;
        }
        if self.down.is_done()
            && self.errors.is_done()
            && let Some(exit) = state.exit.take()
        {
            state.closed = true;
            if let Some(message) = exit.message(self.theirs) {
                out.put(&message)?;
            }
            out.put(&head(msg::EOF, self.theirs))?;
            out.put(&head(msg::CLOSE, self.theirs))?;
            return Ok(true);
        }
        Ok(turn < TURN)
    }
}

/// A message about a channel, as far as they all begin alike.
pub(super) fn head(kind: u8, channel: u32) -> [u8; 5] {
    let [a, b, c, d] = channel.to_be_bytes();
    [kind, a, b, c, d]
}

pub(super) fn put_data<W: AsyncWrite + Unpin>(
    out: &mut Writing<W>,
    channel: u32,
    is_error: bool,
    bytes: &[u8],
) -> Done {
    let length = (bytes.len() as u32).to_be_bytes();
    match is_error {
        true => out.put_parts(&[&head(msg::EXTENDED_DATA, channel), &1_u32.to_be_bytes(), &length, bytes]),
        false => out.put_parts(&[&head(msg::DATA, channel), &length, bytes]),
    }
}

/// A request about a channel, up to what is its own.
pub(super) fn request(channel: u32, name: &str, wants_reply: bool) -> Vec<u8> {
    let mut message = vec![msg::CHANNEL_REQUEST];
    put_u32(&mut message, channel);
    put_string(&mut message, name.as_bytes());
    message.push(u8::from(wants_reply));
    message
}
