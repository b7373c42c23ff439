//! An MCP server as a session's command: what its client and it say to each other goes through the mediator,
//! message by message. This carries the bytes and waits for people; what may pass is not decided here.

mod lines;
mod pinned;

use crate::error::EngineError;
use crate::relay::Stdio;
use crate::standing::Standing;
use crate::steps::InForce;
use cofferdam_egress::{Handle, Held as Waiting};
use cofferdam_intercept::mcp::{Held, Judge, LONGEST, Mediator, Out, Pins, Tools};
use cofferdam_model::{NotRecorded, SessionSpec, ToolSide, ToolVia};
use cofferdam_policy::Occasion;
use lines::{Line, Lines};
use pinned::Pinned;
pub use pinned::PinnedServer;
pub(crate) use pinned::Pinning;
use std::collections::BTreeMap;
use std::io::{self, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

/// That the command is an MCP server on stdio, and how it is to be taken.
#[derive(Debug, Clone, Copy, Default)]
pub struct ToolServer {
    /// Take its tools as they are now for what they shall be.
    pub repin: bool,
}

/// A proxy that is not there yet when its judge is made.
#[derive(Clone, Default)]
pub(crate) struct Later(Arc<OnceLock<Weak<Handle>>>);

impl Later {
    pub(crate) fn is(&self, handle: &Arc<Handle>) {
        let _ = self.0.set(Arc::downgrade(handle));
    }

    /// Judges by what is in force, and has the proxy do what the policy wants done afterwards.
    pub(crate) fn judge(&self, in_force: InForce, credentials: Vec<String>) -> Arc<Judge> {
        let later = self.0.clone();
        let happened = move |occasion: &Occasion<'_>| {
            if let Some(handle) = later.get().and_then(Weak::upgrade) {
                handle.happened(occasion);
            }
        };
        Arc::new(Judge::new(Arc::new(move || Some(in_force.get())), Arc::new(happened), credentials))
    }
}

/// Held calls at a time; each waits on a thread.
const MOST_HELD: usize = 64;

/// What stands between, while the command runs.
pub(crate) struct Between {
    shared: Arc<Shared>,
    /// Closing it ends the thread that listens to the client.
    stop: PipeWriter,
    client: JoinHandle<()>,
    server: JoinHandle<()>,
}

struct Shared {
    mediator: Mutex<Mediator>,
    to_client: Mutex<std::fs::File>,
    /// Nothing once the client has no more to say, or something could not be recorded.
    to_server: Mutex<Option<PipeWriter>>,
    handle: Option<Arc<Handle>>,
    /// Questions that people were asked, by the event of what waits.
    held: Mutex<BTreeMap<u64, Asked>>,
    pinned: Pinned,
    failed: Mutex<Option<EngineError>>,
}

struct Asked {
    id: u64,
    thread: Option<JoinHandle<()>>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts a mediator between a client's streams and the command that is about to be started with what comes back.
pub(crate) fn between(
    server: ToolServer,
    spec: &SessionSpec,
    stdio: Stdio,
    standing: &Standing,
) -> Result<(Stdio, Between), EngineError> {
    let failed = |source| EngineError::Io { doing: "stand between the server and its client", source };
    let pinned = Pinned::of(&standing.home, &spec.command);
    let pins = if server.repin { Pins::default() } else { pinned.load()? };
    let handle = standing.egress.as_ref().map(|egress| egress.handle.clone());
    let (in_force, happens) = (handle.clone(), handle.clone());
    let judge = Judge::new(
        Arc::new(move || in_force.as_ref().map(|handle| handle.policy())),
        Arc::new(move |occasion| {
            if let Some(handle) = &happens {
                handle.happened(occasion);
            }
        }),
        spec.secrets.clone(),
    );
    let name = spec.command.join(" ");
    let record = Arc::new(standing.recorder.clone());
    let mediator = Mediator::new(record, Arc::new(judge), ToolVia::McpStdio, name, Tools::pinned(pins));
    let (input, to_server) = io::pipe().map_err(failed)?;
    let (from_server, output) = io::pipe().map_err(failed)?;
    let (wake, stop) = io::pipe().map_err(failed)?;
    let Stdio { stdin, stdout, stderr } = stdio;
    let shared = Arc::new(Shared {
        mediator: Mutex::new(mediator),
        to_client: Mutex::new(stdout.into()),
        to_server: Mutex::new(Some(to_server)),
        handle,
        held: Mutex::default(),
        pinned,
        failed: Mutex::default(),
    });
    let client =
        spawn("client", shared.clone(), move |shared| shared.hear_client(stdin, wake)).map_err(failed)?;
    let server = spawn("server", shared.clone(), move |shared| shared.hear_server(from_server.into()))
        .map_err(failed)?;
    let stdio = Stdio { stdin: Some(input.into()), stdout: output.into(), stderr };
    Ok((stdio, Between { shared, stop, client, server }))
}

fn spawn(
    name: &str,
    shared: Arc<Shared>,
    work: impl FnOnce(&Arc<Shared>) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(move || work(&shared))
}

impl Between {
    /// After the command: what it still said is passed on, and whoever waited for it is told that it is gone.
    pub(crate) fn finish(self) -> Result<(), EngineError> {
        let _ = self.server.join();
        drop(self.stop);
        let _ = self.client.join();
        let waiting = std::mem::take(&mut *lock(&self.shared.held));
        for (_, asked) in waiting {
            if let Some(handle) = &self.shared.handle {
                handle.approvals().withdraw(asked.id);
            }
            if let Some(thread) = asked.thread {
                let _ = thread.join();
            }
        }
        match lock(&self.shared.failed).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

impl Shared {
    fn hear_client(self: &Arc<Self>, stdin: Option<OwnedFd>, wake: io::PipeReader) {
        if let Some(stdin) = stdin {
            let mut lines = Lines::new(stdin, Some(wake), LONGEST);
            while let Some(line) = lines.next() {
                self.take(ToolSide::Client, line);
            }
        }
        // The server's input ends as its client's does.
        *lock(&self.to_server) = None;
    }

    fn hear_server(self: &Arc<Self>, from: OwnedFd) {
        let mut lines = Lines::new(from, None, LONGEST);
        while let Some(line) = lines.next() {
            self.take(ToolSide::Server, line);
        }
        let outs = lock(&self.mediator).server_gone();
        self.perform(outs);
    }

    fn take(self: &Arc<Self>, from: ToolSide, line: Line) {
        let outs = match line {
            // Some clients end lines as Windows does, and an empty one says nothing.
            Line::Whole(line) if line.trim_ascii().is_empty() => return,
            Line::Whole(line) => lock(&self.mediator).message(from, line.trim_ascii()),
            Line::TooLong => lock(&self.mediator).too_long(from),
        };
        self.perform(outs);
    }

    /// Nothing more passes once something could not be recorded.
    fn perform(self: &Arc<Self>, outs: Result<Vec<Out>, NotRecorded>) {
        let outs = match outs {
            Ok(outs) if lock(&self.failed).is_none() => outs,
            Ok(_) => return,
            Err(error) => return self.fail(error.into()),
        };
        for out in outs {
            match out {
                Out::ToServer(line) => {
                    if let Some(to) = lock(&self.to_server).as_mut() {
                        send(to, line);
                    }
                }
                Out::ToClient(line) => send(&mut *lock(&self.to_client), line),
                Out::Hold(held) => self.hold(held),
                Out::Withdraw(event) => self.withdraw(event),
                Out::Pin(pins) => {
                    if let Err(error) = self.pinned.store(&pins) {
                        return self.fail(error);
                    }
                }
            }
        }
    }

    fn fail(&self, error: EngineError) {
        lock(&self.failed).get_or_insert(error);
        *lock(&self.to_server) = None;
    }

    /// Asks people, and waits for them on a thread of its own.
    fn hold(self: &Arc<Self>, held: Held) {
        let (event, began) = (held.event, Instant::now());
        let mut all = lock(&self.held);
        all.retain(|_, asked| asked.thread.as_ref().is_some_and(|thread| !thread.is_finished()));
        let put = match &self.handle {
            Some(handle) if all.len() < MOST_HELD => handle.put(question(held), event).ok(),
            _ => None,
        };
        let Some(put) = put else {
            drop(all);
            let outs = lock(&self.mediator).answered(event, cofferdam_model::Answer::TimedOut, "", 0);
            return self.perform(outs);
        };
        let id = put.id();
        let thread = spawn("held", self.clone(), move |shared| {
            let (answer, by) = put.wait();
            let waited_us = began.elapsed().as_micros() as u64;
            let outs = lock(&shared.mediator).answered(event, answer, &by, waited_us);
            shared.perform(outs);
        });
        // Without a thread the question is dropped, and with it withdrawn.
        all.insert(event, Asked { id, thread: thread.ok() });
    }

    fn withdraw(&self, event: u64) {
        if let (Some(asked), Some(handle)) = (lock(&self.held).get(&event), &self.handle) {
            handle.approvals().withdraw(asked.id);
        }
    }
}

/// A call as those who may answer see it.
fn question(held: Held) -> Waiting {
    let Held { rule, reason, tool, arguments, .. } = held;
    Waiting {
        id: 0,
        rule,
        reason,
        method: "tool".into(),
        url: format!("{tool} {arguments}"),
        program: None,
        credentials: vec![],
        since: 0,
        until: 0,
    }
}

/// A reader that has left is no failure: its end is seen where it is listened to.
fn send(to: &mut impl Write, mut line: Vec<u8>) {
    line.push(b'\n');
    let _ = to.write_all(&line);
}
