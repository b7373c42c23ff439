//! From events to a run, as comparison reads it: what was executed, what left, what was changed. A pure function of
//! the events, in order; a function per kind of event, so that a new kind is one arm and one function.
//!
//! It keeps what an agent did and leaves out how the house watched it (enforcement, checkpoints, names asked). Nothing
//! of it can hold a secret's value: paths and queries stand in the trace as they came from inside, with placeholders,
//! and of an environment only the names.

mod browser;
mod model;
mod work;

use cofferdam_model::{
    Act, ActKind, Answer, ApprovalAnswered, BlobRef, BlockedAttempt, Body, ChangeOp, Decided, EffectOf,
    EgressDecided, EgressEnded, EgressRefused, Ending, Event, ExecExited, ExecStarted, Exit, FileChange,
    LimitHit, OutputCaptured, Run, SessionEnded, SessionStarted, SqlDecided, SqlEnded, Status, Stream,
    Verdict,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

/// The bytes of a payload, for whoever has them: an output becomes text only where they are given.
pub type Payload<'a> = dyn Fn(&BlobRef) -> Option<Vec<u8>> + 'a;

/// The run that these events tell.
pub fn to_run<'a>(events: impl IntoIterator<Item = &'a Event>, payload: &Payload<'_>) -> Run {
    let mut reducer = Reducer {
        run: Run { origin: "cofferdam".to_owned(), ..Run::default() },
        acts: HashMap::new(),
        asked: HashMap::new(),
        unread: BTreeMap::new(),
        finished: false,
        workdir: PathBuf::new(),
        payload,
    };
    events.into_iter().for_each(|event| reducer.take(event));
    reducer.finish()
}

struct Reducer<'a> {
    run: Run,
    /// The act that an event became, by the event's sequence number.
    acts: HashMap<u64, usize>,
    /// Tools that a model asked for and that have no result yet, by the model's id for the call.
    asked: HashMap<String, usize>,
    unread: BTreeMap<String, u64>,
    finished: bool,
    /// Where the paths of changes begin.
    workdir: PathBuf,
    payload: &'a Payload<'a>,
}

impl Reducer<'_> {
    fn take(&mut self, event: &Event) {
        let Some(body) = event.typed() else {
            *self.unread.entry(event.kind.clone()).or_default() += 1;
            return;
        };
        match body {
            Body::SessionStarted(fact) => self.started(&fact),
            // The house's own part of a session is none of the agent's acts.
            Body::ExecStarted(fact) if fact.own => {}
            Body::ExecStarted(fact) => self.exec(event, &fact),
            Body::Output(fact) => self.output(event, &fact),
            Body::ExecExited(fact) => self.exited(event, &fact),
            Body::EgressDecided(fact) => self.egress(event, &fact),
            Body::SqlDecided(fact) => self.statement(event, &fact),
            Body::SqlEnded(fact) => self.statement_ended(event, &fact),
            Body::ApprovalAnswered(fact) => self.approval(event, &fact),
            Body::EgressEnded(fact) => self.answered(event, &fact),
            Body::EgressRefused(fact) => self.refused(event, &fact),
            Body::ModelCalled(fact) => self.model(event, &fact),
            Body::ToolCalled(fact) => self.tool(event, &fact),
            Body::ToolReturned(fact) => self.returned(event, &fact),
            Body::BrowserActed(fact) => self.browser(event, &fact),
            Body::BrowserDone(fact) => self.browser_done(event, &fact),
            Body::BrowserSeen(fact) => self.browser_seen(event, &fact),
            Body::StepStarted(fact) => self.step(event, &fact),
            Body::StepEnded(fact) => self.step_ended(event, &fact),
            Body::StepReplanned(fact) => self.replanned(event, &fact),
            Body::FileChanged(fact) => self.file(event, &fact),
            Body::Blocked(fact) => self.blocked(event, &fact),
            Body::Limit(fact) => self.limit(&fact),
            Body::SessionEnded(fact) => self.ended(&fact),
            Body::Head(_) => self.finished = true,
            Body::Enforcement(_)
            | Body::OutputSeen(_)
            | Body::Syscall(_)
            | Body::FileAsked(_)
            | Body::ChangesDecided(_)
            | Body::CredentialUsed(_)
            | Body::ControlChanged(_)
            | Body::NameAsked(_)
            | Body::StrayPacket(_)
            | Body::AlertSent(_)
            | Body::EgressOpened(_)
            | Body::ExchangeRecorded(_)
            | Body::ReplayStarted(_)
            | Body::ReplayServed(_)
            | Body::ReplayMissed(_)
            | Body::ToolListed(_)
            | Body::ToolRegistered(_)
            | Body::ToolChanged(_)
            | Body::ToolFault(_)
            | Body::BrowserStarted(_)
            | Body::BrowserFault(_)
            | Body::BrowserEnded(_)
            | Body::SessionChanged(_)
            | Body::Checkpoint(_) => {}
        }
    }

    fn push(&mut self, event: &Event, kind: ActKind, name: String) -> &mut Act {
        let index = self.run.acts.len();
        self.acts.insert(event.seq, index);
        let within = event.parent.and_then(|parent| self.acts.get(&parent).copied());
        self.run.acts.push(Act {
            at: event.seq,
            within,
            kind,
            name,
            args: Value::Null,
            text: String::new(),
            status: Status::Ok,
            effect: EffectOf::Unknown,
            decided: None,
        });
        &mut self.run.acts[index]
    }

    /// The act that this event says more about.
    fn parent(&mut self, event: &Event) -> Option<&mut Act> {
        let index = self.acts.get(&event.parent?)?;
        self.run.acts.get_mut(*index)
    }

    fn started(&mut self, fact: &SessionStarted) {
        self.run.id = fact.session.to_string();
        let shown = fact.spec.shown_at.as_deref();
        self.workdir = shown.unwrap_or_else(|| fact.workdir.as_path()).to_owned();
    }

    fn exec(&mut self, event: &Event, fact: &ExecStarted) {
        let program = fact.argv.first().map_or("", |path| path.rsplit('/').next().unwrap_or(path));
        let args = json!({ "argv": fact.argv, "cwd": fact.cwd, "user": fact.user });
        let act = self.push(event, ActKind::Exec, program.to_owned());
        act.args = args;
        act.status = Status::Unanswered;
    }

    fn output(&mut self, event: &Event, fact: &OutputCaptured) {
        if fact.stream == Stream::Stdin {
            return;
        }
        let piece = |stored: &Option<BlobRef>| stored.as_ref().and_then(|stored| (self.payload)(stored));
        let bytes: Vec<Vec<u8>> = [piece(&fact.head), piece(&fact.tail)].into_iter().flatten().collect();
        let text = if bytes.is_empty() && fact.bytes > 0 {
            format!("{} bytes, {}", fact.bytes, fact.digest)
        } else {
            bytes.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect::<Vec<_>>().join("\n")
        };
        if let Some(act) = self.parent(event) {
            if !act.text.is_empty() && !text.is_empty() {
                act.text.push('\n');
            }
            act.text.push_str(&text);
        }
    }

    fn exited(&mut self, event: &Event, fact: &ExecExited) {
        if let Some(act) = self.parent(event) {
            act.status = match fact.exit {
                Exit::Code(0) => Status::Ok,
                Exit::LimitReached | Exit::TimedOut => Status::Refused,
                _ => Status::Failed,
            };
        }
    }

    fn egress(&mut self, event: &Event, fact: &EgressDecided) {
        let method = if fact.method.is_empty() { &fact.scheme } else { &fact.method };
        let usual = matches!((fact.scheme.as_str(), fact.port), ("https" | "tls", 443) | ("http", 80));
        let port = if usual { String::new() } else { format!(":{}", fact.port) };
        let mut args = json!({ "scheme": fact.scheme });
        if let Some(query) = &fact.query {
            args["query"] = Value::from(query.as_str());
        }
        if !fact.credentials.is_empty() {
            args["credentials"] = json!(fact.credentials);
        }
        let name = format!("{method} {}{port}{}", fact.host, fact.path);
        // A session with a database does nothing by itself.
        let reads = match fact.scheme.as_str() {
            "postgres" => true,
            "ssh" => fact.method.starts_with("git-upload-"),
            _ => matches!(fact.method.as_str(), "GET" | "HEAD" | "OPTIONS"),
        };
        let act = self.push(event, ActKind::Egress, name);
        act.args = args;
        act.effect = if reads { EffectOf::Reads } else { EffectOf::Changes };
        act.status = if fact.effect == Verdict::Deny { Status::Refused } else { Status::Unanswered };
        act.decided =
            Some(Decided { effect: fact.effect, rule: fact.rule.clone(), reason: fact.reason.clone() });
    }

    /// A statement for a database is an act of its own, within the session that carries it.
    fn statement(&mut self, event: &Event, fact: &SqlDecided) {
        let reads = |act: &String| matches!(act.split(' ').next(), Some("read" | "control" | "cancel"));
        let all_read = fact.acts.iter().all(reads);
        let act = self.push(event, ActKind::Egress, format!("sql {}", fact.acts.join(", ")));
        act.args = json!({ "statement": fact.statement });
        act.effect = if all_read { EffectOf::Reads } else { EffectOf::Changes };
        act.status = if fact.effect == Verdict::Deny { Status::Refused } else { Status::Unanswered };
        act.decided =
            Some(Decided { effect: fact.effect, rule: fact.rule.clone(), reason: fact.reason.clone() });
    }

    fn statement_ended(&mut self, event: &Event, fact: &SqlEnded) {
        if let Some(act) = self.parent(event) {
            act.status = if fact.error.is_empty() { Status::Ok } else { Status::Failed };
            act.text = if fact.error.is_empty() { fact.tag.clone() } else { format!("error {}", fact.error) };
        }
    }

    fn approval(&mut self, event: &Event, fact: &ApprovalAnswered) {
        if let Some(act) = self.parent(event).filter(|_| fact.answer != Answer::Allowed) {
            act.status = Status::Refused;
        }
    }

    fn answered(&mut self, event: &Event, fact: &EgressEnded) {
        if let Some(act) = self.parent(event) {
            let broken =
                matches!(fact.ending, Ending::UpstreamFailed | Ending::ClientGone | Ending::SessionEnded);
            // Over SSH it is how a command exited, and that it failed.
            let good = fact.status.is_none_or(|status| status < 400 && act.args["scheme"] != "ssh");
            act.status = match fact.ending {
                Ending::Complete if good => Status::Ok,
                Ending::Complete => Status::Failed,
                _ if broken => Status::Failed,
                _ => Status::Refused,
            };
            let is_exit = act.args["scheme"] == "ssh";
            let status = fact.status.filter(|_| !is_exit);
            act.text = status.map_or_else(|| fact.detail.clone(), |status| format!("status {status}"));
        }
    }

    fn refused(&mut self, event: &Event, fact: &EgressRefused) {
        let name = match fact.request.split_once(' ') {
            Some((method, path)) => format!("{method} {}{path}", fact.destination),
            None => format!("{} {}", fact.cause, fact.destination),
        };
        let decided = Decided { effect: Verdict::Deny, rule: None, reason: fact.cause.clone() };
        let act = self.push(event, ActKind::Egress, name);
        act.text.clone_from(&fact.detail);
        act.status = Status::Refused;
        act.effect = EffectOf::Changes;
        act.decided = Some(decided);
    }

    fn file(&mut self, event: &Event, fact: &FileChange) {
        let verb = match fact.op {
            ChangeOp::Created => "created",
            ChangeOp::Modified => "modified",
            ChangeOp::Renamed => "renamed",
            ChangeOp::Deleted => "deleted",
        };
        let path = self.workdir.join(fact.path.as_path());
        let mut args = json!({ "kind": fact.kind, "change": verb, "path": path.to_string_lossy() });
        if let Some(from) = &fact.from {
            args["from"] = json!(from);
        }
        if let Some(mode) = fact.mode {
            args["mode"] = Value::from(format!("{mode:o}"));
        }
        if let Some(digest) = &fact.digest {
            args["digest"] = json!(digest);
        }
        let act = self.push(event, ActKind::File, format!("{verb} {}", fact.path));
        act.args = args;
        act.effect = EffectOf::Changes;
    }

    fn blocked(&mut self, event: &Event, fact: &BlockedAttempt) {
        let decided = Decided { effect: Verdict::Deny, rule: None, reason: fact.reason.clone() };
        let args = json!({ "program": fact.program });
        let act = self.push(event, ActKind::Exec, format!("{}()", fact.syscall));
        act.args = args;
        act.status = Status::Refused;
        act.decided = Some(decided);
    }

    fn limit(&mut self, fact: &LimitHit) {
        self.run
            .gaps
            .push(format!("the limit `{}` of {} was reached: {}", fact.limit, fact.allowed, fact.detail));
    }

    fn ended(&mut self, fact: &SessionEnded) {
        self.run.spent.wall_us = fact.usage.wall_us;
        if let Some(error) = &fact.error {
            self.run.gaps.push(format!("the session ended with an error: {error}"));
        }
    }

    fn finish(mut self) -> Run {
        for (kind, count) in &self.unread {
            self.run.gaps.push(format!("{count} events of the kind `{kind}` are not known to this version"));
        }
        if !self.finished {
            self.run
                .gaps
                .push("the trace has no head: it was cut short, or the session still runs".to_owned());
        }
        self.run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_model::{Digest, FileKind, RawPath, Usage, Via};

    fn event(seq: u64, parent: Option<u64>, body: &Body) -> Event {
        let body_json = serde_json::to_value(body).unwrap()["body"].take();
        Event {
            body: body_json,
            hash: Digest::ZERO,
            kind: body.kind().into(),
            parent,
            prev: Digest::ZERO,
            seq,
            time: seq * 1000,
        }
    }

    fn request(method: &str, effect: Verdict) -> Body {
        Body::EgressDecided(Box::new(EgressDecided {
            via: Via::Proxy,
            scheme: "https".into(),
            host: "api.example.com".into(),
            port: 443,
            method: method.into(),
            path: "/v1/items".into(),
            query: Some("a=1".into()),
            effect,
            rule: Some("items".into()),
            reason: String::new(),
            program: None,
            credentials: vec!["token".into()],
        }))
    }

    fn ended(status: u16) -> Body {
        Body::EgressEnded(EgressEnded {
            ending: Ending::Complete,
            status: Some(status),
            sent: 1,
            received: 2,
            first_us: 3,
            total_us: 4,
            scrubbed: 0,
            flags: Vec::new(),
            detail: String::new(),
        })
    }

    fn sample() -> Vec<Event> {
        let stored = BlobRef { digest: Digest::ZERO, size: 2 };
        let exec = ExecStarted {
            argv: vec!["/usr/bin/curl".into(), "-s".into()],
            env: vec!["TOKEN".into()],
            cwd: RawPath::from("/work"),
            tty: false,
            user: "agent".into(),
            own: false,
            by: None,
        };
        let output = OutputCaptured {
            stream: Stream::Stdout,
            bytes: 2,
            digest: Digest::ZERO,
            head: Some(stored),
            tail: None,
        };
        let change = FileChange {
            op: ChangeOp::Created,
            kind: FileKind::File,
            path: RawPath::from("out.txt"),
            from: None,
            changed: Vec::new(),
            mode: Some(0o644),
            size: Some(2),
            digest: Some(Digest::ZERO),
        };
        vec![
            event(2, None, &Body::ExecStarted(exec)),
            event(3, Some(2), &request("GET", Verdict::Allow)),
            event(4, Some(3), &ended(200)),
            event(5, Some(2), &request("POST", Verdict::Allow)),
            event(6, Some(5), &ended(500)),
            event(7, Some(2), &request("POST", Verdict::Deny)),
            event(8, Some(2), &Body::Output(output)),
            event(9, Some(2), &Body::ExecExited(ExecExited { exit: Exit::Code(1), usage: Usage::default() })),
            event(10, None, &Body::FileChanged(change)),
        ]
    }

    #[test]
    fn acts_stand_in_the_order_in_which_they_began() {
        let run = to_run(&sample(), &|_| Some(b"ok".to_vec()));
        let told: Vec<_> = run.acts.iter().map(|a| (a.name.as_str(), a.status, a.effect, a.within)).collect();
        let post = "POST api.example.com/v1/items";
        assert_eq!(
            told,
            [
                ("curl", Status::Failed, EffectOf::Unknown, None),
                ("GET api.example.com/v1/items", Status::Ok, EffectOf::Reads, Some(0)),
                (post, Status::Failed, EffectOf::Changes, Some(0)),
                (post, Status::Refused, EffectOf::Changes, Some(0)),
                ("created out.txt", Status::Ok, EffectOf::Changes, None),
            ]
        );
        assert_eq!(run.acts[0].text, "ok");
        assert_eq!(run.acts[1].args["query"], "a=1");
        assert_eq!(run.gaps, ["the trace has no head: it was cut short, or the session still runs"]);
    }

    #[test]
    fn times_and_payloads_at_hand_do_not_change_what_was_done() {
        let later: Vec<Event> = sample().into_iter().map(|e| Event { time: e.time + 77, ..e }).collect();
        assert_eq!(to_run(&sample(), &|_| None), to_run(&later, &|_| None));
        assert!(to_run(&sample(), &|_| None).acts[0].text.starts_with("2 bytes, "));
    }

    #[test]
    fn what_cannot_be_read_is_a_gap() {
        let unknown = Event { kind: "of.the.future".into(), ..sample()[0].clone() };
        let run = to_run([&unknown, &unknown], &|_| None);
        assert_eq!(run.gaps[0], "2 events of the kind `of.the.future` are not known to this version");
        assert!(run.acts.is_empty());
    }
}
