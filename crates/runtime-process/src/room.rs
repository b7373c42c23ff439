//! Transactions in a sandbox that lives. Layers cannot change under a mount that is in use, so whatever changes
//! them ends the guest first and makes another in the same place: a *room*, with its own mount, pid, ipc and uts
//! namespaces, over the same skeleton, scratch space, network and control groups. Only the work dir is another.
//!
//! Whatever runs inside ends with its room; whoever asks looks first whether anything does.

use crate::backing;
use crate::birth;
use crate::caller;
use crate::create::{self, Failure, Making};
use crate::decide;
use crate::layer::archive;
use crate::layer::{self, FileDiff, Layer, Stack, Watch, text_diff};
use crate::layout;
use crate::plan::{self, Room};
use crate::readback;
use crate::rooted;
use crate::supervise;
use crate::users::{Users, Way};
use cofferdam_model::{EnforcementReport, FileDifference, Provenance};
use cofferdam_runtime::{Agrees, Base, ChangeList, Committed, RuntimeError, SandboxSpec};
use rustix::thread::UnshareFlags;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Beside the layer of the work dir.
const SYSTEM: &str = "system";
/// Differences of more text than this are not told line by line.
const TEXT: usize = 256 << 10;

/// What rooms are made in: the namespaces as the first child left them before it made its own room.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) mounts: OwnedFd,
    pub(crate) network: OwnedFd,
    pub(crate) user: OwnedFd,
}

/// The session's layers, once someone has asked for more than the one.
#[derive(Debug)]
pub(crate) struct Rooms {
    stack: Stack,
    /// The same of what is done to an image's files. Its transactions begin and end with the others.
    system: Option<Stack>,
    /// Where the layers are, as we name it; a memory layer through the descriptor that the child handed over.
    dir: PathBuf,
    _handed: Option<OwnedFd>,
    /// What there was before the innermost transaction, as the inside saw it.
    below: Option<OwnedFd>,
}

fn refused(what: impl Into<String>, fix: &str) -> RuntimeError {
    RuntimeError::Refused { what: what.into(), fix: fix.into() }
}

fn failed(failure: Failure) -> RuntimeError {
    create::told(("room", failure))
}

impl Rooms {
    fn open(m: &mut Making) -> Result<Self, RuntimeError> {
        let handed = m.handed.pop_front();
        let dir = match &handed {
            Some(fd) => PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd())),
            None => m.spec.layer.clone(),
        };
        let (stack, system) = (stack(m, &dir)?, system(m, &dir)?);
        Ok(Self { stack, system, dir, _handed: handed, below: None })
    }

    fn push(&mut self) -> Result<(), RuntimeError> {
        self.stack.push()?;
        match self.system.as_mut().map_or(Ok(()), Stack::push) {
            Err(error) => self.stack.rollback().and(Err(error)),
            done => done,
        }
    }

    fn commit(&mut self) -> Result<(), RuntimeError> {
        self.stack.commit(Watch::default())?;
        self.system.as_mut().map_or(Ok(()), |system| system.commit(Watch::default()))
    }

    fn rollback(&mut self) -> Result<(), RuntimeError> {
        for stack in [Some(&mut self.stack), self.system.as_mut()].into_iter().flatten() {
            stack.rollback()?;
            stack.sweep()?;
        }
        Ok(())
    }
}

/// The session's own layers, over what lies beneath them now.
fn stack(m: &Making, dir: &Path) -> Result<Stack, RuntimeError> {
    let (users, layout) = create::chosen(m).map_err(failed)?;
    let below: Vec<PathBuf> = m.spec.base.layers.iter().cloned().chain([layout.workdir.clone()]).collect();
    Stack::open(dir, &below, users.way == Way::Root, create::layer_owner(users), Watch::default())
}

/// The same of an image's files.
fn system(m: &Making, dir: &Path) -> Result<Option<Stack>, RuntimeError> {
    let (users, layout) = create::chosen(m).map_err(failed)?;
    let Some(root) = &layout.root else { return Ok(None) };
    let below: Vec<PathBuf> = m.system.iter().cloned().chain([root.files.clone()]).collect();
    let by_root = users.way == Way::Root;
    Stack::open(&dir.join(SYSTEM), &below, by_root, users.root_outside(), Watch::default()).map(Some)
}

/// Another layer of an image's files, over what lies beneath.
fn begin_system(m: &Making, rooms: &mut Rooms) -> Result<(), RuntimeError> {
    let (users, layout) = create::chosen(m).map_err(failed)?;
    if layout.root.is_some() {
        layer::make_system(&rooms.dir.join(SYSTEM), users.root_outside())?;
        rooms.system = system(m, &rooms.dir)?;
    }
    Ok(())
}

/// Whether anything runs inside besides the guest. What cannot be looked at may.
pub(crate) fn is_occupied(m: &Making) -> bool {
    let guest = m.launched.as_ref().map(|launched| launched.pid().as_raw_nonzero().get());
    guest.is_some_and(|guest| caller::children(guest).map_or(true, |children| !children.is_empty()))
}

/// Does something to the layers while nothing is mounted on them. Whatever comes of it, the sandbox has a guest
/// again after, or has ended.
fn rearrange<T>(
    m: &mut Making,
    rooms: &mut Option<Rooms>,
    report: &EnforcementReport,
    act: impl FnOnce(&mut Making, &mut Rooms) -> Result<T, RuntimeError>,
) -> Result<T, RuntimeError> {
    if m.place.is_none() {
        let what = "the layers of several inside users cannot be rearranged by a plain user";
        return Err(refused(what, "make the session with `--users single`, or as root"));
    }
    let mut open = match rooms.take() {
        Some(open) => open,
        None => Rooms::open(m)?,
    };
    create::end(m);
    m.ear = None;
    m.channel = None;
    open.below = None;
    let done = act(m, &mut open);
    let entered = enter(m, &mut open, report);
    *rooms = Some(open);
    entered?;
    done
}

/// Another guest, over the layers as they are now. It must be held as the first was.
fn enter(m: &mut Making, rooms: &mut Rooms, report: &EnforcementReport) -> Result<(), RuntimeError> {
    let levels = rooms.stack.depth() + 1;
    // Made anew for this mount.
    rooms.stack.layers()?;
    if let Some(system) = &rooms.system {
        system.layers()?;
    }
    m.room = Room::Another { levels };
    bear(m).map_err(failed)?;
    let result = (|| {
        decide::hand_over(m)?;
        create::let_join(m)?;
        decide::confine(m)?;
        supervise::supervise(m)?;
        rooms.below = m.handed.pop_front();
        same(report, &readback::observe(m)?)
    })();
    result.map_err(|failure| {
        create::end(m);
        failed(failure)
    })
}

fn bear(m: &mut Making) -> Result<(), Failure> {
    let Some(place) = m.place.take() else { return create::chosen(m).map(drop) };
    let kept = [place.mounts.as_raw_fd(), place.network.as_raw_fd()];
    let first = plan::again(kept[0], kept[1], &m.without);
    let by_root = by_root(m);
    let mut namespaces = UnshareFlags::empty();
    namespaces.set(UnshareFlags::NEWPID, !m.without.iter().any(|w| w == "namespace.pid"));
    let born = birth::bear(m, namespaces, (!by_root).then_some(place.user.as_fd()), first, &kept);
    m.place = Some(place);
    born
}

/// Line by line as strong as what was on record first. What is captured of the network was proven then, and the
/// network is the same.
fn same(first: &EnforcementReport, now: &EnforcementReport) -> Result<(), Failure> {
    for control in &now.controls {
        let before = first.controls.iter().find(|line| line.name == control.name);
        let is_network = control.name == "namespace.net";
        let held = before
            .is_some_and(|line| line.state == control.state && (!is_network || line.value == control.value));
        if !held {
            let what = format!("`{}` does not hold as it did when the session began", control.name);
            return Err(Failure::What(what, "end the session, and make another".into()));
        }
    }
    Ok(())
}

pub(crate) fn depth(rooms: Option<&Rooms>) -> usize {
    rooms.map_or(0, |rooms| rooms.stack.depth())
}

pub(crate) fn begin(
    m: &mut Making,
    rooms: &mut Option<Rooms>,
    report: &EnforcementReport,
) -> Result<(), RuntimeError> {
    rearrange(m, rooms, report, |_, rooms| rooms.push())
}

pub(crate) fn settle(
    m: &mut Making,
    rooms: &mut Option<Rooms>,
    report: &EnforcementReport,
    keep: bool,
    agrees: Agrees<'_>,
) -> Result<Committed, RuntimeError> {
    rearrange(m, rooms, report, |m, rooms| match (rooms.stack.depth(), keep) {
        (0, _) => renew(m, rooms, keep, agrees),
        (_, true) => rooms.commit().map(|()| Committed::default()),
        (_, false) => rooms.rollback().map(|()| Committed::default()),
    })
}

/// Carries the session's own changes to the work dir or drops them, and begins another layer. What is agreed to is what
/// is kept: whoever could write ended before the one look at it.
fn renew(
    m: &mut Making,
    rooms: &mut Rooms,
    keep: bool,
    agrees: Agrees<'_>,
) -> Result<Committed, RuntimeError> {
    let Some(own) = &m.layer else { return agrees(&ChangeList::default()).map(|()| Committed::default()) };
    // Until that is said, what is closed stays closed.
    let mut whole = whole(m, own, true)?;
    let mut changes = layer::diff(&whole, spare(&m.spec))?;
    agrees(&changes)?;
    if !keep {
        drop(whole);
        begin_system(m, rooms)?;
        return begin_layer(m, rooms).map(|()| Committed::default());
    }
    if !whole.by_root {
        // What its owner has closed to itself is opened by looking at it.
        whole.in_use = false;
        changes = layer::diff(&whole, spare(&m.spec))?;
    }
    all_written(m)?;
    let committed = layer::commit(&whole, &changes, desk(&m.spec), Watch::default())?;
    drop(whole);
    // The work dir has all of it now.
    m.spec.base = Base::default();
    m.began = layer::Began::now();
    begin_layer(m, rooms).map(|()| committed)
}

/// Where a commit of this session writes.
pub(crate) fn desk(spec: &SandboxSpec) -> layer::Desk<'_> {
    layer::Desk { session: &spec.layer, conflicts: &spec.conflicts }
}

/// Where a file without a name can be made, of whatever size.
pub(crate) fn spare(spec: &SandboxSpec) -> &Path {
    spec.layer.parent().unwrap_or(Path::new("/"))
}

/// Another layer of the session's own, over what lies beneath.
fn begin_layer(m: &mut Making, rooms: &mut Rooms) -> Result<(), RuntimeError> {
    let (users, layout) = create::chosen(m).map_err(failed)?;
    let upper = layer::renew(&rooms.dir, layout, create::layer_owner(users))?;
    if let Some(top) = m.spec.base.layers.first() {
        // The top directory of a mount is the upper one's own.
        let beneath = rustix::fs::stat(top).and_then(|stat| {
            rustix::fs::fchmod(&upper, rustix::fs::Mode::from_raw_mode(stat.st_mode & 0o777))
        });
        beneath.map_err(|errno| RuntimeError::io("begin another layer")(errno.into()))?;
    }
    let began = m.began;
    if let Some(own) = &mut m.layer {
        (own.upper, own.began) = (upper, began);
    }
    rooms.stack = stack(m, &rooms.dir)?;
    Ok(())
}

/// Layers are frozen and exchanged only where no transaction is open.
fn settled(rooms: Option<&Rooms>) -> Result<(), RuntimeError> {
    if depth(rooms) > 0 {
        return Err(refused("a transaction is open", "commit it or roll it back first"));
    }
    Ok(())
}

fn by_root(m: &Making) -> bool {
    m.users.as_ref().is_some_and(|users: &Users| users.way == Way::Root)
}

/// What could be gone on with if this process were killed: a layer on disk that we may rearrange.
pub(crate) fn outlives(m: &Making) -> Option<Provenance> {
    let on_disk = m.limits.in_file || !m.limits.layer_in_scratch;
    (m.place.is_some() && m.layer.is_some() && on_disk).then(|| since(m))
}

fn since(m: &Making) -> Provenance {
    m.began.kept(m.users.as_ref().and_then(|users| users.slot))
}

/// A copy of the session's own layer beside those that it is to be put together with: names in memory cannot be links
/// to files on disk.
fn on_disk(m: &Making, own: &Layer) -> Result<PathBuf, RuntimeError> {
    let copy = m.spec.layer.join("own");
    let failed = |errno: rustix::io::Errno| RuntimeError::io("copy the session's layer")(errno.into());
    layer::remove_tree(&copy).map_err(failed)?;
    std::fs::create_dir_all(&m.spec.layer).map_err(RuntimeError::io("copy the session's layer"))?;
    let from = PathBuf::from(format!("/proc/self/fd/{}/.", own.upper.as_raw_fd()));
    archive::duplicate(&from, &copy, by_root(m), since(m)).map(|()| copy)
}

pub(crate) fn freeze(
    m: &mut Making,
    rooms: &mut Option<Rooms>,
    report: &EnforcementReport,
    to: &Path,
) -> Result<Provenance, RuntimeError> {
    settled(rooms.as_ref())?;
    rearrange(m, rooms, report, |m, rooms| {
        let frozen = to.join("upper");
        let since = since(m);
        all_written(m)?;
        match m.limits.layer_in_scratch {
            // What is in memory would end with the session.
            true => archive::duplicate(&rooms.dir.join("upper"), &frozen, by_root(m), since)?,
            false => rustix::fs::rename(m.spec.layer.join("upper"), &frozen).map_err(|errno| {
                RuntimeError::io(format!("move the layer to {}", to.display()))(errno.into())
            })?,
        }
        m.spec.base.layers.insert(0, frozen);
        m.spec.base.since = Some(since);
        freeze_system(m, rooms, to, since)?;
        begin_layer(m, rooms).map(|()| since)
    })
}

/// What was done to an image's files goes along.
fn freeze_system(
    m: &mut Making,
    rooms: &mut Rooms,
    to: &Path,
    since: Provenance,
) -> Result<(), RuntimeError> {
    if rooms.system.is_none() {
        return Ok(());
    }
    let (own, frozen) = (rooms.dir.join(SYSTEM).join("upper"), to.join(SYSTEM));
    match m.limits.layer_in_scratch {
        true => archive::duplicate(&own, &frozen, by_root(m), since)?,
        false => rustix::fs::rename(&own, &frozen)
            .map_err(|errno| RuntimeError::io(format!("move the layer to {}", to.display()))(errno.into()))?,
    }
    m.system.insert(0, frozen);
    begin_system(m, rooms)
}

pub(crate) fn rebase(
    m: &mut Making,
    rooms: &mut Option<Rooms>,
    report: &EnforcementReport,
    base: Base,
) -> Result<(), RuntimeError> {
    settled(rooms.as_ref())?;
    rearrange(m, rooms, report, |m, rooms| {
        m.began = base.since.map_or_else(layer::Began::now, layer::Began::at);
        m.spec.base = base;
        m.system = rooted::system_layers(&m.spec)?;
        begin_system(m, rooms)?;
        begin_layer(m, rooms)
    })
}

/// Looks again at what is to be shown. What cannot be had leaves everything as it was.
pub(crate) fn refurnish(
    m: &mut Making,
    rooms: &mut Option<Rooms>,
    report: &EnforcementReport,
    change: &mut dyn FnMut(&mut SandboxSpec),
) -> Result<(), RuntimeError> {
    let (users, before) = create::chosen(m).map_err(failed)?;
    let mut spec = m.spec.clone();
    change(&mut spec);
    let mut layout = layout::gather(&spec, users)?;
    // What is hidden of the work dir was settled when its layer was made.
    (layout.hidden, layout.hidden_parents) = (before.hidden.clone(), before.hidden_parents.clone());
    rearrange(m, rooms, report, |m, _| {
        (m.spec, m.layout) = (spec, Some(layout));
        Ok(())
    })
}

/// The session's own layer with all that lies between it and the work dir.
fn whole(m: &Making, own: &Layer, in_use: bool) -> Result<Layer, RuntimeError> {
    let duplicate = |fd: &OwnedFd| fd.try_clone().map_err(RuntimeError::io("look at the layers"));
    let linked = !m.spec.base.layers.is_empty();
    let upper = match linked {
        false => duplicate(&own.upper)?,
        true => {
            let own_upper = match m.limits.layer_in_scratch {
                true => on_disk(m, own)?,
                false => m.spec.layer.join("upper"),
            };
            let layers: Vec<PathBuf> =
                [own_upper].into_iter().chain(m.spec.base.layers.iter().cloned()).collect();
            layer::flatten(&layers, &m.spec.layer.join("flat"), own.by_root)?
        }
    };
    Ok(Layer {
        upper,
        workdir: duplicate(&own.workdir)?,
        workdir_path: own.workdir_path.clone(),
        planted: own.planted.clone(),
        linked,
        in_use,
        ..*own
    })
}

/// Before anything of a layer is taken for what the session wrote.
fn all_written(m: &Making) -> Result<(), RuntimeError> {
    let own = m.layer.as_ref().filter(|_| m.limits.in_file);
    own.map_or(Ok(()), |own| backing::settle(&own.upper))
}

/// When it is over: everything that is to be decided on in one layer.
pub(crate) fn bring_together(m: &mut Making) -> Result<(), RuntimeError> {
    all_written(m)?;
    if let Some(own) = m.layer.take() {
        let together = whole(m, &own, false);
        m.layer = Some(own);
        m.layer = Some(together?);
    }
    Ok(())
}

/// What was done in the innermost transaction, or by the session so far.
pub(crate) fn difference(
    m: &Making,
    rooms: Option<&Rooms>,
    texts: bool,
) -> Result<Vec<FileDifference>, RuntimeError> {
    let Some(own) = &m.layer else { return Ok(Vec::new()) };
    let duplicate = |fd: &OwnedFd| fd.try_clone().map_err(RuntimeError::io("look at the layers"));
    let seen = match rooms.and_then(|rooms| Some((rooms, rooms.below.as_ref()?))) {
        Some((rooms, below)) => Layer {
            upper: layer::open_dir(&rooms.stack.top())?,
            workdir: duplicate(below)?,
            workdir_path: own.workdir_path.clone(),
            planted: Default::default(),
            began: own.began,
            // Both sides are as the inside has them.
            owner: None,
            inside: None,
            by_root: own.by_root,
            linked: false,
            in_use: true,
        },
        None => whole(m, own, true)?,
    };
    let told = |change| {
        let (diff, omitted) = if texts { text(&seen, &change) } else { (None, None) };
        FileDifference { change, diff, omitted }
    };
    let found = layer::diff(&seen, spare(&m.spec))?;
    let all = found.iter().map(|change| change.map(|change| told(change.into_owned())));
    all.collect::<Result<_, _>>().map_err(RuntimeError::io("read the list of changes"))
}

fn text(layer: &Layer, change: &cofferdam_model::FileChange) -> (Option<String>, Option<String>) {
    match text_diff(layer, change) {
        Ok(FileDiff::Text(text)) if text.len() <= TEXT => (Some(text), None),
        Ok(FileDiff::Text(_)) => (None, Some("too much text".into())),
        Ok(FileDiff::Large(size)) => (None, Some(format!("{} large", cofferdam_model::Bytes(size)))),
        Ok(FileDiff::Binary) => (None, Some("binary".into())),
        Ok(FileDiff::Nothing) => (None, None),
        Err(_) => (None, Some("unreadable".into())),
    }
}
