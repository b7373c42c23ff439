//! A machine as a sandbox.

use crate::asked::{self, Asked, announced};
use crate::house::{self, House};
use crate::identity;
use crate::import::{self, Bounds, Whose};
use crate::machine::Machine;
use crate::nbd::Disks;
use crate::notes;
use crate::report;
use crate::snapshot::{self, Taken, Unquiet};
use crate::template::{Parts, Template};
use crate::vmm::{Told, Vmm};
use cofferdam_guest::wire::{Attach, Kind, put};
use cofferdam_inside::Mark;
use cofferdam_inside::wire::{Ask, Made, PIECE, Renewal, Tell, send_piece};
use cofferdam_model::{Counters, EnforcementReport, FileDifference, Provenance, RawPath, SkippedChange};
use cofferdam_runtime::{
    Agrees, Base, ChangeList, Committed, Doors, Finished, Identity, Refuses, RuntimeError, Sandbox,
    SandboxSpec, ShownFile, Witness,
};
use cofferdam_runtime_process::layer::{self, Began, Layer};
use cofferdam_runtime_process::{Look, layer_of};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// For everything but an end with many changes.
const PATIENCE: Duration = Duration::from_secs(60);
/// What is told of what was changed is no more.
const ENTRIES: usize = 4_000_000;

fn io(doing: &'static str) -> impl FnOnce(io::Error) -> RuntimeError {
    RuntimeError::io(doing)
}

pub(crate) struct VmSandbox {
    parts: Parts,
    machine: Machine,
    vmm: Mutex<Box<dyn Vmm>>,
    house: Mutex<House>,
    /// To the guest, until it is handed out.
    channel: Option<OwnedFd>,
    template: Template,
    /// What the inside said of itself.
    made: Option<Made>,
    report: Option<EnforcementReport>,
    spec: SandboxSpec,
    look: Look,
    disks: Disks,
    began: Began,
    depth: usize,
    /// It stands still, and answers nothing.
    stopped: bool,
    /// Who is told of system calls.
    witness: Option<Arc<dyn Witness>>,
    layer: Option<Layer>,
    changes: Option<Arc<ChangeList>>,
    finished: Option<Finished>,
}

/// What it is made of before it is anybody's.
pub(crate) struct Stuff {
    pub(crate) parts: Parts,
    pub(crate) spec: SandboxSpec,
    pub(crate) look: Look,
    pub(crate) template: Template,
    pub(crate) disks: Disks,
}

impl VmSandbox {
    pub(crate) fn new(stuff: Stuff, machine: Machine, vmm: Box<dyn Vmm>) -> Result<Self, RuntimeError> {
        let Stuff { parts, spec, look, template, disks } = stuff;
        let house = machine.house.try_clone().and_then(House::new).map_err(io("hear the machine"))?;
        Ok(Self {
            house: Mutex::new(house),
            vmm: Mutex::new(vmm),
            channel: None,
            machine,
            made: None,
            report: None,
            began: spec.base.since.map_or_else(Began::now, Began::at),
            parts,
            template,
            look,
            disks,
            spec,
            depth: 0,
            stopped: false,
            witness: None,
            layer: None,
            changes: None,
            finished: None,
        })
    }

    fn vmm(&self) -> MutexGuard<'_, Box<dyn Vmm>> {
        self.vmm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn house(&self) -> MutexGuard<'_, House> {
        self.house.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, ask: &Ask) -> Result<Tell, RuntimeError> {
        self.house().ask(ask, PATIENCE, self.machine.ended()).map_err(|error| self.lost(&error))
    }

    /// Asks, and sends these along, to be told later.
    fn say_with(
        &self,
        say: impl FnOnce(&mut House) -> io::Result<()>,
        files: &[ShownFile],
    ) -> Result<(), RuntimeError> {
        let asked = || -> io::Result<()> {
            let mut house = self.house();
            say(&mut house)?;
            let mut pieces = files.iter().flat_map(|file| file.content.chunks(PIECE));
            pieces.try_for_each(|piece| send_piece(&mut house.stream, piece))
        };
        asked().map_err(|error| self.lost(&error))
    }

    fn told(&self) -> Result<Tell, RuntimeError> {
        self.house().told(PATIENCE, self.machine.ended()).map_err(|error| self.lost(&error))
    }

    fn lost(&self, error: &io::Error) -> RuntimeError {
        let (what, said) = match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => ("does not answer", String::new()),
            io::ErrorKind::InvalidData => ("broke the protocol", format!(" ({error})")),
            _ => ("has ended", String::new()),
        };
        // Nobody speaks to it any more, by which its session ends.
        let _ = self.machine.channel.shutdown(std::net::Shutdown::Both);
        let tail = self.machine.tail.said();
        RuntimeError::Step {
            step: "machine",
            what: format!("the machine {what}{said}; the last it said: {tail}"),
            fix: "what it changed is not carried over; start another".into(),
        }
    }

    pub(crate) fn make(
        &mut self,
        show: Vec<RawPath>,
        programs_at: &[PathBuf],
        without: Vec<String>,
    ) -> Result<(), RuntimeError> {
        let files = self.spec.files.clone();
        let make = Asked { spec: &self.spec, look: &self.look, size: self.template.manifest.size };
        let make = make.make(show, programs_at, without)?;
        let asked = self.say_with(|house| house.say(&Ask::Make(Box::new(make))), &files);
        // It has to do for a while: what the VMM is can be asked meanwhile.
        let vmm = self.vmm().told();
        match asked.and_then(|()| self.told())? {
            Tell::Made(made) => self.is(*made, vmm),
            Tell::Refused { what, fix } => Err(RuntimeError::Refused { what, fix }),
            _ => Err(self.lost(&io::ErrorKind::InvalidData.into())),
        }
    }

    /// Reads back what holds, with what the inside says of itself, and has the guest spoken to.
    fn is(&mut self, made: Made, vmm: io::Result<Told>) -> Result<(), RuntimeError> {
        let manifest = &self.template.manifest;
        let vmm = vmm.map_err(io("ask the VMM what it is"))?;
        let report = report::read(made.report.clone(), vmm, &self.machine, manifest);
        report::check(&report, &self.spec.require)?;
        (self.report, self.made) = (Some(report), Some(made));
        self.meet_guest()
    }

    /// Makes a machine that was kept another one, and has its guest begin anew with us. Commands that ran in it run on,
    /// and are nobody's. One that cannot be another is not used.
    pub(crate) fn revive(&mut self, made: Made, depth: usize) -> Result<(), RuntimeError> {
        let files = &self.spec.files;
        let renewal = Renewal { who: identity::new()?, files: announced(files) };
        self.say_with(|house| house.renew(&renewal), files)?;
        let mark = identity::mark()?;
        let mut hello = Vec::new();
        put(&mut hello, Kind::Attach, 0, None, &Attach { mark: mark.0 })
            .map_err(|error| io("speak to the guest")(io::Error::other(error)))?;
        let (channel, ended) = (&self.machine.channel, self.machine.ended());
        house::hail(channel, &hello).map_err(|error| self.lost(&error))?;
        // Both have to do for a while: what the VMM is can be asked meanwhile.
        let vmm = self.vmm().told();
        match self.told()? {
            Tell::Done => {}
            Tell::Refused { what, fix } => return Err(RuntimeError::Refused { what, fix }),
            _ => return Err(self.lost(&io::ErrorKind::InvalidData.into())),
        }
        house::begun_anew(channel, mark, PATIENCE, ended).map_err(|error| self.lost(&error))?;
        self.depth = depth;
        self.is(made, vmm)
    }

    /// The guest that there is now is to be spoken to.
    fn meet_guest(&mut self) -> Result<(), RuntimeError> {
        let channel = self.machine.channel.try_clone().map_err(io("speak to the guest"))?;
        self.channel = Some(channel.into());
        Ok(())
    }

    /// Has the layers inside changed, by which there is another guest.
    fn rearrange(&mut self, ask: impl FnOnce(Mark) -> Ask) -> Result<(), RuntimeError> {
        let mark = identity::mark()?;
        let (channel, ended) = (&self.machine.channel, self.machine.ended());
        let told = self.house().exchange(&ask(mark), mark, channel, PATIENCE, ended);
        let told = told.map_err(|error| self.lost(&error))?;
        self.meet_guest()?;
        match told {
            Tell::Done => Ok(()),
            Tell::Refused { what, fix } => Err(RuntimeError::Refused { what, fix }),
            _ => Err(self.lost(&io::ErrorKind::InvalidData.into())),
        }
    }

    /// Where a file without a name can be made, of whatever size.
    fn spare(&self) -> &Path {
        self.spec.layer.parent().unwrap_or(Path::new("/"))
    }

    fn room_for_changes(&self) -> u64 {
        asked::room(&self.spec, self.template.manifest.size)
    }

    /// Takes over what was changed. After this the machine is of no more use.
    fn take_changes(&mut self) -> Result<(), RuntimeError> {
        let layer = layer_of(&self.spec, &self.look, self.began)?;
        let whose = Whose { owner: layer.owner, by_root: layer.by_root };
        let bytes = self.room_for_changes();
        let bounds = Bounds { bytes, entries: ENTRIES as u64 };
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
        self.channel.take()
    }

    fn take_doors(&mut self) -> Option<Doors> {
        self.machine.doors.take()
    }

    fn identity(&self) -> Identity {
        let unknown = || Identity { name: "user".into(), uid: 1000, gid: 1000, home: self.spec.home.clone() };
        let known = |made: &Made| Identity {
            name: made.name.clone(),
            uid: made.uid,
            gid: made.gid,
            home: made.home.as_path().to_owned(),
        };
        self.made.as_ref().map_or_else(unknown, known)
    }

    fn ended(&self) -> Option<BorrowedFd<'_>> {
        Some(self.machine.ended()).filter(|_| self.finished.is_none())
    }

    fn alarm(&self) -> Option<BorrowedFd<'_>> {
        Some(self.machine.notes.as_fd()).filter(|_| self.witness.is_none())
    }

    fn listen(&mut self, witness: Arc<dyn Witness>) -> Result<(), RuntimeError> {
        if self.witness.is_none() {
            let notes = self.machine.notes.try_clone().map_err(io("hear of system calls"))?;
            let clone = |stream: &UnixStream| stream.try_clone().map_err(io("hear of system calls"));
            let others = [clone(&self.machine.channel)?, clone(&self.machine.house)?];
            notes::listen(notes, others, self.machine.tail.clone(), witness.clone())
                .map_err(io("hear of system calls"))?;
            self.witness = Some(witness);
        }
        Ok(())
    }

    fn pause(&mut self) -> Result<(), RuntimeError> {
        self.vmm().pause().map_err(io("stop the machine"))?;
        self.stopped = true;
        Ok(())
    }

    fn resume(&mut self) -> Result<(), RuntimeError> {
        self.vmm().resume().map_err(io("let the machine go on"))?;
        self.stopped = false;
        self.ask(&Ask::Clock(identity::clock())).map(drop)
    }

    fn counters(&self) -> Counters {
        let around = self.machine.around().counters();
        if self.stopped {
            return around;
        }
        match self.ask(&Ask::Counters) {
            Ok(Tell::Counters(inside)) => Counters {
                cpu_us: around.cpu_us.or(inside.cpu_us),
                memory: around.memory.or(inside.memory),
                peak_memory: around.peak_memory.or(inside.peak_memory),
                processes: inside.processes,
                disk: inside.disk,
            },
            _ => around,
        }
    }

    fn finish(&mut self) -> Result<Finished, RuntimeError> {
        if let Some(finished) = &self.finished {
            return Ok(finished.clone());
        }
        // One that is paused goes on, to its end.
        let _ = self.vmm().resume();
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

    fn changes(&mut self) -> Result<Arc<ChangeList>, RuntimeError> {
        if let Some(changes) = &self.changes {
            return Ok(changes.clone());
        }
        let changes = Arc::new(
            self.layer
                .as_ref()
                .map(|layer| layer::diff(layer, self.spare()))
                .transpose()?
                .unwrap_or_default(),
        );
        self.changes = Some(changes.clone());
        Ok(changes)
    }

    fn withhold(&mut self, refuses: Refuses<'_>) -> Result<Vec<SkippedChange>, RuntimeError> {
        let changes = self.changes()?;
        let (skipped, left) = layer::withhold(self.layer.as_ref(), &changes, refuses, self.spare())?;
        self.changes = Some(left.map_or(changes, Arc::new));
        Ok(skipped)
    }

    fn commit(&mut self) -> Result<Committed, RuntimeError> {
        let changes = self.changes()?;
        let Some(layer) = &self.layer else { return Ok(Committed::default()) };
        let desk = layer::Desk { session: &self.spec.layer, conflicts: &self.spec.conflicts };
        layer::commit(layer, &changes, desk, layer::Watch::default())
    }

    fn is_occupied(&self) -> bool {
        matches!(self.ask(&Ask::Occupied), Ok(Tell::Occupied(true)) | Err(_))
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn begin_transaction(&mut self) -> Result<(), RuntimeError> {
        self.rearrange(|mark| Ask::Begin { mark })?;
        self.depth += 1;
        Ok(())
    }

    /// Whatever runs is made to stand still by the machine's own first process, which must go on itself.
    fn difference(&mut self, texts: bool, _: bool) -> Result<Vec<FileDifference>, RuntimeError> {
        if self.stopped {
            let what = "a machine that is paused cannot tell what was changed in it";
            return Err(crate::kernel::refused(what, "resume it first: `cofferdam session resume`"));
        }
        let asked = || -> io::Result<Result<Vec<FileDifference>, RuntimeError>> {
            let mut house = self.house();
            let ended = self.machine.ended();
            let mut told = house.ask(&Ask::Difference { texts }, PATIENCE, ended)?;
            let mut found = Vec::new();
            loop {
                match told {
                    Tell::Difference(difference) if found.len() < ENTRIES => found.push(*difference),
                    Tell::End => return Ok(Ok(found)),
                    Tell::Refused { what, fix } => return Ok(Err(RuntimeError::Refused { what, fix })),
                    _ => return Err(io::ErrorKind::InvalidData.into()),
                }
                told = house.told(PATIENCE, ended)?;
            }
        };
        asked().map_err(|error| self.lost(&error))?
    }

    fn settle(&mut self, keep: bool, agrees: Agrees<'_>) -> Result<Committed, RuntimeError> {
        if keep && self.depth == 0 {
            let what = "what a machine has changed is carried over when its session ends";
            return Err(crate::kernel::refused(what, "end the session, or work in a transaction"));
        }
        if self.depth == 0 {
            // Dropped in any case: what is written after this look goes with the rest.
            let found = self.difference(false, true)?;
            let found: Vec<_> = found.into_iter().map(|difference| difference.change).collect();
            agrees(&found.into())?;
        }
        self.rearrange(|mark| Ask::Settle { keep, mark })?;
        self.depth = self.depth.saturating_sub(1);
        Ok(Committed::default())
    }

    /// All of the machine, with what runs in it, as the layer `upper`.
    fn freeze(&mut self, to: &Path) -> Result<Provenance, RuntimeError> {
        let Some(made) = &self.made else { return Err(self.lost(&io::ErrorKind::InvalidData.into())) };
        snapshot::quiet(&self.machine, &mut self.house()).map_err(|error| match error {
            Unquiet::Busy(refused) => refused,
            Unquiet::Lost(error) => self.lost(&error),
        })?;
        let taken = Taken {
            manifest: &self.template.manifest,
            made,
            depth: self.depth,
            disks: &self.disks,
            system: &self.template.system,
            machine: &self.machine,
        };
        let mut vmm = self.vmm.lock().unwrap_or_else(PoisonError::into_inner);
        vmm.pause().map_err(io("stop the machine"))?;
        let kept = taken.keep(vmm.as_mut(), &to.join("upper"));
        let went_on = vmm.go_on(&mut self.machine).map_err(io("let the machine go on"));
        drop(vmm);
        kept.and(went_on)?;
        self.ask(&Ask::Clock(identity::clock()))?;
        Ok(self.began.kept(None))
    }

    /// The machine is ended, and one that was kept takes its place.
    fn rebase(&mut self, base: Base) -> Result<(), RuntimeError> {
        let Some(dir) = base.layers.first().filter(|layer| snapshot::is_there(layer)).cloned() else {
            let what = "the snapshot is not one of a machine";
            return Err(crate::kernel::refused(what, "begin a session with it: `session create --snapshot`"));
        };
        let (template, snapshot) = snapshot::open(&dir, &self.parts)?;
        snapshot::put(&dir, &self.disks)?;
        let restored = template.restore_in(&mut self.machine, &self.parts, &self.spec, &self.disks)?;
        let house = self.machine.house.try_clone().and_then(House::new).map_err(io("hear the machine"))?;
        (self.house, self.vmm) = (Mutex::new(house), Mutex::new(restored));
        self.began = base.since.map_or_else(Began::now, Began::at);
        self.template = template;
        if let Some(witness) = self.witness.take() {
            self.listen(witness)?;
        }
        self.revive(snapshot.made, snapshot.depth)
    }

    fn keeps_processes(&self) -> bool {
        true
    }
}
