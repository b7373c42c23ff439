//! `cofferdam replay`: one recorded session again, from its recorded responses. Output and exit code are the
//! command's own; what was asked for and never recorded makes it 3 where a person should look.

use super::run::{BY, code, denied, report, stdio, variable};
use super::trace_out::TraceOut;
use crate::args;
use crate::output::{Failure, Output};
use crate::story::replay::why;
use crate::story::{fit, printable};
use cofferdam_engine::{Engine, Pins, ReplayRules, Replayed, Replaying, Run};
use cofferdam_model::{Fallback, Miss, ReplayMissed, Stream};
use serde_json::{Value, json};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

const REVIEW: u8 = 3;
/// Misses and unused answers that are listed; the trace has all.
const TOLD: usize = 5;

pub(crate) fn run(home: Option<PathBuf>, args: Box<args::Replay>, output: &Output) -> Result<u8, Failure> {
    let engine = Engine::open(home)?;
    let trace = engine.find_trace(&args.trace)?;
    let recorded = engine.recorded(&trace, &args.key, args.allow_incomplete)?;
    let env = args.env.iter().map(|entry| variable(entry)).collect::<Result<_, _>>()?;
    let mut spec = recorded.respec(args.workdir.clone(), env)?;
    spec.changes = args.changes;
    if args.policy.is_some() {
        spec.policy.clone_from(&args.policy);
    }
    let policy = spec.policy.clone();
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let tty = recorded.tty && terminal;
    let how = Replaying {
        rules: rules(&args)?,
        policy: args.policy.clone(),
        pins: Pins { clock: args.clock, seed: args.seed },
    };
    let trace_out = TraceOut::open(args.trace_out.clone())?;
    let replayed = engine.replay(
        recorded,
        how,
        Run {
            spec,
            stdio: stdio()?,
            tools: None,
            tty,
            durable: false,
            decide: &mut super::run::ask,
            ask: &crate::ask::hidden,
            by: BY.into(),
            stop: None,
        },
    )?;
    if let Some(out) = trace_out {
        out.write(&engine, &replayed.outcome)?;
    }
    tell(&replayed, policy.as_deref(), output);
    Ok(if replayed.wants_review() { REVIEW } else { code(&replayed.outcome) })
}

/// The file's, with the flags on top.
fn rules(args: &args::Replay) -> Result<ReplayRules, Failure> {
    let mut rules = match &args.rules {
        None => ReplayRules::default(),
        Some(path) => {
            let shown = path.display();
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::Usage(format!("cannot read {shown}: {error}")))?;
            ReplayRules::parse(&text).map_err(|error| Failure::Usage(format!("{shown}: {error}")))?
        }
    };
    if rules.fallback == Fallback::Live && !args.live_fallback {
        let advice =
            "`fallback = \"live\"` sends what was not recorded: say so with --live-fallback --policy FILE";
        return Err(Failure::Usage(advice.to_owned()));
    }
    rules.mode = args.mode.unwrap_or(rules.mode);
    rules.speed = args.speed.unwrap_or(rules.speed);
    rules.fallback = args.fallback.unwrap_or(rules.fallback);
    if args.live_fallback {
        rules.fallback = Fallback::Live;
    }
    Ok(rules)
}

fn tell(replayed: &Replayed, policy: Option<&Path>, output: &Output) {
    if output.json {
        return output.aside(&data(replayed));
    }
    report(&replayed.outcome, output);
    denied(&replayed.outcome, policy, output);
    if output.quiet {
        return;
    }
    let tally = &replayed.tally;
    let mut line = format!(
        "replayed {}: {} of {} answers served",
        replayed.of,
        tally.served - tally.repeated,
        tally.recorded
    );
    for (count, what) in [
        (tally.normalised, "matched without what is volatile"),
        (tally.repeated, "served again"),
        (tally.missed.len() as u64, "missed"),
        (tally.unused.len() as u64, "unused"),
    ] {
        if count > 0 {
            line.push_str(&format!(", {count} {what}"));
        }
    }
    line.push_str(&format!("; {}", likeness(replayed)));
    output.remark(line);
    if !replayed.same_input {
        output
            .remark("its input is not what it was then: a trace holds no byte of stdin, so pipe the same in");
    }
    for missed in tally.missed.iter().take(TOLD) {
        output.remark(miss(missed));
    }
    for (seq, request) in tally.unused.iter().take(TOLD) {
        output.remark(format!("unused: event {seq}, {}", fit(&printable(request), 200)));
    }
    for what in &replayed.without {
        output.remark(format!("not repeated: {}", printable(what)));
    }
}

/// Whether it did the same, as far as its end and its output tell.
fn likeness(replayed: &Replayed) -> String {
    let now = replayed.outcome.exit;
    let exit = match replayed.exit_then {
        Some(then) if then == now => "same exit code".to_owned(),
        Some(then) => format!("exit code {}, then {}", now.code(), then.code()),
        None => format!("exit code {}", now.code()),
    };
    let other: Vec<&str> =
        replayed.outputs.iter().filter(|(_, same)| !same).map(|(stream, _)| name(*stream)).collect();
    match other.as_slice() {
        [] => format!("{exit}, same output"),
        streams => format!("{exit}, other {}", streams.join(" and ")),
    }
}

fn name(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdin => "stdin",
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
        Stream::Tty => "terminal output",
    }
}

fn miss(missed: &ReplayMissed) -> String {
    let why = why(missed.why);
    let mut text = format!("missed: {} ({why})", fit(&printable(&missed.request), 200));
    if let Some(nearest) = &missed.nearest
        && missed.why == Miss::Different
    {
        text.push_str(&format!(
            "\n  nearest: event {}, {}",
            nearest.recorded,
            fit(&printable(&nearest.request), 200)
        ));
        for difference in &nearest.differences {
            let side = |text: &Option<String>| match text {
                Some(text) => format!("`{}`", fit(&printable(text), 100)),
                None => "nothing".to_owned(),
            };
            let (then, now) = (side(&difference.recorded), side(&difference.now));
            text.push_str(&format!("\n    {}: {then} then, {now} now", printable(&difference.at)));
        }
        if nearest.more > 0 {
            text.push_str(&format!("\n    and {} more differences", nearest.more));
        }
    }
    text
}

fn data(replayed: &Replayed) -> Value {
    let (outcome, tally) = (&replayed.outcome, &replayed.tally);
    let unused: Vec<Value> =
        tally.unused.iter().map(|(seq, request)| json!({ "recorded": seq, "request": request })).collect();
    let outputs: serde_json::Map<String, Value> = replayed
        .outputs
        .iter()
        .map(|(stream, same)| (name(*stream).replace(' ', "_"), json!({ "same": same })))
        .collect();
    json!({
        "session": outcome.session,
        "of": replayed.of,
        "exit": outcome.exit.code(),
        "exit_then": replayed.exit_then.map(|exit| exit.code()),
        "outputs": outputs,
        "same_input": replayed.same_input,
        "recorded": tally.recorded,
        "served": tally.served,
        "normalised": tally.normalised,
        "repeated": tally.repeated,
        "missed": tally.missed,
        "unused": unused,
        "without": replayed.without,
        "denied": outcome.denied.0,
        "changes": outcome.decided,
        "usage": outcome.usage,
        "trace": outcome.trace.to_string_lossy(),
    })
}
