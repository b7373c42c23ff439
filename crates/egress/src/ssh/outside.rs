//! The host's side: its key is checked before it hears anything of ours, then we prove that we have the credential's key,
//! and have it run one command.

use super::channel::{Channel, PACKET, WINDOW, head, put_data, request};
use super::known::Doubt;
use super::transport::{Done, Link, Role, TransportError, Writing, msg};
use super::{Refused, Visit};
use crate::exchange::{Exchange, Side};
use crate::rescue::Failure;
use crate::rules::Rules;
use crate::swap::state::Entry;
use crate::upstream::dial::Route;
use cofferdam_policy::SshCommand;
use cofferdam_seal::dsse::Nonces;
use cofferdam_seal::ssh::{Reader, SshKey, SshKeyError, fingerprint, key_kind, put_string, put_u32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;
use tokio::time::timeout;

/// How long a host may take until a command runs.
const PATIENCE: Duration = Duration::from_secs(30);
const SERVICE: &str = "ssh-connection";

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Exit {
    Status(u32),
    Signal(String),
    /// The host did not say.
    Unsaid,
}

impl Exit {
    /// As a client is told of it.
    pub(super) fn message(&self, channel: u32) -> Option<Vec<u8>> {
        match self {
            Self::Status(code) => {
                let mut message = request(channel, "exit-status", false);
                put_u32(&mut message, *code);
                Some(message)
            }
            Self::Signal(name) => {
                let mut message = request(channel, "exit-signal", false);
                put_string(&mut message, name.as_bytes());
                message.push(0);
                put_string(&mut message, b"");
                put_string(&mut message, b"");
                Some(message)
            }
            Self::Unsaid => None,
        }
    }

    pub(super) fn told(&self) -> String {
        match self {
            Self::Status(code) => format!("exit status {code}"),
            Self::Signal(name) => format!("ended by SIG{name}"),
            Self::Unsaid => "no exit status".to_owned(),
        }
    }
}

type Connection = Link<OwnedReadHalf, OwnedWriteHalf>;

/// A host that is to run a command.
pub(super) struct Host<'a> {
    pub(super) visit: &'a Visit,
    pub(super) rules: &'a Rules,
    pub(super) user: &'a str,
    pub(super) entry: &'a Entry,
}

impl Host<'_> {
    /// Has the host begin to run it.
    pub(super) async fn run(
        &self,
        command: &SshCommand,
        protocol: Option<&str>,
        wake: Arc<Notify>,
    ) -> Result<Remote, Failure> {
        let key = self.key()?;
        let visit = self.visit;
        let route = Route {
            fixed: self.rules.fixed(&visit.host).cloned(),
            host: visit.host.clone(),
            port: visit.port,
        };
        let stream = visit.session.pool.dialer().tcp(&route).await?;
        let (reading, writing) = stream.into_split();
        let ways = visit.session.known_hosts.ways(self.rules.policy(), &visit.host, visit.port);
        let mut link = Link::new(reading, writing, Role::Client(ways));
        let open = async {
            link.open().await.map_err(|error| self.failed(error))?;
            self.check(link.shown.as_deref().unwrap_or_default())?;
            self.prove(&mut link, &key).await?;
            self.start(&mut link, command, protocol).await.map_err(|error| self.failed(error))
        };
        let flow = match timeout(PATIENCE, open).await {
            Ok(flow) => flow?,
            Err(_) => return Err(self.failed(TransportError::Io(std::io::ErrorKind::TimedOut.into()))),
        };
        let print = fingerprint(link.shown.as_deref().unwrap_or_default());
        Ok(Remote { link, flow: Arc::new(flow), wake, print })
    }

    fn failed(&self, source: TransportError) -> Failure {
        Refused::Server { host: self.visit.host.clone(), source }.into()
    }

    fn key(&self) -> Result<SshKey, Failure> {
        let line = std::str::from_utf8(self.entry.plain.reveal());
        let key =
            line.map_err(|_| SshKeyError::Damaged).and_then(|line| SshKey::from_line(line, &Nonces::new()));
        Ok(key.map_err(|source| Refused::Key { name: self.entry.name.to_string(), source })?)
    }

    /// Whether the host is who it is known to be.
    fn check(&self, key: &[u8]) -> Result<(), Failure> {
        let (host, port) = (self.visit.host.clone(), self.visit.port);
        let known = &self.visit.session.known_hosts;
        let Err(doubt) = known.judge(self.rules.policy(), &host, port, key) else { return Ok(()) };
        let (place, print) = (self.visit.destination(), fingerprint(key));
        let kind = key_kind(key).unwrap_or_default().to_owned();
        Err(match doubt {
            Doubt::Unknown => {
                let port = if port == 22 { String::new() } else { format!(", port = {port}") };
                Refused::UnknownHost { place, host, port, kind, print }
            }
            Doubt::Other(known) => Refused::ChangedHost { place, kind, print, known: known.join(", ") },
            Doubt::Revoked => Refused::RevokedHost { place, print },
        }
        .into())
    }

    /// Shows that we have the key, without showing the key.
    async fn prove(&self, link: &mut Connection, key: &SshKey) -> Result<(), Failure> {
        let failed = |error| self.failed(error);
        let mut message = vec![msg::SERVICE_REQUEST];
        put_string(&mut message, b"ssh-userauth");
        send(link, &message).await.map_err(failed)?;
        let accepted = link.next().await.map_err(failed)?;
        if accepted.first() != Some(&msg::SERVICE_ACCEPT) {
            return Err(failed(unexpected(&accepted)));
        }
        for way in key.ways() {
            let mut request = vec![msg::AUTH_REQUEST];
            for part in [self.user, SERVICE, "publickey"] {
                put_string(&mut request, part.as_bytes());
            }
            request.push(1);
            put_string(&mut request, way.as_bytes());
            put_string(&mut request, key.public());
            let mut signed = Vec::with_capacity(request.len() + 64);
            put_string(&mut signed, link.session());
            signed.extend_from_slice(&request);
            let signature = key.sign(way, &signed, &Nonces::new());
            put_string(&mut request, &signature.ok_or_else(|| failed(TransportError::NoRandomness))?);
            send(link, &request).await.map_err(failed)?;
            if self.is_accepted(link).await? {
                return Ok(());
            }
        }
        let (host, name, user) = (self.visit.host.clone(), self.entry.name.to_string(), self.user.to_owned());
        Err(Refused::NotAccepted { host, name, user }.into())
    }

    async fn is_accepted(&self, link: &mut Connection) -> Result<bool, Failure> {
        loop {
            let answer = link.next().await.map_err(|error| self.failed(error))?;
            match answer.first() {
                Some(&msg::AUTH_SUCCESS) => return Ok(true),
                Some(&msg::AUTH_FAILURE) => return Ok(false),
                Some(&msg::AUTH_BANNER) => {}
                _ => return Err(self.failed(unexpected(&answer))),
            }
        }
    }

    async fn start(&self, link: &mut Connection, command: &SshCommand, protocol: Option<&str>) -> Done<Flow> {
        let mut message = vec![msg::CHANNEL_OPEN];
        put_string(&mut message, b"session");
        for number in [0, WINDOW, PACKET] {
            put_u32(&mut message, number);
        }
        send(link, &message).await?;
        let (channel, window, packet) = loop {
            let answer = link.next().await?;
            let mut reader = Reader::new(answer.get(1..).unwrap_or_default());
            match answer.first().copied().unwrap_or_default() {
                msg::OPEN_CONFIRMED => {
                    let mut read = || Some((reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?));
                    let (_, channel, window, packet) = read().ok_or(TransportError::Malformed)?;
                    break (channel, window, packet);
                }
                msg::OPEN_FAILURE => {
                    let mut read = || {
                        reader.take(8)?;
                        reader.string()
                    };
                    let text = read().map(String::from_utf8_lossy).unwrap_or_default();
                    let text = text.chars().filter(|c| !c.is_control()).take(200).collect();
                    return Err(TransportError::Told(text));
                }
                msg::GLOBAL_REQUEST => no_to_all(link, &answer).await?,
                _ => return Err(unexpected(&answer)),
            }
        };
        let mut writing = link.writing.lock().await;
        if let Some(protocol) = protocol {
            let mut message = request(channel, "env", false);
            put_string(&mut message, b"GIT_PROTOCOL");
            put_string(&mut message, protocol.as_bytes());
            writing.put(&message)?;
        }
        let mut message = request(channel, "exec", true);
        put_string(&mut message, command.to_string().as_bytes());
        writing.send(&message).await?;
        let packet = usize::try_from(packet.min(PACKET)).unwrap_or(1).max(1);
        let state = State { window: window.into(), granted: WINDOW.into() };
        Ok(Flow { channel, packet, state: Mutex::new(state) })
    }
}

async fn send(link: &mut Connection, message: &[u8]) -> Done {
    link.writing.lock().await.send(message).await
}

fn unexpected(packet: &[u8]) -> TransportError {
    TransportError::Unexpected(packet.first().copied().unwrap_or_default())
}

/// Requests about the connection: none of them is for us.
async fn no_to_all(link: &mut Connection, packet: &[u8]) -> Done {
    let mut reader = Reader::new(packet.get(1..).unwrap_or_default());
    let wants = reader.string().and_then(|_| reader.flag()).ok_or(TransportError::Malformed)?;
    if wants { send(link, &[msg::REQUEST_FAILURE]).await } else { Ok(()) }
}

/// How much may go in either direction.
struct Flow {
    channel: u32,
    packet: usize,
    state: Mutex<State>,
}

struct State {
    window: u64,
    granted: u64,
}

impl Flow {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A command that runs at a host.
pub(super) struct Remote {
    link: Connection,
    flow: Arc<Flow>,
    /// Who sends to the host.
    wake: Arc<Notify>,
    /// The host's key.
    pub(super) print: String,
}

/// Why a command ends without having come to its end.
pub(super) enum Broken {
    Cut,
    ClientGone,
    /// The host does not run it.
    NoCommand,
    Host(TransportError),
}

impl From<TransportError> for Broken {
    fn from(error: TransportError) -> Self {
        Self::Host(error)
    }
}

impl Remote {
    /// Carries bytes until the command has ended.
    pub(super) async fn carry(mut self, client: &Channel, exchange: &Exchange) -> Result<Exit, Broken> {
        let writing = self.link.writing.clone();
        let (flow, wake) = (self.flow.clone(), self.wake.clone());
        let sending = send_on(&writing, &flow, &wake, client, exchange);
        let done = tokio::select! {
            biased;
            () = exchange.until_cut(Side::Down) => Err(Broken::Cut),
            () = client.gone.notified() => Err(Broken::ClientGone),
            done = self.receive(client, exchange) => done,
            done = sending => done.and(Err(Broken::Cut)),
        };
        let ending = async {
            let mut writing = writing.lock().await;
            writing.put(&head(msg::CLOSE, flow.channel))?;
            let mut message = vec![msg::DISCONNECT];
            put_u32(&mut message, 11);
            put_string(&mut message, b"done");
            put_string(&mut message, b"");
            writing.send(&message).await?;
            writing.end().await;
            Done::Ok(())
        };
        // Whoever does not read it does not keep us.
        let _ = timeout(Duration::from_secs(1), ending).await;
        done
    }

    async fn receive(&mut self, client: &Channel, exchange: &Exchange) -> Result<Exit, Broken> {
        let mut exit = Exit::Unsaid;
        loop {
            let packet = self.link.next().await?;
            let kind = packet.first().copied().unwrap_or_default();
            let mut reader = Reader::new(packet.get(1..).unwrap_or_default());
            let malformed = || Broken::Host(TransportError::Malformed);
            match kind {
                msg::GLOBAL_REQUEST => no_to_all(&mut self.link, &packet).await?,
                msg::CHANNEL_OPEN => self.no_channel(&packet).await?,
                _ if reader.u32() != Some(0) => return Err(unexpected(&packet).into()),
                msg::DATA | msg::EXTENDED_DATA => {
                    if kind == msg::EXTENDED_DATA {
                        reader.u32().ok_or_else(malformed)?;
                    }
                    let data = reader.string().ok_or_else(malformed)?;
                    let mut state = self.flow.state();
                    let left = state.granted.checked_sub(data.len() as u64);
                    state.granted = left.ok_or(Broken::Host(TransportError::Window))?;
                    drop(state);
                    exchange.count(Side::Down, data.len());
                    if exchange.is_cut() {
                        return Err(Broken::Cut);
                    }
                    let to = if kind == msg::DATA { &client.down } else { &client.errors };
                    to.push(data);
                }
                msg::WINDOW_ADJUST => {
                    let more = reader.u32().ok_or_else(malformed)?;
                    let mut state = self.flow.state();
                    state.window = (state.window + u64::from(more)).min(u32::MAX.into());
                    drop(state);
                    self.wake.notify_one();
                }
                msg::CHANNEL_REQUEST => {
                    let name = reader.text().ok_or_else(malformed)?;
                    let wants = reader.flag().ok_or_else(malformed)?;
                    match name {
                        "exit-status" => exit = Exit::Status(reader.u32().ok_or_else(malformed)?),
                        "exit-signal" => exit = Exit::Signal(signal(reader.text().ok_or_else(malformed)?)),
                        _ => {}
                    }
                    if wants {
                        let message = head(msg::CHANNEL_FAILURE, self.flow.channel);
                        send(&mut self.link, &message).await?;
                    }
                }
                msg::CHANNEL_FAILURE => return Err(Broken::NoCommand),
                msg::EOF | msg::CHANNEL_SUCCESS => {}
                msg::CLOSE => return Ok(exit),
                _ => return Err(unexpected(&packet).into()),
            }
        }
    }

    /// A host that would open a channel to us.
    async fn no_channel(&mut self, packet: &[u8]) -> Done {
        let mut reader = Reader::new(packet.get(1..).unwrap_or_default());
        let sender = reader.string().and_then(|_| reader.u32()).ok_or(TransportError::Malformed)?;
        let mut message = vec![msg::OPEN_FAILURE];
        put_u32(&mut message, sender);
        put_u32(&mut message, 1);
        put_string(&mut message, b"not carried");
        put_string(&mut message, b"");
        send(&mut self.link, &message).await
    }
}

/// The name of a signal, as far as it is one.
fn signal(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).take(16).collect()
}

/// What the client sends, to the host; and room for what the host sends.
async fn send_on(
    writing: &tokio::sync::Mutex<Writing<OwnedWriteHalf>>,
    flow: &Flow,
    wake: &Notify,
    client: &Channel,
    exchange: &Exchange,
) -> Result<(), Broken> {
    let mut ended = false;
    loop {
        let mut busy = false;
        let mut out = writing.lock().await;
        let freed = client.down.freed() + client.errors.freed();
        if let Ok(more @ 1..) = u32::try_from(freed) {
            flow.state().granted += u64::from(more);
            out.put_parts(&[&head(msg::WINDOW_ADJUST, flow.channel), &more.to_be_bytes()])?;
        }
        while !out.is_full() {
            let window = usize::try_from(flow.state().window).unwrap_or(usize::MAX);
            let Some(bytes) = client.up.take(flow.packet.min(window)) else { break };
            flow.state().window -= bytes.len() as u64;
            exchange.count(Side::Up, bytes.len());
            if exchange.is_cut() {
                return Err(Broken::Cut);
            }
            put_data(&mut out, flow.channel, false, &bytes)?;
            busy = true;
        }
        if client.up.is_done() && !ended {
            ended = true;
            out.put(&head(msg::EOF, flow.channel))?;
        }
        out.flush().await?;
        drop(out);
        if !busy {
            wake.notified().await;
        }
    }
}
