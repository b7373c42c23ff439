//! What there is, for people and as data.

use crate::output::{Failure, Output, Paint};
use crate::story::{command_line, exit_words, fit, minute, printable, second};
use cofferdam_engine::Engine;
use cofferdam_model::{Bytes, ExecInfo, LiveState, SessionId, SessionInfo, Span, UsageTotal};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) fn all(engine: &Engine, output: &Output) -> Result<u8, Failure> {
    let sessions = engine.sessions()?;
    if output.json {
        output.value(&sessions)?;
        return Ok(0);
    }
    if sessions.is_empty() {
        return Ok(0);
    }
    let head = "SESSION               STATE    AGE     LEFT    EXECS  MEMORY     CPU      NAME";
    output.data(&format!("{}\n", output.paint(Paint::Dim, head)))?;
    for info in &sessions {
        output.data(&format!("{}\n", row(info, now_us(), output)))?;
    }
    Ok(0)
}

pub(super) fn snapshots(engine: &Engine, output: &Output) -> Result<u8, Failure> {
    let found = engine.snapshots();
    if output.json {
        output.value(&found)?;
        return Ok(0);
    }
    for snapshot in &found {
        let (name, taken, of) = (&snapshot.name, minute(snapshot.taken_us), &snapshot.session);
        let workdir = printable(&snapshot.workdir.to_string_lossy());
        output.data(&format!("{name:<20}  {taken}  of {of}, over {workdir}\n"))?;
    }
    Ok(0)
}

fn row(info: &SessionInfo, now: u64, output: &Output) -> String {
    let name = info.live.as_ref().map_or("(run)", |live| live.name.as_deref().unwrap_or(""));
    let paint = if info.state == LiveState::Lost { Paint::Bad } else { Paint::Good };
    let reason = info.reason.as_ref().map(|reason| format!("  {reason}")).unwrap_or_default();
    let line = format!(
        "{:<7} {:<7} {:>5}  {:<10} {:<8} {name}{reason}",
        coarse(now.saturating_sub(info.started_us)),
        info.until_us.map_or("-".into(), |until| coarse(until.saturating_sub(now))),
        info.running,
        info.usage.memory.map_or("-".into(), |bytes| Bytes(bytes).to_string()),
        info.usage.cpu_us.map_or("-".into(), seconds),
    );
    let state = output.paint(paint, format!("{:<8}", info.state.word()));
    format!("{:<20}  {state} {}", info.session, line.trim_end())
}

pub(super) fn one(engine: &Engine, session: &SessionId, output: &Output) -> Result<u8, Failure> {
    let info = engine.session(session)?;
    if output.json {
        output.value(&info)?;
        return Ok(0);
    }
    let title = output.paint(Paint::Bold, format!("session {session}"));
    let mut lines = vec![title];
    let mut field = |name: &str, value: String| lines.push(format!("  {name:<10} {value}"));
    let reason = info.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    field("state", format!("{}{reason}", info.state.word()));
    match &info.live {
        Some(live) => {
            live.name.iter().for_each(|name| field("name", name.clone()));
            field("lifetime", live.lifetime.name().into());
            live.idle.iter().for_each(|idle| field("idle", format!("paused after {idle}")));
        }
        None => field("lifetime", "ends with its command (`cofferdam run`)".into()),
    }
    field("started", second(info.started_us));
    info.until_us.iter().for_each(|until| field("until", second(*until)));
    field("work dir", printable(&info.workdir.to_string_lossy()));
    let egress = if info.policy { "by its policy" } else { "nothing leaves" };
    field("egress", egress.into());
    if let Some(url) = &info.browser {
        field("browser", url.clone());
    }
    match info.transactions {
        0 => {}
        1 => field("open", "a transaction".into()),
        several => field("open", format!("{several} transactions, each within the one before")),
    }
    let usage = &info.usage;
    let known = [
        usage.cpu_us.map(|us| format!("{} of CPU", seconds(us))),
        usage.memory.map(|bytes| format!("{} of memory", Bytes(bytes))),
        usage.peak_memory.map(|bytes| format!("{} at most", Bytes(bytes))),
        usage.processes.map(|count| format!("{count} processes")),
        usage.disk.map(|bytes| format!("{} in files", Bytes(bytes))),
    ];
    let known: Vec<String> = known.into_iter().flatten().collect();
    let none = match info.state {
        LiveState::Lost => "nothing any more",
        _ => "not counted: this user has no control group here",
    };
    field("uses", if known.is_empty() { none.into() } else { known.join(", ") });
    let total = engine.usage_of(session.clone())?;
    if total.span_us > 0 {
        lines.push(format!("  {:<10} {}", "on record", usage_words(&total)));
    }
    lines.extend(info.execs.iter().map(exec));
    output.data(&(lines.join("\n") + "\n"))?;
    Ok(0)
}

/// What was written down so far.
pub(crate) fn usage_words(total: &UsageTotal) -> String {
    // Of a short one the parts of a second matter.
    let whole = |us: u64| match us {
        ..10_000_000 => Span(Duration::from_millis(us / 1_000)),
        _ => Span(Duration::from_secs(us / 1_000_000)),
    };
    let held = total.memory_mib_ms as f64 / 1024e3;
    let paused =
        if total.paused_us > 0 { format!(" ({} paused)", whole(total.paused_us)) } else { String::new() };
    format!("{}{paused}, {} of CPU, {held:.3} GiB·s of memory", whole(total.span_us), seconds(total.cpu_us))
}

fn exec(exec: &ExecInfo) -> String {
    let detached = if exec.detached { ", detached" } else { "" };
    let state = match &exec.exit {
        Some(exit) => {
            let cpu = seconds(exec.usage.user_us + exec.usage.system_us);
            format!("{}, {cpu} of CPU, {}", exit_words(exit), Bytes(exec.usage.peak_memory))
        }
        None => "running".into(),
    };
    let line = fit(&printable(&command_line(&exec.argv)), 60);
    format!("  exec {:<5} {line}\n{:13}{state}, {} of output{detached}", exec.id, "", Bytes(exec.output))
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

fn seconds(us: u64) -> String {
    format!("{:.2}s", us as f64 / 1e6)
}

/// Whole seconds, minutes, hours or days.
fn coarse(us: u64) -> String {
    let s = us / 1_000_000;
    match s {
        0..120 => format!("{s}s"),
        120..7200 => format!("{}m", s / 60),
        7200..172_800 => format!("{}h", s / 3600),
        _ => Span(Duration::from_secs(s / 86_400 * 86_400)).to_string(),
    }
}
