//! How a boot child is born, with the channel and the image of the guest that it will be; and one that is born before
//! anything is known of its session.

use crate::Channels;
use crate::cgroup::{self, Groups, Wanted};
use crate::create::{Failure, Making};
use crate::explain::explain_launch;
use crate::limits;
use crate::plan::{self, Inherited};
use crate::reap::group_name;
use crate::users::Way;
use crate::wait;
use cofferdam_model::{LayerPlace, Limits, SessionId};
use cofferdam_runtime::{RuntimeError, guest_program};
use cofferdam_sys::boot::{self, Birth, Launched, Op};
use cofferdam_sys::{image, schedule};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::thread::UnshareFlags;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

/// A child at work, and what it and we have in common.
pub(crate) struct Born {
    launched: Launched,
    inherited: Inherited,
    channel: Option<OwnedFd>,
}

/// A child that makes its namespaces while its session is still being read from a command line: the two take about
/// as long. It belongs to nobody; where it turns out to be of the wrong kind, or nobody comes for it, it ends. Make it
/// on the thread that will hold the session: the child dies with it.
pub struct Early {
    born: Option<Born>,
    /// Where a child is born into its group, the group and the session that it is for.
    cradle: Option<Cradle>,
    in_group: bool,
}

struct Cradle {
    session: SessionId,
    groups: Groups,
    wanted: Wanted,
}

impl fmt::Debug for Early {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Early")
    }
}

impl Early {
    /// Nothing where it fails: whoever makes one when its time has come finds out why.
    pub fn begin() -> Option<Self> {
        let mut early = Self { born: None, cradle: None, in_group: false };
        if cgroup::is_unified() {
            // Held by the maker before it is, so that it goes even if what follows fails.
            early.cradle = Some(Cradle::new()?);
        }
        let cradle = early.cradle.as_mut().map(|cradle| &mut cradle.groups);
        let group = match cradle {
            Some(groups) => {
                groups.create().ok()?;
                groups.cradle()
            }
            None => None,
        };
        early.in_group = group.is_some();
        let way = if rustix::process::geteuid().is_root() { Way::Root } else { Way::Single };
        let born = born(namespaces(way, &[]), group, None, plan::first(&[]), &[], (&mut None, &None));
        let born = born.ok()?;
        schedule::begin_elsewhere(born.launched.pid());
        early.born = Some(born);
        Some(early)
    }

    /// The session that it has to be, where that is decided.
    pub fn session(&self) -> Option<&SessionId> {
        self.cradle.as_ref().map(|cradle| &cradle.session)
    }

    /// The groups that were placed for this name and these limits, if they were.
    pub(crate) fn groups_for(&mut self, name: &str, wanted: &Wanted) -> Option<Groups> {
        let fits = |cradle: &mut Cradle| {
            group_name(&cradle.session) == name && wanted.controllers().eq(cradle.wanted.controllers())
        };
        self.cradle.take_if(fits).map(|cradle| cradle.groups)
    }

    /// The child, if it is what would be made now.
    pub(crate) fn child_for(mut self, m: &Making) -> Option<(Born, bool)> {
        let given = m.given_channel.is_some() || m.given_image.is_some();
        let of_its_group = self.cradle.is_none() && self.in_group == m.groups.has_unified();
        let serves = m.without.is_empty() && of_its_group && !given;
        self.born.take().filter(|_| serves).map(|born| (born, self.in_group))
    }
}

impl Drop for Early {
    fn drop(&mut self) {
        // A group goes when its last process has gone.
        self.born = None;
        if let Some(cradle) = &mut self.cradle {
            cradle.groups.remove();
        }
    }
}

impl Cradle {
    /// Where groups for what every session is held to can be made.
    fn new() -> Option<Self> {
        let mut random = [0u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).ok()?;
        let now = SystemTime::UNIX_EPOCH.elapsed().ok()?;
        let session = SessionId::new(now.as_millis() as u64, u64::from_le_bytes(random));
        let wanted = limits::resolve(&Limits::default(), LayerPlace::Memory, false).cgroup;
        let groups = Groups::place(&group_name(&session), &wanted);
        Some(Self { session, groups, wanted })
    }
}

/// Those that a process cannot enter later: it is the first of its pid namespace, and all others belong to its
/// user namespace.
pub(crate) fn namespaces(way: Way, without: &[String]) -> UnshareFlags {
    let mut flags = UnshareFlags::empty();
    flags.set(UnshareFlags::NEWUSER, way != Way::Root);
    flags.set(UnshareFlags::NEWPID, !without.iter().any(|w| w == "namespace.pid"));
    flags
}

/// Starts the boot child, with a channel to the guest that it will be, whose image it fills itself.
pub(crate) fn bear(
    m: &mut Making,
    namespaces: UnshareFlags,
    within: Option<BorrowedFd<'_>>,
    first: Vec<Op>,
    keep: &[RawFd],
) -> Result<(), Failure> {
    let group = m.groups.cradle();
    let in_group = group.is_some();
    let born = born(namespaces, group, within, first, keep, (&mut m.given_channel, &m.given_image))?;
    take_in(m, born, in_group);
    Ok(())
}

/// Makes a child that was born this sandbox's.
pub(crate) fn take_in(m: &mut Making, born: Born, in_group: bool) {
    let Born { launched, inherited, channel } = born;
    m.born_in_group = in_group;
    m.inherited = Some(inherited);
    m.channel = channel;
    m.guest.store(launched.pid().as_raw_nonzero().get(), Ordering::Release);
    m.launched = Some(launched);
    m.waited = false;
}

/// The guest's program, sealed once for all sandboxes of this process that share it. Nothing where that fails: whoever
/// makes an image of its own finds out why.
pub(crate) fn image_of_all() -> Option<Arc<OwnedFd>> {
    static IMAGE: OnceLock<Option<Arc<OwnedFd>>> = OnceLock::new();
    IMAGE.get_or_init(|| image::sealed(guest_program()).ok().map(Arc::new)).clone()
}

fn born(
    namespaces: UnshareFlags,
    cgroup: Option<BorrowedFd<'_>>,
    within: Option<BorrowedFd<'_>>,
    mut first: Vec<Op>,
    keep: &[RawFd],
    (given_channel, given_image): (&mut Option<Channels>, &Option<Arc<OwnedFd>>),
) -> Result<Born, Failure> {
    let (channel, theirs) = match given_channel {
        Some(Channels(next)) => (None, next().map_err(RuntimeError::io("find the guest's channel"))?),
        None => {
            let pair =
                rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
            let (ours, theirs) =
                pair.map_err(|errno| RuntimeError::io("make the guest's channel")(errno.into()))?;
            (Some(ours), theirs)
        }
    };
    let image = match given_image {
        Some(image) => rustix::io::fcntl_dupfd_cloexec(image.as_fd(), 3),
        None => image::blank(),
    };
    let image = image.map_err(|errno| explain_launch("guest image", errno))?;
    let (theirs, image) = (wait::out_of_the_way(theirs)?, wait::out_of_the_way(image)?);
    if given_image.is_none() {
        // The child would only wait for us now, who decide what comes next.
        first.push(Op::FillImage { image: image.as_raw_fd(), program: guest_program() });
    }
    let keep = [keep, &[theirs.as_raw_fd(), image.as_raw_fd()]].concat();
    let birth = Birth { namespaces, cgroup, within, keep: &keep };
    let launched = boot::launch(&birth, first).map_err(|errno| explain_launch("new namespaces", errno))?;
    let inherited = Inherited { channel: theirs.as_raw_fd(), image: image.as_raw_fd() };
    Ok(Born { launched, inherited, channel })
}
