//! What is done in a machine before it is stopped to be copied. A copy has to do again whatever was not: so the inside
//! is made once for nobody, a command is run in it, and it is taken down, after which the kernel has all that it
//! takes in its memory; and insides of every kind are begun, to be had by whoever comes.

use crate::serve::STAGING;
use cofferdam_guest::host::{Client, Event, HostError, Received};
use cofferdam_guest::wire::{Exec, Stdin};
use cofferdam_model::{LayerPlace, Limits, Profile, SessionId, UserMode};
use cofferdam_runtime::{Backend, Base, Begun, Network, RuntimeError, SandboxSpec, guest_program};
use cofferdam_runtime_process::{Channels, ProcessBackend, owner_of_first};
use cofferdam_sys::machine::Home;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const PLACE: &str = "/srv/rehearsal";
/// What programs of every kind need: a shell, its C runtime, and what looks at files.
const SCRIPT: &str = "ls -A / /etc; cat /etc/hostname /etc/passwd; uname -a; id; env; echo x >file; rm file; \
                      /bin/echo x; /bin/true; command -v none";
/// Where programs are looked for, so that the kernel knows where they are not.
const PATH: &[u8] = b"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

const KINDS: [(Profile, Network); 4] = [
    (Profile::Run, Network::None),
    (Profile::Run, Network::Doors),
    (Profile::Box, Network::None),
    (Profile::Box, Network::Doors),
];

/// What a rehearsal is of: the one that has the most.
pub(crate) const UNDERSTUDY: (Profile, Network) = (Profile::Run, Network::Doors);

/// Begun for nobody: its guest runs, and waits.
pub(crate) struct Ahead {
    kind: (Profile, Network, PathBuf),
    begun: Box<dyn Begun>,
}

impl Ahead {
    pub(crate) fn fits(&self, spec: &SandboxSpec) -> bool {
        self.kind == (spec.profile, spec.network, spec.home.clone()) && spec.programs.is_none()
    }

    /// Makes it one of this spec. What was mounted since it was begun is not in its mounts: it is put there.
    pub(crate) fn bind(
        mut self,
        spec: SandboxSpec,
        shown: &[PathBuf],
        (home, host): (&Home, &str),
    ) -> Result<Box<dyn Begun>, RuntimeError> {
        let same: Vec<(PathBuf, PathBuf)> = shown.iter().map(|path| (path.clone(), path.clone())).collect();
        let seen = self
            .begun
            .waits()
            .ok_or(Errno::SRCH)
            .and_then(|waits| home.cover(waits.mounts, &same, (waits.guest, host)));
        seen.map_err(|errno| RuntimeError::io("show the session's disks")(errno.into()))?;
        self.begun.adopt(spec)?;
        Ok(self.begun)
    }
}

/// A sandbox of nobody's. Each has its ids from a place of its own, so that all of them have the same.
fn spec(number: usize, home: &Path, profile: Profile, network: Network) -> SandboxSpec {
    let place = Path::new(PLACE).join(number.to_string());
    SandboxSpec {
        id: SessionId::new(0, number as u64),
        workdir: place.join("work"),
        shown_at: None,
        home: home.to_owned(),
        path: Vec::new(),
        mounts: Vec::new(),
        hide: Vec::new(),
        profile,
        users: UserMode::Auto,
        limits: Limits::default(),
        layer_place: LayerPlace::Disk,
        nested: false,
        sudo: false,
        tracing: false,
        syscalls: Default::default(),
        programs: None,
        root: None,
        ahead: false,
        pausable: true,
        network,
        files: Vec::new(),
        require: Vec::new(),
        accept: Vec::new(),
        layer: place.join("layer"),
        conflicts: place.join("conflicts"),
        base: Base::default(),
        staging: PathBuf::from(STAGING),
        ranges: place.join("ranges"),
    }
}

/// Makes an inside, runs something in it, and takes it down.
pub(crate) fn rehearse(home: &Path) -> Result<(), RuntimeError> {
    let spec = spec(KINDS.len(), home, Profile::Run, Network::Doors);
    let make =
        |path: &Path| fs::create_dir_all(path).map_err(RuntimeError::io(format!("make {}", path.display())));
    make(&spec.workdir)?;
    // It is the inside's own, so that nobody's ids have to be translated.
    let (uid, gid) = owner_of_first();
    std::os::unix::fs::chown(&spec.workdir, Some(uid), Some(gid))
        .map_err(RuntimeError::io("make a work dir for nobody"))?;
    let workdir = spec.workdir.clone();
    // Nobody is there yet to be told of calls that are refused: they are refused at once.
    let backend = ProcessBackend { without: vec!["seccomp.record".into()], ..ProcessBackend::default() };
    let mut sandbox = backend.create(spec)?;
    if let Some(channel) = sandbox.take_channel() {
        let script: [&[u8]; 3] = [b"/bin/sh", b"-c", SCRIPT.as_bytes()];
        let ran = run(channel, &workdir, &[&script]).map_err(std::io::Error::other);
        ran.map_err(RuntimeError::io("run a command in the machine"))?;
    }
    sandbox.finish().map(drop)
}

/// Runs commands in an inside, one after the other.
pub(crate) fn run(channel: OwnedFd, workdir: &Path, commands: &[&[&[u8]]]) -> Result<(), HostError> {
    let mut client = Client::new(channel)?;
    for argv in commands {
        client.exec(&Exec {
            argv: argv.to_vec(),
            env: vec![PATH, b"LANG=C.UTF-8"],
            cwd: workdir.as_os_str().as_bytes(),
            user: None,
            tty: None,
            stdin: Stdin::Null,
        })?;
        if !until_it_ends(&mut client)? {
            break;
        }
    }
    Ok(())
}

/// Whether there is still somebody to speak to.
fn until_it_ends(client: &mut Client) -> Result<bool, HostError> {
    loop {
        client.flush()?;
        let mut set = [PollFd::new(&*client, PollFlags::IN)];
        let _ = poll(&mut set, None);
        if client.receive()? == Received::Closed {
            return Ok(false);
        }
        loop {
            let consumed = match client.next_event()? {
                None => break,
                Some(Event::Exited { .. }) => return Ok(true),
                Some(Event::Output { id, stream, bytes }) => Some((id, stream, bytes.len())),
                Some(_) => None,
            };
            if let Some((id, stream, bytes)) = consumed {
                client.consumed(id, stream, bytes)?;
            }
        }
    }
}

/// Begins one of every kind, and one more to rehearse with, which is spoken to from here.
pub(crate) fn ahead(
    home: &Path,
    channels: &dyn Fn() -> Result<Channels, RuntimeError>,
) -> Result<(Vec<Ahead>, Ahead), RuntimeError> {
    let image = cofferdam_sys::image::sealed(guest_program());
    let image = Arc::new(image.map_err(|errno| RuntimeError::io("keep the guest's program")(errno.into()))?);
    let one = |number: usize, (profile, network), channel| {
        let spec = SandboxSpec { ahead: true, ..spec(number, home, profile, network) };
        let (channel, image) = (Mutex::new(channel), Some(image.clone()));
        let mut begun = ProcessBackend { channel, image, ..ProcessBackend::default() }.begin(spec)?;
        begun.go_ahead()?;
        Ok(Ahead { kind: (profile, network, home.to_owned()), begun })
    };
    let all = KINDS.into_iter().enumerate().map(|(number, kind)| one(number, kind, Some(channels()?)));
    let all = all.collect::<Result<Vec<_>, RuntimeError>>()?;
    Ok((all, one(KINDS.len() + 1, UNDERSTUDY, None)?))
}
