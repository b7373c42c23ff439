//! One side of a comparison: a trace, verified, and reduced to a run. What is doubtful about it becomes a reason;
//! nothing is compared as if it were sound.

use cofferdam_compare::{Outcome, Reason, Scorer, foreign};
use cofferdam_gate::TraceRef;
use cofferdam_model::{BlobRef, Body, Digest, Event, Exit, Run, Stream, Tier};
use cofferdam_seal::{Keyring, canonical, digest};
use cofferdam_trace::{Check, MAX_ARCHIVE, Reader, State, Verification, to_run, unpack, verify};
use std::borrow::Cow;
use std::fs::File;
use std::path::Path;

pub(crate) struct Side {
    pub(crate) run: Run,
    pub(crate) trace: TraceRef,
    pub(crate) exit: Option<Exit>,
    /// Where it worked, as the inside saw it.
    pub(crate) workdir: Option<String>,
    /// The tier, and the digest of the enforcement report.
    pub(crate) report: Option<(Tier, Digest)>,
    /// What the agent wrote, as far as it was kept.
    pub(crate) output: String,
    /// Why it is not to be believed as it stands.
    pub(crate) doubts: Vec<Reason>,
}

impl Side {
    /// The run as if it had been where `new` was.
    pub(super) fn as_of(&self, new: &Self) -> Cow<'_, Run> {
        match (&self.workdir, &new.workdir) {
            (Some(then), Some(now)) if then != now => Cow::Owned(super::moved::moved(&self.run, then, now)),
            _ => Cow::Borrowed(&self.run),
        }
    }
}

/// A trace that cannot be compared, and why.
pub(crate) type Unread = Reason;

/// Whose trace it is, in the words of a reason.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Baseline,
    New,
}

impl Whose {
    fn words(self) -> &'static str {
        match self {
            Self::Baseline => "the baseline",
            Self::New => "the trace",
        }
    }

    fn code(self, what: &str) -> String {
        match self {
            Self::Baseline => format!("baseline-{what}"),
            Self::New => format!("trace-{what}"),
        }
    }
}

pub(crate) fn reason(code: impl Into<String>, outcome: Outcome, text: impl Into<String>) -> Reason {
    Reason {
        scorer: Scorer::Trace,
        code: code.into(),
        outcome,
        weight: 1.0,
        text: text.into(),
        places: Vec::new(),
    }
}

/// A trace of ours, in one file or as a directory.
pub(crate) fn read(path: &Path, name: &str, keys: &Keyring, whose: Whose) -> Result<Side, Unread> {
    let unreadable = |problem: &dyn std::fmt::Display| {
        let text = format!("{} {name} cannot be read: {problem}", whose.words());
        reason(whose.code("unreadable"), Outcome::Review, text)
    };
    let verified = verify(path, &Check { keys, session: None }).map_err(|error| unreadable(&error))?;
    let doubts = doubts(&verified, name, whose)?;
    let scratch = tempfile::tempdir().map_err(|error| unreadable(&error))?;
    let unfolded = match path.is_dir() {
        true => path.to_owned(),
        false => {
            let file = File::open(path).map_err(|error| unreadable(&error))?;
            let id = unpack(file, scratch.path(), MAX_ARCHIVE).map_err(|error| unreadable(&error))?;
            scratch.path().join(id.as_str())
        }
    };
    let mut reader = Reader::open(&unfolded).map_err(|error| unreadable(&error))?;
    let events = reader.by_ref().collect::<Result<Vec<Event>, _>>().map_err(|error| unreadable(&error))?;
    let payload = |blob: &BlobRef| reader.read_blob(blob).ok();
    let (workdir, exit, report, output) = told(&events, &payload);
    let trace = TraceRef {
        name: name.to_owned(),
        session: verified.session.clone(),
        head: events.last().map_or(Digest::ZERO, |event| event.hash),
        events: verified.events,
        signer: verified.signer,
    };
    Ok(Side { run: to_run(&events, &payload), trace, exit, workdir, report, output, doubts })
}

/// Someone else's record of a run.
pub(crate) fn foreign(path: &Path, name: &str, text: &str) -> Result<Vec<Side>, String> {
    let runs = foreign::read_all(text).map_err(|error| format!("{}: {error}", path.display()))?;
    let side = |run: Run| Side {
        trace: TraceRef {
            name: name.to_owned(),
            session: None,
            head: digest(text.as_bytes()),
            events: run.acts.len() as u64,
            signer: None,
        },
        run,
        exit: None,
        workdir: None,
        report: None,
        output: String::new(),
        doubts: Vec::new(),
    };
    Ok(runs.into_iter().map(side).collect())
}

/// What stands between the trace and being believed; nothing is read of one that was changed.
fn doubts(verified: &Verification, name: &str, whose: Whose) -> Result<Vec<Reason>, Unread> {
    use cofferdam_trace::Reason as Flaw;
    let words = whose.words();
    match (&verified.state, &verified.first_bad) {
        (State::Valid, _) => Ok(Vec::new()),
        (State::Incomplete { .. }, _) => {
            let text = format!("{words} {name} has no end: it was cut off after {} events", verified.events);
            Ok(vec![reason(whose.code("incomplete"), Outcome::Review, text)])
        }
        (State::Broken, bad) => {
            let flaw = bad.as_ref().map(|bad| &bad.reason);
            let place =
                bad.as_ref().map_or_else(String::new, |bad| format!("event {}: {}", bad.seq, bad.reason));
            Err(match flaw {
                Some(Flaw::UnknownSigner { key }) => reason(
                    whose.code("unknown-signer"),
                    Outcome::Review,
                    format!(
                        "{words} {name} is signed by {key}, which nobody here trusts: if you know whose it is, name its public key in `keys` of [baseline]"
                    ),
                ),
                Some(Flaw::NothingSigned) => {
                    let text =
                        format!("{words} {name} is not signed: record it again with `cofferdam record`");
                    reason(whose.code("unsigned"), Outcome::Review, text)
                }
                Some(Flaw::UnknownFormat { .. }) => reason(
                    whose.code("other-version"),
                    Outcome::Review,
                    format!(
                        "{words} {name} was recorded by another version ({place}): record it again with `cofferdam record`"
                    ),
                ),
                _ => reason(
                    whose.code("changed"),
                    Outcome::Fail,
                    format!(
                        "{words} {name} is not what was signed ({place}): find out who changed it, and restore or record it again"
                    ),
                ),
            })
        }
    }
}

type Told = (Option<String>, Option<Exit>, Option<(Tier, Digest)>, String);

fn told(events: &[Event], payload: &dyn Fn(&BlobRef) -> Option<Vec<u8>>) -> Told {
    let (mut workdir, mut exit, mut report, mut output) = (None, None, None, Vec::new());
    for event in events {
        match event.kind.as_str() {
            "session.started" | "enforcement" | "output" | "session.ended" => {}
            _ => continue,
        }
        match event.typed() {
            Some(Body::SessionStarted(found)) => {
                let shown = found.spec.shown_at.as_deref().unwrap_or_else(|| found.workdir.as_path());
                workdir = shown.to_str().map(str::to_owned);
            }
            Some(Body::Enforcement(found)) => {
                let bytes = canonical(&event.body).unwrap_or_default();
                report = Some((found.tier, digest(&bytes)));
            }
            Some(Body::Output(found)) if found.stream == Stream::Stdout => {
                for blob in [found.head, found.tail].iter().flatten() {
                    output.extend(payload(blob).unwrap_or_default());
                }
            }
            Some(Body::SessionEnded(found)) => exit = Some(found.exit),
            _ => {}
        }
    }
    (workdir, exit, report, String::from_utf8_lossy(&output).into_owned())
}
