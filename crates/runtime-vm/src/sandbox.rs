//! A machine as a sandbox.

use crate::house::House;
use crate::import::{self, Bounds, Whose};
use crate::machine::Machine;
use crate::nbd::Disk;
use crate::qmp::Qmp;
use crate::report;
use crate::session;
use crate::template::{Manifest, Parts, Template};
use crate::wire::{self, Ask, Clock, Make, Tell};
use cofferdam_model::{
    Counters, EnforcementReport, FileChange, FileDifference, Limits, Provenance, RawPath, SkippedChange,
};
use cofferdam_runtime::{
    Base, Begun, Committed, Doors, Finished, Identity, Network, Refuses, RuntimeError, Sandbox, SandboxSpec,
};
use cofferdam_runtime_process::layer::{self, Began, Layer};
use cofferdam_runtime_process::{Look, layer_of, look};
use serde_json::json;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// For everything but an end with many changes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A machine that runs, and is nobody's yet.
pub(crate) struct Beginning {
    spec: SandboxSpec,
    parts: Parts,
    template: Template,
    machine: Machine,
    monitor: Qmp,
    session: Disk,
}

fn io(doing: &'static str) -> impl FnOnce(io::Error) -> RuntimeError {
    RuntimeError::io(doing)
}

pub(crate) fn begin(parts: Parts, spec: SandboxSpec, look: &Look) -> Result<Beginning, RuntimeError> {
    let template = parts.template(&spec, look)?;
    let session = Disk::default();
    let doors = spec.network == Network::Doors;
    let dir = parts.dir.join("run").join(spec.id.as_str());
    let (machine, monitor) = template.copy(&parts, &spec, &dir, doors, session.clone())?;
    Ok(Beginning { spec, parts, template, machine, monitor, session })
}

impl Begun for Beginning {
    fn adopt(&mut self, spec: SandboxSpec) -> Result<(), RuntimeError> {
        let kind = |spec: &SandboxSpec| (spec.network, spec.pausable, spec.limits.cpu);
        if kind(&spec) != kind(&self.spec)
            || crate::size(&spec.limits, self.parts.accelerator) != self.template.manifest.size
        {
            let what = "it was prepared for another kind of session";
            return Err(crate::kernel::refused(what, "make one from nothing"));
        }
        self.spec = spec;
        Ok(())
    }

    fn complete(self: Box<Self>, meanwhile: &mut dyn FnMut()) -> Result<Box<dyn Sandbox>, RuntimeError> {
        let Self { spec, parts, template, machine, monitor, session } = *self;
        meanwhile();
        let look = look(&spec)?;
        let began = spec.base.since.map_or_else(Began::now, Began::at);
        let mut sandbox = VmSandbox {
            house: Mutex::new(
                House::new(machine.house.try_clone().map_err(io("hear the machine"))?)
                    .map_err(io("hear the machine"))?,
            ),
            monitor: Mutex::new(monitor),
            machine,
            manifest: template.manifest.clone(),
            report: None,
            identity: None,
            look,
            began,
            spec,
            layer: None,
            changes: None,
            finished: None,
        };
        sandbox.make(&session, parts.without)?;
        Ok(Box::new(sandbox))
    }
}

pub(crate) struct VmSandbox {
    machine: Machine,
    monitor: Mutex<Qmp>,
    house: Mutex<House>,
    manifest: Manifest,
    report: Option<EnforcementReport>,
    identity: Option<Identity>,
    spec: SandboxSpec,
    look: Look,
    began: Began,
    layer: Option<Layer>,
    changes: Option<Vec<FileChange>>,
    finished: Option<Finished>,
}

fn raw(paths: &[PathBuf]) -> Vec<RawPath> {
    paths.iter().map(|path| RawPath::from(path.as_path())).collect()
}

fn clock() -> Clock {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Clock { seconds: now.as_secs().cast_signed(), nanos: now.subsec_nanos() }
}

/// What no other machine has.
fn identity() -> Result<wire::Identity, RuntimeError> {
    let mut seed = vec![0u8; 80];
    rustix::rand::getrandom(&mut seed[..], rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| io("draw a seed")(errno.into()))?;
    let machine = seed.split_off(64).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(wire::Identity { clock: clock(), seed, machine, host: "cofferdam".into() })
}

impl VmSandbox {
    fn house(&self) -> MutexGuard<'_, House> {
        self.house.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, ask: &Ask) -> Result<Tell, RuntimeError> {
        self.house().ask(ask, PATIENCE, self.machine.ended()).map_err(|error| self.lost(&error))
    }

    fn lost(&self, error: &io::Error) -> RuntimeError {
        let (what, said) = match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => ("does not answer", String::new()),
            io::ErrorKind::InvalidData => ("broke the protocol", format!(" ({error})")),
            _ => ("has ended", String::new()),
        };
        let tail = self.machine.tail.said();
        RuntimeError::Step {
            step: "machine",
            what: format!("the machine {what}{said}; the last it said: {tail}"),
            fix: "what it changed is not carried over; start another".into(),
        }
    }

    fn make(&mut self, disk: &Disk, without: Vec<String>) -> Result<(), RuntimeError> {
        let shown = session::disk(&self.spec, &self.look)?;
        disk.put(shown.disk);
        let spec = &mut self.spec;
        let who = identity()?;
        let mut files: Vec<(RawPath, Vec<u8>)> = std::mem::take(&mut spec.files)
            .into_iter()
            .map(|file| (RawPath::from(file.at.as_path()), file.content))
            .collect();
        files.push(("/etc/machine-id".into(), format!("{}\n", who.machine).into_bytes()));
        let make = Make {
            id: spec.id.to_string(),
            who,
            show: shown.show,
            workdir: RawPath::from(spec.workdir.as_path()),
            home: RawPath::from(spec.home.as_path()),
            path: raw(&spec.path),
            mounts: self.look.mounts.clone(),
            hide: raw(&spec.hide),
            profile: spec.profile,
            // The VMM is held to its processors, and commands to their time and output, from outside.
            limits: Limits { cpu: None, timeout: None, output: None, disk: None, ..spec.limits.clone() },
            nested: spec.nested,
            doors: spec.network == Network::Doors,
            files,
            accept: spec.accept.clone(),
            base: spec.base.layers.len(),
            disk: self.room_for_changes(),
            without,
        };
        match self.ask(&Ask::Make(Box::new(make)))? {
            Tell::Made(made) => {
                self.identity = Some(Identity {
                    name: made.name,
                    uid: made.uid,
                    gid: made.gid,
                    home: made.home.as_path().to_owned(),
                });
                let mut monitor = self.monitor.lock().unwrap_or_else(PoisonError::into_inner);
                let report = report::read(made.report, &mut monitor, &self.machine, &self.manifest)?;
                report::check(&report, &self.spec.require)?;
                drop(monitor);
                self.report = Some(report);
                Ok(())
            }
            Tell::Refused { what, fix } => Err(RuntimeError::Refused { what, fix }),
            _ => Err(self.lost(&io::ErrorKind::InvalidData.into())),
        }
    }

    fn room_for_changes(&self) -> u64 {
        self.spec.limits.disk.map_or(self.manifest.size.memory / 2, |disk| disk.0)
    }

    /// Takes over what was changed. After this the machine is of no more use.
    fn take_changes(&mut self) -> Result<(), RuntimeError> {
        let layer = layer_of(&self.spec, &self.look, self.began)?;
        let whose = Whose { owner: layer.owner, by_root: layer.by_root };
        let bytes = self.room_for_changes();
        let bounds = Bounds { bytes, entries: 4_000_000 };
        let upper = self.spec.layer.join("upper");
        let taken = import::import(&mut self.house().stream, &upper, whose, bounds);
        taken.map_err(|error| self.lost(&error))?;
        self.layer = Some(layer);
        Ok(())
    }
}

impl Drop for VmSandbox {
    fn drop(&mut self) {
        self.layer = None;
        layer::leave(&self.spec.layer);
    }
}

impl Sandbox for VmSandbox {
    fn report(&self) -> &EnforcementReport {
        static NOTHING: EnforcementReport = EnforcementReport {
            tier: cofferdam_model::Tier::Microvm,
            kernel: String::new(),
            controls: Vec::new(),
        };
        self.report.as_ref().unwrap_or(&NOTHING)
    }

    fn take_channel(&mut self) -> Option<OwnedFd> {
        self.machine.channel.take()
    }

    fn take_doors(&mut self) -> Option<Doors> {
        self.machine.doors.take()
    }

    fn identity(&self) -> Identity {
        let unknown = || Identity { name: "user".into(), uid: 1000, gid: 1000, home: self.spec.home.clone() };
        self.identity.clone().unwrap_or_else(unknown)
    }

    fn ended(&self) -> Option<BorrowedFd<'_>> {
        Some(self.machine.ended()).filter(|_| self.finished.is_none())
    }

    fn pause(&mut self) -> Result<(), RuntimeError> {
        let mut monitor = self.monitor.lock().unwrap_or_else(PoisonError::into_inner);
        monitor.ask("stop", json!({})).map(drop).map_err(io("stop the machine"))
    }

    fn resume(&mut self) -> Result<(), RuntimeError> {
        let mut monitor = self.monitor.lock().unwrap_or_else(PoisonError::into_inner);
        monitor.ask("cont", json!({})).map_err(io("let the machine go on"))?;
        drop(monitor);
        self.ask(&Ask::Clock(clock())).map(drop)
    }

    fn counters(&self) -> Counters {
        let around = self.machine.around().counters();
        match self.ask(&Ask::Counters) {
            Ok(Tell::Counters(inside)) => Counters {
                cpu_us: around.cpu_us.or(inside.cpu_us),
                memory: around.memory.or(inside.memory),
                peak_memory: around.peak_memory.or(inside.peak_memory),
                processes: inside.processes,
            },
            _ => around,
        }
    }

    fn finish(&mut self) -> Result<Finished, RuntimeError> {
        if let Some(finished) = &self.finished {
            return Ok(finished.clone());
        }
        let mut monitor = self.monitor.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is paused goes on, to its end.
        let _ = monitor.ask("cont", json!({}));
        drop(monitor);
        let told = self.ask(&Ask::Finish);
        let (mut finished, taken) = match told {
            Ok(Tell::Finished { usage, limits }) => (Finished { usage, limits }, self.take_changes()),
            Ok(_) => (Finished::default(), Err(self.lost(&io::ErrorKind::InvalidData.into()))),
            Err(error) => (Finished::default(), Err(error)),
        };
        let around = self.machine.end()?;
        finished.usage.peak_memory = finished.usage.peak_memory.max(around.usage.peak_memory);
        self.finished = Some(finished.clone());
        taken.map(|()| finished)
    }

    fn changes(&mut self) -> Result<Vec<FileChange>, RuntimeError> {
        if let Some(changes) = &self.changes {
            return Ok(changes.clone());
        }
        let changes = self.layer.as_ref().map(layer::diff).transpose()?.unwrap_or_default();
        self.changes = Some(changes.clone());
        Ok(changes)
    }

    fn withhold(&mut self, refuses: Refuses<'_>) -> Result<Vec<SkippedChange>, RuntimeError> {
        let changes = self.changes()?;
        let (refused, skipped): (Vec<&FileChange>, Vec<SkippedChange>) = changes
            .iter()
            .filter_map(|change| Some((change, refuses(change)?)))
            .map(|(change, reason)| (change, SkippedChange { path: change.path.clone(), reason }))
            .unzip();
        let Some(layer) = self.layer.as_ref().filter(|_| !refused.is_empty()) else { return Ok(skipped) };
        layer::withhold(layer, &refused)?;
        let left = layer::diff(layer)?;
        if let Some(stuck) = left.iter().find(|change| refuses(change).is_some()) {
            let what = format!("{} is not to be kept, and cannot be left out on its own", stuck.path);
            return Err(crate::kernel::refused(what, "discard the changes"));
        }
        self.changes = Some(left);
        Ok(skipped)
    }

    fn commit(&mut self) -> Result<Committed, RuntimeError> {
        let changes = self.changes()?;
        let Some(layer) = &self.layer else { return Ok(Committed::default()) };
        layer::commit(layer, &changes, &self.spec.layer, layer::Watch::default())
    }

    fn is_occupied(&self) -> bool {
        matches!(self.ask(&Ask::Occupied), Ok(Tell::Occupied(true)) | Err(_))
    }

    fn depth(&self) -> usize {
        0
    }

    fn begin_transaction(&mut self) -> Result<(), RuntimeError> {
        Err(not_yet())
    }

    fn difference(&mut self, _: bool) -> Result<Vec<FileDifference>, RuntimeError> {
        Err(not_yet())
    }

    fn settle(&mut self, _: bool) -> Result<Committed, RuntimeError> {
        Err(not_yet())
    }

    fn freeze(&mut self, _: &Path) -> Result<Provenance, RuntimeError> {
        Err(not_yet())
    }

    fn rebase(&mut self, _: Base) -> Result<(), RuntimeError> {
        Err(not_yet())
    }
}

fn not_yet() -> RuntimeError {
    crate::kernel::refused("a machine's layers cannot be rearranged", "use `--isolation process`")
}
