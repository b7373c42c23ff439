//! How fast events are appended, the `write(2)` of each included, and what a whole short trace costs.
//!
//! Plain timing on one core: medians and the spread of several rounds, no thresholds. The rate per second of
//! processor time is what a free core would give; where it is far above the plain one, others were at work.

use cofferdam_model::{
    BlobRef, Body, ExecExited, ExecStarted, Exit, LimitHit, SessionEnded, SessionId, SessionSpec,
    SessionStarted, Usage,
};
use cofferdam_seal::SigningKey;
use cofferdam_trace::{FORMAT, Options, Reader, Writer};
use serde::Deserialize;
use serde_json::Value;
use std::error::Error;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROUNDS: usize = 15;
const EVENTS: u64 = 200_000;
const SHORT: usize = 2_000;

fn started() -> Body {
    Body::SessionStarted(Box::new(SessionStarted {
        session: SessionId::new(1_700_000_000_000, 7),
        by: "cofferdam bench".into(),
        format: FORMAT,
        spec: SessionSpec { command: vec!["true".into()], ..Default::default() },
        workdir: "/work".into(),
        user: "ada".into(),
        host: "engine".into(),
    }))
}

fn exec() -> Body {
    Body::ExecStarted(ExecStarted {
        argv: vec!["/usr/bin/cc".into(), "-O2".into(), "-c".into(), "src/main.c".into()],
        env: vec!["HOME".into(), "LANG".into(), "PATH".into()],
        cwd: "/work/src".into(),
        tty: false,
        user: "ada".into(),
        own: false,
        by: None,
    })
}

fn exited() -> Body {
    let usage = Usage { wall_us: 1_234, user_us: 900, system_us: 300, peak_memory: 4 << 20 };
    Body::ExecExited(ExecExited { exit: Exit::Code(0), usage })
}

fn limit() -> Body {
    Body::Limit(LimitHit { limit: "pids".into(), allowed: 64, seen: 64, detail: "fork refused".into() })
}

/// How long this thread has been on a processor, as far as the kernel tells.
fn on_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

/// Wall and processor time of a long run of mixed events, a microsecond apart on the clock they are given.
fn long(dir: &Path, key: &Arc<SigningKey>) -> Result<(Duration, Duration), Box<dyn Error>> {
    let bodies = [exec(), exited(), limit()];
    let mut writer = Writer::create(dir, Arc::clone(key), Options::default())?;
    writer.append(1, None, &started())?;
    let (begin, cpu) = (Instant::now(), on_cpu());
    for (n, body) in (0..EVENTS).zip(bodies.iter().cycle()) {
        writer.append(n, Some(0), body)?;
    }
    Ok((begin.elapsed(), on_cpu() - cpu))
}

/// What a run of `true` pays: a new trace, six events, a seal.
fn short(dir: &Path, key: &Arc<SigningKey>, durable: bool) -> Result<Duration, Box<dyn Error>> {
    let end = SessionEnded { exit: Exit::Code(0), usage: Usage::default(), error: None };
    let bodies = [started(), limit(), exec(), exited(), limit(), Body::SessionEnded(end)];
    let begin = Instant::now();
    let mut writer = Writer::create(dir, Arc::clone(key), Options { durable })?;
    for body in &bodies {
        writer.append(1, None, body)?;
    }
    writer.seal(2)?;
    Ok(begin.elapsed())
}

/// An event to be written again, and the payloads that go with it.
struct Told {
    payloads: Vec<Vec<u8>>,
    time: u64,
    parent: Option<u64>,
    body: Body,
}

/// What a trace that is there holds. Signatures come of themselves, so the numbers of its events may be others.
fn told(path: &Path) -> Result<Vec<Told>, Box<dyn Error>> {
    let (mut all, stored) = (Vec::new(), Reader::open(path)?);
    for event in Reader::open(path)? {
        let event = event?;
        let mut named = Vec::new();
        references(&event.body, &mut named);
        let payloads = named.iter().map(|blob| stored.read_blob(blob)).collect::<Result<_, _>>()?;
        let body = event.typed().filter(|body| !matches!(body, Body::Checkpoint(_) | Body::Head(_)));
        let parent = event.parent.map(|_| 0);
        all.extend(body.map(|body| Told { payloads, time: event.time, parent, body }));
    }
    Ok(all)
}

fn references(value: &Value, found: &mut Vec<BlobRef>) {
    match value {
        Value::Object(fields) => match BlobRef::deserialize(value) {
            Ok(blob) if fields.len() == 2 => found.push(blob),
            _ => fields.values().for_each(|value| references(value, found)),
        },
        Value::Array(all) => all.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

fn write_again(dir: &Path, key: &Arc<SigningKey>, all: &[Told]) -> Result<Duration, Box<dyn Error>> {
    let begin = Instant::now();
    let mut writer = Writer::create(dir, Arc::clone(key), Options::default())?;
    for Told { payloads, time, parent, body } in all {
        for payload in payloads {
            writer.blob(payload)?;
        }
        writer.append(*time, *parent, body)?;
    }
    writer.seal(all.last().map_or(1, |told| told.time))?;
    Ok(begin.elapsed())
}

/// The least, the middle and the most.
fn spread(mut samples: Vec<f64>) -> (f64, f64, f64) {
    samples.sort_by(f64::total_cmp);
    (samples[0], samples[samples.len() / 2], samples[samples.len() - 1])
}

fn main() -> Result<(), Box<dyn Error>> {
    let key = Arc::new(SigningKey::from_seed(&[7; 32])?);
    let dir = tempfile::tempdir()?;
    let mut out = io::stdout();
    let mut words = std::env::args().skip_while(|word| word != "--again").skip(1);
    if let Some(path) = words.next() {
        let events = told(Path::new(&path))?;
        let mut micros = Vec::new();
        for round in 0..SHORT / 10 {
            let path = dir.path().join(format!("again{round}"));
            micros.push(write_again(&path, &key, &events)?.as_secs_f64() * 1e6);
        }
        let (least, median, most) = spread(micros);
        writeln!(out, "{} events: {median:.0} us (from {least:.0} to {most:.0})", events.len())?;
        return Ok(());
    }

    let (mut wall, mut cpu) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let path = dir.path().join(format!("long{round}"));
        let (elapsed, used) = long(&path, &key)?;
        wall.push(EVENTS as f64 / elapsed.as_secs_f64());
        cpu.push(EVENTS as f64 / used.as_secs_f64());
        std::fs::remove_dir_all(path)?;
    }
    for (name, rates) in [("append", wall), ("append, per second of processor time", cpu)] {
        let (least, median, most) = spread(rates);
        writeln!(
            out,
            "{name}: {median:.0} events/s (from {least:.0} to {most:.0}, {ROUNDS} rounds of {EVENTS})"
        )?;
    }

    for (name, durable, rounds) in [("short trace", false, SHORT), ("short trace, durable", true, SHORT / 20)]
    {
        let mut micros = Vec::new();
        for round in 0..rounds {
            let path = dir.path().join(format!("short{durable}{round}"));
            micros.push(short(&path, &key, durable)?.as_secs_f64() * 1e6);
        }
        let (least, median, most) = spread(micros);
        writeln!(out, "{name}: {median:.0} us (from {least:.0} to {most:.0}, {rounds} rounds)")?;
    }
    Ok(())
}
