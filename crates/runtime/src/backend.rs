//! The contract between the engine and a tier.

use crate::ChangeList;
use cofferdam_model::{
    BlockedAttempt, Counters, EnforcementReport, FileChange, FileDifference, LayerPlace, LimitHit, Limits,
    Mount, Profile, Provenance, SessionId, SkippedChange, SyscallSeen, Syscalls, Tier, Usage, UserMode,
    Weakness,
};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a tier is asked to make. Everything is resolved: paths are absolute, nothing is looked up later.
#[derive(Debug, Clone)]
pub struct SandboxSpec {
    pub id: SessionId,
    /// Shown inside, writable, with changes kept apart.
    pub workdir: PathBuf,
    /// Where it stands inside; absent: at the same path.
    pub shown_at: Option<PathBuf>,
    /// The caller's home: inside, an empty one stands at the same path, with toolchains read-only in it.
    pub home: PathBuf,
    /// Search path of the caller, which tells the toolchains that are in use.
    pub path: Vec<PathBuf>,
    pub mounts: Vec<Mount>,
    pub hide: Vec<PathBuf>,
    pub profile: Profile,
    pub users: UserMode,
    pub limits: Limits,
    pub layer_place: LayerPlace,
    pub nested: bool,
    /// Have a program `sudo` inside, which asks the guest.
    pub sudo: bool,
    /// Let processes inside trace each other.
    pub tracing: bool,
    pub syscalls: Syscalls,
    /// The only programs of the host's that are there, by their paths; nothing: all of them.
    pub programs: Option<Vec<PathBuf>>,
    /// What the inside has for its root, in the place of the host's directories.
    pub root: Option<Root>,
    /// It stays: give it what pausing and counting take, where the host has that.
    pub pausable: bool,
    /// Nothing is known of the session yet: make what all of its kind have.
    pub ahead: bool,
    pub network: Network,
    pub files: Vec<ShownFile>,
    pub require: Vec<String>,
    pub accept: Vec<Weakness>,
    /// A directory of our own for this session's writable layer; made and removed by the tier.
    pub layer: PathBuf,
    /// Where what a commit leaves out is kept, a directory for each commit.
    pub conflicts: PathBuf,
    /// What lies between it and the work dir.
    pub base: Base,
    /// A directory of our own with empty directories `root`, `scratch` and `lower`, where a new root is put together.
    pub staging: PathBuf,
    /// Where id ranges are reserved (one lock file each).
    pub ranges: PathBuf,
}

/// The files of an image as the root of a sandbox. ChangeList to them go to a layer of the session's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Where they are. Nobody changes them.
    pub files: PathBuf,
    /// What the image is called, and the digest that it is known by.
    pub name: String,
    pub digest: String,
    /// Whether the files have the owners that the image says: not where a plain user unpacked it.
    pub owners: bool,
    /// Who commands are by default, as the image's accounts have it, and where that is at home.
    pub user: String,
    pub home: PathBuf,
}

/// Layers that nobody changes any more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Base {
    /// Their directories, the upper ones first. Beside each that is of a session with an image lies `system`, with
    /// what was done to the image's files.
    pub layers: Vec<PathBuf>,
    /// When the first of them was begun; a work dir without any is taken as it is now.
    pub since: Option<Provenance>,
}

/// A file of the inside's own, read-only. It covers the host's where there is one.
#[derive(Debug, Clone)]
pub struct ShownFile {
    pub at: PathBuf,
    pub content: Vec<u8>,
}

/// What of a network there is inside, besides the sandbox's own loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Network {
    /// Nothing: what is sent elsewhere has no way to go.
    #[default]
    None,
    /// Whatever is sent elsewhere comes out at doors that the host serves.
    Doors,
}

/// Sockets of the sandbox's own network, held by the host alone. None of them blocks.
#[derive(Debug)]
pub struct Doors {
    /// For clients that are told of a proxy; they reach it at its local address.
    pub proxy: TcpListener,
    /// Connections to any other address: the local address of each is the one that it was meant for.
    pub transparent: Vec<TcpListener>,
    pub dns_udp: UdpSocket,
    pub dns_tcp: TcpListener,
    /// Datagrams to any other address; each tells where it was meant to go in its control message.
    pub stray_udp: Vec<UdpSocket>,
    /// Who is behind a connection.
    pub callers: Arc<dyn Callers>,
}

/// Tells which program inside has the other end of a connection that came to a door.
pub trait Callers: fmt::Debug + Send + Sync {
    /// `peer` is the program's end and `local` ours. The path is the inside's; nothing where it is not certain.
    fn program(&self, peer: SocketAddr, local: SocketAddr) -> Option<PathBuf>;
}

#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The host cannot give what was asked: nothing was run.
    #[error("refused: {what}; {fix}")]
    Refused { what: String, fix: String },
    /// A step of making the sandbox failed.
    #[error("could not make the sandbox: step `{step}`: {what}; {fix}")]
    Step { step: &'static str, what: String, fix: String },
    #[error("{doing}: {source}")]
    Io { doing: String, source: io::Error },
}

impl RuntimeError {
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

/// Whether a tier works on this host, found out by trying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    pub tier: Tier,
    pub works: bool,
    pub detail: String,
    pub fix: Option<String>,
}

/// Who a command is inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub home: PathBuf,
}

/// A system call as it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    Refused(BlockedAttempt),
    Passed(SyscallSeen),
}

/// Who is told of system calls. It is told by a thread of the sandbox's own.
pub trait Witness: Send + Sync {
    /// Whether it is on record. What is not ends the sandbox.
    fn hear(&self, heard: Heard) -> bool;
}

/// What was seen when a sandbox came to its end.
#[derive(Debug, Clone, Default)]
pub struct Finished {
    pub usage: Usage,
    pub limits: Vec<LimitHit>,
}

/// What became of the changes that were to be kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Committed {
    pub applied: u64,
    pub skipped: Vec<SkippedChange>,
    /// What the inside's versions of those are kept under.
    pub aside: Option<String>,
}

pub trait Backend {
    fn tier(&self) -> Tier;
    /// Tries the tier for real.
    fn probe(&self) -> Probe;
    /// The session of which there is something already, before it was known what it is to be. It is the only one that
    /// can have that.
    fn begun_for(&self) -> Option<SessionId> {
        None
    }
    /// Starts what takes long and needs no more than the spec. Dropping the result undoes it.
    fn begin(&self, spec: SandboxSpec) -> Result<Box<dyn Begun>, RuntimeError>;

    fn create(&self, spec: SandboxSpec) -> Result<Box<dyn Sandbox>, RuntimeError> {
        let mut sandbox = self.begin(spec)?.complete(&mut || ())?;
        sandbox.afterwards();
        Ok(sandbox)
    }
}

/// A sandbox in the making.
pub trait Begun {
    /// Makes it one of this spec. What was decided when it was begun must be the same: users, profile, whether it
    /// stays, whether it has doors. All else is bound by this.
    fn adopt(&mut self, spec: SandboxSpec) -> Result<(), RuntimeError>;

    /// Takes it as far as it can be taken before it is known whose it is: the less is left for who comes. Where that
    /// is no further, it stays as it is. After an error it is of no use.
    fn go_ahead(&mut self) -> Result<(), RuntimeError> {
        Ok(())
    }

    /// What of one that waits can be reached from outside; nothing where it does not wait.
    fn waits(&self) -> Option<Waits<'_>> {
        None
    }

    /// Makes the rest of it, and calls `meanwhile` once, at a moment in which there is only waiting to do.
    fn complete(self: Box<Self>, meanwhile: &mut dyn FnMut()) -> Result<Box<dyn Sandbox>, RuntimeError>;
}

/// What there is of a sandbox that waits for its session.
#[derive(Debug, Clone, Copy)]
pub struct Waits<'a> {
    /// The process that is its guest.
    pub guest: BorrowedFd<'a>,
    /// The mount namespace in which what it is bound to is looked for.
    pub mounts: BorrowedFd<'a>,
}

/// Why a change is not to be kept, if it is not.
pub type Refuses<'a> = &'a dyn Fn(&FileChange) -> Option<String>;

/// Hears what is about to be kept or dropped. Who says no leaves it as it is.
pub type Agrees<'a> = &'a mut dyn FnMut(&ChangeList) -> Result<(), RuntimeError>;

/// A running sandbox. Dropping it ends every process in it and removes all that was made for it.
pub trait Sandbox {
    fn report(&self) -> &EnforcementReport;

    /// The byte stream to the guest; handed out once.
    fn take_channel(&mut self) -> Option<OwnedFd>;

    /// The doors, if they were asked for; handed out once.
    fn take_doors(&mut self) -> Option<Doors>;

    /// Who the command is to be, by default.
    fn identity(&self) -> Identity;

    /// Readable when the guest's process has ended; nothing once that was seen.
    fn ended(&self) -> Option<BorrowedFd<'_>>;

    /// Readable when a system call is to be told of and nobody listens yet: its caller waits. Nothing where there
    /// is a witness, or nothing to tell; not every tier can.
    fn alarm(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// From now on this witness is told of system calls, each before its caller goes on. Another guest, as after a
    /// transaction, needs it again.
    fn listen(&mut self, _: Arc<dyn Witness>) -> Result<(), RuntimeError> {
        Ok(())
    }

    /// Stops every process inside where it stands, so that none uses a processor. Refused where the host has
    /// nothing that holds for all of them.
    fn pause(&mut self) -> Result<(), RuntimeError>;

    fn resume(&mut self) -> Result<(), RuntimeError>;

    /// What it uses now.
    fn counters(&self) -> Counters;

    /// Does what is left of the making and what no command waits for.
    fn afterwards(&mut self) {}

    /// Has every process inside end, where that needs no waiting: there is something to write down meanwhile.
    fn dismiss(&mut self) {}

    /// Limits that were reached since this was last asked. Where nobody can tell before the end, `finish` does.
    fn hits(&mut self) -> Vec<LimitHit> {
        Vec::new()
    }

    /// Ends every process inside, also one that is paused, and waits for it. Tells the limits that were reached and not
    /// yet told.
    fn finish(&mut self) -> Result<Finished, RuntimeError>;

    /// What the session did to its work dir. Only after `finish`. All share the one list.
    fn changes(&mut self) -> Result<Arc<ChangeList>, RuntimeError>;

    /// Takes those changes out that are refused, each with the reason. Only after `finish`.
    fn withhold(&mut self, _: Refuses<'_>) -> Result<Vec<SkippedChange>, RuntimeError> {
        Ok(Vec::new())
    }

    /// Carries the changes over to the host's work dir. Only after `finish`.
    fn commit(&mut self) -> Result<Committed, RuntimeError>;

    /// Whether anything runs inside besides the guest.
    fn is_occupied(&self) -> bool;

    /// How many transactions are open, each within the one before.
    fn depth(&self) -> usize;

    /// Opens a transaction within the innermost one. As with `settle`, whatever runs inside is ended by it, and
    /// there is another guest after, whose channel `take_channel` hands out.
    fn begin_transaction(&mut self) -> Result<(), RuntimeError>;

    /// What was done in the innermost transaction; without one, by the session so far. If it is to be `still`, whatever
    /// runs inside is stopped while it is looked at, and where that cannot be had it is refused.
    fn difference(&mut self, texts: bool, still: bool) -> Result<Vec<FileDifference>, RuntimeError>;

    /// Keeps or drops what was done in the innermost transaction: it becomes part of the one around it. Without
    /// one it is all of the session's, and is carried to the host's work dir: `agrees` hears of exactly that, when
    /// nothing runs any more that could add to it, and before any of it happens.
    fn settle(&mut self, keep: bool, agrees: Agrees<'_>) -> Result<Committed, RuntimeError>;

    /// Moves the session's own layer to the directory `to`, which is on its file system, and goes on with another
    /// over it. Nothing is copied. Says from when on changes in the work dir are others'. Ends what runs inside.
    fn freeze(&mut self, to: &Path) -> Result<Provenance, RuntimeError>;

    /// What has to be known of its own layer to go on over it, where that lies on disk and would outlive its processes.
    fn provenance(&self) -> Option<Provenance> {
        None
    }

    /// Whether `freeze` keeps all that runs along with the files, and ends nothing; what is begun with that runs on.
    fn keeps_processes(&self) -> bool {
        false
    }
    /// Drops the session's own layer, and goes on with another over these. Ends what runs inside.
    fn rebase(&mut self, base: Base) -> Result<(), RuntimeError>;

    /// Shows other programs and mounts from now on. Ends what runs inside.
    fn refurnish(&mut self, _: &mut dyn FnMut(&mut SandboxSpec)) -> Result<(), RuntimeError> {
        let what = "this tier cannot change what a sandbox that lives shows".into();
        Err(RuntimeError::Refused { what, fix: "make another session".into() })
    }
}
