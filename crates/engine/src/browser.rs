//! Joins a session's browser to those who drive it: carries bytes between its streams and the clients of the
//! endpoint, and waits for people. What may pass is decided by `intercept`; that the browser is inside is the
//! sandbox's business.

mod launch;

use crate::error::EngineError;
use crate::relay::Stdio;
use crate::standing::Command;
use cofferdam_egress::{Handle, Held as Waiting, Mouth, OwnNext, Talk, line};
use cofferdam_intercept::browser::{Held, LONGEST_ANSWER, Mediator, Out, Where};
use cofferdam_model::{Answer, NotRecorded, OwnAnswer, OwnRequest, Record};
use std::collections::BTreeMap;
use std::io::{self, PipeWriter, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

/// Names the endpoint, inside.
pub const CDP_URL: &str = "COFFERDAM_CDP_URL";

/// Held actions at a time; each waits on a thread.
const MOST_HELD: usize = 64;
/// Clients at a time; each has a thread.
const MOST_CLIENTS: usize = 64;

/// A session's browser, whether it runs or not.
#[derive(Clone)]
pub(crate) struct Browser(Arc<Shared>);

struct Shared {
    mediator: Mutex<Mediator>,
    /// Nothing while there is no browser.
    to_browser: Mutex<Option<PipeWriter>>,
    mouths: Mutex<BTreeMap<u64, Mouth>>,
    /// Questions that people were asked, by the event of what waits.
    asked: Mutex<BTreeMap<u64, u64>>,
    handle: OnceLock<Weak<Handle>>,
    failed: Mutex<Option<NotRecorded>>,
    argv: Vec<String>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is needed for one, found before there is a sandbox.
pub(crate) struct Wanted {
    program: String,
    own_sandbox: bool,
}

impl Wanted {
    /// `nested` is whether it may have a sandbox of its own.
    pub(crate) fn find(nested: bool) -> Result<Self, EngineError> {
        Ok(Self { program: launch::find()?, own_sandbox: nested })
    }

    pub(crate) fn made(
        self,
        record: Arc<dyn Record>,
        in_force: cofferdam_intercept::mcp::InForce,
        proxy: SocketAddr,
        key: &[u8],
    ) -> Browser {
        let key = cofferdam_seal::base64(cofferdam_seal::digest(key).as_bytes());
        Browser(Arc::new(Shared {
            mediator: Mutex::new(Mediator::new(record, in_force, self.own_sandbox)),
            to_browser: Mutex::default(),
            mouths: Mutex::default(),
            asked: Mutex::default(),
            handle: OnceLock::new(),
            failed: Mutex::default(),
            argv: launch::command(&self.program, self.own_sandbox, proxy, &key),
        }))
    }
}

impl Browser {
    pub(crate) fn is(&self, handle: &Arc<Handle>) {
        let _ = self.0.handle.set(Arc::downgrade(handle));
    }

    /// A command to start, with the streams to start it with.
    pub(crate) fn begin(&self) -> Result<(Command, Stdio), EngineError> {
        let failed = |source| EngineError::Io { doing: "speak to the browser", source };
        let (stdin, to_browser) = io::pipe().map_err(failed)?;
        let (from_browser, stdout) = io::pipe().map_err(failed)?;
        let stderr = std::fs::OpenOptions::new().write(true).open("/dev/null").map_err(failed)?;
        *lock(&self.0.to_browser) = Some(to_browser);
        let shared = self.0.clone();
        let listen = std::thread::Builder::new().name("browser".into()).spawn(move || {
            shared.with(|mediator| Ok(mediator.begins()));
            shared.hear_browser(from_browser);
        });
        listen.map_err(failed)?;
        let command = Command { argv: self.0.argv.clone(), own: true, ..Command::default() };
        Ok((command, Stdio { stdin: Some(stdin.into()), stdout: stdout.into(), stderr: stderr.into() }))
    }

    /// It has ended, or is about to.
    pub(crate) fn ended(&self, reason: &str) -> Result<(), EngineError> {
        if lock(&self.0.to_browser).take().is_none() {
            return self.sound();
        }
        self.0.with(|mediator| mediator.gone(reason));
        self.sound()
    }

    /// Whether all that happened is on record.
    pub(crate) fn sound(&self) -> Result<(), EngineError> {
        match lock(&self.0.failed).take() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// How many drive it now.
    pub(crate) fn clients(&self) -> usize {
        lock(&self.0.mouths).len()
    }

    pub(crate) fn take(&self, request: &OwnRequest<'_>) -> OwnNext {
        if let Some(no) = Mediator::stranger(request) {
            return OwnNext::Answer(no);
        }
        match lock(&self.0.mediator).page(request, found_at(request)) {
            Some(answer) => OwnNext::Answer(answer),
            None => OwnNext::NotYet,
        }
    }

    pub(crate) fn talk(&self, request: &OwnRequest<'_>) -> Talk {
        if let Some(no) = Mediator::stranger(request) {
            return Talk::Refuse(no);
        }
        let refuse = |words: &str| {
            Talk::Refuse(OwnAnswer::json(503, &serde_json::json!({ "error": { "message": words } })))
        };
        if self.clients() >= MOST_CLIENTS {
            return refuse("cofferdam: too many clients at a time");
        }
        let mut mediator = lock(&self.0.mediator);
        if !mediator.is_up() {
            return match mediator.page(request, found_at(request)) {
                Some(gone) => Talk::Refuse(gone),
                None => Talk::NotYet,
            };
        }
        let Some((client, outs)) = mediator.open(request.path) else {
            return Talk::Refuse(OwnAnswer::json(
                404,
                &serde_json::json!({ "error": { "message": "cofferdam: nothing is found at this path" } }),
            ));
        };
        drop(mediator);
        let (near, mut ear, mouth) = line();
        lock(&self.0.mouths).insert(client, mouth);
        let shared = self.0.clone();
        let serve = std::thread::Builder::new().name("browser client".into()).spawn(move || {
            shared.with(|_| Ok(outs));
            while let Some(text) = ear.hear() {
                shared.with(|mediator| mediator.from_client(client, &text));
            }
            lock(&shared.mouths).remove(&client);
            shared.with(|mediator| mediator.left(client));
        });
        match serve {
            Ok(_) => Talk::Begin(near),
            Err(_) => {
                lock(&self.0.mouths).remove(&client);
                let _ = lock(&self.0.mediator).left(client);
                refuse("cofferdam: there is no thread left for it")
            }
        }
    }
}

/// Serves the endpoint to whoever on this host knows the address that comes back.
pub(crate) fn door(handle: &Handle) -> Result<String, EngineError> {
    let failed = |source| EngineError::Io { doing: "serve the browser's endpoint", source };
    let mut random = [0u8; 16];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| failed(errno.into()))?;
    let prefix = format!("/{:032x}", u128::from_le_bytes(random));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let authority = listener.local_addr().map_err(failed)?.to_string();
    handle.listen(listener, &prefix).map_err(failed)?;
    Ok(Where { authority: &authority, prefix: &prefix }.browser())
}

/// As the client knows it.
fn found_at<'a>(request: &OwnRequest<'a>) -> Where<'a> {
    Where { authority: request.host.unwrap_or_default(), prefix: request.prefix }
}

impl Shared {
    /// Messages end with a zero byte.
    fn hear_browser(self: &Arc<Self>, mut from: io::PipeReader) {
        let (mut held, mut piece) = (Vec::new(), vec![0u8; 64 << 10]);
        let mut skipping = false;
        loop {
            let count = match from.read(&mut piece) {
                Ok(0) => return,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            let mut rest = piece.get(..count).unwrap_or_default();
            while let Some(end) = rest.iter().position(|byte| *byte == 0) {
                let (message, after) = rest.split_at(end);
                rest = after.get(1..).unwrap_or_default();
                if !std::mem::take(&mut skipping) {
                    held.extend_from_slice(message);
                    self.with(|mediator| mediator.from_browser(&held));
                }
                held.clear();
            }
            if !skipping {
                held.extend_from_slice(rest);
            }
            if held.len() > LONGEST_ANSWER {
                (held, skipping) = (Vec::new(), true);
                self.with(Mediator::too_long);
            }
        }
    }

    /// Has one thing decided and done before the next is: messages must not overtake each other.
    fn with(self: &Arc<Self>, decide: impl FnOnce(&mut Mediator) -> Result<Vec<Out>, NotRecorded>) {
        let mut mediator = lock(&self.mediator);
        let outs = decide(&mut mediator);
        let held = self.perform(outs);
        drop(mediator);
        held.into_iter().for_each(|held| self.hold(held));
    }

    /// Nothing more passes once something could not be recorded. What people are to be asked comes back.
    fn perform(&self, outs: Result<Vec<Out>, NotRecorded>) -> Vec<Held> {
        let mut questions = Vec::new();
        let outs = match outs {
            Ok(outs) if lock(&self.failed).is_none() => outs,
            Ok(_) => return questions,
            Err(error) => {
                lock(&self.failed).get_or_insert(error);
                // Without its input the browser ends.
                *lock(&self.to_browser) = None;
                lock(&self.mouths).clear();
                return questions;
            }
        };
        for out in outs {
            match out {
                Out::ToBrowser(mut message) => {
                    message.push(0);
                    if let Some(to) = lock(&self.to_browser).as_mut() {
                        // One that does not read any more has ended, and that is told where it is waited for.
                        let _ = to.write_all(&message);
                    }
                }
                Out::ToClient(client, text) => {
                    let mut mouths = lock(&self.mouths);
                    if mouths.get(&client).is_some_and(|mouth| !mouth.say(text)) {
                        mouths.remove(&client);
                    }
                }
                Out::Close(client) => drop(lock(&self.mouths).remove(&client)),
                Out::Hold(held) => questions.push(held),
                Out::Withdraw(event) => {
                    if let (Some(id), Some(handle)) = (lock(&self.asked).remove(&event), self.handle()) {
                        handle.approvals().withdraw(id);
                    }
                }
            }
        }
        questions
    }

    fn handle(&self) -> Option<Arc<Handle>> {
        self.handle.get().and_then(Weak::upgrade)
    }

    /// Asks people, and waits for them on a thread of its own.
    fn hold(self: &Arc<Self>, held: Held) {
        let (event, began) = (held.event, Instant::now());
        let put = match self.handle() {
            Some(handle) if lock(&self.asked).len() < MOST_HELD => handle.put(question(held), event).ok(),
            _ => None,
        };
        let shared = self.clone();
        let answer = move |answer: Answer, by: &str| {
            lock(&shared.asked).remove(&event);
            let waited_us = began.elapsed().as_micros() as u64;
            shared.with(|mediator| mediator.answered(event, answer, by, waited_us));
        };
        let Some(put) = put else { return answer(Answer::TimedOut, "") };
        lock(&self.asked).insert(event, put.id());
        // Without a thread the question is dropped, and with it withdrawn.
        let _ = std::thread::Builder::new().name("held".into()).spawn(move || {
            let (said, by) = put.wait();
            answer(said, &by);
        });
    }
}

/// An action as those who may answer see it.
fn question(held: Held) -> Waiting {
    let Held { rule, reason, action, args, .. } = held;
    Waiting {
        id: 0,
        rule,
        reason,
        method: "browser".into(),
        url: format!("{action} {args}"),
        program: None,
        credentials: Vec::new(),
        since: 0,
        until: 0,
    }
}
