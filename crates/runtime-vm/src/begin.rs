//! How a machine becomes a sandbox: its VMM is started as soon as anything is known, and it is given its session when
//! all is. One that is prepared for nobody is taken further: it runs, has rehearsed, and stands still until somebody
//! comes.

use crate::asked::Asked;
use crate::copy::Copied;
use crate::house::House;
use crate::image::Kept;
use crate::kernel::refused;
use crate::listing;
use crate::machine::Machine;
use crate::nbd::Disks;
use crate::pending::{Found, Pending};
use crate::sandbox::{Stuff, VmSandbox};
use crate::session;
use crate::snapshot::{self, Snapshot};
use crate::start::Shape;
use crate::template::{Parts, Template};
use crate::vmm::Vmm;
use cofferdam_inside::wire::{Ask, Made, Tell};
use cofferdam_inside::{PROGRAMS, SESSION};
use cofferdam_model::{Profile, RawPath};
use cofferdam_runtime::{Begun, Network, RuntimeError, Sandbox, SandboxSpec};
use cofferdam_runtime_process::{Look, look};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// For a rehearsal, which nobody waits for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A machine that is nobody's yet.
pub(crate) struct Beginning {
    spec: SandboxSpec,
    parts: Parts,
    template: Template,
    of: Of,
    /// What is on its disks, where that is known before it is begun.
    given: Option<Given>,
    stage: Stage,
    disks: Disks,
    pending: Pending,
}

/// What it is a copy of.
enum Of {
    /// A template. How many of its kind begin is counted.
    Template(Option<Shape>),
    /// A machine that stands where sessions of its kind begin, which has said this of its inside.
    Start(Box<Made>),
    Snapshot(Box<Snapshot>),
}

enum Stage {
    /// Its VMM was started.
    Copied(Box<Copied>),
    /// It was restored, has rehearsed, and stands still.
    Waiting(Box<Machine>, Box<dyn Vmm>),
    Gone,
}

/// `sure`: nothing of what is kept of the host is used before it was found to hold.
pub(crate) fn begin(
    mut parts: Parts,
    spec: SandboxSpec,
    look: &Look,
    sure: bool,
) -> Result<Beginning, RuntimeError> {
    let disks = Disks::default();
    let kept = spec.base.layers.first().filter(|layer| snapshot::is_there(layer));
    let mut given = None;
    let (template, of, mut pending) = match kept {
        None => {
            let (template, mut pending) = parts.template(&spec, look, sure)?;
            let mut shape = Shape::of(&parts, &template, &spec, look);
            let mut found = None;
            if let Some(shape) = shape.as_mut().filter(|shape| shape.is_frequent()) {
                let listed = Listed::new(&parts, &spec, look, sure)?;
                pending.add(listed.programs.look(true));
                let on = listed.put(&disks)?;
                found = shape.find((&parts, &template), (&spec, look), (&on, &disks));
                given = Some(on);
            }
            match found {
                Some((template, made)) => (template, Of::Start(Box::new(made)), pending),
                None => (template, Of::Template(shape), pending),
            }
        }
        Some(dir) => {
            let (template, snapshot) = snapshot::open(dir, &parts)?;
            parts.size = template.manifest.size;
            snapshot::put(dir, &disks)?;
            (template, Of::Snapshot(Box::new(snapshot)), Pending::default())
        }
    };
    let doors = spec.network == Network::Doors;
    let dir = parts.dir.join("run").join(spec.id.as_str());
    let copied = template.copy(&parts, &spec, (&dir, doors), &disks, &mut pending)?;
    let stage = Stage::Copied(Box::new(copied));
    Ok(Beginning { spec, parts, template, of, given, stage, disks, pending })
}

/// What is to be on the session's disks.
struct Listed {
    session: session::Session,
    programs: listing::Listed,
    programs_at: Vec<PathBuf>,
}

/// What is on the session's disks: where it is shown, and which it is.
pub(crate) struct Given {
    pub(crate) show: Vec<RawPath>,
    pub(crate) programs_at: Vec<PathBuf>,
    pub(crate) content: String,
}

impl Listed {
    fn new(parts: &Parts, spec: &SandboxSpec, look: &Look, sure: bool) -> Result<Self, RuntimeError> {
        let (programs, programs_at) = listing::programs(&parts.dir, look, sure)?;
        Ok(Self { session: session::disk(spec, look)?, programs, programs_at })
    }

    /// Puts it there.
    fn put(self, disks: &Disks) -> Result<Given, RuntimeError> {
        let Self { session, programs, programs_at } = self;
        let digest = session.disk.digest().map_err(RuntimeError::io("list the work dir"))?;
        let list = Kept::open(&programs.path).map_err(RuntimeError::io("open the list of programs"))?;
        disks.session.put(session.disk);
        disks.programs.put(list);
        Ok(Given { show: session.show, programs_at, content: format!("{digest}-{}", programs.digest) })
    }
}

/// Has a machine that runs see what was put on its disks.
fn exchange(disks: &Disks, parts: &Parts, machine: &Machine, vmm: &mut dyn Vmm) -> Result<(), RuntimeError> {
    let exchanged = |name| -> io::Result<()> {
        machine.write_disk(name, disks, &parts.images())?;
        vmm.exchanged(name)
    };
    let all = [PROGRAMS, SESSION].into_iter().try_for_each(exchanged);
    all.map_err(RuntimeError::io("put the session's files on the machine's disks"))
}

impl Beginning {
    /// Nothing where what is shown of the host is not what it was: then another is to be made.
    fn finish(self, sure: bool) -> Result<Option<Box<dyn Sandbox>>, RuntimeError> {
        let Self { spec, parts, template, of, given, stage, disks, mut pending } = self;
        let look = look(&spec)?;
        let made = stand(Stood { spec, parts, template, of, given, stage, disks, look, sure }, &mut pending);
        match (pending.finish(), made) {
            // Whatever else went wrong may have come of this.
            (Found::Bad(error), _) => Err(error),
            (Found::Stale, _) => Ok(None),
            (Found::Good, made) => made.map(|sandbox| Some(Box::new(sandbox) as Box<dyn Sandbox>)),
        }
    }

    /// Restores it, and has it do for nobody what it will do for somebody. Nothing where what is shown of the host is not
    /// what it was.
    fn rehearse(&mut self, stand_in: &SandboxSpec, look: &Look) -> Result<Option<()>, RuntimeError> {
        let Stage::Copied(copied) = std::mem::replace(&mut self.stage, Stage::Gone) else {
            return Ok(Some(()));
        };
        let mut pending = std::mem::take(&mut self.pending);
        let restored = self.template.restore(*copied, &mut pending);
        let (machine, mut vmm) = match (pending.finish(), restored) {
            (Found::Bad(error), _) => return Err(error),
            (Found::Stale, _) => return Ok(None),
            (Found::Good, restored) => restored?,
        };
        let listed = Listed::new(&self.parts, stand_in, look, true)?;
        let Given { show, programs_at, .. } = listed.put(&self.disks)?;
        exchange(&self.disks, &self.parts, &machine, vmm.as_mut())?;
        let asked = Asked { spec: stand_in, look, size: self.template.manifest.size };
        let ask = Ask::Rehearse(Box::new(asked.make(show, &programs_at, Vec::new())?));
        let house = machine.house.try_clone().and_then(House::new);
        let told = house.and_then(|mut house| house.ask(&ask, PATIENCE, machine.ended()));
        match told.map_err(RuntimeError::io("have the machine rehearse"))? {
            Tell::Done => {}
            Tell::Refused { what, fix } => return Err(RuntimeError::Refused { what, fix }),
            _ => return Err(refused("the machine answers something else", "report this")),
        }
        vmm.pause().map_err(RuntimeError::io("stop the machine"))?;
        listing::watch_programs(&self.parts.dir);
        self.stage = Stage::Waiting(Box::new(machine), vmm);
        Ok(Some(()))
    }
}

impl Begun for Beginning {
    fn adopt(&mut self, spec: SandboxSpec) -> Result<(), RuntimeError> {
        let kind = |spec: &SandboxSpec| {
            (spec.network, spec.pausable, spec.limits.cpu, spec.limits.share, spec.home.clone())
        };
        let size = crate::size(&spec.limits, self.parts.accelerator);
        let kept = spec.base.layers.first().is_some_and(|layer| snapshot::is_there(layer));
        let is_template = matches!(self.of, Of::Template(_)) && self.given.is_none();
        if kind(&spec) != kind(&self.spec) || size != self.template.manifest.size || kept || !is_template {
            let what = "it was prepared for another kind of session";
            return Err(refused(what, "make one from nothing"));
        }
        self.spec = spec;
        Ok(())
    }

    fn go_ahead(&mut self) -> Result<(), RuntimeError> {
        let workdir = crate::nowhere(&self.parts.dir)?;
        let (profile, network) = (Profile::Run, Network::Doors);
        let stand_in = SandboxSpec { workdir, profile, network, ..self.spec.clone() };
        let look = look(&stand_in)?;
        let again = |this: &Self| begin(this.parts.clone(), this.spec.clone(), &look, true);
        match self.rehearse(&stand_in, &look) {
            Ok(Some(())) => Ok(()),
            Ok(None) => {
                self.stage = Stage::Gone;
                *self = again(self)?;
                self.rehearse(&stand_in, &look).map(drop)
            }
            Err(RuntimeError::Refused { .. }) => {
                // One that cannot rehearse is not used. Another waits without.
                self.stage = Stage::Gone;
                *self = again(self)?;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn complete(self: Box<Self>, meanwhile: &mut dyn FnMut()) -> Result<Box<dyn Sandbox>, RuntimeError> {
        let (parts, spec) = (self.parts.clone(), self.spec.clone());
        meanwhile();
        if let Some(sandbox) = self.finish(false)? {
            return Ok(sandbox);
        }
        let sure = begin(parts, spec.clone(), &look(&spec)?, true)?.finish(true)?;
        sure.ok_or_else(|| refused("the host's directories change while they are listed", "try again"))
    }
}

/// All that a sandbox is made of.
struct Stood {
    spec: SandboxSpec,
    parts: Parts,
    template: Template,
    of: Of,
    given: Option<Given>,
    stage: Stage,
    disks: Disks,
    look: Look,
    sure: bool,
}

fn stand(stood: Stood, pending: &mut Pending) -> Result<VmSandbox, RuntimeError> {
    let Stood { spec, parts, template, of, given, stage, disks, look, sure } = stood;
    let is_listed = given.is_some() || !matches!(of, Of::Template(_));
    // The lists are made while the machine comes to itself.
    let listed = || (!is_listed).then(|| Listed::new(&parts, &spec, &look, sure)).transpose();
    let (listed, restored) = std::thread::scope(|scope| {
        let listed = scope.spawn(listed);
        let restored = match stage {
            Stage::Copied(copied) => template.restore(*copied, pending),
            Stage::Waiting(machine, mut vmm) => {
                let resumed = vmm.resume().map_err(RuntimeError::io("let the machine go on"));
                resumed.map(|()| (*machine, vmm))
            }
            Stage::Gone => Err(refused("the machine is gone", "make another")),
        };
        let gone = || Err(refused("the lists were not made", "report this"));
        (listed.join().unwrap_or_else(|_| gone()), restored)
    });
    let ((machine, mut vmm), listed) = (restored?, listed?);
    let given = match listed {
        None => given,
        Some(listed) => {
            let mut looks = Pending::default();
            looks.add(listed.programs.look(true));
            looks.start().map_err(RuntimeError::io("look at the list of programs"))?;
            pending.join(looks);
            let given = listed.put(&disks)?;
            exchange(&disks, &parts, &machine, vmm.as_mut())?;
            Some(given)
        }
    };
    let without = parts.without.clone();
    let stuff = Stuff { parts, spec, look, template, disks };
    let mut sandbox = VmSandbox::new(stuff, machine, vmm)?;
    match (of, given) {
        (Of::Snapshot(snapshot), _) => sandbox.revive(snapshot.made, snapshot.depth)?,
        (Of::Start(made), _) => sandbox.revive(*made, 0)?,
        (Of::Template(shape), Some(given)) => {
            sandbox.make(given.show, &given.programs_at, without)?;
            shape.into_iter().for_each(|shape| shape.count(&given.content));
        }
        (Of::Template(_), None) => return Err(refused("nothing is on the machine's disks", "report this")),
    }
    Ok(sandbox)
}
