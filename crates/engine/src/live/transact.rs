//! Transactions of a session that is held: opened, looked at, kept or dropped. The session itself is the
//! outermost: what is kept of it goes to the host's work dir. Nothing may run while layers change, so who asks is
//! told what does, or says that it is to end.

use super::holder::Holder;
use super::{plead, rescue};
use crate::Engine;
use crate::control::{Question, Reply, asking, unexpected};
use crate::error::EngineError;
use crate::record::Recorder;
use crate::standing::Standing;
use cofferdam_model::{
    Body, ChangesDecided, Event, FileDifference, LiveState, SessionChanged, SessionId, Settled,
};
use cofferdam_policy::Policy;
use cofferdam_runtime::{ChangeList, RuntimeError};
use cofferdam_trace::Reader;
use rustix::fs::{MemfdFlags, SeekFrom};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long whoever has answered may take to be gone.
const LEAVING: Duration = Duration::from_millis(500);
/// Effects that are told one by one.
const TOLD: usize = 50;
/// More text than this in one answer is not sent; the changes themselves are.
const TEXTS: usize = 32 << 20;

impl Holder {
    /// A clear no, with who it is that runs. The interpreter that is kept goes first, so that nothing hides behind it; it is
    /// started again with the next guest, or at once where there is none.
    pub(super) fn nothing_runs(&mut self) -> Result<(), EngineError> {
        let warm = !self.spec.warm.python.is_empty();
        if warm {
            self.relay.let_cool()?;
        }
        let done = self.is_idle();
        if warm && done.is_err() {
            self.keep_warm()?;
        }
        done
    }

    fn is_idle(&self) -> Result<(), EngineError> {
        let running: Vec<String> =
            self.execs.iter().filter(|e| e.running.is_some()).map(|e| e.info.id.to_string()).collect();
        let who = match running.as_slice() {
            // The browser is started again afterwards.
            [] if self.browser.is_some() || self.is_deserted() => return Ok(()),
            [] => "something that a command left running".to_owned(),
            [one] => format!("exec {one}"),
            several => format!("execs {}", several.join(", ")),
        };
        Err(EngineError::Declined(format!(
            "{who} still runs, and files cannot change under it: wait, or end it (`session kill --exec`, `--force`)"
        )))
    }

    /// Whether nothing runs besides the guest. Whoever has just answered (a file that was written, a command that
    /// ended) may still be on its way out.
    fn is_deserted(&self) -> bool {
        let patience = Instant::now() + LEAVING;
        while self.standing.sandbox.is_occupied() {
            if Instant::now() >= patience {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }

    /// Ready to have its layers changed.
    pub(super) fn make_ready(&mut self, force: bool, by: &str) -> Result<(), EngineError> {
        match self.state {
            LiveState::Running => {}
            LiveState::IdlePaused => self.resume(by)?,
            _ => {
                let text = "it is paused: resume it with `cofferdam session resume`";
                return Err(EngineError::Declined(text.into()));
            }
        }
        if force { Ok(()) } else { self.nothing_runs() }
    }

    /// The guest is another one after its layers have changed. Without one the session is about to end: its old
    /// channel is closed.
    pub(super) fn meet_guest(&mut self) -> Result<(), EngineError> {
        if let Some(channel) = self.standing.sandbox.take_channel() {
            let before = std::mem::replace(&mut self.relay, plead::relay(channel, &self.spec)?).leave(true);
            self.guests += 1;
            self.forget_askers();
            for (id, event, ended) in before {
                self.ended(id, event, ended, Some("its transaction was ended"))?;
            }
            self.browser = self.standing.start_browser(&mut self.relay, &self.spec)?;
            self.keep_warm()?;
            self.note_files()?;
        }
        Ok(())
    }

    pub(super) fn begin_transaction(&mut self, by: &str) -> Result<(), EngineError> {
        self.make_ready(false, by)?;
        let began = self.standing.sandbox.begin_transaction();
        self.meet_guest()?;
        began?;
        let depth = self.standing.sandbox.depth();
        let event = self.changed("begin", by, format!("transaction {depth}"))?;
        self.begun.push(event);
        Ok(())
    }

    /// What was done in the innermost one, a line of JSON for each change. With commands at work it is what there
    /// is at a moment in which they stand still.
    pub(super) fn diff(&mut self, texts: bool, descriptors: Vec<OwnedFd>) -> Result<(), EngineError> {
        let failed = |source| EngineError::Io { doing: "tell the changes", source };
        let Some(to) = descriptors.into_iter().next() else {
            return Err(EngineError::Declined("a place for the answer has to come along".into()));
        };
        let found = self.look(texts);
        let mut to = BufWriter::new(File::from(to));
        let mut room = TEXTS;
        for mut difference in found? {
            match difference.diff.as_ref().map(String::len) {
                Some(size) if size > room => {
                    difference.diff = None;
                    difference.omitted = Some("too much text in all".into());
                }
                Some(size) => room -= size,
                None => {}
            }
            let line = serde_json::to_string(&difference).map_err(|error| failed(error.into()))?;
            writeln!(to, "{line}").map_err(failed)?;
        }
        to.flush().map_err(failed)
    }

    /// What there is at a moment. Where nothing can be made to stand still, the interpreter that is kept goes for it and
    /// comes again; and a browser, which has no business with the work dir, goes on.
    fn look(&mut self, texts: bool) -> Result<Vec<FileDifference>, EngineError> {
        let warm = !self.spec.warm.python.is_empty();
        let idle = self.is_paused() || self.is_idle().is_ok();
        let found = self.standing.sandbox.difference(texts, warm || self.browser.is_some() || !idle);
        match found {
            Err(RuntimeError::Refused { .. }) if idle && self.browser.is_some() => {
                Ok(self.standing.sandbox.difference(texts, false)?)
            }
            Err(RuntimeError::Refused { .. }) if warm && !self.is_paused() => {
                self.relay.let_cool()?;
                let found = self.is_idle().map(|()| self.standing.sandbox.difference(texts, true));
                self.keep_warm()?;
                Ok(found??)
            }
            Err(RuntimeError::Refused { what, .. }) if !idle => Err(EngineError::Unenforceable(format!(
                "refused: changes are not told while something runs that cannot be made to stand still: {what}; \
                 wait until it has ended, or end it with `session kill --exec`"
            ))),
            found => Ok(found?),
        }
    }

    pub(super) fn settle(&mut self, keep: bool, force: bool, by: &str) -> Result<Settled, EngineError> {
        self.make_ready(force, by)?;
        let what = if keep { "commit" } else { "rollback" };
        if self.standing.sandbox.depth() == 0 {
            return self.settle_all(keep, what, by);
        }
        let (effects, more) = if keep { Default::default() } else { self.effects()? };
        let depth = self.standing.sandbox.depth();
        let mut detail = format!("transaction {depth}");
        if !effects.is_empty() {
            detail.push_str(&format!(", without {} outside effects", effects.len() as u64 + more));
        }
        // On record before anything of it happens.
        self.changed(what, by, detail)?;
        let settled = self.standing.sandbox.settle(keep, &mut |_| Ok(()));
        self.meet_guest()?;
        settled?;
        self.begun.pop();
        Ok(Settled { kept: keep, depth: self.standing.sandbox.depth(), host: None, effects, more })
    }

    /// The session's own: onto the host's work dir, or away. It goes on with nothing done yet. What is judged and on
    /// record is what is kept, whatever ran: the look that counts is the one after it has ended.
    fn settle_all(&mut self, keep: bool, what: &str, by: &str) -> Result<Settled, EngineError> {
        let policy = self.standing.egress.as_ref().filter(|_| keep).map(|egress| egress.handle.policy());
        if let Some(policy) = &policy {
            self.foresee(policy)?;
        }
        let (effects, more) = if keep { Default::default() } else { self.effects()? };
        rescue::forget(&self.standing.home, &self.standing.session);
        let Standing { sandbox, recorder, shown_at, .. } = &mut self.standing;
        let (mut decided, mut refused) = (None, None);
        let settled = sandbox.settle(keep, &mut |found| {
            decided = Some(crate::standing::decided(keep, by, found, Vec::new()));
            let agreed =
                judged(policy.as_deref(), shown_at, found).and_then(|()| announce(recorder, what, by, found));
            agreed.map_err(|error| {
                let text = error.to_string();
                refused = Some(error);
                RuntimeError::Refused { what: text, fix: "nothing was changed".into() }
            })
        });
        self.meet_guest()?;
        if let Some(error) = refused {
            return Err(error);
        }
        let committed = match settled {
            Ok(committed) => committed,
            Err(error) => {
                self.changed(what, by, format!("not done: {error}"))?;
                return Err(error.into());
            }
        };
        let decided =
            decided.unwrap_or_else(|| crate::standing::decided(keep, by, &ChangeList::default(), Vec::new()));
        let decided = ChangesDecided { aside: committed.aside, skipped: committed.skipped, ..decided };
        // The work dir holds all of it now; what was done to an image still lies beside it.
        if keep && self.standing.image.is_none() {
            self.shelf.let_go(&self.standing.session);
            self.note_files()?;
        }
        self.standing.recorder.append(None, &Body::ChangesDecided(decided.clone()))?;
        Ok(Settled { kept: keep, depth: 0, host: Some(decided), effects, more })
    }

    /// What the policy has against it is said before anything is ended for it, where it can be seen.
    fn foresee(&mut self, policy: &Policy) -> Result<(), EngineError> {
        if !crate::standing::speaks_of_files(policy) {
            return Ok(());
        }
        match self.standing.sandbox.difference(false, true) {
            Ok(found) => {
                let found: Vec<_> = found.into_iter().map(|difference| difference.change).collect();
                judged(Some(policy), &self.standing.shown_at, &found.into())
            }
            Err(RuntimeError::Refused { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// What left since the innermost transaction began: it cannot be taken back.
    fn effects(&self) -> Result<(Vec<String>, u64), EngineError> {
        let since = self.begun.last().copied().unwrap_or(0);
        let mut effects = Effects::default();
        for event in Reader::open(&self.standing.trace)? {
            let event = event?;
            if event.seq > since {
                effects.hear(&event);
            }
        }
        Ok(effects.told())
    }
}

/// All of it, or none.
fn judged(policy: Option<&Policy>, shown_at: &Path, changes: &ChangeList) -> Result<(), EngineError> {
    let Some(policy) = policy else { return Ok(()) };
    for change in changes.iter() {
        let change =
            change.map_err(|source| EngineError::Io { doing: "read the list of changes", source })?;
        if let Some(why) = crate::standing::refused(policy, shown_at, &change) {
            return Err(EngineError::Declined(format!(
                "{} is not to be kept ({why}): undo it inside, or roll back",
                change.path
            )));
        }
    }
    Ok(())
}

/// On record, and signed, before anything of it happens.
fn announce(recorder: &Recorder, what: &str, by: &str, changes: &ChangeList) -> Result<(), EngineError> {
    let detail = "the session's own changes".into();
    let body = SessionChanged { what: what.into(), by: by.into(), detail };
    recorder.append(None, &Body::SessionChanged(body))?;
    crate::standing::record(recorder, changes)?;
    recorder.checkpoint()
}

/// Requests that left and tools that were called, each once, by the event that says so.
#[derive(Default)]
struct Effects {
    done: BTreeMap<u64, String>,
    /// Wait for a person's answer.
    held: BTreeMap<u64, String>,
}

impl Effects {
    /// By what events say of themselves: of a kind that is not known here, nothing is missed that follows the rest.
    fn hear(&mut self, event: &Event) {
        let said = |name: &str| event.body[name].as_str().unwrap_or_default();
        let text = match event.kind.as_str() {
            "egress.decided" => {
                let (method, scheme, host, path) =
                    (said("method"), said("scheme"), said("host"), said("path"));
                format!("{method} {scheme}://{host}:{}{path}", event.body["port"]).trim_start().to_owned()
            }
            "tool.called" => format!("tool {} of {}", said("tool"), said("server")),
            "approval.answered" if said("answer") == "allowed" => {
                if let Some((seq, text)) = event.parent.and_then(|seq| self.held.remove_entry(&seq)) {
                    self.done.insert(seq, text);
                }
                return;
            }
            "tool.returned" if said("outcome") == "refused" => {
                event.parent.iter().for_each(|seq| drop(self.done.remove(seq)));
                return;
            }
            _ => return,
        };
        match said("effect") {
            "allow" => drop(self.done.insert(event.seq, text)),
            "review" => drop(self.held.insert(event.seq, text)),
            _ => {}
        }
    }

    fn told(self) -> (Vec<String>, u64) {
        let more = self.done.len().saturating_sub(TOLD) as u64;
        (self.done.into_values().take(TOLD).collect(), more)
    }
}

impl Engine {
    /// Opens a transaction in a session, within the innermost one.
    pub fn begin_transaction(&self, session: &SessionId) -> Result<(), EngineError> {
        self.command(session, &Question::Begin).map(drop)
    }

    /// What was done in a session's innermost transaction; without one, by the session so far.
    pub fn difference(&self, session: &SessionId, texts: bool) -> Result<Vec<FileDifference>, EngineError> {
        let failed = |source: io::Error| EngineError::Io { doing: "read the changes", source };
        let memory =
            rustix::fs::memfd_create("changes", MemfdFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
        let mut lines = self.ask_session(session, &Question::Diff { texts }, &[memory.as_fd()])?;
        match lines.next(None).map_err(asking)? {
            Some(Reply::Done { .. }) => {}
            Some(other) => return Err(unexpected(other)),
            None => {
                return Err(EngineError::Declined(format!("session {session} ended before it could answer")));
            }
        }
        rustix::fs::seek(&memory, SeekFrom::Start(0)).map_err(|errno| failed(errno.into()))?;
        let read = |line: io::Result<String>| Ok(serde_json::from_str(&line?)?);
        BufReader::new(File::from(memory)).lines().map(read).collect::<io::Result<_>>().map_err(failed)
    }

    /// Keeps or drops a session's innermost transaction; without one, all that it did so far.
    pub fn settle(&self, session: &SessionId, keep: bool, force: bool) -> Result<Settled, EngineError> {
        match self.ask(session, &Question::Settle { keep, force })? {
            Reply::Settled(settled) => Ok(*settled),
            other => Err(unexpected(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_model::Digest;
    use serde_json::json;

    fn event(seq: u64, parent: Option<u64>, kind: &str, body: serde_json::Value) -> Event {
        Event { body, hash: Digest::ZERO, kind: kind.into(), parent, prev: Digest::ZERO, seq, time: 0 }
    }

    #[test]
    fn what_left_is_told_and_what_was_stopped_is_not() {
        let request = |seq, effect, path| {
            let body = json!({ "via": "proxy", "scheme": "https", "host": "a.example", "port": 443,
                "method": "POST", "path": path, "effect": effect });
            event(seq, None, "egress.decided", body)
        };
        let answered = |seq, parent, answer| {
            event(seq, Some(parent), "approval.answered", json!({ "answer": answer, "waited_us": 1 }))
        };
        let mut effects = Effects::default();
        for event in [
            request(1, "allow", "/one"),
            request(2, "deny", "/two"),
            request(3, "review", "/three"),
            request(4, "review", "/four"),
            answered(5, 3, "allowed"),
            answered(6, 4, "denied"),
        ] {
            effects.hear(&event);
        }
        let (told, more) = effects.told();
        assert_eq!(told, ["POST https://a.example:443/one", "POST https://a.example:443/three"]);
        assert_eq!(more, 0);
    }
}
