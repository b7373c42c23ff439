//! From events to what happened. A pure function of the events, in order: equal traces give equal stories.
//!
//! It interprets and does not judge: soundness is [`verify`](crate::verify)'s, meaning is the comparison's.

use cofferdam_model::{
    BlockedAttempt, Body, ChangesDecided, EnforcementReport, Event, ExecExited, ExecStarted, FileChange,
    LimitHit, OutputCaptured, OutputSeen, SessionChanged, SessionEnded, SessionStarted, SyscallSeen,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// A fact with its place in the trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Told<T> {
    pub seq: u64,
    pub time_us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<u64>,
    #[serde(flatten)]
    pub fact: T,
}

/// One program, from its start to its end.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Exec {
    pub started: Told<ExecStarted>,
    pub outputs: Vec<Told<OutputCaptured>>,
    /// The last that was heard of each stream on its way; all there is where the run was killed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<Told<OutputSeen>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exited: Option<Told<ExecExited>>,
}

/// Programs that are told one by one.
const PROGRAMS: usize = 200;

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Story {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Told<SessionStarted>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enforcement: Option<Told<EnforcementReport>>,
    pub execs: Vec<Exec>,
    /// Outputs and ends whose parent is no exec of this trace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub strays: Vec<u64>,
    pub blocked: Vec<Told<BlockedAttempt>>,
    /// System calls that were let through and recorded, by what they do.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub syscalls: BTreeMap<String, u64>,
    /// The first of those that execute a program.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<Told<SyscallSeen>>,
    pub limits: Vec<Told<LimitHit>>,
    pub changes: Vec<Told<FileChange>>,
    /// What left, what was refused and what was changed about that, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<Told<Body>>,
    /// Models that were called, tools that were offered and called, and the steps that the agent told of, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub work: Vec<Told<Body>>,
    /// What people and the clock did to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub life: Vec<Told<SessionChanged>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Told<ChangesDecided>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<Told<SessionEnded>>,
    /// Kinds that this version cannot read, with how many there were.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unread: BTreeMap<String, u64>,
    pub events: u64,
    pub signatures: u64,
    /// Whether there is a head.
    pub finished: bool,
    /// The time of the last event.
    pub last_us: u64,
}

/// The story of a trace's events, in their order.
pub fn reduce<'a>(events: impl IntoIterator<Item = &'a Event>) -> Story {
    let mut story = Story::default();
    events.into_iter().for_each(|event| story.push(event));
    story
}

impl Story {
    /// Takes the next event. For streams that are not held as a whole.
    pub fn push(&mut self, event: &Event) {
        self.events += 1;
        self.last_us = event.time;
        match event.typed() {
            Some(body) => self.take(event, body),
            None => *self.unread.entry(event.kind.clone()).or_default() += 1,
        }
    }

    fn take(&mut self, event: &Event, body: Body) {
        match body {
            Body::SessionStarted(fact) => self.session = Some(told(event, *fact)),
            Body::Enforcement(fact) => self.enforcement = Some(told(event, *fact)),
            Body::ExecStarted(fact) => {
                self.execs.push(Exec {
                    started: told(event, fact),
                    outputs: Vec::new(),
                    seen: Vec::new(),
                    exited: None,
                });
            }
            Body::Output(fact) => match self.exec(event.parent) {
                Some(exec) => exec.outputs.push(told(event, fact)),
                None => self.strays.push(event.seq),
            },
            Body::OutputSeen(fact) => {
                if let Some(exec) = self.exec(event.parent) {
                    exec.seen.retain(|before| before.fact.stream != fact.stream);
                    exec.seen.push(told(event, fact));
                }
            }
            Body::Syscall(fact) => {
                *self.syscalls.entry(fact.class.clone()).or_default() += fact.times;
                if fact.class == "exec" && self.programs.len() < PROGRAMS {
                    self.programs.push(told(event, fact));
                }
            }
            Body::ExecExited(fact) => match self.exec(event.parent) {
                Some(exec) => exec.exited = Some(told(event, fact)),
                None => self.strays.push(event.seq),
            },
            Body::Blocked(fact) => self.blocked.push(told(event, fact)),
            Body::Limit(fact) => self.limits.push(told(event, fact)),
            Body::FileChanged(fact) => self.changes.push(told(event, fact)),
            Body::ChangesDecided(fact) => self.decision = Some(told(event, fact)),
            body @ (Body::EgressOpened(_)
            | Body::EgressDecided(_)
            | Body::EgressEnded(_)
            | Body::EgressRefused(_)
            | Body::SqlDecided(_)
            | Body::SqlEnded(_)
            | Body::CredentialUsed(_)
            | Body::ApprovalAnswered(_)
            | Body::ControlChanged(_)
            | Body::NameAsked(_)
            | Body::StrayPacket(_)
            | Body::AlertSent(_)
            | Body::ExchangeRecorded(_)
            | Body::ReplayStarted(_)
            | Body::ReplayServed(_)
            | Body::ReplayMissed(_)) => self.egress.push(told(event, body)),
            body @ (Body::FileAsked(_)
            | Body::ModelCalled(_)
            | Body::ToolListed(_)
            | Body::ToolRegistered(_)
            | Body::ToolChanged(_)
            | Body::ToolCalled(_)
            | Body::ToolReturned(_)
            | Body::ToolFault(_)
            | Body::BrowserStarted(_)
            | Body::BrowserActed(_)
            | Body::BrowserDone(_)
            | Body::BrowserSeen(_)
            | Body::BrowserFault(_)
            | Body::BrowserEnded(_)
            | Body::StepStarted(_)
            | Body::StepEnded(_)
            | Body::StepReplanned(_)) => self.work.push(told(event, body)),
            Body::SessionChanged(fact) => self.life.push(told(event, fact)),
            Body::SessionEnded(fact) => self.end = Some(told(event, fact)),
            Body::Checkpoint(_) => self.signatures += 1,
            Body::Head(_) => {
                self.signatures += 1;
                self.finished = true;
            }
        }
    }

    /// Execs stand in the order of their sequence numbers.
    fn exec(&mut self, parent: Option<u64>) -> Option<&mut Exec> {
        let index = self.execs.binary_search_by_key(&parent?, |exec| exec.started.seq).ok()?;
        self.execs.get_mut(index)
    }
}

fn told<T>(event: &Event, fact: T) -> Told<T> {
    Told { seq: event.seq, time_us: event.time, parent: event.parent, fact }
}
