//! Reads a session out of its trace: what it was asked to be, what it got from outside, and how it ended. Only a
//! trace that a trusted key vouches for is read: its answers are about to be believed.

use super::answers::Decided;
use crate::Engine;
use crate::error::EngineError;
use crate::traces::Trace;
use cofferdam_intercept::replay::{Answered, Recorded, Recording, Request, Response};
use cofferdam_model::{
    Answer, AnswerRecorded, BlobRef, Body, CredentialBound, Digest, Ending, Event, ExchangeRecorded, Exit,
    Payload, SessionId, SessionSpec, Stream,
};
use cofferdam_trace::{Held, Reason, State, Verification};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(
        "{path} holds events without their payloads: replay a trace's directory, or a file that `cofferdam trace export --format bundle` wrote"
    )]
    EventsOnly { path: PathBuf },
    #[error(
        "refused: the trace is not what its signer wrote, from event {seq} on ({reason}); run `cofferdam trace verify`"
    )]
    Broken { seq: u64, reason: String },
    #[error(
        "refused: nobody who is trusted here has signed the trace; name the signer's key with --key PUB, or `cofferdam key trust PUB`"
    )]
    Untrusted,
    #[error(
        "refused: the trace is incomplete, so requests may be missing from it; replay it as far as it goes with --allow-incomplete"
    )]
    Incomplete,
    #[error("refused: the session is still running; wait for its end")]
    Running,
    #[error("the trace has no `{0}` event: it cannot be told what was run")]
    Missing(&'static str),
    #[error(
        "the session was told what to run while it lived ({0} commands): only a session of one command can be replayed"
    )]
    ManyCommands(usize),
    #[error(
        "the trace does not hold the policy's text: it was written by an older version; name the file with --policy"
    )]
    NoPolicy,
    #[error("the run had --env {0}, and a trace holds no values: give {1}")]
    Environment(String, String),
    #[error("the credential `{name}` cannot be used as it is recorded: {reason}; record the session again")]
    Credential { name: String, reason: String },
    #[error(
        "--live-fallback sends what was not recorded, by the policy and the upstreams of a file: name it with --policy"
    )]
    LiveWithoutPolicy,
}

/// A session as its trace tells it.
pub struct RecordedSession {
    pub id: SessionId,
    /// With the values of `env` empty: a trace does not hold them.
    pub spec: SessionSpec,
    pub workdir: PathBuf,
    pub tty: bool,
    pub exit: Option<Exit>,
    /// When it began, in microseconds since 1970.
    pub began_us: u64,
    /// The whole of each output stream.
    pub(crate) outputs: HashMap<Stream, Digest>,
    pub(crate) recording: Recording,
    pub(crate) policy: Option<String>,
    pub(crate) credentials: Vec<CredentialBound>,
    pub(crate) approvals: Vec<Decided>,
    /// What of it will not happen again, in words.
    pub(crate) without: Vec<String>,
}

impl Engine {
    /// Verifies a trace against the local keys, or only the given ones, and reads the session in it.
    pub fn recorded(
        &self,
        trace: &Trace,
        keys: &[PathBuf],
        incomplete: bool,
    ) -> Result<RecordedSession, EngineError> {
        let held = self.hold_trace(trace, keys)?;
        if held.is_without_payloads() {
            return Err(ReplayError::EventsOnly { path: trace.path.clone() }.into());
        }
        RecordedSession::read(&held, incomplete)
    }
}

impl RecordedSession {
    /// From a trace that was verified: what it may be replayed for is asked here.
    pub(crate) fn read(held: &Held, incomplete: bool) -> Result<Self, EngineError> {
        check(&held.verification, incomplete)?;
        Reading { held }.session()
    }
}

fn check(found: &Verification, incomplete: bool) -> Result<(), ReplayError> {
    match (found.state, &found.first_bad) {
        (State::Valid, _) => Ok(()),
        (State::Incomplete { live: true }, _) => Err(ReplayError::Running),
        (State::Incomplete { .. }, _) if incomplete => Ok(()),
        (State::Incomplete { .. }, _) => Err(ReplayError::Incomplete),
        (State::Broken, Some(bad)) => Err(match &bad.reason {
            Reason::UnknownSigner { .. } | Reason::NothingSigned => ReplayError::Untrusted,
            reason => ReplayError::Broken { seq: bad.seq, reason: reason.to_string() },
        }),
        (State::Broken, None) => Err(ReplayError::Untrusted),
    }
}

struct Reading<'a> {
    held: &'a Held,
}

impl Reading<'_> {
    fn blob(&self, wanted: &BlobRef) -> Result<Vec<u8>, EngineError> {
        Ok(self.held.payload(wanted)?)
    }

    fn session(self) -> Result<RecordedSession, EngineError> {
        let typed: Vec<(&Event, Body)> =
            self.held.events.iter().filter_map(|event| Some((event, event.typed()?))).collect();
        let started = typed.iter().find_map(|(event, body)| match body {
            Body::SessionStarted(fact) => Some((event.time, fact)),
            _ => None,
        });
        let (began_us, started) = started.ok_or(ReplayError::Missing("session.started"))?;
        let mut session = RecordedSession {
            id: started.session.clone(),
            spec: started.spec.clone(),
            workdir: started.workdir.as_path().to_owned(),
            tty: false,
            exit: None,
            began_us,
            outputs: HashMap::new(),
            recording: Recording { given: started.spec.command.clone(), ..Recording::default() },
            policy: None,
            credentials: Vec::new(),
            approvals: Vec::new(),
            without: Vec::new(),
        };
        let commands =
            typed.iter().filter(|(_, body)| matches!(body, Body::ExecStarted(fact) if !fact.own)).count();
        if started.spec.command.is_empty() || commands > 1 {
            return Err(ReplayError::ManyCommands(commands).into());
        }
        let decided: HashMap<u64, &Body> = typed
            .iter()
            .filter(|(_, body)| matches!(body, Body::EgressDecided(_)))
            .map(|(event, body)| (event.seq, body))
            .collect();
        let own: Vec<Option<u64>> = typed
            .iter()
            .filter(|(_, body)| matches!(body, Body::ExecStarted(fact) if fact.own))
            .map(|(event, _)| Some(event.seq))
            .collect();
        for (event, body) in &typed {
            if own.contains(&event.parent) {
                continue;
            }
            self.take(&mut session, event, body, &decided)?;
        }
        // They stand in the trace in the order of their ends.
        let began: HashMap<u64, u64> =
            self.held.events.iter().filter_map(|event| Some((event.seq, event.parent?))).collect();
        session.recording.exchanges.sort_by_key(|recorded| began.get(&recorded.seq).copied());
        if session.spec.policy.is_some() && session.recording.exchanges.is_empty() {
            let sent = typed.iter().any(|(_, body)| matches!(body, Body::EgressEnded(_)));
            if sent {
                session.without.push("answers: the trace holds none".to_owned());
            }
        }
        Ok(session)
    }

    fn take(
        &self,
        session: &mut RecordedSession,
        event: &Event,
        body: &Body,
        decided: &HashMap<u64, &Body>,
    ) -> Result<(), EngineError> {
        match body {
            Body::EgressOpened(fact) => {
                session.policy = Some(String::from_utf8_lossy(&self.blob(&fact.policy)?).into_owned());
                session.credentials = fact.credentials.clone();
            }
            Body::ExchangeRecorded(fact) => {
                session.recording.exchanges.push(self.exchange(event.seq, fact)?);
            }
            Body::ApprovalAnswered(fact) => {
                if let Some(Body::EgressDecided(asked)) = event.parent.and_then(|seq| decided.get(&seq)) {
                    session.approvals.push(Decided::new(asked, fact.answer == Answer::Allowed, &fact.by));
                }
            }
            Body::ControlChanged(fact) => {
                session.without.push(format!("`{}` by {} while it ran", fact.what, fact.by));
            }
            Body::ExecStarted(fact) if !fact.own => session.tty = fact.tty,
            Body::Output(fact) => {
                session.outputs.insert(fact.stream, fact.digest);
            }
            Body::SessionEnded(fact) => session.exit = Some(fact.exit),
            _ => {}
        }
        Ok(())
    }

    fn exchange(&self, seq: u64, fact: &ExchangeRecorded) -> Result<Recorded, EngineError> {
        let (body, whole) = self.payload(fact.body.as_ref())?;
        let request = Request {
            scheme: fact.scheme.clone(),
            host: fact.host.clone(),
            port: fact.port,
            method: fact.method.clone(),
            path: fact.path.clone(),
            query: fact.query.clone(),
            headers: fields(&fact.headers),
            body,
        };
        let answer = match &fact.answer {
            _ if !fact.without_bodies.is_empty() => Answered::Not(fact.without_bodies.clone()),
            _ if !whole => Answered::Not("its request is too long to be kept".to_owned()),
            None => Answered::Not(format!("none came ({})", word(fact.ending))),
            Some(answer) => self.answer(answer, fact.ending)?,
        };
        Ok(Recorded { seq, request, answer })
    }

    fn answer(&self, answer: &AnswerRecorded, ending: Ending) -> Result<Answered, EngineError> {
        let not = |why: &str| Ok(Answered::Not(why.to_owned()));
        if answer.status == 101 {
            return not("both sides changed to another protocol, which is not replayed");
        }
        // Who left early was content with what it had; what was cut on our side or theirs would look whole.
        if !matches!(ending, Ending::Complete | Ending::ClientGone) {
            return not(&format!("it broke off ({})", word(ending)));
        }
        let (body, whole) = self.payload(answer.body.as_ref())?;
        if !whole {
            return not("it is too long to be kept");
        }
        Ok(Answered::Whole(Response {
            status: answer.status,
            headers: fields(&answer.headers),
            parts: parts(body, answer),
            first: Duration::from_micros(answer.first_us),
        }))
    }

    /// The bytes, and whether they are all that there were.
    fn payload(&self, payload: Option<&Payload>) -> Result<(Vec<u8>, bool), EngineError> {
        match payload {
            None => Ok((Vec::new(), true)),
            Some(payload) => Ok((self.blob(&payload.head)?, payload.is_whole())),
        }
    }
}

fn fields(headers: &[(String, String)]) -> Vec<(String, Vec<u8>)> {
    headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone().into_bytes())).collect()
}

/// As they came; a body whose parts are not told is one part.
fn parts(body: Vec<u8>, answer: &AnswerRecorded) -> Vec<(Duration, Vec<u8>)> {
    if body.is_empty() {
        return Vec::new();
    }
    let told: u64 = answer.parts.iter().map(|part| part.1).sum();
    if answer.parts.is_empty() || told != body.len() as u64 {
        return vec![(Duration::ZERO, body)];
    }
    let mut rest = body.as_slice();
    let part = |part: &cofferdam_model::Part| {
        let (now, later) = rest.split_at_checked(part.1 as usize).unwrap_or((rest, &[]));
        rest = later;
        (Duration::from_micros(part.0), now.to_vec())
    };
    answer.parts.iter().map(part).collect()
}

fn word(ending: Ending) -> &'static str {
    match ending {
        Ending::Complete => "complete",
        Ending::ClientGone => "the client left",
        Ending::UpstreamFailed => "the other side failed",
        Ending::Revoked => "its credential was taken back",
        Ending::Paused => "egress was switched off",
        Ending::PolicyChanged => "the policy had changed",
        Ending::OverBudget => "the budget was spent",
        Ending::Refused => "something in it must not pass",
        Ending::SessionEnded => "the session ended",
    }
}
