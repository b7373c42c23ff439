//! Letters to the thread that holds a session, and how they are answered.

use super::errand::Errand;
use super::inside::Known;
use super::promise::Caller;
use crate::control::{Asked, CreateAsked, Lines, Question, Reply, send};
use crate::error::EngineError;
use rustix::event::EventfdFlags;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A session that commits a large work dir answers when that is done.
const PATIENCE: Duration = Duration::from_secs(110);

pub(super) enum Letter {
    Asked(Asked, ReplyTo),
    /// About an exec that someone watches.
    About {
        exec: u32,
        question: Question,
    },
    /// Nobody watches it any more.
    Left {
        exec: u32,
    },
    /// Whom it was made for is gone.
    Forsaken {
        by: String,
    },
    /// The supervisor is to make so many sessions that begin as this one is.
    Fork {
        count: usize,
        by: String,
        to: SyncSender<Result<CreateAsked, Reply>>,
    },
    /// From someone in this process.
    Errand(Box<Errand>),
    /// The supervisor has to go.
    Goodbye,
}

pub(super) enum ReplyTo {
    Once(SyncSender<Reply>),
    /// The connection that it was asked by, at which nobody of ours waits.
    Caller(Caller),
    /// The connection that an exec is watched by, and where its number goes.
    Watcher(UnixStream, SyncSender<u32>),
}

impl ReplyTo {
    pub(super) fn send(self, reply: Reply) {
        match self {
            // Whoever does not wait any more has no use for it.
            Self::Once(to) => drop(to.send(reply)),
            Self::Caller(caller) => caller.answer(&reply),
            Self::Watcher(stream, _) => say_last(&stream, &reply),
        }
    }
}

/// The last line of a connection.
pub(super) fn say_last(stream: &UnixStream, reply: &Reply) {
    let _ = send(stream, reply);
    // Also ends the thread that reads from it.
    let _ = stream.shutdown(Shutdown::Both);
}

/// Where letters are put in.
#[derive(Clone)]
pub(crate) struct Mailbox {
    letters: Sender<Letter>,
    wake: Arc<OwnedFd>,
    /// There as long as its other end is.
    reader: Weak<()>,
    /// What those in this process know of the session together.
    pub(super) known: Arc<Known>,
}

/// Where they are taken out.
pub(super) struct Post {
    letters: Receiver<Letter>,
    wake: Arc<OwnedFd>,
    _reader: Arc<()>,
}

pub(super) fn mailbox() -> Result<(Mailbox, Post), EngineError> {
    let failed = |errno: rustix::io::Errno| EngineError::Io { doing: "make a mailbox", source: errno.into() };
    let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
    let wake = Arc::new(wake);
    let (sender, letters) = channel();
    let _reader = Arc::new(());
    let reader = Arc::downgrade(&_reader);
    let mailbox = Mailbox { letters: sender, wake: wake.clone(), reader, known: Arc::default() };
    Ok((mailbox, Post { letters, wake, _reader }))
}

impl Post {
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// For those who have to wake the session without a letter.
    pub(super) fn waker(&self) -> &Arc<OwnedFd> {
        &self.wake
    }

    /// All that have come; never waits.
    pub(super) fn take(&self) -> Vec<Letter> {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
        self.letters.try_iter().collect()
    }
}

impl Mailbox {
    /// Whether nobody is there any more to read what is put into it.
    pub(super) fn is_closed(&self) -> bool {
        self.reader.strong_count() == 0
    }

    pub(super) fn put(&self, letter: Letter) -> Result<(), Gone> {
        self.letters.send(letter).map_err(|_| Gone)?;
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        Ok(())
    }

    /// Puts a question to the session and brings the answer. One that watches an exec is answered by the session, and
    /// heard until it is over.
    pub(crate) fn deliver(&self, asked: Asked, connection: &mut Lines) -> Option<Reply> {
        if matches!(&asked.question, Question::Put { .. } | Question::Get { .. } | Question::MakeDir { .. }) {
            return Some(super::copy::answer(self, asked));
        }
        match &asked.question {
            Question::Exec(exec) if !exec.detach => self.watch(asked, connection),
            Question::Attend => self.attend(asked, connection),
            Question::End { .. } => self.end(asked, connection),
            _ => Some(self.ask(asked)),
        }
    }

    /// Its end is the session's, whatever ends it.
    fn attend(&self, asked: Asked, connection: &mut Lines) -> Option<Reply> {
        let by = asked.by.clone();
        let reply = self.ask(asked);
        if !matches!(reply, Reply::Done { .. }) {
            return Some(reply);
        }
        // Who is gone already is found to be by the first look at the connection.
        let _ = send(connection.stream(), &reply);
        let this = self.clone();
        connection.go_on(Box::new(move |lines| match lines.next_now::<Question>() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
            _ => {
                let _ = this.put(Letter::Forsaken { by: by.clone() });
                false
            }
        }));
        None
    }

    /// Who ends it is answered by the session itself, when nothing of it is left.
    fn end(&self, asked: Asked, connection: &Lines) -> Option<Reply> {
        let caller = match connection.stream().try_clone() {
            Ok(stream) => Caller::at(stream),
            Err(error) => return Some(Reply::Refused(error.to_string())),
        };
        // A letter that cannot be put in is dropped, and the caller hears that.
        let _ = self.put(Letter::Asked(asked, ReplyTo::Caller(caller)));
        None
    }

    /// What it takes to make sessions that begin as this one is.
    pub(super) fn fork(&self, count: usize, by: String) -> Result<CreateAsked, Reply> {
        let (to, answer) = sync_channel(1);
        self.put(Letter::Fork { count, by, to }).map_err(|gone| Reply::Refused(gone.to_string()))?;
        answer.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(Reply::Refused(Gone.to_string())))
    }

    pub(super) fn ask(&self, asked: Asked) -> Reply {
        let (reply, answer) = sync_channel(1);
        match self.put(Letter::Asked(asked, ReplyTo::Once(reply))) {
            Ok(()) => answer.recv_timeout(PATIENCE).unwrap_or_else(|_| Reply::Refused(Gone.to_string())),
            Err(gone) => Reply::Refused(gone.to_string()),
        }
    }

    fn watch(&self, asked: Asked, connection: &mut Lines) -> Option<Reply> {
        let (number, started) = sync_channel(1);
        let stream = match connection.stream().try_clone() {
            Ok(stream) => stream,
            Err(error) => return Some(Reply::Refused(error.to_string())),
        };
        if let Err(gone) = self.put(Letter::Asked(asked, ReplyTo::Watcher(stream, number))) {
            return Some(Reply::Refused(gone.to_string()));
        }
        let (this, mut known) = (self.clone(), None);
        connection.go_on(Box::new(move |lines| {
            // Without a number it was refused, and the asker knows.
            let Some(exec) = known.or_else(|| started.recv().ok()) else { return false };
            known = Some(exec);
            loop {
                let letter = match lines.next_now() {
                    Ok(Some(question)) => Letter::About { exec, question },
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                    _ => Letter::Left { exec },
                };
                let over = matches!(letter, Letter::Left { .. });
                if this.put(letter).is_err() || over {
                    return false;
                }
            }
        }));
        None
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the session is ending, or did not answer in time")]
pub(super) struct Gone;

impl From<Gone> for io::Error {
    fn from(gone: Gone) -> Self {
        Self::new(io::ErrorKind::NotConnected, gone)
    }
}
