//! How a boot child is born, with the channel and the image of the guest that it will be; and one that is born before
//! anything is known of its session.

use crate::Channels;
use crate::cgroup::{self, Version};
use crate::create::{Failure, Making};
use crate::explain::explain_launch;
use crate::layer;
use crate::plan::{self, Inherited};
use crate::users::Way;
use crate::wait;
use cofferdam_runtime::RuntimeError;
use cofferdam_sys::boot::{self, Birth, Launched, Op};
use cofferdam_sys::image;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::thread::UnshareFlags;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A child at work, and what it and we have in common.
pub(crate) struct Born {
    launched: Launched,
    inherited: Inherited,
    channel: Option<OwnedFd>,
}

/// A child that makes its namespaces while its session is still being read from a command line: the two take about
/// as long. It belongs to nobody; where it turns out to be of the wrong kind, or nobody comes for it, it ends. Make it
/// on the thread that will hold the session: the child dies with it.
pub struct Early(pub(crate) Born);

impl fmt::Debug for Early {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Early")
    }
}

impl Early {
    /// Nothing where a child has to be born into a group that is not known yet, or where it fails: whoever makes one
    /// when its time has come finds out why.
    pub fn begin() -> Option<Self> {
        if cgroup::is_unified() {
            return None;
        }
        let way = if rustix::process::geteuid().is_root() { Way::Root } else { Way::Single };
        born(namespaces(way, &[]), None, None, plan::first(&[]), &[], (&mut None, &None)).ok().map(Self)
    }

    /// Whether it is what would be made now.
    pub(crate) fn serves(&self, m: &Making) -> bool {
        let given = m.given_channel.is_some() || m.given_image.is_some();
        m.without.is_empty() && m.groups.groups.is_empty() && !given
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
    let unified = m.groups.groups.iter().find(|group| group.version == Version::V2);
    let unified = unified.and_then(|group| layer::open_dir(&group.path).ok());
    let group = unified.as_ref().map(AsFd::as_fd);
    let born = born(namespaces, group, within, first, keep, (&mut m.given_channel, &m.given_image))?;
    m.born_in_group = unified.is_some();
    take_in(m, born);
    Ok(())
}

/// Makes a child that was born this sandbox's.
pub(crate) fn take_in(m: &mut Making, born: Born) {
    let Born { launched, inherited, channel } = born;
    m.inherited = Some(inherited);
    m.channel = channel;
    m.guest.store(launched.pid().as_raw_nonzero().get(), Ordering::Release);
    m.launched = Some(launched);
    m.waited = false;
}

fn born(
    namespaces: UnshareFlags,
    cgroup: Option<BorrowedFd<'_>>,
    within: Option<BorrowedFd<'_>>,
    first: Vec<Op>,
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
    let keep = [keep, &[theirs.as_raw_fd(), image.as_raw_fd()]].concat();
    let birth = Birth { namespaces, cgroup, within, keep: &keep };
    let launched = boot::launch(&birth, first).map_err(|errno| explain_launch("new namespaces", errno))?;
    let sealed = given_image.is_some();
    let inherited = Inherited { channel: theirs.as_raw_fd(), image: image.as_raw_fd(), sealed };
    Ok(Born { launched, inherited, channel })
}
