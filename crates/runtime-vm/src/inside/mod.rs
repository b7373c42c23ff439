//! The program inside a machine: root of its kernel, and of nothing else. It makes the inside as the process tier
//! makes a sandbox, on what the machine's disks show, and does for the host what only it can: carry connections out,
//! tell of refused calls, hand over what was changed.
//!
//! It trusts the host, and so it never has to be believed: everything it says is judged outside.

mod export;
mod prepare;

use crate::carry::{self, Far};
use crate::wire::{Ask, Clock, FROM_HOST, Frame, Identity, Made, Make, Tell, VERSION, receive, send};
use cofferdam_model::{LayerPlace, RawPath, UserMode};
use cofferdam_runtime::{Backend, Base, Network, RuntimeError, Sandbox, SandboxSpec, ShownFile};
use cofferdam_runtime_process::ProcessBackend;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The names of the machine's ports.
pub(crate) const GUEST: &str = "guest";
pub(crate) const HOUSE: &str = "house";
pub(crate) const NET: &str = "net";

/// Where layers that lie beneath are on the session's disk.
pub(crate) const BASE: &str = ".cofferdam/base";

const LAYERS: &str = "/run/layers";
const STAGING: &str = "/run/staging";
const RANGES: &str = "/run/ranges";

/// Serves the host until it is gone.
pub fn serve() -> Result<(), RuntimeError> {
    let failed = |doing: &str| RuntimeError::io(doing.to_owned());
    prepare::root().map_err(failed("make the machine's root"))?;
    prepare::groups().map_err(failed("mount the control groups"))?;
    let mut house = prepare::port(HOUSE).map_err(failed("open the port to the host"))?;
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    send(&mut house, &Tell::Booted { version: VERSION, kernel }).map_err(failed("speak to the host"))?;
    let mut inside = Inside { house, made: None };
    loop {
        match inside.turn() {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => return Err(failed("hear the host")(error)),
        }
    }
}

struct Inside {
    house: File,
    made: Option<Here>,
}

/// The inside, once it is made.
struct Here {
    sandbox: Box<dyn Sandbox>,
    layer: PathBuf,
}

impl Inside {
    fn turn(&mut self) -> io::Result<bool> {
        self.hear()
    }

    fn hear(&mut self) -> io::Result<bool> {
        let asked = match receive(&mut self.house, FROM_HOST) {
            Ok(Frame::Message(asked)) => asked,
            Ok(Frame::Piece(_)) => return Err(io::ErrorKind::InvalidData.into()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        };
        let told = match asked {
            Ask::Make(make) => self.make(*make),
            Ask::Counters => {
                Tell::Counters(self.made.as_ref().map(|here| here.sandbox.counters()).unwrap_or_default())
            }
            Ask::Occupied => {
                Tell::Occupied(self.made.as_ref().is_some_and(|here| here.sandbox.is_occupied()))
            }
            Ask::Clock(clock) => {
                set_clock(clock);
                Tell::Done
            }
            Ask::Renew(who) => {
                renew(&who);
                Tell::Done
            }
            Ask::Finish => return self.finish().map(|()| true),
        };
        send(&mut self.house, &told)?;
        Ok(true)
    }

    fn make(&mut self, make: Make) -> Tell {
        renew(&make.who);
        match create(make) {
            Ok((here, made)) => {
                self.made = Some(here);
                Tell::Made(Box::new(made))
            }
            Err(RuntimeError::Refused { what, fix } | RuntimeError::Step { what, fix, .. }) => {
                Tell::Refused { what, fix }
            }
            Err(error) => Tell::Refused { what: error.to_string(), fix: "report this".into() },
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        let Some(mut here) = self.made.take() else {
            return send(
                &mut self.house,
                &Tell::Refused { what: "nothing was made".into(), fix: String::new() },
            );
        };
        let finished = here.sandbox.finish().unwrap_or_default();
        let told = Tell::Finished { usage: finished.usage, limits: finished.limits };
        send(&mut self.house, &told)?;
        let mut out = io::BufWriter::with_capacity(64 << 10, &mut self.house);
        export::export(&here.layer.join("upper"), &mut out)?;
        io::Write::flush(&mut out)
    }
}

fn paths(raw: &[RawPath]) -> Vec<PathBuf> {
    raw.iter().map(|path| path.as_path().to_owned()).collect()
}

fn create(make: Make) -> Result<(Here, Made), RuntimeError> {
    let id = make.id.parse().map_err(|_| RuntimeError::Refused {
        what: "the host names no session".into(),
        fix: "report this".into(),
    })?;
    let base = (0..make.base).map(|at| Path::new("/run/session").join(BASE).join(at.to_string())).collect();
    prepare::show(&paths(&make.show)).map_err(RuntimeError::io("show the session's disk"))?;
    prepare::layers(Path::new(LAYERS), make.disk).map_err(RuntimeError::io("make room for changes"))?;
    let staging = PathBuf::from(STAGING);
    for name in ["root", "scratch", "lower"] {
        let path = staging.join(name);
        std::fs::create_dir_all(&path).map_err(RuntimeError::io(format!("make {}", path.display())))?;
    }
    let layer = Path::new(LAYERS).join(&make.id);
    let file = |(at, content): (RawPath, Vec<u8>)| ShownFile { at: at.as_path().to_owned(), content };
    let spec = SandboxSpec {
        id,
        workdir: make.workdir.as_path().to_owned(),
        shown_at: None,
        home: make.home.as_path().to_owned(),
        path: paths(&make.path),
        mounts: make.mounts,
        hide: paths(&make.hide),
        profile: make.profile,
        users: UserMode::Auto,
        limits: make.limits,
        layer_place: LayerPlace::Disk,
        nested: make.nested,
        tracing: false,
        syscalls: Default::default(),
        programs: None,
        ahead: false,
        pausable: false,
        network: if make.doors { Network::Doors } else { Network::None },
        files: make.files.into_iter().map(file).collect(),
        require: Vec::new(),
        accept: make.accept,
        layer: layer.clone(),
        base: Base { layers: base, since: None },
        staging,
        ranges: PathBuf::from(RANGES),
    };
    let port = prepare::port(GUEST).map_err(RuntimeError::io("open the port of the guest"))?;
    let backend = ProcessBackend {
        channel: Mutex::new(Some(OwnedFd::from(port))),
        // Nobody listens here: what is refused is refused at once.
        without: make.without.into_iter().chain(["seccomp.record".to_owned()]).collect(),
        ..ProcessBackend::default()
    };
    let mut sandbox = backend.create(spec)?;
    if let Some(doors) = sandbox.take_doors() {
        let port = prepare::port(NET).map_err(RuntimeError::io("open the port of the network"))?;
        std::thread::spawn(move || carry::carry(port.into(), Far::Inside(Box::new(doors)), None));
    }
    let who = sandbox.identity();
    let made = Made {
        report: sandbox.report().clone(),
        name: who.name,
        uid: who.uid,
        gid: who.gid,
        home: RawPath::from(who.home.as_path()),
    };
    Ok((Here { sandbox, layer }, made))
}

fn set_clock(clock: Clock) {
    let now = rustix::time::Timespec { tv_sec: clock.seconds, tv_nsec: clock.nanos.into() };
    let _ = rustix::time::clock_settime(rustix::time::ClockId::Realtime, now);
}

/// A copy of a machine is another one.
fn renew(who: &Identity) {
    set_clock(who.clock);
    let _ = cofferdam_sys::machine::renew_entropy(&who.seed);
    let _ = rustix::system::sethostname(who.host.as_bytes());
    let _ = std::fs::write("/run/machine-id", format!("{}\n", who.machine));
}
