//! A sandbox that waits for a session with its guest already running: in all its namespaces, in its root, without
//! privileges, under the system call filter, and in its control groups. It lacks only what is somebody's: the work
//! dir, the mounts and files that were asked for, limits, and the rules on files, which name all of these.
//!
//! A second child, the steward, waits with it where rooms are made. It mounts what is left into the room, from
//! outside, tells the guest, and ends; the guest then forbids itself the rest, and what holds is read back. Only after
//! that does anything of anyone's run.

use crate::create::{self, Failure, Making, chosen, hearing};
use crate::decide;
use crate::layout::{self, Layout};
use crate::meanwhile::{self, Meanwhile};
use crate::plan::{self, Room};
use crate::report::Fixed;
use crate::supervise;
use crate::users::Way;
use cofferdam_runtime::{RuntimeError, SandboxSpec};
use cofferdam_sys::boot::{self, Birth, CARRIED_MAX, Launched, Message, Resource};
use cofferdam_sys::late;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Rlimit};
use rustix::thread::UnshareFlags;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// What there is of it besides the guest.
pub(crate) struct Waiting {
    steward: Launched,
    /// The mount namespace of the guest.
    room: OwnedFd,
    /// What the session wants, once that is known and until it is decided.
    layout: Option<Layout>,
    /// What the host shows by then, which somebody looks at meanwhile.
    seen: Option<Meanwhile<Option<Layout>>>,
    /// The steward knows what is left to be made.
    told: bool,
    /// What nothing changes any more, as it was read back.
    fixed: Fixed,
}

fn broken(what: &str) -> Failure {
    Failure::What(what.into(), "report this".into())
}

fn misfit(what: &str) -> Failure {
    RuntimeError::Refused { what: what.into(), fix: "make one from nothing".into() }.into()
}

/// Under a number that those which the guest inherits cannot take.
pub(crate) fn out_of_the_way(fd: OwnedFd) -> Result<OwnedFd, Failure> {
    if fd.as_raw_fd() > late::DESCRIPTOR {
        return Ok(fd);
    }
    let moved = rustix::io::fcntl_dupfd_cloexec(&fd, late::DESCRIPTOR + 1);
    moved.map_err(|errno| RuntimeError::io("make the guest's channel")(errno.into()).into())
}

/// Takes one that was begun for nobody to where it waits. One whose ids others map, or whose skeleton is not made yet,
/// stays as it is.
pub(crate) fn go_ahead(m: &mut Making) -> Result<(), Failure> {
    let Some(users) = m.users.as_ref().filter(|_| m.ahead.is_some() && m.room == Room::First) else {
        return Ok(());
    };
    meanwhile::employ();
    m.layout = Some(layout::unbound(&m.spec, users));
    create::place_groups(m)?;
    let ops = decide::decided(m, true, plan::ahead)?;
    let Some(launched) = &m.launched else { return chosen(m).map(drop) };
    launched.perform(ops, m.ids.given()).map_err(hearing)?;
    create::make_groups(m)?;
    supervise::until_it_waits(m)?;
    m.waiting = Some(attend(m)?);
    Ok(())
}

/// Starts the steward of a guest that waits.
fn attend(m: &Making) -> Result<Waiting, Failure> {
    let (users, _) = chosen(m)?;
    let (Some(launched), Some(place)) = (&m.launched, &m.place) else {
        return Err(broken("the child went on without its place"));
    };
    let path = format!("/proc/{}/ns/mnt", launched.pid().as_raw_nonzero());
    let room = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| RuntimeError::io("find the guest's mounts")(errno.into()))?;
    let fixed = Fixed::read(launched.pid().as_raw_nonzero().get())
        .map_err(RuntimeError::io("read the sandbox back from the kernel"))?;
    let keep = [place.mounts.as_raw_fd(), room.as_raw_fd(), launched.socket().as_raw_fd()];
    let birth = Birth {
        namespaces: UnshareFlags::empty(),
        cgroup: None,
        within: (users.way != Way::Root).then(|| place.user.as_fd()),
        keep: &keep,
    };
    let steward = boot::launch(&birth, plan::steward(&m.spec.staging, keep[0]))
        .map_err(|errno| RuntimeError::io("start what binds a prepared sandbox")(errno.into()))?;
    Ok(Waiting { steward, room, layout: None, seen: None, told: false, fixed })
}

/// Whether one that waits can be made what this spec says, as far as the spec tells.
pub(crate) fn check(m: &mut Making, spec: &SandboxSpec) -> Result<(), Failure> {
    if m.waiting.is_none() {
        return Ok(());
    }
    let (_, made) = chosen(m)?;
    let wanted = layout::over(made, spec)?;
    let depth = |path: &std::path::Path| path.components().count();
    let beneath_home = wanted.home.as_ref().is_none_or(|home| depth(home) <= depth(&wanted.shown_at));
    if !beneath_home {
        return Err(misfit("its home would cover the work dir"));
    }
    if wanted.mounts.len() >= CARRIED_MAX {
        return Err(misfit("so many mounts cannot be brought into it"));
    }
    if decide::filter_for(spec, &wanted, &m.without) != decide::filter_of(m)? {
        return Err(misfit("it is held under another filter"));
    }
    let seen = m.users.as_ref().map(|users| wanted.look_again(spec, users));
    if let Some(waiting) = &mut m.waiting {
        (waiting.layout, waiting.seen) = (Some(wanted), seen);
    }
    Ok(())
}

/// Decides what one that waits becomes, and has its steward begin. Meanwhile: what was made of it must be what a new one
/// would have, as the host is now. Where that is not so it is of no use to anyone, and nothing has run in it.
pub(crate) fn settle_in(m: &mut Making) -> Result<(), Failure> {
    let Some(waiting) = &mut m.waiting else { return Ok(()) };
    let (Some(wanted), seen) = (waiting.layout.take(), waiting.seen.take()) else { return Ok(()) };
    create::map_ids(m, wanted.workdir_owner)?;
    let made = m.layout.replace(wanted);
    // A layer on disk is made later, when it is on record whose it is.
    if m.limits.layer_in_scratch {
        bind(m)?;
    }
    let seen = seen.and_then(Meanwhile::get).flatten();
    match made.zip(seen).is_some_and(|(made, seen)| seen.has_been_made_as(&made)) {
        true => Ok(()),
        false => Err(misfit("it shows other files of the host")),
    }
}

/// Tells the steward what is left to be made, and of what its guest is then to be told.
pub(crate) fn bind(m: &mut Making) -> Result<(), Failure> {
    let (Some(waiting), Some(guest)) = (&m.waiting, &m.launched) else { return Ok(()) };
    if waiting.told {
        return Ok(());
    }
    for (resource, value) in decide::rlimits(m) {
        limit(guest.pid(), resource, value)?;
    }
    let (room, socket) = (waiting.room.as_raw_fd(), guest.socket().as_raw_fd());
    // It is under its filter already.
    let ops = decide::decided(m, false, |d| plan::late(d, room, socket))?;
    waiting.steward.perform(ops, m.ids.given()).map_err(hearing)?;
    m.waiting.iter_mut().for_each(|waiting| waiting.told = true);
    Ok(())
}

/// Hears that all is there, and what the guest has to say of the rest, which it forbids itself.
pub(crate) fn finish(m: &mut Making) -> Result<(), Failure> {
    let Some(mut waiting) = m.waiting.take() else { return Ok(()) };
    loop {
        match waiting.steward.hear().map_err(hearing)? {
            Message::Layer(fd) => m.handed.push_back(fd),
            Message::Done => break,
            Message::Failed { at, errno } => return Err(supervise::failed(m, &waiting.steward, at, errno)),
            _ => return Err(broken("what binds a prepared sandbox has ended before its time")),
        }
    }
    let Some(mut launched) = m.launched.take() else { return chosen(m).map(drop) };
    // It takes as long as to read what it does not change.
    m.settled = waiting.fixed.settled().ok();
    let Waiting { steward, room, .. } = waiting;
    // It has left. To wait for that takes as long as anything else here, and nobody needs it.
    m.left = Some(meanwhile::begin(move || drop((steward, room))));
    let confined = confined(m, &mut launched);
    m.launched = Some(launched);
    // They are shown; other rooms of the place have them too.
    m.files = Vec::new();
    confined
}

fn confined(m: &mut Making, guest: &mut Launched) -> Result<(), Failure> {
    match guest.hear().map_err(hearing)? {
        Message::LandlockProbe(errno) => m.landlock_probe = errno,
        _ => return Err(broken("the guest of a prepared sandbox could not be bound")),
    }
    match guest.hear().map_err(hearing)? {
        Message::Started => Ok(()),
        _ => Err(broken("the guest of a prepared sandbox said more than it should")),
    }
}

/// As the boot child would have set it.
fn limit(guest: Pid, resource: Resource, value: u64) -> Result<(), Failure> {
    use rustix::process::Resource as R;
    let resource = match resource {
        Resource::AddressSpace => R::As,
        Resource::Processes => R::Nproc,
        Resource::OpenFiles => R::Nofile,
        Resource::Core => R::Core,
    };
    let most = rustix::process::getrlimit(resource).maximum;
    let value = most.map_or(value, |most| value.min(most));
    let wanted = Rlimit { current: Some(value), maximum: Some(value) };
    rustix::process::prlimit(Some(guest), resource, wanted)
        .map_err(|errno| RuntimeError::io("limit a prepared sandbox")(errno.into()))?;
    Ok(())
}
