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
use std::io::{self, Read};
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

/// Each attempt, made by a process of its own: one that is killed takes no other with it.
pub fn all(facts: &str, ids: &[String]) -> Vec<(String, Finding)> {
    let mut found = Vec::new();
    for some in ids.chunks(TOGETHER) {
        let started: Vec<_> = some.iter().map(|id| (id, start(facts, id))).collect();
        found.extend(started.into_iter().map(|(id, child)| (id.clone(), heard(child))));
    }
    found
}

fn start(facts: &str, id: &str) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["probe", "one", facts, id]).stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::null()).spawn()
}

/// Where nothing is known of an attempt, it counts as a way out.
fn heard(child: io::Result<Child>) -> Finding {
    child
        .and_then(answer)
        .unwrap_or_else(|error| Finding::open(format!("the attempt could not be made: {error}")))
}

/// What a child says of its attempt, or how it ended without a word.
pub(super) fn answer(mut child: Child) -> io::Result<Finding> {
    let until = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if Instant::now() > until => {
                child.kill()?;
                child.wait()?;
                return Ok(Finding::blocked("nothing happened until time was up"));
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let mut text = String::new();
    child.stdout.take().map(|mut out| out.read_to_string(&mut text)).transpose()?;
    if let Ok(finding) = serde_json::from_str(&text) {
        return Ok(finding);
    }
    match std::os::unix::process::ExitStatusExt::signal(&status) {
        Some(31) => Ok(Finding::blocked("killed by the filter")),
        Some(signal) => Ok(Finding::blocked(format!("killed by signal {signal}"))),
        None => Ok(Finding::open(format!("the attempt gave no answer ({status})"))),
    }
}

/// Makes one attempt, in this process.
pub fn one(facts: &str, id: &str, surroundings: Surroundings) -> Finding {
    let Ok(facts) = serde_json::from_str::<Facts>(facts) else {
        return Finding::open("the attempt does not know what to try");
    };
    let checks = CHECKS.iter().flat_map(|table| table.iter()).map(|check| (check.id, check.probe));
    let Some((_, attempt)) = checks.chain(ROADS.iter().copied()).find(|(name, _)| *name == id) else {
        return Finding::open(format!("there is no attempt `{id}`"));
    };
    let not_ours = |what: &str, error: &dyn std::fmt::Display| Finding::blocked(format!("{what}: {error}"));
    match surroundings {
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
    }
}
