//! How the inside of a session comes to be: one that was begun for nobody, and waits, is bound to it; where none fits, one
//! is made from nothing.

use crate::carry::{self, Far};
use crate::prepare::{self, place_of};
use crate::rehearse::{self, Ahead};
use crate::serve::{
    BASE, Here, Inside, LAYERS, NET, PROGRAMS, RANGES, SESSION, STAGING, nothing_made, refusal,
};
use crate::wire::{Made, Make, Tell, send};
use cofferdam_model::{LayerPlace, Mount, RawPath, UserMode};
use cofferdam_runtime::{
    Backend, Base, Begun, Heard, Network, RuntimeError, Sandbox, SandboxSpec, ShownFile, Witness,
};
use cofferdam_runtime_process::{ProcessBackend, remove_layer};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a rehearsal runs: a program that says something, and a shell.
const COMMANDS: [&[&[u8]]; 2] = [&[b"echo", b"x"], &[b"/bin/sh", b"-c", b"true"]];

/// Until the kernel has taken down what a rehearsal leaves, networks and groups, which it does when it has nothing else to
/// do. Who comes would wait for that.
const SETTLED: Duration = Duration::from_millis(300);

/// Hears of what a rehearsal's own programs try.
struct Deaf;

impl Witness for Deaf {
    fn hear(&self, _: Heard) -> bool {
        true
    }
}

impl Inside {
    pub(crate) fn make(&mut self, make: Make, files: Vec<ShownFile>) -> Tell {
        match self.renew(&make.who).and_then(|()| self.create(make, files)) {
            Ok((here, made)) => {
                self.made = Some(here);
                Tell::Made(Box::new(made))
            }
            Err(error) => refusal(error),
        }
    }

    fn create(&mut self, make: Make, files: Vec<ShownFile>) -> Result<(Here, Made), RuntimeError> {
        let shown = show(&make).map_err(RuntimeError::io("show the session's disks"))?;
        self.bound(make.disk)?;
        let (without, programs) = (make.without.clone(), paths(&make.programs_at));
        let spec = spec(make, files)?;
        let layer = spec.layer.clone();
        let mut sandbox = match self.ahead(&spec, &without, &programs, &shown) {
            Some(begun) => begun.complete(&mut || ())?,
            None => self.anew(spec, without, &programs)?,
        };
        if let Some(doors) = sandbox.take_doors() {
            let port = self.ports.open(NET).map_err(RuntimeError::io("open the port of the network"))?.file;
            std::thread::spawn(move || carry::carry(port.into(), Far::Inside(Box::new(doors)), None));
        }
        let made = told(sandbox.as_ref());
        Ok((Here { sandbox, layer }, made))
    }

    /// Room for changes, where it is not what it was prepared for.
    fn bound(&mut self, bytes: u64) -> Result<(), RuntimeError> {
        if bytes != self.room {
            prepare::bound(Path::new(LAYERS), bytes).map_err(RuntimeError::io("make room for changes"))?;
            self.room = bytes;
        }
        Ok(())
    }

    /// One that waits, bound to the session, if one fits.
    fn ahead(
        &mut self,
        spec: &SandboxSpec,
        without: &[String],
        programs: &[PathBuf],
        shown: &[PathBuf],
    ) -> Option<Box<dyn Begun>> {
        let at = self.ahead.iter().position(|ahead| without.is_empty() && ahead.fits(spec))?;
        let spec = late(spec, programs)?;
        let ahead = self.ahead.swap_remove(at);
        // Whatever is wrong with it, another is made.
        ahead.bind(spec, shown, (&self.own.home, &self.host)).ok()
    }

    fn anew(
        &self,
        spec: SandboxSpec,
        without: Vec<String>,
        programs: &[PathBuf],
    ) -> Result<Box<dyn Sandbox>, RuntimeError> {
        prepare::show(PROGRAMS, programs).map_err(RuntimeError::io("show the caller's programs"))?;
        let channels = self.channel.for_guests().map_err(RuntimeError::io("find the guest's channel"))?;
        let channel = Mutex::new(Some(channels));
        let backend = ProcessBackend { channel, without, ..ProcessBackend::default() };
        let sandbox = backend.begin(spec)?.complete(&mut || ())?;
        if let Some(guest) = sandbox.ended() {
            let named = self.own.home.cover(guest, &[], (guest, &self.host));
            named.map_err(|errno| RuntimeError::io("name the inside's host")(errno.into()))?;
        }
        Ok(sandbox)
    }

    /// Does all that is done for a session once for nobody, in an inside that nobody gets: whoever emulates this machine has
    /// seen all of it then, and is quicker when somebody comes.
    pub(crate) fn rehearse(&mut self, make: Make) -> Tell {
        let Some(understudy) = self.understudy.take() else { return nothing_made() };
        // Who comes makes it another one again.
        match self.renew(&make.who).and_then(|()| self.perform(understudy, make)) {
            Ok(()) => Tell::Done,
            Err(error) => refusal(error),
        }
    }

    fn perform(&self, understudy: Ahead, make: Make) -> Result<(), RuntimeError> {
        let io = |doing: &'static str| RuntimeError::io(doing);
        let (show_at, programs) = (paths(&make.show), paths(&make.programs_at));
        let shown = show(&make).map_err(io("show the session's disks"))?;
        let spec = spec(make, Vec::new())?;
        let (workdir, layer) = (spec.workdir.clone(), spec.layer.clone());
        let misfit = || RuntimeError::Refused {
            what: "what waits for a rehearsal is not for this one".into(),
            fix: "report this".into(),
        };
        let spec = Some(spec).filter(|spec| understudy.fits(spec)).and_then(|spec| late(&spec, &programs));
        let mut sandbox = understudy
            .bind(spec.ok_or_else(misfit)?, &shown, (&self.own.home, &self.host))?
            .complete(&mut || ())?;
        sandbox.listen(Arc::new(Deaf))?;
        send(&mut io::sink(), &Tell::Made(Box::new(told(sandbox.as_ref())))).map_err(io("speak of it"))?;
        if let Some(channel) = sandbox.take_channel() {
            let ran = rehearse::run(channel, &workdir, &COMMANDS).map_err(io::Error::other);
            ran.map_err(io("run a command in the machine"))?;
        }
        sandbox.finish()?;
        drop(sandbox);
        remove_layer(&layer);
        prepare::hide(SESSION, &show_at).map_err(io("take the disks away"))?;
        if !programs.is_empty() {
            prepare::hide(PROGRAMS, &[]).map_err(io("take the disks away"))?;
        }
        std::thread::sleep(SETTLED);
        Ok(())
    }
}

/// Mounts the session's disks, and shows its own files where they are on the host. Says what was mounted.
fn show(make: &Make) -> io::Result<Vec<PathBuf>> {
    let show = paths(&make.show);
    prepare::put(SESSION)?;
    prepare::show(SESSION, &show)?;
    let mut shown = show;
    if make.base > 0 {
        shown.push(place_of(SESSION));
    }
    if !make.programs_at.is_empty() {
        prepare::put(PROGRAMS)?;
        shown.push(place_of(PROGRAMS));
    }
    Ok(shown)
}

/// The same for one whose home is there already: programs of the caller's are mounted into it like anything that was asked
/// for. Nothing where one of them is around the work dir.
fn late(spec: &SandboxSpec, programs: &[PathBuf]) -> Option<SandboxSpec> {
    let at = spec.shown_at.as_ref().unwrap_or(&spec.workdir);
    if programs.iter().any(|path| at.starts_with(path)) {
        return None;
    }
    let place = place_of(PROGRAMS);
    // What lies in the work dir is seen there.
    let programs = programs.iter().filter(|path| !path.starts_with(at)).map(|path| Mount {
        source: place.join(path.strip_prefix("/").unwrap_or(path)),
        target: path.clone(),
        writable: false,
    });
    let mounts = programs.chain(spec.mounts.iter().cloned()).collect();
    Some(SandboxSpec { path: Vec::new(), mounts, ..spec.clone() })
}

fn told(sandbox: &dyn Sandbox) -> Made {
    let who = sandbox.identity();
    Made {
        report: sandbox.report().clone(),
        name: who.name,
        uid: who.uid,
        gid: who.gid,
        home: RawPath::from(who.home.as_path()),
    }
}

fn paths(raw: &[RawPath]) -> Vec<PathBuf> {
    raw.iter().map(|path| path.as_path().to_owned()).collect()
}

fn spec(make: Make, files: Vec<ShownFile>) -> Result<SandboxSpec, RuntimeError> {
    let id = make.id.parse().map_err(|_| RuntimeError::Refused {
        what: "the host names no session".into(),
        fix: "report this".into(),
    })?;
    let base = (0..make.base).map(|at| place_of(SESSION).join(BASE).join(at.to_string())).collect();
    Ok(SandboxSpec {
        id,
        workdir: make.workdir.as_path().to_owned(),
        shown_at: make.shown_at.map(|path| path.as_path().to_owned()),
        home: make.home.as_path().to_owned(),
        path: paths(&make.path),
        mounts: make.mounts,
        hide: paths(&make.hide),
        profile: make.profile,
        users: UserMode::Auto,
        limits: make.limits,
        layer_place: LayerPlace::Disk,
        nested: make.nested,
        sudo: make.sudo,
        tracing: make.tracing,
        syscalls: make.syscalls,
        programs: make.programs.map(|programs| paths(&programs)),
        root: None,
        ahead: false,
        // Its guest may be followed by others, over other layers.
        pausable: true,
        network: if make.doors { Network::Doors } else { Network::None },
        files,
        require: Vec::new(),
        accept: make.accept,
        layer: Path::new(LAYERS).join(&make.id),
        // Nothing is committed in here: the host does that.
        conflicts: Path::new(LAYERS).join("conflicts"),
        base: Base { layers: base, since: None },
        staging: PathBuf::from(STAGING),
        ranges: PathBuf::from(RANGES),
    })
}
