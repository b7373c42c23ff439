//! One side of a comparison: a trace, verified, and reduced to a run. What is doubtful about it becomes a reason;
//! nothing is compared as if it were sound.

use cofferdam_compare::{Outcome, Reason, Scorer, foreign};
use cofferdam_gate::TraceRef;
use cofferdam_model::{BlobRef, Body, Digest, Event, Exit, Run, Stream, Tier};
use cofferdam_seal::{Keyring, canonical, digest};
use cofferdam_trace::{Check, Held, State, Verification, to_run, verify_held};
use std::borrow::Cow;
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
    /// The last line of what it wrote for people.
    pub(crate) last_words: Option<String>,
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
        rule: None,
        outcome,
        weight: 1.0,
        text: text.into(),
        places: Vec::new(),
    }
}

/// A trace of ours, in one file or as a directory.
pub(crate) fn read(path: &Path, name: &str, keys: &Keyring, whose: Whose) -> Result<Side, Unread> {
    read_held(path, name, keys, whose).map(|(side, _)| side)
}

/// The same, and the trace itself for whoever needs more of it.
pub(crate) fn read_held(
    path: &Path,
    name: &str,
    keys: &Keyring,
    whose: Whose,
) -> Result<(Side, Held), Unread> {
    let unreadable = |problem: &dyn std::fmt::Display| {
        let text = format!("{} {name} cannot be read: {problem}", whose.words());
        reason(whose.code("unreadable"), Outcome::Review, text)
    };
    let held = verify_held(path, &Check { keys, session: None }).map_err(|error| unreadable(&error))?;
    let verified = &held.verification;
    let doubts = doubts(verified, name, whose)?;
    let payload = |blob: &BlobRef| held.payload(blob).ok();
    let Told { workdir, exit, report, output, last_words } = told(&held.events, &payload);
    let trace = TraceRef {
        name: name.to_owned(),
        session: verified.session.clone(),
        head: held.events.last().map_or(Digest::ZERO, |event| event.hash),
        events: verified.events,
        signer: verified.signer,
    };
    let run = to_run(&held.events, &payload);
    Ok((Side { run, trace, exit, workdir, report, output, last_words, doubts }, held))
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
        last_words: None,
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

#[derive(Default)]
struct Told {
    workdir: Option<String>,
    exit: Option<Exit>,
    report: Option<(Tier, Digest)>,
    output: String,
    last_words: Option<String>,
}

fn told(events: &[Event], payload: &dyn Fn(&BlobRef) -> Option<Vec<u8>>) -> Told {
    let (mut told, mut output, mut errors) = (Told::default(), Vec::new(), Vec::new());
    for event in events {
        match event.kind.as_str() {
            "session.started" | "enforcement" | "output" | "session.ended" => {}
            _ => continue,
        }
        match event.typed() {
            Some(Body::SessionStarted(found)) => {
                let shown = found.spec.shown_at.as_deref().unwrap_or_else(|| found.workdir.as_path());
                told.workdir = shown.to_str().map(str::to_owned);
            }
            Some(Body::Enforcement(found)) => {
                let bytes = canonical(&event.body).unwrap_or_default();
                told.report = Some((found.tier, digest(&bytes)));
            }
            Some(Body::Output(found)) => {
                let into = match found.stream {
                    Stream::Stdout => &mut output,
                    Stream::Stderr => &mut errors,
                    Stream::Stdin | Stream::Tty => continue,
                };
                for blob in [found.head, found.tail].iter().flatten() {
                    into.extend(payload(blob).unwrap_or_default());
                }
            }
            Some(Body::SessionEnded(found)) => told.exit = Some(found.exit),
            _ => {}
        }
    }
    told.output = String::from_utf8_lossy(&output).into_owned();
    told.last_words = last_line(&String::from_utf8_lossy(&errors));
    told
}

/// The last line that says something, in short.
fn last_line(text: &str) -> Option<String> {
    const LONGEST: usize = 200;
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    Some(line.chars().filter(|c| !c.is_control()).take(LONGEST).collect())
}
