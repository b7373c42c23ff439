//! Sessions that stay: made, used, followed, ended.

use crate::args::{Asked, Create, Exec, Stay};
use crate::command::conflict::left_out;
use crate::command::run::{BY, spec, stdio, variable};
use crate::output::{Failure, Output};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_engine::{Engine, LiveExec, LiveOutcome};
use cofferdam_model::{Changes, Exit, LiveState, SessionId, SessionSpec, Span};
use serde_json::json;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;
use std::time::Duration;

/// How often a log is looked at for more.
const LOOK: Duration = Duration::from_millis(50);

pub(super) fn create(engine: &Engine, create: Create, output: &Output) -> Result<u8, Failure> {
    let Create { asked, lifetime, ttl, stay } = create;
    let durable = asked.durable;
    let mut spec = staying(asked, &stay, ttl)?;
    spec.live.lifetime = lifetime.unwrap_or(spec.live.lifetime);
    let session = engine.create_session(spec, BY.into(), durable, stay.from)?;
    match output.json {
        true => output.value(&json!({ "session": session }))?,
        false => output.data(&format!("{session}\n"))?,
    }
    Ok(0)
}

/// A session that is there before its first command.
pub(crate) fn staying(asked: Asked, stay: &Stay, ttl: Option<Span>) -> Result<SessionSpec, Failure> {
    let mut spec = spec(asked, Vec::new(), Changes::Keep)?;
    // What a file names as its command is for `run`; here there is none until `exec`.
    spec.command = Vec::new();
    spec.live.ttl = ttl.or(spec.live.ttl);
    spec.live.idle = stay.idle.or(spec.live.idle);
    spec.live.name = stay.name.clone().or(spec.live.name);
    Ok(spec)
}

pub(super) fn exec(engine: &Engine, exec: Exec, output: &Output) -> Result<u8, Failure> {
    let session = engine.find_session(&exec.session)?;
    let fork = exec.apart.then(|| Fork::of(engine, &session)).transpose()?;
    let session = fork.as_ref().map_or(session, |fork| fork.session.clone());
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal() && !exec.detach;
    let env = exec.env.iter().map(|entry| variable(entry)).collect::<Result<_, _>>()?;
    let program = exec.command.first().cloned().unwrap_or_default();
    let asked = LiveExec {
        argv: exec.command,
        env,
        cwd: exec.cwd,
        user: exec.user,
        tty: (exec.tty || terminal) && !exec.no_tty,
        timeout: exec.timeout,
        output: exec.output,
        tx: exec.tx,
    };
    if exec.detach {
        let number = engine.exec_detached(&session, asked)?;
        match output.json {
            true => output.value(&json!({ "session": session, "exec": number }))?,
            false => output.data(&format!("{number}\n"))?,
        }
        return Ok(0);
    }
    let outcome = engine.exec_live(&session, asked, &stdio()?)?;
    report(&session, &program, &outcome, output);
    Ok(u8::try_from(outcome.exit.code().rem_euclid(256)).unwrap_or(1))
}

/// A session for one command, which ends with it.
struct Fork<'e> {
    engine: &'e Engine,
    session: SessionId,
}

impl<'e> Fork<'e> {
    fn of(engine: &'e Engine, session: &SessionId) -> Result<Self, Failure> {
        let forked = engine.fork_session(session, 1)?.into_iter().next();
        let nothing = || Failure::Usage(format!("session {session} was not forked"));
        Ok(Self { engine, session: forked.ok_or_else(nothing)? })
    }
}

impl Drop for Fork<'_> {
    fn drop(&mut self) {
        let _ = self.engine.kill_session(&self.session, Some(Changes::Discard));
    }
}

fn report(session: &SessionId, program: &str, outcome: &LiveOutcome, output: &Output) {
    let LiveOutcome { exec, exit, usage, reason, settled } = outcome;
    if output.json {
        output.aside(&json!({
            "session": session,
            "exec": exec,
            "exit": exit.code(),
            "ended": exit,
            "usage": usage,
            "reason": reason,
            "transaction": settled,
        }));
        return;
    }
    match exit {
        _ if reason.is_some() => output.remark(reason.as_deref().unwrap_or_default()),
        Exit::NotFound => output.remark(format!("`{program}` was not found inside the sandbox")),
        Exit::NotExecutable => output.remark(format!("`{program}` cannot be executed")),
        _ => {}
    }
    settled.iter().for_each(|settled| super::transact::remarks(settled, output));
}

pub(super) fn kill(
    engine: &Engine,
    session: &SessionId,
    changes: Option<Changes>,
    output: &Output,
) -> Result<u8, Failure> {
    if changes == Some(Changes::Ask) {
        return Err(Failure::Usage("--changes ask: say keep or discard".into()));
    }
    let decided = engine.kill_session(session, changes)?;
    if output.json {
        output.value(&json!({ "session": session, "changes": decided }))?;
    } else if let Some(decided) = &decided {
        left_out(decided, output);
    }
    Ok(0)
}

pub(super) fn logs(
    engine: &Engine,
    session: &SessionId,
    (exec, follow): (Option<u32>, bool),
    output: &Output,
) -> Result<u8, Failure> {
    let info = engine.session(session)?;
    let found = match exec {
        Some(number) => info.execs.iter().find(|exec| exec.id == number),
        None => info.execs.iter().rev().find(|exec| exec.detached),
    };
    let number = match (found, exec) {
        (Some(exec), _) if exec.detached => exec.id,
        // One that was lost leaves its logs, and nobody who knows more of them.
        (None, Some(number)) if info.state == LiveState::Lost => number,
        _ => {
            let text = format!(
                "session {session} has no such detached command: the output of others went to who ran them, and `cofferdam trace show {session}` tells of it"
            );
            return Err(Failure::Usage(text));
        }
    };
    let path = engine.session_log(session, number)?;
    let mut pieces = Pieces { exec: number, rest: Vec::new() };
    let piece = |bytes: &[u8]| match output.json {
        true => pieces.told(bytes),
        false => bytes.to_vec(),
    };
    show(&path, piece, || {
        let runs = || {
            let info = engine.session(session).ok()?;
            info.execs.into_iter().find(|exec| exec.id == number).map(|exec| exec.exit.is_none())
        };
        follow && runs().unwrap_or(false)
    })
}

/// Output as lines of JSON: what is text as `text`, anything else as `base64`.
struct Pieces {
    exec: u32,
    /// The beginning of a character whose end is yet to come.
    rest: Vec<u8>,
}

impl Pieces {
    /// Nothing more comes after nothing.
    fn told(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        if let Err(error) = std::str::from_utf8(&all)
            && error.error_len().is_none()
            && !bytes.is_empty()
        {
            self.rest = all.split_off(error.valid_up_to());
        }
        if all.is_empty() {
            return all;
        }
        let line = match std::str::from_utf8(&all) {
            Ok(text) => json!({ "exec": self.exec, "text": text }),
            Err(_) => json!({ "exec": self.exec, "base64": STANDARD.encode(&all) }),
        };
        format!("{line}\n").into_bytes()
    }
}

/// Prints a file, and what is added to it for as long as there may be more. The last piece is an empty one.
fn show(
    path: &Path,
    mut piece: impl FnMut(&[u8]) -> Vec<u8>,
    goes_on: impl Fn() -> bool,
) -> Result<u8, Failure> {
    let mut file = File::open(path)?;
    let mut out = io::stdout().lock();
    let mut buffer = vec![0; 64 << 10];
    loop {
        // Asked before the last look, so that nothing is missed that came before its end.
        let more = goes_on();
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                count => match out.write_all(&piece(&buffer[..count])).and_then(|()| out.flush()) {
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(0),
                    other => other?,
                },
            }
        }
        if !more {
            out.write_all(&piece(&[]))?;
            return Ok(0);
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_text_where_they_are_text() {
        let check = |pieces: &[&[u8]], expected: &str| {
            let mut told = Pieces { exec: 3, rest: Vec::new() };
            let lines: Vec<u8> =
                pieces.iter().chain([&&b""[..]]).flat_map(|piece| told.told(piece)).collect();
            assert_eq!(String::from_utf8(lines).unwrap(), expected);
        };
        check(&[], "");
        check(&[b"a\n"], "{\"exec\":3,\"text\":\"a\\n\"}\n");
        // A character in two pieces is one; half of one at the end is no text.
        check(&[b"x\xc3", b"\xa4"], "{\"exec\":3,\"text\":\"x\"}\n{\"exec\":3,\"text\":\"\u{e4}\"}\n");
        check(&[b"\xc3"], "{\"base64\":\"ww==\",\"exec\":3}\n");
        check(&[b"\xff\x00"], "{\"base64\":\"/wA=\",\"exec\":3}\n");
    }
}
