//! Sandboxes that are prepared before anyone asks for a session. Each is a thread that has begun one, namespaces
//! and all, and waits for an order; who the session is, its policy, secrets, mounts, limits and work dir are bound
//! when the order comes. The thread then is the session's, as if it had been started for it, so a prepared sandbox
//! is given out once and never comes back. Where none fits or it cannot be bound, one is made from nothing.

use super::supervisor::Supervisor;
use crate::Engine;
use crate::control::{Question, Reply, unexpected};
use crate::error::EngineError;
use crate::tiers;
use cofferdam_model::{Isolation, PoolInfo, PoolKind, Profile, SessionId, SessionSpec, Tier, UserMode};
use cofferdam_runtime::{Begun, Network, SandboxSpec};
use rustix::fs::FlockOperation;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// At most so many of a kind.
const MOST: usize = 64;
/// So many kinds are kept ready: the latest that were asked for.
const KINDS: usize = 2;
/// Another is begun so long after one was claimed: whoever claimed it goes first, with its first command.
const AFTER: Duration = Duration::from_millis(20);
/// The same for a machine, which takes a processor for a while.
const MACHINE_AFTER: Duration = Duration::from_millis(500);

/// What has to be known before anything is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    tier: Tier,
    profile: Profile,
    users: UserMode,
    egress: bool,
    sudo: bool,
    at_home: bool,
}

/// Where the user of a box is at home.
const HOME: &str = "/home/user";

impl Kind {
    /// Nothing for a session that no prepared sandbox fits.
    pub(super) fn of(spec: &SessionSpec) -> Option<Self> {
        let tier = match spec.isolation {
            Isolation::Auto => Tier::Process,
            Isolation::Tier(tier @ (Tier::Process | Tier::Microvm)) => tier,
            Isolation::Tier(_) => return None,
        };
        let egress = spec.policy.is_some();
        // Whether anything leaves is known of a registry of tools only when it is read.
        let here = spec.tools.is_none();
        let at_home = spec.profile == Profile::Box && spec.shown_at.as_deref() == Some(Path::new(HOME));
        let (profile, users, sudo) = (spec.profile, spec.users, spec.sudo);
        here.then_some(Self { tier, profile, users, egress, sudo, at_home })
    }
}

/// What a thread of the pool does once it is claimed, with what it has prepared.
pub(super) type Order = Box<dyn FnOnce(Option<Box<dyn Begun>>) + Send>;

struct Ready {
    kind: Kind,
    to: SyncSender<Order>,
}

#[derive(Default)]
struct Shelf {
    size: usize,
    kinds: Vec<Kind>,
    ready: Vec<Ready>,
    /// Being prepared.
    coming: Vec<Kind>,
    claimed: u64,
    missed: u64,
}

#[derive(Default)]
pub(super) struct Pool(Mutex<Shelf>);

impl Pool {
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn size(&self) -> usize {
        self.shelf().size
    }

    /// Takes one of this kind off the shelf, to be given its order.
    pub(super) fn claim(&self, kind: Option<Kind>) -> Option<SyncSender<Order>> {
        let mut shelf = self.shelf();
        if shelf.size == 0 {
            return None;
        }
        if let Some(kind) = kind {
            shelf.kinds.retain(|known| *known != kind);
            shelf.kinds.insert(0, kind);
            shelf.kinds.truncate(KINDS);
        }
        let found = shelf.ready.iter().position(|ready| Some(ready.kind) == kind);
        match found {
            Some(at) => {
                shelf.claimed += 1;
                Some(shelf.ready.remove(at).to)
            }
            None => {
                shelf.missed += 1;
                None
            }
        }
    }

    pub(super) fn info(&self) -> PoolInfo {
        let shelf = self.shelf();
        let ready = |kind: &Kind| shelf.ready.iter().filter(|ready| ready.kind == *kind).count();
        let kinds = shelf.kinds.iter().map(|kind| PoolKind {
            tier: kind.tier,
            profile: kind.profile,
            users: kind.users,
            egress: kind.egress,
            sudo: kind.sudo,
            at_home: kind.at_home,
            ready: ready(kind),
        });
        PoolInfo { size: shelf.size, kinds: kinds.collect(), claimed: shelf.claimed, missed: shelf.missed }
    }

    /// Ends all that nobody asked for.
    pub(super) fn clear(&self) {
        let mut shelf = self.shelf();
        shelf.size = 0;
        // A thread whose order cannot come any more undoes what it has begun, and ends.
        shelf.ready.clear();
    }

    /// What is missing, noted as being on its way; what is too much goes.
    fn missing(&self) -> Vec<Kind> {
        let mut shelf = self.shelf();
        let Shelf { size, kinds, ready, coming, .. } = &mut *shelf;
        let mut kept: Vec<Kind> = Vec::new();
        ready.retain(|one| {
            let many = kept.iter().filter(|kind| **kind == one.kind).count();
            kept.push(one.kind);
            kinds.contains(&one.kind) && many < *size
        });
        let mut missing = Vec::new();
        for kind in kinds.iter() {
            let there = ready.iter().filter(|one| one.kind == *kind).count();
            let soon = coming.iter().filter(|one| *one == kind).count();
            missing.extend(std::iter::repeat_n(*kind, size.saturating_sub(there + soon)));
        }
        coming.extend(&missing);
        missing
    }

    fn arrived(&self, kind: Kind, to: Option<SyncSender<Order>>) {
        let mut shelf = self.shelf();
        if let Some(at) = shelf.coming.iter().position(|one| *one == kind) {
            shelf.coming.remove(at);
        }
        if let Some(to) = to.filter(|_| shelf.size > 0) {
            shelf.ready.push(Ready { kind, to });
        }
    }
}

impl Supervisor {
    /// So many of each kind from now on, also for the next supervisor.
    pub(super) fn set_pool(self: &Arc<Self>, size: usize) -> Result<(), EngineError> {
        if size > MOST {
            return Err(EngineError::Declined(format!(
                "a pool of {size} is more than the {MOST} that are allowed"
            )));
        }
        let failed = |source| EngineError::Io { doing: "write the size of the pool", source };
        write_size(&self.engine, size).map_err(failed)?;
        self.open_pool(size);
        Ok(())
    }

    pub(super) fn open_pool(self: &Arc<Self>, size: usize) {
        {
            let mut shelf = self.pool.shelf();
            shelf.size = size;
            if shelf.kinds.is_empty() {
                shelf.kinds.extend(Kind::of(&SessionSpec::default()));
            }
        }
        self.refill();
    }

    /// Starts what is missing, each on the thread that will be its session's.
    pub(super) fn refill(self: &Arc<Self>) {
        for kind in self.pool.missing() {
            let this = self.clone();
            if self.employ(move || this.prepare(kind)).is_err() {
                self.pool.arrived(kind, None);
            }
        }
    }

    fn prepare(self: Arc<Self>, kind: Kind) {
        std::thread::sleep(if kind.tier == Tier::Microvm { MACHINE_AFTER } else { AFTER });
        self.engine.prepare_trace();
        let (to, orders) = sync_channel::<Order>(1);
        let begun = self.engine.begin_for_nobody(kind);
        let (begun, mark) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                (self.log)(&format!("a sandbox could not be prepared: {error}"));
                return self.pool.arrived(kind, None);
            }
        };
        self.pool.arrived(kind, Some(to));
        if let Ok(order) = orders.recv() {
            order(Some(begun));
        } else {
            drop(begun);
        }
        // Nothing of it is left that would have to be found by it.
        let _ = fs::remove_file(mark);
    }
}

impl Engine {
    /// Begins a sandbox of this kind, with nothing decided that is anyone's. Its mark tells others that its control
    /// groups are a supervisor's.
    fn begin_for_nobody(&self, kind: Kind) -> Result<(Box<dyn Begun>, PathBuf), EngineError> {
        let failed = |source| EngineError::Io { doing: "mark a prepared sandbox", source };
        let id = self.new_id()?;
        let isolation = Isolation::Tier(kind.tier);
        let Kind { profile, users, sudo, .. } = kind;
        let shown_at = kind.at_home.then(|| PathBuf::from(HOME));
        let spec = SessionSpec { isolation, profile, users, sudo, shown_at, ..SessionSpec::default() };
        let dir = self.home.pool_dir();
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(failed)?;
        let mark = dir.join(id.as_str());
        OpenOptions::new().write(true).create(true).mode(0o600).truncate(true).open(&mark).map_err(failed)?;
        let begun = self
            .unbound(&spec, &id, kind)
            .and_then(|asked| Ok(tiers::choose(&self.home, &spec, None)?.begin(asked)?))
            .and_then(|mut begun| begun.go_ahead().map(|()| begun).map_err(EngineError::from));
        match begun {
            Ok(begun) => Ok((begun, mark)),
            Err(error) => {
                let _ = fs::remove_file(mark);
                Err(error)
            }
        }
    }

    fn unbound(&self, spec: &SessionSpec, id: &SessionId, kind: Kind) -> Result<SandboxSpec, EngineError> {
        let nowhere = PathBuf::from("/");
        let mut asked = self.sandbox_spec(spec, id, nowhere, &crate::environment::Caller::Own)?;
        asked.pausable = true;
        asked.ahead = true;
        asked.network = if kind.egress { Network::Doors } else { Network::None };
        Ok(asked)
    }

    /// Removes what prepared sandboxes of a supervisor that was killed have left. One that lives holds its lock.
    pub(crate) fn reap_pool(&self) {
        let lock = self.home.path().join("live/supervisor.lock");
        let held = File::open(lock)
            .is_ok_and(|lock| rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared).is_err());
        if !held {
            self.reap_marks();
        }
    }

    /// The same for who holds the lock, and has prepared nothing yet.
    pub(super) fn reap_marks(&self) {
        for entry in fs::read_dir(self.home.pool_dir()).into_iter().flatten().flatten() {
            if let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<SessionId>().ok()) {
                cofferdam_runtime_process::reap(&id, &self.home.layer_dir(&id));
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// What is prepared.
    pub fn pool(&self) -> Result<PoolInfo, EngineError> {
        match self.order_of_supervisor(&Question::Pool)? {
            Reply::Pool(info) => Ok(*info),
            other => Err(unexpected(other)),
        }
    }

    /// Keeps so many sandboxes of each kind ready; none lets the supervisor go when it holds nothing.
    pub fn set_pool(&self, size: usize) -> Result<(), EngineError> {
        match self.order_of_supervisor(&Question::SetPool { size })? {
            Reply::Done { .. } => Ok(()),
            other => Err(unexpected(other)),
        }
    }
}

fn size_file(engine: &Engine) -> PathBuf {
    engine.home.path().join("pool.size")
}

fn write_size(engine: &Engine, size: usize) -> io::Result<()> {
    let path = size_file(engine);
    let making = path.with_extension("making");
    fs::write(&making, format!("{size}\n"))?;
    fs::rename(&making, &path)
}

/// As it was set last; nothing where it was not.
pub(super) fn read_size(engine: &Engine) -> usize {
    let text = fs::read_to_string(size_file(engine)).unwrap_or_default();
    text.trim().parse().unwrap_or(0).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prepared_one_is_given_out_once_and_what_is_missing_is_told_once() {
        let pool = Pool::default();
        let plain = Kind::of(&SessionSpec::default());
        let boxed = Kind::of(&SessionSpec { profile: Profile::Box, ..SessionSpec::default() });
        assert!(pool.claim(plain).is_none() && pool.info().missed == 0, "without a pool nothing is missed");
        pool.shelf().size = 2;
        assert!(pool.claim(plain).is_none());
        assert_eq!(pool.missing().len(), 2);
        assert_eq!(pool.missing().len(), 0, "they are on their way");
        let (to, _orders) = sync_channel(1);
        pool.arrived(plain.unwrap(), Some(to));
        assert!(pool.claim(boxed).is_none(), "of another kind");
        assert!(pool.claim(plain).is_some() && pool.claim(plain).is_none());
        assert_eq!((pool.info().claimed, pool.info().missed), (1, 3));
        pool.clear();
        let (to, _orders) = sync_channel(1);
        pool.arrived(plain.unwrap(), Some(to));
        assert!(pool.shelf().ready.is_empty(), "what comes too late is dropped");
    }
}
