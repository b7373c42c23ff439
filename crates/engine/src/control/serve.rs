//! The session's side: a thread that waits for questions and puts them to the egress layer.

use super::{LONGEST, Question, Reply, Waiting, address, open_dir};
use crate::error::EngineError;
use crate::{Engine, nobody, policy};
use cofferdam_egress::Handle;
use cofferdam_model::SessionId;
use cofferdam_store::Home;
use cofferdam_vault::Plain;
use rustix::event::{PollFd, PollFlags};
use std::io::{self, BufRead, BufReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a question may take to arrive.
const PATIENCE: Duration = Duration::from_secs(5);

/// The socket, for as long as this lives.
pub(crate) struct Control {
    path: PathBuf,
    /// Closing it ends the thread.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    pub(crate) fn open(home: &Home, session: &SessionId, handle: Arc<Handle>) -> io::Result<Self> {
        let dir = home.live_dir()?;
        let name = format!("{session}.sock");
        let open = open_dir(&dir)?;
        // One that is there is of a process that was killed: ids are not given twice.
        let _ = std::fs::remove_file(dir.join(&name));
        let listener = UnixListener::bind(address(&open, &name))?;
        listener.set_nonblocking(true)?;
        let (wake, stop) = io::pipe()?;
        let desk = Desk { home: home.clone(), session: session.clone(), handle };
        let thread = std::thread::Builder::new().name("control".into()).spawn(move || {
            while wait(&listener, &wake) {
                if let Ok((stream, _)) = listener.accept() {
                    // Whoever asks badly gets no answer; the next one does.
                    let _ = desk.serve(stream);
                }
            }
        })?;
        Ok(Self { path: dir.join(name), stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Until someone connects; false when it is over.
fn wait(listener: &UnixListener, wake: &io::PipeReader) -> bool {
    let mut set = [
        PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN),
    ];
    match rustix::event::poll(&mut set, None) {
        Ok(_) => set[1].revents().is_empty(),
        Err(rustix::io::Errno::INTR) => true,
        Err(_) => false,
    }
}

struct Desk {
    home: Home,
    session: SessionId,
    handle: Arc<Handle>,
}

impl Desk {
    fn serve(&self, mut stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let asker = rustix::net::sockopt::socket_peercred(&stream)?.uid.as_raw();
        let own = rustix::process::geteuid().as_raw();
        let mut line = String::new();
        BufReader::new((&stream).take(LONGEST as u64)).read_line(&mut line)?;
        let reply = match serde_json::from_str(&line) {
            _ if asker != own && asker != 0 => Reply::Refused("this session is another user's".into()),
            Ok(question) => self.answer(question, &format!("uid {asker}")),
            Err(error) => Reply::Refused(format!("not a question that this version knows: {error}")),
        };
        let mut text = serde_json::to_vec(&reply)?;
        text.push(b'\n');
        stream.write_all(&text)
    }

    fn answer(&self, question: Question, by: &str) -> Reply {
        let handle = &self.handle;
        let done = match question {
            Question::Pending => {
                let waiting = handle.approvals().pending().into_iter().map(Waiting::from);
                return Reply::Pending(waiting.collect());
            }
            Question::Answer { id, allow: true } => told(handle.approvals().allow(id, by).map(|()| 0)),
            Question::Answer { id, allow: false } => told(handle.approvals().deny(id, by).map(|()| 0)),
            Question::SetPolicy { path } => policy::rules(&path)
                .map_err(|e| e.to_string())
                .and_then(|rules| told(handle.replace_policy(rules, by))),
            Question::Revoke { secret } => told(handle.revoke(&secret, by)),
            Question::Rotate { secret } => {
                let value = self.value_of(&secret).map_err(|error| error.to_string());
                value.and_then(|plain| told(handle.rotate(&secret, plain, by)))
            }
            Question::Pause => told(handle.pause(by)),
            Question::Resume => told(handle.resume(by).map(|()| 0)),
        };
        match done {
            Ok(cut) => Reply::Done { cut },
            Err(reason) => Reply::Refused(format!("session {}: {reason}", self.session)),
        }
    }
}

impl Desk {
    /// As the vault has it now. Nobody can be asked for a passphrase here.
    fn value_of(&self, secret: &str) -> Result<Plain, EngineError> {
        let engine = Engine { home: self.home.clone() };
        let bound = engine.secrets(&nobody)?.bind(&[secret.to_owned()], &self.session)?;
        let found = bound.into_iter().next().map(|bound| bound.plain);
        found.ok_or_else(|| EngineError::Declined(format!("the vault has no secret `{secret}`")))
    }
}

fn told<E: std::error::Error>(done: Result<u64, E>) -> Result<u64, String> {
    done.map_err(|error| error.to_string())
}
