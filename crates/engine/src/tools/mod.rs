//! The registry of tools: a file that says which programs exist inside, and for each tool what it may read, write and
//! reach. What no tool names is not there. It is read when a sandbox is made, and everything in it is found before
//! anything is: a mistake is told with the tool and the field.

mod derive;
mod file;

use crate::error::EngineError;
use crate::toml_file::{self, mistake};
use cofferdam_model::Mount;
use cofferdam_policy::Policy;
use cofferdam_runtime::SandboxSpec;
use file::{Manifest, Registry, Right};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// What a registry makes of a sandbox.
#[derive(Clone)]
pub(crate) struct Toolbox {
    /// With the links that lead to them left to the tier.
    pub(crate) programs: Vec<PathBuf>,
    pub(crate) mounts: Vec<Mount>,
    /// What is not there although it would be.
    pub(crate) hide: Vec<PathBuf>,
    pub(crate) nested: bool,
    pub(crate) tracing: bool,
    /// What the tools may reach, as rules; nothing where none may reach anything.
    pub(crate) derived: Option<(Arc<Policy>, String)>,
    servers: Vec<(String, Vec<String>)>,
}

/// Who the registry is read for.
pub(crate) struct Whose<'a> {
    pub(crate) home: Option<&'a Path>,
    pub(crate) search: &'a [PathBuf],
    /// Only this tool of it, where the sandbox is one tool's.
    pub(crate) only: Option<&'a str>,
}

impl Toolbox {
    pub(crate) fn read(path: &Path, whose: &Whose<'_>) -> Result<Self, EngineError> {
        let unreadable = |source| EngineError::Unreadable { path: path.to_owned(), source };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Self::parse(path, &text, whose)
    }

    fn parse(path: &Path, text: &str, whose: &Whose<'_>) -> Result<Self, EngineError> {
        let registry: Registry = toml_file::parse(path, text)?;
        let mut names = BTreeSet::new();
        if let Some(twice) = registry.tool.iter().find(|tool| !names.insert(tool.name.get_ref())) {
            let (name, line) = (twice.name.get_ref(), toml_file::line_of(text, twice.name.span().start));
            return Err(mistake(path, line, format!("tool `{name}` stands here a second time")));
        }
        if let Some(name) = whose.only.filter(|name| !names.contains(&(*name).to_owned())) {
            let all: Vec<_> = names.into_iter().cloned().collect();
            let message = format!("there is no tool `{name}`; there are: {}", all.join(", "));
            return Err(mistake(path, 1, message));
        }
        let mut toolbox = Self {
            programs: Vec::new(),
            mounts: Vec::new(),
            hide: registry.hide.clone(),
            nested: false,
            tracing: false,
            derived: None,
            servers: Vec::new(),
        };
        let tools: Vec<&Manifest> = registry
            .tool
            .iter()
            .filter(|tool| whose.only.is_none_or(|only| only == tool.name.get_ref()))
            .collect();
        for tool in &tools {
            toolbox.add(tool, path, text, whose)?;
        }
        toolbox.derived = derive::policy(&tools, path)?;
        Ok(toolbox)
    }

    fn add(
        &mut self,
        tool: &Manifest,
        path: &Path,
        text: &str,
        whose: &Whose<'_>,
    ) -> Result<(), EngineError> {
        let name = tool.name.get_ref();
        let line = toml_file::line_of(text, tool.name.span().start);
        let wrong =
            |field: &str, what: String| mistake(path, line, format!("tool `{name}`: `{field}`: {what}"));
        let server = tool.server.iter().take(1);
        let mut own = Vec::new();
        for program in tool.programs.iter().chain(server) {
            own.push(file::find(program, whose.search).map_err(|what| wrong("programs", what))?);
        }
        for program in &own {
            if let Some(interpreter) = file::interpreter(program) {
                let declared = own.iter().chain(&self.programs).any(|other| file::same(other, &interpreter));
                if !declared {
                    let (program, interpreter) = (program.display(), interpreter.display());
                    let what = format!("{program} is a script for {interpreter}, which is not among them");
                    return Err(wrong("programs", what));
                }
            }
        }
        self.programs.extend(own);
        for (field, paths, writable) in [("read", &tool.read, false), ("write", &tool.write, true)] {
            for shown in paths {
                let place = file::place(shown, whose.home).map_err(|what| wrong(field, what))?;
                self.mounts.push(Mount { source: place.clone(), target: place, writable });
            }
        }
        self.nested |= tool.syscalls.contains(&Right::Namespaces);
        self.tracing |= tool.syscalls.contains(&Right::Tracing);
        if !tool.server.is_empty() {
            self.servers.push((name.clone(), tool.server.clone()));
        }
        Ok(())
    }

    /// Makes a sandbox what the registry says.
    pub(crate) fn furnish(self, asked: &mut SandboxSpec) {
        asked.programs = Some(self.programs);
        let fresh = |mount: &Mount| asked.mounts.iter().all(|other| other.target != mount.target);
        let mounts: Vec<Mount> = self.mounts.into_iter().filter(fresh).collect();
        asked.mounts.extend(mounts);
        asked.hide.extend(self.hide);
        asked.nested |= self.nested;
        asked.tracing |= self.tracing;
    }

    /// The command of a tool that is a server.
    pub(crate) fn server(&self, tool: &str) -> Option<&[String]> {
        self.servers.iter().find(|(name, _)| name == tool).map(|(_, command)| command.as_slice())
    }
}

/// What tools may reach, for all who put a policy in force: it lies beneath every one.
#[derive(Clone, Default)]
pub(crate) struct Derived(Arc<Mutex<Option<Arc<Policy>>>>);

impl Derived {
    pub(crate) fn get(&self) -> Option<Arc<Policy>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, policy: Arc<Policy>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(policy);
    }
}

/// The command of an MCP server that a registry declares.
pub fn declared_server(path: &Path, tool: &str) -> Result<Vec<String>, EngineError> {
    let search: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let whose = Whose { home: home.as_deref(), search: &search, only: Some(tool) };
    let toolbox = Toolbox::read(path, &whose)?;
    toolbox.server(tool).map(<[String]>::to_vec).ok_or_else(|| {
        mistake(path, 1, format!("tool `{tool}` is no server: write its command as `server = [\"…\"]`"))
    })
}

#[cfg(test)]
mod tests;
