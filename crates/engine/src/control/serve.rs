//! The answering side: a socket that is open for as long as somebody answers at it, and what is done with a connection.

use super::hall::{self, Attended, Door};
use super::{LONGEST, Lines, Question, Reply, Waiting, address, locked, open_dir, send};
use crate::error::EngineError;
use crate::live::Mailbox;
use crate::tools::Derived;
use crate::{Engine, nobody, policy};
use cofferdam_egress::Handle;
use cofferdam_model::SessionId;
use cofferdam_store::Home;
use cofferdam_vault::Bound;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a question may take to arrive.
const PATIENCE: Duration = Duration::from_secs(5);
/// At a time: more than anyone needs, and few enough that holding them open costs nothing that matters.
const CONNECTIONS: usize = 128;

/// A question, who asks, and what came with it.
pub(crate) struct Asked {
    pub(crate) question: Question,
    pub(crate) by: String,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Whoever answers at a socket.
pub(crate) trait Answers: Send + Sync {
    /// Nothing where the answer was sent already, or is sent by somebody else.
    fn answer(&self, asked: Asked, connection: &mut Lines) -> Option<Reply>;
}

/// A socket at which nobody answers yet: who comes waits. It goes when this is dropped.
pub(crate) struct Socket {
    listener: UnixListener,
    path: Named,
}

/// Its name in the file system.
struct Named(PathBuf);

impl Drop for Named {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The socket, for as long as this lives.
pub(crate) struct Control {
    // Nobody finds it any more before it is closed.
    _path: Named,
    attended: Attended,
}

fn failed(source: io::Error) -> EngineError {
    EngineError::Io { doing: "open the session's socket", source }
}

impl Socket {
    /// A session's.
    pub(crate) fn of(home: &Home, session: &SessionId) -> Result<Self, EngineError> {
        let dir = home.live_dir().map_err(failed)?;
        Self::at(&dir, &format!("{session}.sock")).map_err(failed)
    }

    fn at(dir: &Path, name: &str) -> io::Result<Self> {
        let open = open_dir(dir)?;
        let path = dir.join(name);
        let listener = {
            // For a moment it has its name and does not listen yet, as one that was left behind.
            let _lock = locked(dir)?;
            // One that is there is of a process that was killed.
            let _ = std::fs::remove_file(&path);
            listen(&address(&open, name))?
        };
        Ok(Self { listener, path: Named(path) })
    }

    pub(crate) fn answered_by(self, desk: Desk) -> Result<Control, EngineError> {
        self.answered(Arc::new(desk)).map_err(failed)
    }

    fn answered(self, desk: Arc<dyn Answers>) -> io::Result<Control> {
        let Self { listener, path } = self;
        Ok(Control { _path: path, attended: hall::attend(listener, desk)? })
    }
}

/// A socket of this name, for us alone: a name gets the mode that its socket had before.
fn listen(at: &Path) -> io::Result<UnixListener> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, rustix::fs::Mode::from_raw_mode(0o600))?;
    bind(&socket, &SocketAddrUnix::new(at)?)?;
    // As many may come at once as the kernel lets.
    listen(&socket, -1)?;
    Ok(socket.into())
}

impl Control {
    pub(crate) fn open_at(dir: &Path, name: &str, desk: Arc<dyn Answers>) -> io::Result<Self> {
        Socket::at(dir, name)?.answered(desk)
    }

    /// How many are asking now.
    pub(crate) fn connections(&self) -> usize {
        self.attended.door.connections.load(Ordering::Acquire)
    }
}

/// Counts a connection for as long as it lasts.
pub(super) struct Counted(Arc<Door>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Answers one who came.
pub(super) fn receive(stream: UnixStream, door: &Arc<Door>) {
    let others = door.connections.fetch_add(1, Ordering::AcqRel);
    let counted = Counted(door.clone());
    if others >= CONNECTIONS {
        let _ = send(&stream, &Reply::Refused("too many ask at once; ask again".into()));
        return;
    }
    // Whoever asks badly gets no answer; the next one does.
    let _ = serve(stream, door.desk.as_ref(), counted);
}

fn serve(stream: UnixStream, desk: &dyn Answers, counted: Counted) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let asker = rustix::net::sockopt::socket_peercred(&stream)?.uid.as_raw();
    let own = rustix::process::geteuid().as_raw();
    if asker != own && asker != 0 {
        return send(&stream, &Reply::Refused("this session is another user's".into()));
    }
    let mut lines = Lines::new(stream);
    let reply = match lines.next(Some(Instant::now() + PATIENCE)) {
        Ok(None) => None,
        Ok(Some(question)) => {
            let descriptors = lines.take_descriptors();
            desk.answer(Asked { question, by: format!("uid {asker}"), descriptors }, &mut lines)
        }
        Err(error) => {
            let longest = LONGEST >> 20;
            Some(Reply::Refused(format!(
                "not a question that this version knows, in one line of at most {longest} MiB: {error}"
            )))
        }
    };
    match (reply, lines.goes_on()) {
        (Some(reply), _) => super::lines::ask(&mut lines.stream().try_clone()?, &reply, &[]),
        (None, Some(hear)) => hall::stay(lines, hear, counted),
        (None, None) => Ok(()),
    }
}

/// Answers for one session.
pub(crate) struct Desk {
    pub(crate) home: Home,
    pub(crate) session: SessionId,
    /// Nothing where nothing leaves.
    pub(crate) handle: Option<Arc<Handle>>,
    /// What tools may reach: no policy lets more out.
    pub(crate) derived: Derived,
    /// Whoever holds a session that stays.
    pub(crate) mail: Option<Mailbox>,
}

impl Answers for Desk {
    fn answer(&self, asked: Asked, connection: &mut Lines) -> Option<Reply> {
        let by = &asked.by;
        let done = match asked.question {
            Question::Pending => return Some(Reply::Pending(self.waiting())),
            Question::Answer { id, allow } => self.handle().and_then(|handle| match allow {
                true => told(handle.approvals().allow(id, by).map(|()| 0)),
                false => told(handle.approvals().deny(id, by).map(|()| 0)),
            }),
            Question::SetPolicy { path } => {
                let rules =
                    policy::rules(&path, self.derived.get().as_deref()).map_err(|error| error.to_string());
                self.handle().and_then(|handle| told(handle.replace_policy(rules?, by)))
            }
            Question::Revoke { secret } => self.handle().and_then(|handle| told(handle.revoke(&secret, by))),
            Question::Rotate { secret } => self.handle().and_then(|handle| {
                let value = self.value_of(&secret).map_err(|error| error.to_string());
                told(handle.rotate(value?, by))
            }),
            Question::Cap(cap) => self.handle().and_then(|handle| told(handle.cap(cap, by).map(|()| 0))),
            Question::Egress { open: false } => self.handle().and_then(|handle| told(handle.pause(by))),
            Question::Egress { open: true } => {
                self.handle().and_then(|handle| told(handle.resume(by).map(|()| 0)))
            }
            _ => match &self.mail {
                Some(mail) => return mail.deliver(asked, connection),
                None => Err("it belongs to a `cofferdam run`, and ends with its command".into()),
            },
        };
        Some(match done {
            Ok(cut) => Reply::Done { cut },
            Err(reason) => Reply::Refused(format!("session {}: {reason}", self.session)),
        })
    }
}

impl Desk {
    fn handle(&self) -> Result<&Handle, String> {
        self.handle.as_deref().ok_or_else(|| "it has no policy, and nothing leaves it".into())
    }

    fn waiting(&self) -> Vec<Waiting> {
        let pending = self.handle.iter().flat_map(|handle| handle.approvals().pending());
        // The oldest, as many as an answer has room for: the others are seen when these are answered.
        let mut room = LONGEST / 2;
        let fits = |one: &Waiting| {
            let size = serde_json::to_vec(one).map_or(usize::MAX, |text| text.len());
            room.checked_sub(size).inspect(|left| room = *left).is_some()
        };
        pending.map(Waiting::from).take_while(fits).collect()
    }

    /// As the vault has it now. Nobody can be asked for a passphrase here.
    fn value_of(&self, secret: &str) -> Result<Bound, EngineError> {
        let engine = Engine { home: self.home.clone() };
        let bound = engine.secrets(&nobody)?.bind(&[secret.to_owned()], &self.session)?;
        let found = bound.into_iter().next();
        found.ok_or_else(|| EngineError::Declined(format!("the vault has no secret `{secret}`")))
    }
}

fn told<E: std::error::Error>(done: Result<u64, E>) -> Result<u64, String> {
    done.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::ask::is_left_behind;
    use std::sync::atomic::AtomicBool;

    struct Nobody;

    impl Answers for Nobody {
        fn answer(&self, _: Asked, _: &mut Lines) -> Option<Reply> {
            None
        }
    }

    /// A child that is started at the wrong moment has a copy of every descriptor.
    #[test]
    fn the_lock_on_sockets_ends_with_who_took_it_whatever_copies_there_are() {
        let dir = tempfile::tempdir().unwrap();
        let lock = locked(dir.path()).unwrap();
        let copy = lock.0.try_clone().unwrap();
        let other = std::fs::File::open(dir.path()).unwrap();
        assert!(other.try_lock().is_err(), "it is held");
        drop(lock);
        other.try_lock().unwrap();
        drop(copy);
    }

    /// Someone who lists sessions all the time never takes one that begins for one that was killed.
    #[test]
    fn a_socket_that_is_being_opened_is_not_swept_away() {
        let dir = tempfile::tempdir().unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    is_left_behind(dir.path(), "it.sock");
                }
            });
            for _ in 0..2000 {
                let control = Control::open_at(dir.path(), "it.sock", Arc::new(Nobody));
                let reached = UnixStream::connect(dir.path().join("it.sock"));
                over.store(reached.is_err(), Ordering::Relaxed);
                reached.unwrap();
                drop(control.unwrap());
            }
            over.store(true, Ordering::Relaxed);
        });
        // One whose process is gone is.
        drop(UnixListener::bind(dir.path().join("it.sock")).unwrap());
        assert!(is_left_behind(dir.path(), "it.sock") && !dir.path().join("it.sock").exists());
    }
}
