//! What those in this process have done in a session: commands whose output they read themselves, work that the
//! guest does itself, input, signals. By letters, as everything else; this is the side that carries them out.

use super::commands::{Exec, is_of_one_exec};
use super::holder::Holder;
use super::inside::Account;
use crate::error::EngineError;
use crate::record::now_us;
use crate::relay::{ExecId, Feed, Hub, Io, Task};
use crate::standing::Command;
use cofferdam_guest::wire;
use cofferdam_model::{Body, ExecInfo, Profile, Span, Usage};
use cofferdam_runtime::Identity;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;

/// Something under way, for whoever began it. A number of another guest's is nobody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    guest: u32,
    id: ExecId,
}

pub(crate) type Began = oneshot::Sender<Result<Key, EngineError>>;

/// A command, as it is asked for in this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct StartAsked {
    pub(crate) argv: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) who: Option<Account>,
    pub(crate) tty: Option<(u16, u16)>,
    pub(crate) stdin: bool,
    pub(crate) timeout: Option<Span>,
    pub(crate) by: String,
}

/// What the guest is to do itself.
pub(crate) struct TaskAsked {
    pub(crate) work: wire::Work,
    /// Whose the files are to be that it makes.
    pub(crate) owner: Option<(u32, u32)>,
    pub(crate) idle: bool,
    /// On record before it begins.
    pub(crate) record: Option<Body>,
    pub(crate) by: String,
}

pub(super) enum Errand {
    Start {
        asked: StartAsked,
        hub: Arc<Hub>,
        to: Began,
    },
    Task {
        asked: TaskAsked,
        hub: Arc<Hub>,
        to: Began,
    },
    Feed {
        key: Key,
        feed: Feed,
    },
    /// On record before whoever reads it hears that there is no more.
    EndFeed {
        key: Key,
        record: Option<Body>,
        done: oneshot::Sender<()>,
    },
    Signal {
        key: Key,
        number: u8,
    },
    Resize {
        key: Key,
        rows: u16,
        columns: u16,
    },
    /// End it. For what nobody listens to any more as well.
    Kill {
        key: Key,
    },
}

impl Holder {
    /// What goes wrong is for who asked; what cannot be recorded, or a guest that cannot be trusted, ends the session.
    pub(super) fn run(&mut self, errand: Errand) -> Result<(), EngineError> {
        match errand {
            Errand::Start { asked, hub, to } => {
                let began = self.start_for_people(asked, hub);
                self.tell(began, to)
            }
            Errand::Task { asked, hub, to } => {
                let began = self.start_task(&asked, hub);
                self.tell(began, to)
            }
            Errand::Feed { key, feed } => {
                if let Some(id) = self.known(key) {
                    self.relay.feed(id, feed);
                }
                Ok(())
            }
            Errand::EndFeed { key, record, done } => {
                if let Some(body) = record {
                    self.standing.recorder.append(None, &body)?;
                }
                if let Some(id) = self.known(key) {
                    self.relay.end_feed(id);
                }
                let _ = done.send(());
                Ok(())
            }
            Errand::Signal { key, number } => match self.known(key) {
                Some(id) if i32::from(number) == Signal::KILL.as_raw() => self.relay.kill(id),
                Some(id) => self.relay.signal(id, number),
                None => Ok(()),
            },
            Errand::Resize { key, rows, columns } => match self.known(key) {
                Some(id) => self.relay.resize(id, wire::Size { rows, columns }),
                None => Ok(()),
            },
            Errand::Kill { key } => match self.known(key) {
                Some(id) => self.relay.kill(id),
                None => Ok(()),
            },
        }
    }

    fn known(&self, key: Key) -> Option<ExecId> {
        (key.guest == self.guests).then_some(key.id)
    }

    fn tell(&self, began: Result<ExecId, EngineError>, to: Began) -> Result<(), EngineError> {
        let guest = self.guests;
        match began {
            Ok(id) => _ = to.send(Ok(Key { guest, id })),
            Err(error) if is_of_one_exec(&error) => _ = to.send(Err(error)),
            Err(error) => {
                let _ = to.send(Err(EngineError::Declined(error.to_string())));
                return Err(error);
            }
        }
        Ok(())
    }

    fn start_for_people(&mut self, asked: StartAsked, hub: Arc<Hub>) -> Result<ExecId, EngineError> {
        if let Some(exec) = self.execs.iter().find(|exec| exec.running.is_some() && exec.tx.is_some()) {
            return Err(EngineError::Declined(format!(
                "exec {} is a transaction of its own, and nothing runs beside it: wait until it has ended",
                exec.info.id
            )));
        }
        self.may_start(&asked.argv, &asked.env)?;
        self.be_awake(&format!("exec of {}", asked.by))?;
        let who = asked.who.map(|account| {
            let Account { name, uid, gid, groups, home, .. } = account;
            (Identity { name, uid, gid, home }, groups)
        });
        let command = Command {
            argv: asked.argv.clone(),
            env: asked.env,
            cwd: asked.cwd,
            user: self.spec.user,
            who,
            tty: asked.tty.map(|(rows, columns)| wire::Size { rows, columns }),
            stops: false,
            timeout: asked.timeout.or(self.spec.limits.timeout),
            output: self.spec.limits.output,
            kept: None,
            own: false,
            by: None,
        };
        let io = Io::People { hub: hub.clone(), stdin: asked.stdin, wake: self.post.waker().clone() };
        let (id, _) = self.standing.start(&mut self.relay, &self.spec, &command, io)?;
        self.last += 1;
        let info = ExecInfo {
            id: self.last,
            argv: asked.argv,
            started_us: now_us(),
            detached: true,
            output: 0,
            exit: None,
            usage: Usage::default(),
        };
        let hub = Some(hub);
        self.execs.push(Exec { running: Some(id), info, watcher: None, doomed: None, tx: None, hub });
        self.clock.running(self.relay.busy(), Instant::now());
        self.forget_old();
        Ok(id)
    }

    fn start_task(&mut self, asked: &TaskAsked, hub: Arc<Hub>) -> Result<ExecId, EngineError> {
        self.be_awake(&format!("work for {}", asked.by))?;
        if let Some(body) = &asked.record {
            self.standing.recorder.append(None, body)?;
        }
        let owner = asked.owner.filter(|_| self.spec.profile == Profile::Box);
        let task = wire::Task { user: None, owner, work: asked.work.clone() };
        let id = self.relay.task(&task, Task { idle: asked.idle }, hub, self.post.waker())?;
        self.clock.running(self.relay.busy(), Instant::now());
        Ok(id)
    }
}
