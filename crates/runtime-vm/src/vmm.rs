//! What a VMM is to the rest of this tier: a program that is found and known by its version, and one that is at work.
//! QEMU and Firecracker differ in how they are started, spoken to and stopped; nobody else has to know in what.

use crate::accelerator;
use crate::firecracker::{self, Firecracker};
use crate::kernel::refused;
use crate::machine::Machine;
use crate::qemu::{self, Qemu};
use crate::stamp;
use cofferdam_runtime::RuntimeError;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Says which is to be used: `qemu`, `firecracker`, or what is found to work.
pub(crate) const WANTED: &str = "COFFERDAM_VM_VMM";

/// Who executes a machine's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// The processor itself.
    Kvm,
    /// A program: safe, and slow.
    Tcg,
}

impl Accelerator {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

/// How large a machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    pub memory: u64,
    pub processors: u32,
}

impl Size {
    /// What may be changed in it, unless something else is said.
    pub(crate) const fn room(self) -> u64 {
        self.memory / 2
    }
}

/// What a machine is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// To be the one that others are copied from.
    Template,
    /// To be a copy.
    Copy,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    #[default]
    Qemu,
    Firecracker,
}

impl Kind {
    /// As it is called in a report.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Firecracker => "firecracker",
        }
    }

    /// As people call it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Qemu => "QEMU",
            Self::Firecracker => "Firecracker",
        }
    }

    /// The setting that names another program.
    pub(crate) const fn setting(self) -> &'static str {
        match self {
            Self::Qemu => qemu::NAMED,
            Self::Firecracker => firecracker::NAMED,
        }
    }
}

/// A VMM that is here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Program {
    #[serde(default)]
    pub(crate) kind: Kind,
    pub(crate) path: PathBuf,
    pub(crate) version: String,
    /// Of the file, so that another one is noticed.
    stamp: (u64, i64, i64),
}

type Env<'a> = &'a dyn Fn(&str) -> Option<PathBuf>;

impl Program {
    /// Finds it. Which version it is was asked before, unless it is another file by now.
    pub(crate) fn find(kind: Kind, env: Env<'_>, dir: &Path) -> Result<Self, RuntimeError> {
        let (path, fix) = match kind {
            Kind::Qemu => (qemu::place(env)?, qemu::FIX),
            Kind::Firecracker => (firecracker::place(env)?, firecracker::FIX),
        };
        let stamp = stamp(&path).ok_or_else(|| refused(format!("there is no {}", path.display()), fix))?;
        let kept = dir.join(format!("{}.json", kind.word()));
        let known = fs::read(&kept).ok().and_then(|text| serde_json::from_slice::<Self>(&text).ok());
        if let Some(known) = known.filter(|known| known.path == path && known.stamp == stamp) {
            return Ok(known);
        }
        let version = match kind {
            Kind::Qemu => qemu::version(&path)?,
            Kind::Firecracker => firecracker::version(&path)?,
        };
        let program = Self { kind, version, path, stamp };
        let _ = serde_json::to_vec(&program).map(|text| fs::write(&kept, text));
        Ok(program)
    }

    /// Of the version, the two that count.
    pub(crate) fn numbers(&self) -> (u32, u32) {
        let mut parts =
            self.version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    }

    /// Whether it opens its memory by the one call that it can be answered. Others are known to map what they may only read, or
    /// are not known.
    pub(crate) fn takes_lent(&self) -> bool {
        self.kind == Kind::Qemu && (5..9).contains(&self.numbers().0)
    }

    #[cfg(test)]
    pub(crate) fn of_version(kind: Kind, version: &str) -> Self {
        Self { kind, path: PathBuf::from("/vmm"), version: version.to_owned(), stamp: (0, 0, 0) }
    }

    /// One to be started.
    pub(crate) fn vmm(
        &self,
        role: Role,
        size: Size,
        accelerator: Accelerator,
        processor: &str,
        command_line: &str,
    ) -> io::Result<Box<dyn Vmm>> {
        Ok(match self.kind {
            Kind::Qemu => Box::new(Qemu::new(self, role, size, (accelerator, processor), command_line)),
            Kind::Firecracker => Box::new(Firecracker::new(self, role, size, command_line)?),
        })
    }

    /// The kind of processor that its machines have.
    pub(crate) const fn processor(&self, accelerator: Accelerator) -> &'static str {
        match self.kind {
            Kind::Qemu => qemu::processor(accelerator),
            Kind::Firecracker => "",
        }
    }

    /// What the kernel of its machines is told, but for what is measured.
    pub(crate) fn command_line(&self, accelerator: Accelerator) -> String {
        match self.kind {
            Kind::Qemu => qemu::command_line(accelerator, self.numbers()),
            Kind::Firecracker => firecracker::command_line(),
        }
    }

    /// What is measured, for a kernel that is to boot.
    pub(crate) fn clocks(&self, accelerator: Accelerator) -> String {
        match self.kind {
            Kind::Qemu => qemu::clocks(accelerator),
            Kind::Firecracker => String::new(),
        }
    }
}

/// Which VMM to use, on what, and why.
pub(crate) fn choose(
    env: Env<'_>,
    dir: &Path,
    own: &Path,
) -> Result<(Program, Accelerator, String), RuntimeError> {
    let wanted = env(WANTED);
    let wanted = wanted.as_deref().and_then(Path::to_str).unwrap_or("auto");
    let with = |kind: Kind| {
        let program = Program::find(kind, env, dir)?;
        let (accelerator, why) = accelerator::choose(env, dir, &program, own)?;
        Ok((program, accelerator, why))
    };
    match wanted {
        "qemu" => with(Kind::Qemu),
        "firecracker" => match with(Kind::Firecracker)? {
            (_, Accelerator::Tcg, why) => {
                let what = format!("Firecracker runs machines on KVM alone, and there is none: {why}");
                Err(refused(what, format!("set {WANTED} to qemu, or leave it out")))
            }
            found => Ok(found),
        },
        // What is smaller is taken where it works. A program that was named and is none is not passed over in silence.
        "auto" => match with(Kind::Firecracker) {
            Ok(found) if found.1 == Accelerator::Kvm => Ok(found),
            Err(error) if env(firecracker::NAMED).is_some() => Err(error),
            _ => with(Kind::Qemu),
        },
        other => Err(refused(format!("{WANTED} is `{other}`"), "set it to qemu, firecracker or auto")),
    }
}

/// How a VMM comes to what it works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wiring {
    /// All of it is handed to it, open: streams, disks, the monitor.
    Handed,
    /// It makes its own sockets, where it is, and has files for disks.
    Asked,
}

/// What a VMM says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) kind: Kind,
    pub(crate) version: String,
    pub(crate) accelerator: Accelerator,
    pub(crate) memory: u64,
    pub(crate) processors: usize,
    pub(crate) is_running: bool,
}

/// A VMM from its command line to its end.
pub(crate) trait Vmm: Send {
    fn wiring(&self) -> Wiring;

    /// `{name}` in it is the number of a descriptor that is handed over.
    fn argv(&self) -> Vec<String>;

    /// What is handed over beside what every one is.
    fn given(&self) -> Vec<(&'static str, BorrowedFd<'_>)> {
        Vec::new()
    }

    /// The program itself, where it has to be shown to be started.
    fn shown(&self) -> Option<&Path> {
        None
    }

    /// The first words, once it runs.
    fn greet(&mut self, machine: &mut Machine) -> io::Result<()>;

    /// Lets its kernel begin, and has the machine's streams connected.
    fn boot(&mut self, machine: &mut Machine, until: Instant) -> io::Result<()>;

    /// Stops the machine, and writes down all of it but its memory, which is in the file that it was started with.
    fn save(&mut self, state: &File) -> io::Result<()>;

    /// Lets the machine run on from what was written down.
    fn load(&mut self, machine: &mut Machine, state: &File) -> io::Result<()>;

    /// Writes down a machine that stands still, whose memory is its own. Gives its memory, where it has written that down too;
    /// else it is to be read where it is.
    fn keep(&mut self, state: &File) -> io::Result<Option<File>>;

    /// It goes on, after it was written down.
    fn go_on(&mut self, machine: &mut Machine) -> io::Result<()>;

    fn pause(&mut self) -> io::Result<()>;

    fn resume(&mut self) -> io::Result<()>;

    /// What is on this disk is another thing from now on.
    fn exchanged(&mut self, disk: &str) -> io::Result<()>;

    fn told(&mut self) -> io::Result<Told>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn firecracker_is_taken_where_it_can_run_and_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, script: &str| {
            let path = dir.path().join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let small = write("firecracker", "echo Firecracker v1.9.0");
        let qemu = "case $1 in --version) echo QEMU emulator version 9.0.0;; *) echo 'microvm x';; esac";
        let qemu = write("qemu", qemu);
        let check = |settings: &[(&str, &str)], expected: Result<Kind, &str>| {
            let env = |name: &str| {
                let set = settings.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
                set.or_else(|| (name == qemu::NAMED).then(|| qemu.clone()))
            };
            match (choose(&env, dir.path(), Path::new("/bin/false")), expected) {
                (Ok((program, ..)), Ok(kind)) => assert_eq!(program.kind, kind, "{settings:?}"),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (found, _) => panic!("{settings:?}: {found:?} and not {expected:?}"),
            }
        };
        let (small, none) = (small.to_str().unwrap(), "/nowhere/firecracker");
        let (found, tcg) = ((firecracker::NAMED, small), (accelerator::WANTED, "tcg"));
        check(&[tcg], Ok(Kind::Qemu));
        check(&[tcg, (WANTED, "qemu"), found], Ok(Kind::Qemu));
        check(&[tcg, (WANTED, "auto"), found], Ok(Kind::Qemu));
        check(
            &[tcg, (WANTED, "firecracker"), found],
            Err("on KVM alone, and there is none: COFFERDAM_VM_ACCEL"),
        );
        check(&[tcg, (WANTED, "firecracker")], Err("firecracker is not installed"));
        check(&[tcg, (firecracker::NAMED, none)], Err("there is no /nowhere/firecracker"));
        check(&[tcg, (WANTED, "another")], Err("COFFERDAM_VM_VMM is `another`"));
        // Where a guest runs on KVM is remembered, here as found: then the smaller one is taken.
        let program = Program::find(
            Kind::Firecracker,
            &|name| (name == firecracker::NAMED).then(|| small.into()),
            dir.path(),
        );
        accelerator::remember(dir.path(), &program.unwrap());
        check(&[found], Ok(Kind::Firecracker));
        check(&[found, (WANTED, "qemu"), tcg], Ok(Kind::Qemu));
    }
}
