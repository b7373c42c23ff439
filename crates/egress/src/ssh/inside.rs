//! The client's side. Whoever comes from the sandbox is let in under the name that it gives, for a connection opens
//! nothing by itself; what it asks for is answered one by one, and what is refused is refused in words where SSH has
//! room for them.

use super::channel::{Channel, FIRST_WINDOW, PACKET, head};
use super::outside::{Broken, Exit, Host};
use super::transport::{Done, Link, Role, TransportError, Writing, msg};
use super::{Refused, Visit};
use crate::front::Stream;
use crate::rescue::{self, Failure};
use cofferdam_model::Ending;
use cofferdam_policy::SshCommand;
use cofferdam_seal::ssh::{Reader, put_string, put_u32};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Commands at one time on one connection; as many as OpenSSH's own server allows.
const MOST_CHANNELS: usize = 10;
/// How often a client may ask to be let in before it is clear that it does not listen.
const MOST_ATTEMPTS: usize = 6;
const MOST_USER: usize = 256;
/// What a command that is refused exits with: found, and not run.
const REFUSED: u32 = 126;
/// Every client of Debian's sends these; nobody misses them.
const LOCALE: &[&str] = &["LANG", "LANGUAGE", "COLORTERM", "TERM", "NO_COLOR"];

type Client = Link<ReadHalf<Stream>, WriteHalf<Stream>>;

impl Visit {
    /// Carries a stream to its end.
    pub(crate) async fn serve(self, stream: Stream) -> Result<(), Failure> {
        let (reading, writing) = tokio::io::split(stream);
        let mut link = Link::new(reading, writing, Role::Server(self.session.ca.host_key()));
        let enter = async {
            link.open().await?;
            let_in(&mut link).await
        };
        let user = match timeout(self.session.limits.head_time, enter).await {
            Ok(Ok(user)) => user,
            Ok(Err(error)) => return left(error),
            Err(_) => return Err(Refused::Late.into()),
        };
        self.session.coffer.check_name(&user)?;
        let Ok(_place) = self.session.ssh.clone().try_acquire_owned() else {
            return Err(Refused::Busy.into());
        };
        let writing = link.writing.clone();
        let inside =
            Arc::new(Inside { visit: self, user, writing, channels: Mutex::default(), wake: Arc::default() });
        // Commands end with the connection that they were asked for on.
        let mut commands = JoinSet::new();
        let done = tokio::select! {
            done = inside.read(&mut link, &mut commands) => done,
            done = inside.write() => done,
        };
        match done {
            Ok(()) => Ok(()),
            Err(error) => left(error),
        }
    }
}

/// That a client has gone away is nothing to tell; what it did before is on record.
fn left(error: TransportError) -> Result<(), Failure> {
    match error {
        TransportError::Io(_) | TransportError::Closed | TransportError::Told(_) => Ok(()),
        error => Err(Refused::Client(error).into()),
    }
}

async fn send(link: &mut Client, message: &[u8]) -> Done {
    link.writing.lock().await.send(message).await
}

/// The name under which the client comes. Nothing is proven by it, and nothing has to be.
async fn let_in(link: &mut Client) -> Done<String> {
    for _ in 0..MOST_ATTEMPTS {
        let packet = link.next().await?;
        let mut reader = Reader::new(packet.get(1..).unwrap_or_default());
        let malformed = || TransportError::Malformed;
        match packet.first().copied().unwrap_or_default() {
            msg::SERVICE_REQUEST => {
                let service = reader.string().ok_or_else(malformed)?;
                let mut message = vec![msg::SERVICE_ACCEPT];
                put_string(&mut message, service);
                send(link, &message).await?;
            }
            msg::AUTH_REQUEST => {
                let user = reader.text().ok_or_else(malformed)?;
                if user.len() > MOST_USER || user.contains(char::is_control) {
                    return Err(TransportError::Malformed);
                }
                send(link, &[msg::AUTH_SUCCESS]).await?;
                return Ok(user.to_owned());
            }
            kind => return Err(TransportError::Unexpected(kind)),
        }
    }
    Err(TransportError::Malformed)
}

/// What follows a request once it is answered.
enum Then {
    Nothing,
    Run(Vec<u8>),
    Refuse(Failure),
}

/// A connection that is open.
struct Inside {
    visit: Visit,
    user: String,
    writing: Arc<tokio::sync::Mutex<Writing<WriteHalf<Stream>>>>,
    channels: Mutex<BTreeMap<u32, Arc<Channel>>>,
    /// There is something to send.
    wake: Arc<Notify>,
}

impl Inside {
    fn channels(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Channel>>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what comes back, all channels in turn.
    async fn write(&self) -> Done {
        loop {
            let all: Vec<_> = self.channels().values().cloned().collect();
            let mut busy = false;
            let mut out = self.writing.lock().await;
            for channel in all {
                busy |= channel.fill(&mut out)?;
            }
            out.flush().await?;
            drop(out);
            if !busy {
                self.wake.notified().await;
            }
        }
    }

    async fn reply(&self, message: &[u8]) -> Done {
        self.writing.lock().await.send(message).await
    }

    async fn read(self: &Arc<Self>, link: &mut Client, commands: &mut JoinSet<()>) -> Done {
        loop {
            let packet = link.next().await?;
            let kind = packet.first().copied().unwrap_or_default();
            let mut reader = Reader::new(packet.get(1..).unwrap_or_default());
            let malformed = || TransportError::Malformed;
            match kind {
                msg::GLOBAL_REQUEST => self.global(&mut reader).await?,
                msg::CHANNEL_OPEN => self.open(&mut reader).await?,
                msg::REQUEST_SUCCESS | msg::REQUEST_FAILURE | msg::AUTH_REQUEST => {}
                msg::WINDOW_ADJUST
                | msg::DATA
                | msg::EXTENDED_DATA
                | msg::EOF
                | msg::CLOSE
                | msg::CHANNEL_REQUEST => {
                    let number = reader.u32().ok_or_else(malformed)?;
                    // What is said of a channel after it was closed crossed that on its way.
                    let Some(channel) = self.channels().get(&number).cloned() else { continue };
                    match kind {
                        msg::WINDOW_ADJUST => channel.adjusted(reader.u32().ok_or_else(malformed)?),
                        msg::DATA => channel.came(reader.string().ok_or_else(malformed)?)?,
                        msg::EOF => channel.up.end(),
                        msg::CLOSE => self.close(number, &channel).await?,
                        msg::CHANNEL_REQUEST => self.request(&channel, &mut reader, commands).await?,
                        // Nothing that we carry has a second stream upward.
                        _ => return Err(TransportError::Unexpected(kind)),
                    }
                }
                kind => return Err(TransportError::Unexpected(kind)),
            }
        }
    }

    /// Told, recorded, and not carried.
    fn refuse(&self, what: impl Into<String>) -> Failure {
        let what = what.into();
        let failure = Failure::from(Refused::NotCarried(what.clone()));
        let visit = &self.visit;
        visit.session.tell_refused(&failure, visit.from(), visit.destination(), what);
        failure
    }

    fn too_many(&self) -> Failure {
        let failure = Failure::from(Refused::TooMany);
        let visit = &self.visit;
        visit.session.tell_refused(&failure, visit.from(), visit.destination(), String::new());
        failure
    }

    async fn global(&self, reader: &mut Reader<'_>) -> Done {
        let name = reader.text().ok_or(TransportError::Malformed)?;
        let wants = reader.flag().ok_or(TransportError::Malformed)?;
        if matches!(name, "tcpip-forward" | "streamlocal-forward@openssh.com") {
            self.refuse("forwarding of a port there");
        }
        if wants { self.reply(&[msg::REQUEST_FAILURE]).await } else { Ok(()) }
    }

    async fn open(&self, reader: &mut Reader<'_>) -> Done {
        let mut read = || Some((reader.text()?, reader.u32()?, reader.u32()?, reader.u32()?));
        let (kind, theirs, window, packet) = read().ok_or(TransportError::Malformed)?;
        let no = match kind {
            "session" if self.channels().len() >= MOST_CHANNELS => Some(self.too_many()),
            "session" => None,
            "direct-tcpip" | "direct-streamlocal@openssh.com" => Some(self.refuse("forwarding of a port")),
            _ => Some(self.refuse("a channel of another kind")),
        };
        if let Some(failure) = no {
            let mut message = vec![msg::OPEN_FAILURE];
            put_u32(&mut message, theirs);
            put_u32(&mut message, 1);
            put_string(&mut message, format!("cofferdam: {failure}").as_bytes());
            put_string(&mut message, b"");
            return self.reply(&message).await;
        }
        let number = {
            let mut channels = self.channels();
            let number = (0..).find(|number| !channels.contains_key(number)).unwrap_or_default();
            let channel = Channel::new(theirs, window, packet, self.wake.clone(), Arc::default());
            channels.insert(number, Arc::new(channel));
            number
        };
        let mut message = vec![msg::OPEN_CONFIRMED];
        for part in [theirs, number, FIRST_WINDOW, PACKET] {
            put_u32(&mut message, part);
        }
        self.reply(&message).await
    }

    async fn close(&self, number: u32, channel: &Channel) -> Done {
        self.channels().remove(&number);
        if channel.close() {
            return Ok(());
        }
        self.reply(&head(msg::CLOSE, channel.theirs())).await
    }

    async fn request(
        self: &Arc<Self>,
        channel: &Arc<Channel>,
        reader: &mut Reader<'_>,
        commands: &mut JoinSet<()>,
    ) -> Done {
        let malformed = || TransportError::Malformed;
        let name = reader.text().ok_or_else(malformed)?;
        let wants = reader.flag().ok_or_else(malformed)?;
        let mut then = Then::Nothing;
        let granted = match name {
            "env" => {
                let (name, value) = (reader.text(), reader.text());
                self.variable(channel, name.ok_or_else(malformed)?, value.ok_or_else(malformed)?)
            }
            "exec" | "shell" | "subsystem" if !channel.start() => {
                self.refuse("a second command on one channel");
                false
            }
            "exec" => {
                then = Then::Run(reader.string().ok_or_else(malformed)?.to_vec());
                true
            }
            // Let in, to be told in words that nothing comes of it.
            "shell" => {
                then = Then::Refuse(self.refuse("a shell"));
                true
            }
            "subsystem" => {
                let name: String = reader.text().unwrap_or_default().chars().take(40).collect();
                then = Then::Refuse(self.refuse(format!("the subsystem `{name}`")));
                true
            }
            other => {
                let what = match other {
                    "pty-req" => Some("a terminal"),
                    "auth-agent-req@openssh.com" | "auth-agent-req" => Some("forwarding of an agent"),
                    "x11-req" => Some("forwarding of a display"),
                    _ => None,
                };
                what.map(|what| self.refuse(what));
                false
            }
        };
        if wants {
            let kind = if granted { msg::CHANNEL_SUCCESS } else { msg::CHANNEL_FAILURE };
            let mut writing = self.writing.lock().await;
            // Of a channel that is closed nothing may be said any more.
            if !channel.is_closed() {
                writing.send(&head(kind, channel.theirs())).await?;
            }
        }
        match then {
            Then::Nothing => {}
            Then::Refuse(failure) => refuse_on(channel, &failure),
            Then::Run(command) => {
                while commands.try_join_next().is_some() {}
                // A channel that was closed may still have its command to end.
                if commands.len() >= MOST_CHANNELS {
                    refuse_on(channel, &self.too_many());
                    return Ok(());
                }
                let (inside, channel) = (self.clone(), channel.clone());
                commands.spawn(async move { inside.command(&channel, &command).await });
            }
        }
        Ok(())
    }

    /// Only which version of git's protocol is spoken is passed on.
    fn variable(&self, channel: &Channel, name: &str, value: &str) -> bool {
        match (name, value) {
            ("GIT_PROTOCOL", "version=0" | "version=1" | "version=2") => {
                channel.set_protocol(value);
                true
            }
            (name, _) if name.starts_with("LC_") || LOCALE.contains(&name) => false,
            (name, _) => {
                let name: String = name.chars().filter(|c| c.is_ascii_graphic()).take(40).collect();
                self.refuse(format!("the variable `{name}`"));
                false
            }
        }
    }

    /// Runs a command, or says why not.
    async fn command(&self, channel: &Channel, text: &[u8]) {
        let Err(failure) = self.carried(channel, text).await else { return };
        let visit = &self.visit;
        if failure.is_own_event() {
            // A text that holds what must not be told is not told here either.
            let told = match &failure {
                Failure::Leak(_) => String::new(),
                _ => String::from_utf8_lossy(text).chars().take(200).collect(),
            };
            visit.session.tell_refused(&failure, visit.from(), visit.destination(), told);
        }
        refuse_on(channel, &failure);
    }

    async fn carried(&self, channel: &Channel, text: &[u8]) -> Result<(), Failure> {
        let visit = &self.visit;
        visit.session.counters.requests.fetch_add(1, Relaxed);
        visit.session.coffer.check_data(text, &visit.destination())?;
        let command = SshCommand::read(text).map_err(Refused::Command)?;
        // Once more as the host will read it: quotes may stand anywhere in a word.
        for word in command.words() {
            visit.session.coffer.check_data(word.as_bytes(), &visit.destination())?;
        }
        let entry = visit.credential()?;
        let (rules, exchange) = tokio::select! {
            biased;
            // Who asked is gone, and takes its question along.
            () = channel.gone.notified() => return Ok(()),
            leave = visit.leave(&self.user, &command, &entry) => leave?,
        };
        let host = Host { visit, rules: &rules, user: &self.user, entry: &entry };
        let protocol = channel.protocol();
        let begun = tokio::select! {
            biased;
            () = exchange.until_cut(crate::exchange::Side::Up) => Err(cut(&exchange)),
            () = channel.gone.notified() => {
                exchange.end(Ending::ClientGone);
                return Ok(());
            }
            begun = host.run(&command, protocol.as_deref(), channel.upward()) => begun,
        };
        let remote = match begun {
            Ok(remote) => remote,
            Err(failure) => {
                exchange.explain(failure.to_string());
                exchange.end(match &failure {
                    Failure::Dial(_) | Failure::Ssh(_) => Ending::UpstreamFailed,
                    _ => Ending::Refused,
                });
                return Err(failure);
            }
        };
        let print = remote.print.clone();
        channel.widen();
        match remote.carry(channel, &exchange).await {
            Ok(exit) => {
                exchange.explain(format!("{}, host key {print}", exit.told()));
                if let Exit::Status(code @ 1..) = exit {
                    exchange.answered(u16::try_from(code).unwrap_or(u16::MAX));
                }
                exchange.end(Ending::Complete);
                channel.finish(exit);
                Ok(())
            }
            Err(Broken::Cut) => {
                channel.drop_rest();
                Err(cut(&exchange))
            }
            Err(Broken::ClientGone) => {
                exchange.end(Ending::ClientGone);
                Ok(())
            }
            Err(Broken::NoCommand) => {
                exchange.end(Ending::UpstreamFailed);
                Err(Refused::NoCommand(visit.host.clone()).into())
            }
            Err(Broken::Host(source)) => {
                exchange.explain(source.to_string());
                exchange.end(Ending::UpstreamFailed);
                Err(Refused::Server { host: visit.host.clone(), source }.into())
            }
        }
    }
}

fn cut(exchange: &crate::exchange::Exchange) -> Failure {
    match exchange.detail() {
        Some(why) => Failure::Stopped(why.to_owned()),
        None => Failure::Cut(exchange.ending().unwrap_or(Ending::Refused)),
    }
}

/// Words for people, and an exit status for programs.
fn refuse_on(channel: &Channel, failure: &Failure) {
    let text = rescue::text(failure);
    channel.errors.push(text.as_bytes());
    if !text.ends_with('\n') {
        channel.errors.push(b"\n");
    }
    channel.finish(Exit::Status(REFUSED));
}
