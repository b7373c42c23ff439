//! Runs a recorded session again in a fresh sandbox, with the world answered from the recording. Nothing is reached
//! unless what was not recorded may go out, which takes a word of its own; no vault is opened otherwise.

pub(crate) mod answers;
mod pin;
mod source;

pub use pin::{Clock, ClockError, Pins};
pub use source::{RecordedSession, ReplayError};

use crate::Engine;
use crate::egress::{Prepared, Terms};
use crate::environment::Caller;
use crate::error::EngineError;
use crate::session::{Outcome, Run};
use crate::traces::Trace;
use crate::{policy, tiers};
use cofferdam_egress::Rules as EgressRules;
use cofferdam_intercept::replay::{Replay, Shelf};
pub use cofferdam_intercept::replay::{Rules as ReplayRules, RulesError as ReplayRulesError, Tally};
use cofferdam_model::{
    Body, CredentialBound, Digest, Exit, Fallback, ReplayStarted, SessionId, SessionSpec, Stream,
};
use cofferdam_vault::{Bound, Credential};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How it is run again.
#[derive(Default)]
pub struct Replaying {
    pub rules: ReplayRules,
    /// In the recorded one's place.
    pub policy: Option<PathBuf>,
    pub pins: Pins,
}

/// How it went, and how that compares.
pub struct Replayed {
    pub of: SessionId,
    pub outcome: Outcome,
    pub tally: Tally,
    /// How the recorded one ended, if it did.
    pub exit_then: Option<Exit>,
    /// Output streams, and whether every byte is the same.
    pub outputs: Vec<(Stream, bool)>,
    /// Whether what it was given on stdin is what it was given then.
    pub same_input: bool,
    pub without: Vec<String>,
}

impl Replayed {
    /// Whether something was asked for that a person should look at.
    pub fn wants_review(&self) -> bool {
        self.tally.missed.iter().any(|missed| missed.fallback == Fallback::Review)
    }
}

impl RecordedSession {
    /// What was run, to be run again: in the same work dir or another, with the values that a trace does not hold.
    pub fn respec(
        &self,
        workdir: Option<PathBuf>,
        mut env: BTreeMap<String, String>,
    ) -> Result<SessionSpec, EngineError> {
        if let Some(name) = self.spec.env.keys().find(|name| !env.contains_key(*name)) {
            let advice = format!("--env {name}=VALUE, or --env {name} to pass yours on");
            return Err(ReplayError::Environment(name.clone(), advice).into());
        }
        let workdir = Some(workdir.unwrap_or_else(|| self.workdir.clone()));
        env.retain(|name, _| !self.credentials.iter().any(|credential| credential.env == *name));
        Ok(SessionSpec { workdir, env, ..self.spec.clone() })
    }
}

impl Engine {
    /// Runs `run` with the answers of a recorded session. What is run need not be what was recorded: a new version
    /// of an agent meets the same world.
    pub fn replay(
        &self,
        recorded: RecordedSession,
        how: Replaying,
        run: Run<'_>,
    ) -> Result<Replayed, EngineError> {
        let then = recorded.outputs.clone();
        let replayed = self.replay_only(recorded, how, run)?;
        let now = self.outputs(&replayed.outcome)?;
        let same_input = then.get(&Stream::Stdin) == now.get(&Stream::Stdin);
        Ok(Replayed { outputs: compare(&then, &now), same_input, ..replayed })
    }

    /// The same, for whoever goes on to compare all of it: nothing is said of the outputs and of the input.
    pub(crate) fn replay_only(
        &self,
        recorded: RecordedSession,
        how: Replaying,
        mut run: Run<'_>,
    ) -> Result<Replayed, EngineError> {
        run.spec.check()?;
        let RecordedSession { id: of, exit, without, .. } = &recorded;
        let (of, exit_then, mut without) = (of.clone(), *exit, without.clone());
        let terms = self.terms(&recorded, &how, &run)?;
        let pinned = how.pins.pin(&mut run.spec, recorded.began_us);
        without.extend(pinned.without);
        let exchanges = recorded.recording.exchanges.len() as u64;
        let approvals = recorded.approvals;
        let (workdir_then, mut replay) = (recorded.workdir, None);
        let (rules, recording) = (how.rules.clone(), recorded.recording);
        let backend = tiers::choose(&self.home, &run.spec, None)?;
        let spec = run.spec.clone();
        let mut place = self.place_with(backend, &spec, |session, workdir| {
            let Some(terms) = terms else { return Ok(None) };
            let places = places(session, &of, workdir, &workdir_then);
            let shelf = Shelf::new(recording, rules.clone());
            let made = Arc::new(Replay::new(shelf, rules, places));
            replay = Some(made.clone());
            let prepared = Prepared::of(Terms { replay: Some((made, approvals)), ..terms }, &spec, session)?;
            prepared.priced(self).map(Some)
        })?;
        place.files = pinned.files;
        place.facts.push(Body::ReplayStarted(ReplayStarted {
            of: of.clone(),
            exchanges,
            matching: how.rules.mode,
            fallback: how.rules.fallback,
            speed: how.rules.speed,
            clock: pinned.clock,
            seed: how.pins.seed,
            without: without.clone(),
        }));
        let outcome = self.run_at(place, run, Caller::Own)?;
        let tally = replay.map(|replay| replay.tally()).unwrap_or_default();
        Ok(Replayed { of, outcome, tally, exit_then, outputs: Vec::new(), same_input: true, without })
    }

    /// What is allowed, and with which credentials: nothing where nothing was.
    fn terms(
        &self,
        recorded: &RecordedSession,
        how: &Replaying,
        run: &Run<'_>,
    ) -> Result<Option<Terms>, EngineError> {
        if recorded.spec.policy.is_none() && how.policy.is_none() {
            return Ok(None);
        }
        if how.rules.fallback == Fallback::Live {
            let path = how.policy.as_deref().ok_or(ReplayError::LiveWithoutPolicy)?;
            let mut bound = match run.spec.secrets.is_empty() {
                true => Vec::new(),
                false => self.secrets(run.ask)?.bind(&run.spec.secrets, &recorded.id)?,
            };
            for bound in &mut bound {
                let same = |recorded: &&CredentialBound| recorded.name == bound.credential.name;
                if let Some(recorded) = recorded.credentials.iter().find(same) {
                    bound.placeholder = recorded.placeholder.clone();
                    for part in &mut bound.parts {
                        if let Some(placeholder) = recorded.parts.get(&part.env) {
                            part.placeholder = placeholder.clone();
                        }
                    }
                }
            }
            let (text, rules) = (policy::read(path)?, policy::rules(path, None)?);
            return Ok(Some(Terms { text, rules, bound, replay: None }));
        }
        let text = match (&how.policy, &recorded.policy) {
            (Some(path), _) => policy::read(path)?,
            (None, Some(text)) => text.clone(),
            (None, None) => return Err(ReplayError::NoPolicy.into()),
        };
        let name = how.policy.clone().or_else(|| recorded.spec.policy.clone()).unwrap_or_default();
        let rules = EgressRules::offline(Arc::new(policy::parse(&text, &name)?))?;
        let bound = recorded.credentials.iter().map(hollow).collect::<Result<_, _>>()?;
        Ok(Some(Terms { text, rules, bound, replay: None }))
    }

    fn outputs(&self, outcome: &Outcome) -> Result<HashMap<Stream, Digest>, EngineError> {
        let trace = Trace { id: Some(outcome.session.clone()), path: outcome.trace.clone() };
        let output = |event: &cofferdam_model::Event| match event.typed() {
            Some(Body::Output(fact)) => Some((fact.stream, fact.digest)),
            _ => None,
        };
        Ok(self.events(&trace)?.iter().filter_map(output).collect())
    }
}

/// The placeholder is the recorded one, so that requests are the recorded ones to the byte. There is no value
/// behind it.
fn hollow(recorded: &CredentialBound) -> Result<Bound, EngineError> {
    let bad = |reason: String| ReplayError::Credential { name: recorded.name.clone(), reason };
    let places = recorded.places.iter().map(|place| place.parse()).collect::<Result<_, _>>();
    let credential = Credential {
        name: recorded.name.clone(),
        env: recorded.env.clone(),
        hosts: recorded.hosts.clone(),
        places: places.map_err(|error: cofferdam_vault::PlaceError| bad(error.to_string()))?,
        programs: recorded.programs.clone(),
        // Nothing that is signed leaves, so it is no matter for what.
        scopes: Vec::new(),
        hmac: None,
    };
    let signs = credential.signs();
    let credential = Credential { scopes: "*".parse().into_iter().filter(|_| signs).collect(), ..credential };
    let credential = credential.checked().map_err(|error| bad(error.to_string()))?;
    let parts = recorded.parts.clone().into_iter().collect();
    Ok(Bound::hollow(credential, recorded.placeholder.clone(), parts))
}

/// What this session calls otherwise than the recorded one did.
fn places(session: &SessionId, of: &SessionId, workdir: &Path, then: &Path) -> Vec<(String, String)> {
    let mut places = vec![(session.to_string(), of.to_string())];
    if let (Some(here), Some(then)) = (workdir.to_str(), then.to_str())
        && here != then
    {
        places.push((here.to_owned(), then.to_owned()));
    }
    places
}

/// A stream that only one of them has is not the same.
fn compare(then: &HashMap<Stream, Digest>, now: &HashMap<Stream, Digest>) -> Vec<(Stream, bool)> {
    let all = [Stream::Stdout, Stream::Stderr, Stream::Tty];
    let known = all.into_iter().filter(|stream| then.contains_key(stream) || now.contains_key(stream));
    known.map(|stream| (stream, then.get(&stream) == now.get(&stream))).collect()
}
