//! The one command of a `run`: started, relayed to whoever called us, and waited for.

use crate::error::EngineError;
use crate::heard::{Heard, forward};
use crate::relay::{Around, Io, Relay, Stdio, current_size};
use crate::standing::{Command, Standing};
use crate::stop::Stop;
use cofferdam_guest::wire;
use cofferdam_model::{Body, Exit, SessionChanged, SessionSpec, Usage};
use cofferdam_sys::signal::suspend_here;
use cofferdam_sys::terminal::RawMode;
use std::os::fd::{AsFd, OwnedFd};

/// The one command of a `run`, from its start to its end.
pub(crate) fn command(
    spec: SessionSpec,
    stdio: Stdio,
    tty: bool,
    heard: &Heard<'_>,
    standing: &mut Standing,
    meanwhile: &dyn Fn(),
) -> Result<(Exit, Usage), EngineError> {
    let channel = standing.sandbox.take_channel().ok_or(EngineError::NoChannel)?;
    let mut relay = Relay::new(channel)?;
    let terminal = stdio.stdin.as_ref().filter(|_| tty);
    let size = terminal.and_then(|fd| current_size(fd.as_fd()));
    let size = size.unwrap_or(wire::Size { rows: 24, columns: 80 });
    let keyboard = terminal.map(OwnedFd::try_clone).transpose();
    let keyboard = keyboard.map_err(|source| EngineError::Io { doing: "use the terminal", source })?;
    let stops = matches!(heard, Heard::Signals(_));
    let asked = Command { tty: tty.then_some(size), stops, ..asked_for(&spec, standing) };
    let mut raw = in_raw_mode(keyboard.as_ref());
    let mut browser = standing.start_browser(&mut relay, &spec)?;
    let (id, exec) = standing.start(&mut relay, &spec, &asked, Io::Descriptors(stdio))?;
    standing.sandbox.afterwards();
    meanwhile();
    let mut stopped = None;
    let ended = loop {
        let (sandbox, recorder) = (standing.sandbox.as_mut(), &standing.recorder);
        let wake = stopped.as_ref().map_or(heard.as_fd(), AsFd::as_fd);
        let calls = &standing.calls;
        let mut turn = relay.turn(Around { sandbox, recorder, calls, wake, deadline: None })?;
        match heard {
            Heard::Signals(signals) if turn.woken => forward(signals, &mut relay, id, tty)?,
            Heard::Stop(_) if turn.woken => {
                relay.kill(id)?;
                // It stays raised: from now on something is waited for that never comes.
                stopped = Some(Stop::new()?);
            }
            _ => {}
        }
        if turn.stopped.contains(&id) {
            drop(raw.take());
            suspend_here();
            raw = in_raw_mode(keyboard.as_ref());
            relay.resume_at(id, keyboard.as_ref().and_then(|fd| current_size(fd.as_fd())))?;
        }
        if let Some(unheeded) = turn.unheeded {
            let body =
                SessionChanged { what: "kill".into(), by: "watchdog".into(), detail: unheeded.reason() };
            standing.recorder.append(None, &Body::SessionChanged(body))?;
        }
        if turn.gone || turn.unheeded.is_some() {
            turn.ended.extend(relay.leave(false));
        }
        let mut own = None;
        for (ended_id, event, ended) in turn.ended {
            match browser == Some(ended_id) {
                true => {
                    browser = None;
                    standing.browser_ended(event, ended, None)?;
                }
                false => own = Some(ended),
            }
        }
        if let Some(ended) = own {
            break ended;
        }
    };
    // What the command leaves behind ends with it.
    standing.sandbox.dismiss();
    let told = standing.ended(exec, ended);
    // The browser is the command's: it goes with it.
    for (_, event, ended) in relay.leave(true) {
        standing.browser_ended(event, ended, Some("the session's command has ended"))?;
    }
    told
}

fn asked_for(spec: &SessionSpec, standing: &Standing) -> Command {
    Command {
        argv: spec.command.clone(),
        user: spec.user,
        timeout: spec.limits.timeout,
        output: spec.limits.output,
        cwd: standing.image.as_ref().and_then(|image| image.cwd(&spec.command)),
        who: standing.image.as_ref().and_then(|image| image.who(spec)),
        ..Command::default()
    }
}

/// The terminal is the command's for as long as this is, and somebody else's while we are stopped.
fn in_raw_mode(keyboard: Option<&OwnedFd>) -> Option<RawMode<'_>> {
    keyboard.and_then(|fd| RawMode::enter(fd.as_fd()).ok())
}
