//! `cofferdam init`: a starting set-up for the agent that is here. It writes one file, which says what it does.

use crate::args::Init as Args;
use crate::output::{Failure, Output};
use serde_json::json;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// An agent, the arguments a first run wants, and what it usually asks for.
struct Agent {
    program: &'static str,
    about: &'static str,
    memory: &'static str,
}

const AGENTS: &[Agent] = &[
    Agent { program: "claude", about: "Claude Code", memory: "4G" },
    Agent { program: "codex", about: "Codex", memory: "4G" },
    Agent { program: "gemini", about: "Gemini CLI", memory: "4G" },
    Agent { program: "aider", about: "aider", memory: "4G" },
    Agent { program: "goose", about: "goose", memory: "4G" },
    Agent { program: "opencode", about: "opencode", memory: "4G" },
];

/// Files of a work dir that tell what to run when no agent is installed.
const PROJECTS: &[(&str, &[&str])] = &[
    ("agent.py", &["python3", "agent.py"]),
    ("main.py", &["python3", "main.py"]),
    ("agent.js", &["node", "agent.js"]),
    ("index.js", &["node", "index.js"]),
];

pub(crate) fn run(args: Args, output: &Output) -> Result<u8, Failure> {
    let (command, about, memory) = find(args.agent.as_deref())?;
    let text = set_up(&command, &about, &memory);
    let mut options = File::options();
    match args.force {
        true => options.write(true).create(true).truncate(true),
        false => options.write(true).create_new(true),
    };
    let mut file = options.open(&args.out).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::Usage(format!(
            "{} is there already; replace it with --force, or write elsewhere with --out",
            args.out.display()
        )),
        _ => Failure::Usage(format!("cannot write {}: {error}", args.out.display())),
    })?;
    file.write_all(text.as_bytes())?;
    if output.json {
        output.value(&json!({ "file": args.out.to_string_lossy(), "command": command, "agent": about }))?;
        return Ok(0);
    }
    let out = args.out.display();
    output.data(&format!(
        "Found {about}. Wrote {out}.\n\n  cofferdam run --spec {out}    runs it in a sandbox\n  cofferdam trace show latest{:pad$}    tells what it did\n\nInside there is no network and none of your credentials; your files are\nread-only but for this directory, whose changes you are asked about.\n",
        "",
        pad = (out.to_string().len() + 4).saturating_sub(5),
    ))?;
    Ok(0)
}

fn find(asked: Option<&str>) -> Result<(Vec<String>, String, String), Failure> {
    if let Some(name) = asked {
        let known = AGENTS.iter().find(|agent| agent.program == name);
        if on_path(name).is_none() {
            return Err(Failure::Usage(format!(
                "`{name}` is not on your PATH; install it, or name another program"
            )));
        }
        let (about, memory) = known.map_or((name, "2G"), |agent| (agent.about, agent.memory));
        return Ok((vec![name.into()], about.into(), memory.into()));
    }
    if let Some(agent) = AGENTS.iter().find(|agent| on_path(agent.program).is_some()) {
        return Ok((vec![agent.program.into()], agent.about.into(), agent.memory.into()));
    }
    if let Some((file, command)) = PROJECTS.iter().find(|(file, _)| Path::new(file).is_file()) {
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        return Ok((command, format!("the program {file}"), "2G".into()));
    }
    let names: Vec<&str> = AGENTS.iter().map(|agent| agent.program).collect();
    Err(Failure::Usage(format!(
        "found no agent here: none of {} is on your PATH, and there is no agent.py, main.py, agent.js or index.js; name the program: cofferdam init PROGRAM",
        names.join(", ")
    )))
}

fn on_path(name: &str) -> Option<PathBuf> {
    let search = std::env::var_os("PATH")?;
    std::env::split_paths(&search).map(|dir| dir.join(name)).find(|path| path.is_file())
}

fn set_up(command: &[String], about: &str, memory: &str) -> String {
    let words: Vec<String> = command.iter().map(|word| format!("{word:?}")).collect();
    format!(
        "# A session of {about} in a sandbox: cofferdam run --spec THIS-FILE
# Every key is optional but `command`; `cofferdam run --help` lists the flags that override them.
command = [{}]

# What becomes of file changes in the work dir: keep, discard, ask.
changes = \"ask\"

# Paths of the work dir to hide, beyond the usual places of credentials (.env, .ssh, .aws, …).
hide = []

# Controls without which it must not run; names as in `cofferdam trace show --full`.
require = [\"seccomp\", \"no-new-privileges\", \"network\"]

# Without control groups (most plain users) limits are held per process instead of refused.
accept = [\"rlimits\"]

[limits]
memory = \"{memory}\"
pids = 1024
timeout = \"4h\"

# Variables of yours that the agent may see are named here, never copied:
# cofferdam run --spec THIS-FILE --env NAME
[env]
",
        words.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_a_valid_spec() {
        let text = set_up(&["python3".into(), "my \"agent\".py".into()], "a test", "2G");
        let spec: cofferdam_model::SessionSpec = toml::from_str(&text).unwrap();
        assert_eq!(spec.command[1], "my \"agent\".py");
        assert_eq!(spec.check(), Ok(()));
    }
}
