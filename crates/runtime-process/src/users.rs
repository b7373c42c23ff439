//! Which host ids stand behind the inside's ids. There are three ways, each said in the report:
//!
//! - **root**: started by root. A range of otherwise unused host ids, reserved for this session alone (one that
//!   begins with the files of another has its range, since the files carry its ids); host id 0 is in no map. The work dir's owner is shown as the inside's user by an idmapped mount.
//! - **range**: a plain user with sub-ids in `/etc/subuid`, mapped by `newuidmap`.
//! - **single**: a plain user's own id and no other: no second user, no change of owner.

use cofferdam_model::{Profile, UserMode};
use cofferdam_runtime::RuntimeError;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The user of a sandbox that is not the caller itself.
pub(crate) const USER: u32 = 1000;
const RANGE: u32 = 65_536;
/// Past every range that distributions, systemd and sub-id tools hand out.
const FIRST: u32 = 1_900_000_000;
const SLOTS: u32 = 2_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Root,
    Range,
    Single,
}

/// The decision, with everything that later steps need of it.
#[derive(Debug)]
pub(crate) struct Users {
    pub(crate) way: Way,
    /// Inside ids of the command's user.
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Host ids of the same.
    pub(crate) host_uid: u32,
    pub(crate) host_gid: u32,
    pub(crate) uid_map: String,
    pub(crate) gid_map: String,
    /// Which range it is, where it was reserved.
    pub(crate) slot: Option<u32>,
    /// Keeps the range ours.
    _reserved: Option<Held>,
}

/// The ranges that this process has reserved. Whether one is free is decided by its lock; these need not be tried, and
/// a process may hold hundreds.
static OURS: Mutex<BTreeSet<(PathBuf, u32)>> = Mutex::new(BTreeSet::new());

fn ours() -> MutexGuard<'static, BTreeSet<(PathBuf, u32)>> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A range, for as long as this lives.
#[derive(Debug)]
struct Held {
    _lock: OwnedFd,
    /// Where it was reserved, and not shared.
    reserved: Option<(PathBuf, u32)>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.reserved.iter().for_each(|reserved| _ = ours().remove(reserved));
    }
}

impl Way {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Range => "range",
            Self::Single => "single",
        }
    }
}

/// The host's id behind id 0 of the inside, by the range that a session has.
pub(crate) fn base(slot: u32) -> Option<u32> {
    (slot < SLOTS).then(|| FIRST + slot * RANGE)
}

fn refused(what: &str, fix: &str) -> RuntimeError {
    RuntimeError::Refused { what: what.into(), fix: fix.into() }
}

impl Users {
    /// The same for who only looks: it keeps no range.
    pub(crate) fn to_look(&self) -> Self {
        let (uid_map, gid_map) = (self.uid_map.clone(), self.gid_map.clone());
        Self { uid_map, gid_map, _reserved: None, ..*self }
    }
}

/// The caller as the owner of what is looked at, with nothing reserved: for who shows the same inside elsewhere.
pub(crate) fn of_caller() -> Users {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let way = if uid == 0 { Way::Root } else { Way::Single };
    users(way, uid, gid, None)
}

/// Who the inside's user is to a kernel on which nobody else has reserved anything.
pub(crate) const OF_FIRST: u32 = FIRST + USER;

/// Decides for the calling process.
pub(crate) fn choose(
    asked: UserMode,
    profile: Profile,
    ranges: &Path,
    slot: Option<u32>,
) -> Result<Users, RuntimeError> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    match (uid, asked, profile) {
        (0, UserMode::Single, _) => Err(refused(
            "`users = \"single\"` would map the host's root",
            "leave it out, or run as a plain user",
        )),
        (0, ..) => root(ranges, slot),
        (_, UserMode::Range, _) | (_, UserMode::Auto, Profile::Box) => range(uid, gid),
        (_, UserMode::Single, Profile::Box) => {
            Err(refused("a box needs several users", "use `--users range`, or the profile `run`"))
        }
        (_, UserMode::Auto | UserMode::Single, Profile::Run) => Ok(Users {
            way: Way::Single,
            uid,
            gid,
            host_uid: uid,
            host_gid: gid,
            uid_map: format!("{uid} {uid} 1"),
            gid_map: format!("{gid} {gid} 1"),
            slot: None,
            _reserved: None,
        }),
    }
}

fn root(ranges: &Path, slot: Option<u32>) -> Result<Users, RuntimeError> {
    let own = own_map()?;
    let (slot, lock) = match slot.filter(|slot| *slot < SLOTS) {
        Some(slot) => (slot, share(ranges, slot)?),
        None => reserve(ranges)?,
    };
    let lock = Some((slot, lock));
    let base = FIRST + slot * RANGE;
    if covers(own, base, RANGE) {
        let map = format!("0 {base} {RANGE}");
        let host = base + USER;
        return Ok(Users { uid_map: map.clone(), gid_map: map, ..users(Way::Root, host, host, lock) });
    }
    // Root of a container with few ids: one of them, from the end, has to do.
    let last = last_id(own).filter(|&last| last > SLOTS + 1_000);
    let host = last.map(|last| last - slot).ok_or_else(|| {
        refused(
            "this user namespace has no ids to spare",
            "give the container a range of 65536 ids, or run as a plain user",
        )
    })?;
    let map = format!("{USER} {host} 1");
    Ok(Users { uid_map: map.clone(), gid_map: map, ..users(Way::Root, host, host, lock) })
}

/// Written once in the life of a user namespace, which we never leave.
fn own_map() -> Result<&'static str, RuntimeError> {
    static OWN: OnceLock<String> = OnceLock::new();
    if let Some(known) = OWN.get() {
        return Ok(known);
    }
    let read = fs::read_to_string("/proc/self/uid_map").map_err(RuntimeError::io("read our own id map"))?;
    Ok(OWN.get_or_init(|| read))
}

fn users(way: Way, host_uid: u32, host_gid: u32, reserved: Option<(u32, Held)>) -> Users {
    let (slot, reserved) = reserved.unzip();
    Users {
        way,
        uid: USER,
        gid: USER,
        host_uid,
        host_gid,
        uid_map: String::new(),
        gid_map: String::new(),
        slot,
        _reserved: reserved,
    }
}

/// Takes the first free slot. Files of slots stay: making one costs more than a session's other locks together.
fn reserve(ranges: &Path) -> Result<(u32, Held), RuntimeError> {
    fs::create_dir_all(ranges).map_err(RuntimeError::io(format!("make {}", ranges.display())))?;
    let known: BTreeSet<u32> =
        ours().iter().filter(|(place, _)| place == ranges).map(|(_, slot)| *slot).collect();
    for slot in (0..SLOTS).filter(|slot| !known.contains(slot)) {
        let file = open_slot(ranges, slot)?;
        // Alone at first, so that it is nobody's; then so that who begins with our files can have it too.
        let free = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .and_then(|()| rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared));
        if free.is_ok() {
            let reserved = (ranges.to_owned(), slot);
            ours().insert(reserved.clone());
            return Ok((slot, Held { _lock: file, reserved: Some(reserved) }));
        }
    }
    Err(refused("all ranges of ids are in use", "end some of the running sessions"))
}

fn open_slot(ranges: &Path, slot: u32) -> Result<OwnedFd, RuntimeError> {
    let path = ranges.join(slot.to_string());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))
        .map_err(|e| RuntimeError::io(format!("reserve ids at {}", path.display()))(e.into()))
}

/// The slot that files carry already.
fn share(ranges: &Path, slot: u32) -> Result<Held, RuntimeError> {
    fs::create_dir_all(ranges).map_err(RuntimeError::io(format!("make {}", ranges.display())))?;
    let file = open_slot(ranges, slot)?;
    // Someone may just be looking whether it is free.
    rustix::fs::flock(&file, FlockOperation::LockShared)
        .map_err(|e| RuntimeError::io("share a range of ids")(e.into()))?;
    Ok(Held { _lock: file, reserved: None })
}

/// Lines of `inside outside count`.
fn extents(map: &str) -> impl Iterator<Item = (u64, u64)> {
    map.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().map(|f| f.parse::<u64>().ok());
        let (inside, _, count) = (fields.next()??, fields.next()??, fields.next()??);
        Some((inside, count))
    })
}

fn covers(map: &str, base: u32, count: u32) -> bool {
    extents(map).any(|(first, n)| first <= u64::from(base) && u64::from(base) + u64::from(count) <= first + n)
}

fn last_id(map: &str) -> Option<u32> {
    extents(map).map(|(first, n)| first + n - 1).max().and_then(|last| u32::try_from(last).ok())
}

fn range(uid: u32, gid: u32) -> Result<Users, RuntimeError> {
    let name = user_name(uid);
    let fix = format!(
        "as root: apt-get install uidmap && usermod --add-subuids 200000-265535 --add-subgids 200000-265535 {}",
        name.as_deref().unwrap_or("USER")
    );
    let sub = |file: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        sub_range(&text, uid, name.as_deref())
            .ok_or_else(|| refused(&format!("{file} gives this user no range of {RANGE} ids"), &fix))
    };
    let (sub_uid, sub_gid) = (sub("/etc/subuid")?, sub("/etc/subgid")?);
    let map = |own: u32, sub: u32| {
        format!("0 {sub} {USER}\n{USER} {own} 1\n{} {} {}", USER + 1, sub + USER, RANGE - USER - 1)
    };
    Ok(Users { uid_map: map(uid, sub_uid), gid_map: map(gid, sub_gid), ..users(Way::Range, uid, gid, None) })
}

/// The first range in `/etc/subuid` (or subgid) that is large enough.
fn sub_range(text: &str, uid: u32, name: Option<&str>) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (who, first, count) = (fields.next()?, fields.next()?, fields.next()?);
        let ours = Some(who) == name || who.parse() == Ok(uid);
        (ours && count.trim().parse::<u32>().ok()? >= RANGE - 1).then(|| first.parse().ok())?
    })
}

/// From `/etc/passwd` alone: a name service would mean code of others in our process.
pub(crate) fn user_name(uid: u32) -> Option<String> {
    let text = fs::read_to_string("/etc/passwd").ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

impl Users {
    /// The supervisor's part for a child that waits for its maps: only in range mode, where a tool has the right.
    pub(crate) fn write_maps(&self, pid: i32) -> Result<(), RuntimeError> {
        run_map_tool("newuidmap", pid, &self.uid_map)?;
        run_map_tool("newgidmap", pid, &self.gid_map)
    }

    /// The host ids of the inside's root, where whoever makes its files is not that root already.
    pub(crate) fn root_outside(&self) -> Option<(u32, u32)> {
        let whole = self.way == Way::Root && self.uid_map.starts_with("0 ");
        whole.then(|| (self.host_uid - USER, self.host_gid - USER))
    }

    /// The maps of the namespace that shows `owner`'s files as the inside's user's, for an idmapped mount.
    pub(crate) fn idmap_for(&self, owner: (u32, u32)) -> (String, String) {
        (format!("{} {} 1", owner.0, self.host_uid), format!("{} {} 1", owner.1, self.host_gid))
    }
}

fn run_map_tool(tool: &'static str, pid: i32, map: &str) -> Result<(), RuntimeError> {
    let output = Command::new(tool).arg(pid.to_string()).args(map.split_whitespace()).output();
    let fix = "install it with: apt-get install uidmap";
    match output {
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => Err(refused(
            &format!("{tool} refused: {}", String::from_utf8_lossy(&done.stderr).trim()),
            "check /etc/subuid and /etc/subgid",
        )),
        Err(error) => Err(refused(&format!("{tool} cannot be run: {error}"), fix)),
    }
}

#[cfg(test)]
impl Users {
    pub(crate) fn for_tests(way: Way, id: u32) -> Self {
        let map = format!("{id} {id} 1");
        Self { uid: id, gid: id, uid_map: map.clone(), gid_map: map, ..users(way, id, id, None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_root_is_in_no_map_of_roots() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (reserve(dir.path()).unwrap(), reserve(dir.path()).unwrap());
        assert_ne!(one.0, two.0, "two sessions never share a range");
        let first = one.0;
        drop(one);
        assert_eq!(reserve(dir.path()).unwrap().0, first, "one that has ended gives its range back");
        assert!(covers("0 0 4294967295", FIRST + first * RANGE, RANGE));
        assert!(!covers("0 100000 65536", FIRST, RANGE));
        assert_eq!(last_id("0 100000 65536"), Some(65_535));
    }

    #[test]
    fn sub_ranges() {
        let text = "alice:100000:65536\nbob:165536:10\n1234:300000:65536\nbob:400000:65536\nbroken\n";
        assert_eq!(sub_range(text, 1, Some("alice")), Some(100_000));
        assert_eq!(sub_range(text, 2, Some("bob")), Some(400_000));
        assert_eq!(sub_range(text, 1234, None), Some(300_000));
        assert_eq!(sub_range(text, 7, Some("carol")), None);
    }
}
