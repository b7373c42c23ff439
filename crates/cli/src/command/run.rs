//! `cofferdam run`: one command, one sandbox, one trace. Input, output and exit code are the command's own.

use super::conflict::left_out;
use super::trace_out::TraceOut;
use crate::args;
use crate::output::{Failure, Output};
use crate::story::{fit, printable, wrap};
use cofferdam_engine::{ChangeList, Early, Engine, Outcome, Run, Stdio, load_spec};
use cofferdam_model::{ChangeOp, Changes, Exit, SessionSpec};
use serde_json::json;
use std::fs::File;
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Who writes a trace.
pub(crate) const BY: &str = concat!("cofferdam ", env!("CARGO_PKG_VERSION"));

const WIDTH: usize = 80;

pub(crate) fn run(
    home: Option<PathBuf>,
    args: Box<args::Run>,
    early: Option<Early>,
    output: &Output,
) -> Result<u8, Failure> {
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let tty = (args.tty || terminal) && !args.no_tty;
    let args::Run { asked, command, trace_out, .. } = *args;
    let durable = asked.durable;
    let spec = spec(asked, command, default_changes())?;
    let policy = spec.policy.clone();
    let engine = Engine::open(home)?;
    let trace_out = TraceOut::open(trace_out)?;
    let asked = Run {
        spec,
        stdio: stdio()?,
        tools: None,
        tty,
        durable,
        decide: &mut ask,
        ask: &crate::ask::hidden,
        by: BY.into(),
        stop: None,
    };
    let outcome = engine.run_from(early, asked)?;
    if let Some(out) = trace_out {
        out.write(&engine, &outcome)?;
    }
    report(&outcome, output);
    denied(&outcome, policy.as_deref(), output);
    Ok(code(&outcome))
}

/// The command's own.
pub(crate) fn code(outcome: &Outcome) -> u8 {
    u8::try_from(outcome.exit.code().rem_euclid(256)).unwrap_or(1)
}

/// The caller's own, for a command.
pub(crate) fn stdio() -> Result<Stdio, Failure> {
    Ok(Stdio { stdin: own(io::stdin()), stdout: must(own(io::stdout()))?, stderr: must(own(io::stderr()))? })
}

/// A descriptor of our own on the same file. The command never gets the caller's.
fn own(stream: impl AsFd) -> Option<OwnedFd> {
    stream.as_fd().try_clone_to_owned().ok()
}

/// Output that was closed by the caller goes nowhere, as it would without us.
fn must(fd: Option<OwnedFd>) -> Result<OwnedFd, Failure> {
    match fd {
        Some(fd) => Ok(fd),
        None => Ok(File::options().write(true).open("/dev/null")?.into()),
    }
}

/// The spec file, if any, with the flags on top.
pub(crate) fn spec(
    args: args::Asked,
    command: Vec<String>,
    changes: Changes,
) -> Result<SessionSpec, Failure> {
    let mut spec = match &args.spec {
        Some(path) => load_spec(path)?,
        None => SessionSpec { changes, ..SessionSpec::default() },
    };
    if !command.is_empty() {
        spec.command = command;
    }
    macro_rules! overrides {
        ($($flag:ident => $field:expr),+) => { $(if let Some(value) = args.$flag { $field = value; })+ };
    }
    overrides!(isolation => spec.isolation, profile => spec.profile, users => spec.users, changes => spec.changes, layer => spec.layer, user => spec.user, syscalls => spec.syscalls, warm => spec.warm);
    macro_rules! replaces {
        ($($flag:ident => $field:expr),+) => { $(if args.$flag.is_some() { $field = args.$flag; })+ };
    }
    replaces!(floor => spec.floor, workdir => spec.workdir, workdir_at => spec.shown_at, image => spec.image, policy => spec.policy, tools => spec.tools, tool => spec.tool, cpu => spec.limits.cpu, memory => spec.limits.memory);
    replaces!(pids => spec.limits.pids, disk => spec.limits.disk, files => spec.limits.files);
    replaces!(cpu_share => spec.limits.share, inodes => spec.limits.inodes);
    replaces!(timeout => spec.limits.timeout, output => spec.limits.output);
    spec.nested |= args.nested;
    spec.sudo |= args.sudo;
    spec.browser |= args.browser;
    spec.steps |= args.steps;
    spec.require.extend(args.require);
    spec.accept.extend(args.accept);
    spec.mounts.extend(args.mount);
    spec.volumes.extend(args.volume);
    spec.hide.extend(args.hide);
    spec.secrets.extend(args.secret);
    for entry in args.env {
        let (name, value) = variable(&entry)?;
        spec.env.insert(name, value);
    }
    Ok(spec)
}

pub(crate) fn variable(entry: &str) -> Result<(String, String), Failure> {
    match entry.split_once('=') {
        Some((name, value)) => Ok((name.into(), value.into())),
        None => match std::env::var(entry) {
            Ok(value) => Ok((entry.into(), value)),
            Err(_) => Err(Failure::Usage(format!(
                "--env {entry}: no such variable here; write --env {entry}=VALUE"
            ))),
        },
    }
}

fn default_changes() -> Changes {
    if io::stdin().is_terminal() && io::stderr().is_terminal() { Changes::Ask } else { Changes::Keep }
}

/// Lists the changes and asks. No answer, or no terminal, is a no.
pub(crate) fn ask(changes: &ChangeList) -> bool {
    let mut err = io::stderr().lock();
    let plural = if changes.len() == 1 { "" } else { "s" };
    let _ = writeln!(err, "\ncofferdam: the command changed {} path{plural}:", changes.len());
    for change in changes.first().iter().take(20) {
        let _ = writeln!(err, "  {} {}", mark(change.op), change.path);
    }
    if changes.len() > 20 {
        let _ = writeln!(err, "  … and {} more", changes.len() - 20);
    }
    let _ = write!(err, "Keep them? [y/N] ");
    let _ = err.flush();
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

pub(crate) fn mark(op: ChangeOp) -> &'static str {
    match op {
        ChangeOp::Created => "+",
        ChangeOp::Modified => "~",
        ChangeOp::Renamed => ">",
        ChangeOp::Deleted => "-",
    }
}

/// What was not let out, and the rules that would let it: a few, since the trace tells all.
pub(crate) fn denied(outcome: &Outcome, policy: Option<&Path>, output: &Output) {
    const TOLD: usize = 3;
    let (denied, more) = &outcome.denied;
    if output.json || output.quiet || denied.is_empty() {
        return;
    }
    for one in denied.iter().take(TOLD) {
        let why = match &one.rule {
            Some(rule) => format!("rule `{rule}`: {}", one.why),
            None => one.why.clone(),
        };
        let times = if one.times > 1 { format!(", {} times", one.times) } else { String::new() };
        let line =
            format!("denied: {}{times} ({})", fit(&printable(&one.request), 200), fit(&printable(&why), 300));
        output.remark(wrap(&line, 11, WIDTH));
        if let (Some(rule), Some(policy)) = (&one.allow, policy) {
            output.remark(format!("to allow it, add to {}:\n\n{}", policy.display(), printable_lines(rule)));
        }
    }
    let rest = denied.len().saturating_sub(TOLD) as u64 + more;
    let rest = if rest > 0 { format!("{rest} more denied; ") } else { String::new() };
    output.remark(format!("{rest}all of it: cofferdam trace show {}", outcome.session));
}

/// Paths come from inside, and a terminal obeys what it is shown.
fn printable_lines(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", printable(line))).collect()
}

/// What a caller should know that the command's own output does not say.
pub(crate) fn report(outcome: &Outcome, output: &Output) {
    if output.json {
        output.aside(&json!({
            "session": outcome.session,
            "exit": outcome.exit.code(),
            "ended": outcome.exit,
            "usage": outcome.usage,
            "tier": outcome.report.tier,
            "limits": outcome.limits,
            "changes": outcome.decided,
            "denied": outcome.denied.0,
            "refused": outcome.refused,
            "trace": outcome.trace.to_string_lossy(),
        }));
        return;
    }
    for hit in &outcome.limits {
        output.remark(&hit.detail);
    }
    match outcome.exit {
        Exit::TimedOut => output.remark("killed: the time limit was reached"),
        Exit::LimitReached => output.remark("killed: the output limit was reached"),
        Exit::NotFound => output.remark(format!("`{}` was not found inside the sandbox; a program in a place that is not shown can be shown with --mount", outcome.program)),
        Exit::NotExecutable => output.remark(format!("`{}` cannot be executed", outcome.program)),
        _ => {}
    }
    if let Some(decided) = &outcome.decided {
        left_out(decided, output);
        if output.verbose {
            let verb = if decided.kept { "kept" } else { "discarded" };
            let (c, m, r, d) = (decided.created, decided.modified, decided.renamed, decided.deleted);
            output.remark(format!("{verb} {c} created, {m} modified, {r} renamed, {d} deleted"));
        }
    }
    if output.verbose {
        output.remark(format!("session {}", outcome.session));
    }
}
