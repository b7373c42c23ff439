//! The attempts themselves. They run inside, in a process each, told nothing that would help them; and outside,
//! where the same code has to succeed.

pub(super) mod changes;
pub(super) mod files;
pub(super) mod kernel;
pub(super) mod network;
pub(super) mod processes;

use super::check::Finding;
use super::collector::{Collector, Sockets};
use super::facts::Facts;
use super::{CHECKS, ROADS};
use cofferdam_sys::probe;
use rustix::process::Signal;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// For one attempt, however it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// What surrounds an attempt that is made on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surroundings {
    AsIs,
    /// Namespaces that end with it.
    Apart,
    /// The same, with a network in which we answer at every address.
    World,
}

/// So many at a time: most of them wait for something that does not come.
pub(super) const TOGETHER: usize = 8;

/// Each attempt, made by a process of its own: one that is killed takes no other with it. Those that say nothing are
/// left out.
pub fn all(facts: &str, ids: &[String]) -> Vec<(String, Finding)> {
    let mut found = Vec::new();
    for some in ids.chunks(TOGETHER) {
        let started: Vec<_> = some.iter().map(|id| (id, start(facts, id))).collect();
        let heard = |(id, child): (&String, io::Result<Child>)| {
            child.and_then(answer).ok().map(|finding| (id.clone(), finding))
        };
        found.extend(started.into_iter().filter_map(heard));
    }
    found
}

fn start(facts: &str, id: &str) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["probe", "one", facts, id]).stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::null()).spawn()
}

/// What a child says of its attempt. An error means that nothing is known of it.
pub(super) fn answer(mut child: Child) -> io::Result<Finding> {
    let until = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if Instant::now() > until => {
                child.kill()?;
                child.wait()?;
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it did not end in time"));
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let mut text = String::new();
    child.stdout.take().map(|mut out| out.read_to_string(&mut text)).transpose()?;
    if let Ok(finding) = serde_json::from_str(&text) {
        return Ok(finding);
    }
    match status.signal().and_then(Signal::from_named_raw) {
        Some(Signal::SYS) => Ok(Finding::blocked("killed by the filter")),
        // What a processor says to a gate that is not there.
        Some(Signal::SEGV) => Ok(Finding::blocked("killed by the kernel")),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, format!("it gave no answer: {status}"))),
    }
}

fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Makes one attempt, in this process. An error means that it was not made.
pub fn one(facts: &str, id: &str, surroundings: Surroundings) -> io::Result<Finding> {
    let facts: Facts = serde_json::from_str(facts)?;
    let checks = CHECKS.iter().flat_map(|table| table.iter()).map(|check| (check.id, check.probe));
    let found = checks.chain(ROADS.iter().copied()).find(|(name, _)| *name == id);
    let (_, attempt) = found.ok_or_else(|| wrong(format!("there is no attempt `{id}`")))?;
    let not_ours = |what: &str, error: &dyn std::fmt::Display| Finding::blocked(format!("{what}: {error}"));
    Ok(match surroundings {
        Surroundings::AsIs => attempt(&facts),
        Surroundings::Apart => match probe::apart() {
            Ok(()) => attempt(&facts),
            Err(errno) => not_ours("no throw-away namespaces", &io::Error::from(errno)),
        },
        Surroundings::World => {
            let served = probe::world().map_err(io::Error::from).and_then(|()| {
                let sockets = Sockets::of_the_world(network::TCP_PORTS, network::UDP_PORTS)?;
                Collector::start(sockets, facts.word())
            });
            match served {
                Ok(_collector) => attempt(&facts),
                Err(error) => not_ours("no throw-away network", &error),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(script: &str) -> io::Result<Finding> {
        let mut shell = Command::new("sh");
        answer(shell.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Inside, what is not known counts as open; outside, as no proof. So it must be told from both.
    #[test]
    fn silence_is_no_answer() {
        assert_eq!(ended("echo '{\"open\": true, \"how\": \"x\"}'").unwrap(), Finding::open("x"));
        assert!(!ended("kill -SYS $$").unwrap().open);
        for silent in ["true", "exit 3", "echo nonsense", "kill -KILL $$"] {
            assert!(ended(silent).is_err(), "{silent}");
        }
        assert!(one("{}", "no.such", Surroundings::AsIs).is_err());
    }
}
