//! The agents that are known, as data, and which of them is meant here.

use super::project::{self, Project};
use super::{Around, InitError, Wish, services};

/// An agent that is installed as a program.
pub(super) struct Agent {
    pub(super) name: &'static str,
    /// Other names that people give it.
    called: &'static [&'static str],
    about: &'static str,
    program: &'static str,
    /// Where it thinks; the first is what it cannot do without, unless it takes any.
    services: &'static [&'static str],
    any_model: bool,
    /// Where it reads a service's key from a variable of its own.
    reads: &'static [(&'static str, &'static str)],
    /// Files of a work dir in which it was used before.
    traces: &'static [&'static str],
}

const AGENTS: &[Agent] = &[
    Agent {
        name: "claude",
        called: &["claude-code"],
        about: "Claude Code",
        program: "claude",
        services: &["anthropic"],
        any_model: false,
        reads: &[],
        traces: &["CLAUDE.md", ".claude"],
    },
    Agent {
        name: "codex",
        called: &["codex-cli"],
        about: "Codex",
        program: "codex",
        services: &["openai"],
        any_model: false,
        // Its `exec` takes no other; a login of its own would have to be made inside.
        reads: &[("openai", "CODEX_API_KEY")],
        traces: &[".codex"],
    },
    Agent {
        name: "gemini-cli",
        called: &["gemini"],
        about: "Gemini CLI",
        program: "gemini",
        services: &["gemini"],
        any_model: false,
        reads: &[],
        traces: &["GEMINI.md", ".gemini"],
    },
    Agent {
        name: "aider",
        called: &[],
        about: "aider",
        program: "aider",
        services: services::MODELS,
        any_model: true,
        reads: &[],
        traces: &[".aider.conf.yml", ".aider.chat.history.md"],
    },
    Agent {
        name: "goose",
        called: &[],
        about: "goose",
        program: "goose",
        services: services::MODELS,
        any_model: true,
        reads: &[],
        traces: &[".goosehints"],
    },
    Agent {
        name: "opencode",
        called: &[],
        about: "opencode",
        program: "opencode",
        services: services::MODELS,
        any_model: true,
        reads: &[],
        traces: &["opencode.json", ".opencode"],
    },
];

/// What `init AGENT` takes.
pub(super) fn known() -> String {
    let names: Vec<&str> = AGENTS.iter().map(|agent| agent.name).chain(["python", "node"]).collect();
    names.join(", ")
}

/// The agent that files are written for.
#[derive(Debug, Clone)]
pub struct Chosen {
    pub name: String,
    /// For people.
    pub about: String,
    pub command: Vec<String>,
    /// Whether its program is on the search path.
    pub installed: bool,
    pub(super) memory: &'static str,
    /// Services that it may use if their key is here.
    pub(super) takes: Vec<&'static str>,
    /// Services that it does not work without.
    pub(super) needs: Vec<&'static str>,
    /// Services whose key it reads from another variable than most.
    pub(super) reads: &'static [(&'static str, &'static str)],
    /// A program of the user's own may use every key that it was started with; a tool that was installed
    /// gets the keys it is known to need.
    pub(super) takes_environment: bool,
}

/// Which one, and what else was found.
pub(super) fn choose(wish: &Wish, around: &Around<'_>) -> Result<(Chosen, Vec<&'static str>), InitError> {
    let (python, node) = (project::python(around.dir), project::node(around.dir));
    let installed: Vec<&Agent> =
        AGENTS.iter().filter(|agent| around.program(agent.program).is_some()).collect();
    let mut found: Vec<&'static str> = installed.iter().map(|agent| agent.name).collect();
    found.extend(python.as_ref().map(|_| "python"));
    found.extend(node.as_ref().map(|_| "node"));
    let mut chosen = match wish.agent.as_deref() {
        None if !wish.command.is_empty() => {
            let services = python.or(node).map(|project| project.services).unwrap_or_default();
            found.clear();
            let project = Project { services, ..Project::default() };
            program("program", "your program", project, around, Some(&wish.command))?
        }
        None => here(&installed, python, node, around)?,
        Some("python" | "python3") => {
            program("python", "a Python program", python.unwrap_or_default(), around, Some(&wish.command))?
        }
        Some("node" | "nodejs") => {
            program("node", "a Node program", node.unwrap_or_default(), around, Some(&wish.command))?
        }
        Some(name) => {
            let is_it = |agent: &&Agent| agent.name == name || agent.called.contains(&name);
            let agent = AGENTS.iter().find(is_it);
            let unknown = || InitError::Unknown { name: name.chars().take(40).collect(), known: known() };
            tool(agent.ok_or_else(unknown)?, around)
        }
    };
    if !wish.command.is_empty() {
        chosen.command.clone_from(&wish.command);
        chosen.installed = is_there(&chosen.command, around);
    }
    found.retain(|name| *name != chosen.name);
    Ok((chosen, found))
}

/// The nearest: a program of this directory that talks to a model, an agent that was used here, one that is
/// installed, any program of this directory.
fn here(
    installed: &[&Agent],
    python: Option<Project>,
    node: Option<Project>,
    around: &Around<'_>,
) -> Result<Chosen, InitError> {
    let used = |agent: &&&Agent| agent.traces.iter().any(|file| around.dir.join(file).exists());
    let is_agent = |project: &Option<Project>| project.as_ref().is_some_and(Project::is_agent);
    match (python, node) {
        (Some(project), _) if project.is_agent() => {
            program("python", "a Python program", project, around, None)
        }
        (_, node) if is_agent(&node) => {
            program("node", "a Node program", node.unwrap_or_default(), around, None)
        }
        (python, node) => match installed.iter().find(used).or(installed.first()) {
            Some(agent) => Ok(tool(agent, around)),
            None => match (python, node) {
                (Some(project), _) => program("python", "a Python program", project, around, None),
                (None, Some(project)) => program("node", "a Node program", project, around, None),
                (None, None) => Err(InitError::Nothing { known: known() }),
            },
        },
    }
}

fn tool(agent: &Agent, around: &Around<'_>) -> Chosen {
    Chosen {
        name: agent.name.to_owned(),
        about: agent.about.to_owned(),
        command: vec![agent.program.to_owned()],
        installed: around.program(agent.program).is_some(),
        memory: "4G",
        takes: agent.services.iter().copied().chain(["github"]).collect(),
        needs: if agent.any_model { Vec::new() } else { agent.services.to_vec() },
        reads: agent.reads,
        takes_environment: false,
    }
}

fn program(
    name: &str,
    kind: &str,
    project: Project,
    around: &Around<'_>,
    said: Option<&[String]>,
) -> Result<Chosen, InitError> {
    let said = said.filter(|command| !command.is_empty()).map(<[String]>::to_vec);
    let about = match project.evidence.as_str() {
        "" => kind.to_owned(),
        evidence => format!("{kind} ({evidence})"),
    };
    let no_command = || InitError::NoCommand { about: about.clone() };
    let command = said.or(project.command).ok_or_else(no_command)?;
    Ok(Chosen {
        name: name.to_owned(),
        installed: is_there(&command, around),
        about,
        command,
        memory: "2G",
        takes: project.services.clone(),
        needs: project.services,
        reads: &[],
        takes_environment: true,
    })
}

fn is_there(command: &[String], around: &Around<'_>) -> bool {
    command.first().is_some_and(|program| match program.contains('/') {
        true => around.dir.join(program).exists(),
        false => around.program(program).is_some(),
    })
}
