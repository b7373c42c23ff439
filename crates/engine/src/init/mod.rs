//! The first ten minutes: which agent is here, which keys it uses, and two files to begin with. It looks at names
//! and never at values: no key is stored, copied or told. It prints nothing and adds nothing to the vault.

mod agents;
mod keys;
mod project;
mod services;
mod text;
mod write;

pub use agents::Chosen;
pub use keys::{Found, Key};
pub use write::Written;

use cofferdam_policy::{Policy, RuleName};
use cofferdam_vault::Preset;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, thiserror::Error)]
pub enum InitError {
    #[error(
        "`{name}` is no agent that is known here: use one of {known}; for another program write `cofferdam init -- CMD`"
    )]
    Unknown { name: String, known: String },
    #[error(
        "found no agent here: none of {known}; write `cofferdam init -- CMD` with the command that starts it"
    )]
    Nothing { known: String },
    #[error("found {about}, and not how it is started: write `cofferdam init -- CMD`")]
    NoCommand { about: String },
    #[error("--with {name}: there is no such service; use one of {known}")]
    Service { name: String, known: String },
    #[error("{} there already and not what would be written: compare, then replace with --force, or write elsewhere with --out", differ(.0))]
    Differ(Vec<PathBuf>),
    #[error("cannot write {path}: {source}; choose another place with --out")]
    Write { path: PathBuf, source: io::Error },
    #[error("the composed policy has a mistake: {0}; leave --with out, and report it")]
    Composed(String),
}

fn differ(paths: &[PathBuf]) -> String {
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    format!("{} {}", names.join(" and "), if names.len() == 1 { "is" } else { "are" })
}

/// What was asked for.
#[derive(Debug, Default)]
pub struct Wish {
    pub agent: Option<String>,
    /// How the agent is started, where that is not to be found out.
    pub command: Vec<String>,
    /// Services beyond those that were found to be needed.
    pub with: Vec<String>,
    /// Where the session's description goes; its policy goes beside it.
    pub out: PathBuf,
}

/// What can be seen of the machine.
pub struct Around<'a> {
    pub dir: &'a Path,
    pub home: Option<&'a Path>,
    /// The search path for programs.
    pub path: OsString,
    /// Whether a variable is set, and not empty.
    pub is_set: &'a dyn Fn(&str) -> bool,
}

impl Around<'_> {
    fn program(&self, name: &str) -> Option<PathBuf> {
        std::env::split_paths(&self.path).map(|dir| dir.join(name)).find(|path| path.is_file())
    }
}

/// A key that was seen and is not given to the agent.
#[derive(Debug)]
pub struct Left {
    pub variable: String,
    pub why: &'static str,
    /// The service to name if it shall be given after all.
    pub service: Option<&'static str>,
}

/// What is to be written, and why.
#[derive(Debug)]
pub struct Plan {
    pub agent: Chosen,
    /// Other agents that could have been meant.
    pub also: Vec<&'static str>,
    pub keys: Vec<Key>,
    pub left: Vec<Left>,
    /// The rules of the policy, for people.
    pub rules: Vec<Arc<RuleName>>,
    pub spec: PathBuf,
    pub policy: PathBuf,
    files: [(PathBuf, String); 2],
}

impl Plan {
    pub fn make(wish: &Wish, around: &Around<'_>) -> Result<Self, InitError> {
        let (agent, also) = agents::choose(wish, around)?;
        let with = wish.with.iter().map(|name| service(name)).collect::<Result<Vec<_>, _>>()?;
        let (keys, left) = share(&agent, &with, around);
        let services: Vec<&'static Preset> = keys.iter().map(|key| key.service).collect();
        let (spec, policy) = (wish.out.clone(), beside(&wish.out));
        let session = text::Session {
            about: &agent.about,
            command: &agent.command,
            memory: agent.memory,
            keys: &keys,
            out: &spec,
            policy: &policy,
        };
        let rules = text::policy(&agent.about, &policy, &services);
        let files = [(spec.clone(), session.text()), (policy.clone(), rules.clone())];
        let parsed = Policy::parse(&rules).map_err(|errors| InitError::Composed(errors.to_string()))?;
        let rules = parsed.rules().cloned().collect();
        Ok(Self { agent, also, keys, left, rules, spec, policy, files })
    }

    /// Writes both files or none. One that is there and the same is left alone.
    pub fn write(&self, force: bool) -> Result<Vec<(PathBuf, Written)>, InitError> {
        write::all(&self.files, force)
    }
}

fn service(name: &str) -> Result<&'static Preset, InitError> {
    let known = || cofferdam_vault::PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ");
    services::find(name)
        .ok_or_else(|| InitError::Service { name: name.chars().take(40).collect(), known: known() })
}

/// Which keys the agent gets: those of its services, of its project's files, and those that were asked for.
fn share(agent: &Chosen, with: &[&'static Preset], around: &Around<'_>) -> (Vec<Key>, Vec<Left>) {
    let (mut given, mut left): (Vec<Key>, Vec<Left>) = (Vec::new(), Vec::new());
    for key in keys::find(around) {
        let name = key.service.name;
        let asked = with.iter().any(|preset| preset.name == name);
        let of_project = matches!(key.found, Found::Project(_));
        let of_environment = key.found == Found::Variable && agent.takes_environment;
        if given.iter().any(|other| other.service.name == name) {
            if key.found == Found::Variable {
                left.push(Left {
                    variable: key.variable,
                    why: "another one of the same service is used",
                    service: None,
                });
            }
        } else if asked || of_project || of_environment || agent.takes.contains(&name) {
            given.push(key);
        } else if key.found == Found::Variable {
            left.push(Left { variable: key.variable, why: "not known to be needed", service: Some(name) });
        }
    }
    let needed = agent.needs.iter().filter_map(|name| services::find(name)).chain(with.iter().copied());
    for service in needed {
        if !given.iter().any(|key| key.service.name == service.name) {
            given.push(Key::wanted(service));
        }
    }
    for (service, variable) in agent.reads {
        let its = given.iter_mut().filter(|key| key.service.name == *service);
        its.for_each(|key| key.variable = (*variable).to_owned());
    }
    let signed = services::SIGNED.iter().filter(|name| (around.is_set)(name));
    left.extend(signed.map(|name| Left {
        variable: (*name).to_owned(),
        why: "its requests are signed, and not set up here: see docs/secrets.md",
        service: None,
    }));
    given.sort_by_key(|key| key.service.name);
    (given, left)
}

/// `policy.toml` for the usual name; a name of its own for others, so that two agents have two policies.
fn beside(out: &Path) -> PathBuf {
    let stem = out.file_stem().unwrap_or(OsStr::new("cofferdam"));
    match stem == "cofferdam" {
        true => out.with_file_name("policy.toml"),
        false => out.with_file_name(format!("{}.policy.toml", stem.to_string_lossy())),
    }
}

#[cfg(test)]
mod tests;
