//! `cofferdam init`: a starting set-up for the agent that is here: what was found, what was written, what to do next.
//! Keys are told by name, never by value.

use crate::args::Init as Args;
use crate::ask::hidden;
use crate::output::{Failure, Output, Paint};
use crate::story::{printable, wrap};
use cofferdam_engine::init::{Around, Found, InitError, Key, Left, Plan, Wish, Written};
use cofferdam_engine::policy::Effect;
use cofferdam_engine::{Engine, SecretDraft};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const WIDTH: usize = 80;
/// Files were written, and a key could not be added.
const INCOMPLETE: u8 = 2;

pub(crate) fn run(home: Option<PathBuf>, args: Args, output: &Output) -> Result<u8, Failure> {
    let wish = Wish { agent: args.agent, command: args.command, with: args.with, out: args.out };
    let users = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let around = Around {
        dir: Path::new("."),
        home: users.as_deref(),
        path: std::env::var_os("PATH").unwrap_or_default(),
        is_set: &|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()),
    };
    let usage = |error: InitError| Failure::Usage(error.to_string());
    let plan = Plan::make(&wish, &around).map_err(usage)?;
    let written = plan.write(args.force).map_err(usage)?;
    let added = if args.add_secrets { add(home, &plan)? } else { Vec::new() };
    match output.json {
        true => output.value(&as_json(&plan, &written, &added))?,
        false => output.data(&told(&plan, &written, &added, output))?,
    }
    let failed = added.iter().any(|state| matches!(state, Added::Failed(_)));
    Ok(if failed { INCOMPLETE } else { 0 })
}

/// What became of a key.
enum Added {
    New(Vec<String>),
    /// The vault has a secret of this name.
    There,
    /// Only a person can give it.
    Untold,
    Failed(String),
}

impl Added {
    fn word(&self) -> &'static str {
        match self {
            Self::New(_) => "added",
            Self::There => "there",
            Self::Untold => "missing",
            Self::Failed(_) => "failed",
        }
    }

    fn is_done(&self) -> bool {
        matches!(self, Self::New(_) | Self::There)
    }
}

/// Does what the printed lines would: the values go from their sources into the vault.
fn add(home: Option<PathBuf>, plan: &Plan) -> Result<Vec<Added>, Failure> {
    let engine = Engine::open(home)?;
    let secrets = engine.secrets(&hidden)?;
    let there = secrets.list()?;
    let one = |key: &Key| {
        if there.iter().any(|entry| entry.name == key.service.name) {
            return Added::There;
        }
        let Some(from) = &key.from else { return Added::Untold };
        let kept = secrets.add(SecretDraft {
            name: key.service.name.to_owned(),
            from: Some(from.clone()),
            preset: Some(key.service.name.to_owned()),
            env: key.env().map(str::to_owned),
            ..SecretDraft::default()
        });
        match kept {
            Ok(kept) => Added::New(kept.remarks.iter().map(ToString::to_string).collect()),
            Err(error) => Added::Failed(error.to_string()),
        }
    };
    Ok(plan.keys.iter().map(one).collect())
}

fn as_json(plan: &Plan, written: &[(PathBuf, Written)], added: &[Added]) -> Value {
    let agent = &plan.agent;
    let keys: Vec<Value> = plan
        .keys
        .iter()
        .enumerate()
        .map(|(at, key)| {
            let (found, file) = match &key.found {
                Found::Variable => ("environment", None),
                Found::Project(file) | Found::Home(file) => ("file", Some(file)),
                Found::Nowhere => ("nowhere", None),
            };
            json!({
                "service": key.service.name, "variable": key.variable, "found": found, "file": file,
                "hosts": key.service.hosts, "line": key.line(), "secret": added.get(at).map(Added::word),
            })
        })
        .collect();
    let left: Vec<Value> = plan
        .left
        .iter()
        .map(|left| json!({ "variable": left.variable, "why": left.why, "service": left.service }))
        .collect();
    let files: Vec<Value> =
        written.iter().map(|(path, state)| json!({ "path": path, "state": state_word(*state) })).collect();
    json!({
        "agent": { "name": agent.name, "about": agent.about, "command": agent.command, "installed": agent.installed },
        "also": plan.also, "keys": keys, "left": left, "file": plan.spec, "policy": plan.policy,
        "files": files, "rules": plan.rules.iter().map(|rule| &**rule).collect::<Vec<_>>(),
        "run": run_line(plan),
    })
}

fn state_word(state: Written) -> &'static str {
    match state {
        Written::New => "new",
        Written::Replaced => "replaced",
        Written::Same => "unchanged",
    }
}

fn run_line(plan: &Plan) -> String {
    format!("cofferdam run --spec {}", plan.spec.display())
}

fn told(plan: &Plan, written: &[(PathBuf, Written)], added: &[Added], output: &Output) -> String {
    let bold = |text: &str| output.paint(Paint::Bold, text);
    let mut text = found(plan);
    text += &format!("\n{}\n", bold("Keys, by name; no value is told or kept:"));
    if plan.keys.is_empty() {
        text += "  none: a model's key is needed, see `cofferdam init --help` for --with\n";
    }
    let states = added.iter().map(Some).chain(std::iter::repeat(None));
    plan.keys.iter().zip(states).for_each(|(key, state)| text += &key_line(key, state, output));
    if !plan.left.is_empty() {
        text += &format!("\n{}\n", bold("Seen, and not given to it:"));
        plan.left.iter().for_each(|left| text += &left_line(left));
    }
    text += &format!("\n{}\n", bold("Files:"));
    for (path, state) in written {
        text += &format!("  {:<9}  {}\n", state_word(*state), path.display());
    }
    text +=
        &format!("\n{}\n", bold("What may leave; everything else is denied, and told when the run ends:"));
    for rule in &plan.rules {
        let paint = match rule.effect {
            Effect::Allow => Paint::Good,
            Effect::Review => Paint::Care,
            Effect::Deny => Paint::Bad,
        };
        let effect = output.paint(paint, format!("{:<6}", rule.effect.name()));
        text += &format!("  {effect}  {}\n", wrap(&format!("{}: {}", rule.id, rule.reason), 10, WIDTH));
    }
    if plan.rules.is_empty() {
        text += "  nothing\n";
    }
    text + &next(plan, added, output)
}

fn found(plan: &Plan) -> String {
    let agent = &plan.agent;
    let mut text = format!("Found {}: {}\n", agent.about, printable(&agent.command.join(" ")));
    if !agent.installed {
        let program = agent.command.first().map_or("", String::as_str);
        text = format!(
            "A set-up for {}. `{}` is not installed: do that first.\n",
            agent.about,
            printable(program)
        );
    }
    if !plan.also.is_empty() {
        let others = plan.also.join(", ");
        text += &format!(
            "{}\n",
            wrap(&format!("Also here: {others}. `cofferdam init NAME` is for one of them."), 0, WIDTH)
        );
    }
    text
}

fn key_line(key: &Key, state: Option<&Added>, output: &Output) -> String {
    let place = match &key.found {
        Found::Variable => "of your environment".to_owned(),
        Found::Project(file) | Found::Home(file) => format!("in {}", file.display()),
        Found::Nowhere => "not seen, and needed".to_owned(),
    };
    let state = match state {
        None => String::new(),
        Some(Added::New(remarks)) => format!("; added to the vault{}", said(remarks)),
        Some(Added::There) => "; the vault has it".to_owned(),
        Some(Added::Untold) => format!("; {}", output.paint(Paint::Care, "yours to add")),
        Some(Added::Failed(why)) => format!("; {}: {why}", output.paint(Paint::Bad, "not added")),
    };
    let line = format!("${} {place}{state}", key.variable);
    format!("  {:<11}  {}\n", key.service.name, wrap(&line, 15, WIDTH))
}

fn said(remarks: &[String]) -> String {
    remarks.iter().map(|remark| format!(" ({remark})")).collect()
}

fn left_line(left: &Left) -> String {
    let way = left.service.map(|service| format!("; --with {service} gives it")).unwrap_or_default();
    format!("  {}\n", wrap(&format!("{}: {}{way}", left.variable, left.why), 4, WIDTH))
}

/// The lines to type. They are not broken: they are to be copied.
fn next(plan: &Plan, added: &[Added], output: &Output) -> String {
    let missing = plan.keys.iter().enumerate().filter(|(at, _)| !added.get(*at).is_some_and(Added::is_done));
    let mut lines: Vec<String> = missing.map(|(_, key)| key.line()).collect();
    lines.push(format!("cofferdam policy test {}", plan.policy.display()));
    lines.push(run_line(plan));
    lines.push("cofferdam trace show latest".to_owned());
    let heading = output.paint(Paint::Bold, "Next:");
    let lines: String = lines.iter().map(|line| format!("  {line}\n")).collect();
    let inside = "Inside, the variables hold placeholders that are worth nothing elsewhere. Your files are read-only but for this directory, whose changes you are asked about.";
    format!("\n{heading}\n{lines}\n{}\n", wrap(inside, 0, WIDTH))
}
