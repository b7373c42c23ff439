//! The kernel as a trait, and the real one.

use super::op::{Access, Attr, Kept, Op, Resource};
use super::talk::{Child, DOORS_MAX, Received};
use crate::{ballast, capability, door, graft, landlock, late, mounts, raw, seccomp};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::process::Signal;
use rustix::thread::{Gid, Uid, UnshareFlags};
use std::ffi::CStr;

/// Whoever can perform operations. The double records them.
pub trait Kernel {
    fn perform(&mut self, op: &Op) -> Result<(), Errno>;
}

/// How many mounts can be taken along at once.
pub const CARRIED_MAX: usize = 16;

/// The real kernel, in the boot child. Nothing below allocates.
pub(super) struct Linux {
    pub(super) child: Child,
    /// The caller's, which what runs inside gets back.
    pub(super) umask: Mode,
    /// What came with the word to go on.
    pub(super) given: Received,
    /// Mounts that are taken along, the first first.
    pub(super) carried: [Option<OwnedFd>; CARRIED_MAX],
}

/// What may fail has not.
fn none_if(optional: bool, errno: Errno) -> Result<(), Errno> {
    if optional { Ok(()) } else { Err(errno) }
}

impl Kernel for Linux {
    fn perform(&mut self, op: &Op) -> Result<(), Errno> {
        match op {
            Op::DieWithSupervisor => rustix::process::set_parent_process_death_signal(Some(Signal::KILL)),
            Op::MapOwnIds { uid_map, gid_map } => map_own_ids(uid_map, gid_map),
            Op::AwaitSupervisor => self.child.await_go().map(drop),
            Op::JoinGroup { tasks } => write_all(tasks, OFlags::empty(), Mode::empty(), b"0"),
            Op::KeepPlace => self.keep_place(),
            Op::Join { namespace, kind } => join(*namespace, *kind),
            Op::Unshare { namespaces } => unshare(*namespaces),
            Op::PrivateMounts => mounts::make_private(),
            Op::Tmpfs { at, options, attr } => mounts::tmpfs(at, options, *attr),
            Op::Resize { at, options } => mounts::resize(at, options),
            Op::AllowFiles { at, more } => mounts::allow_files(at, *more),
            Op::MountGiven { at } => self.mount_given(at),
            Op::LeaveRoom { ballast, bytes, files } => ballast::leave_room(ballast, *bytes, *files),
            Op::Enter { at } => rustix::process::chdir(at.as_c_str()),
            Op::Dir { at, mode, owner } => make_dir(at, *mode, *owner),
            Op::Whiteout { at } => whiteout(at),
            Op::HandOver { at } => self.hand_over_dir(at),
            Op::Symlink { at, to } => rustix::fs::symlinkat(to.as_c_str(), CWD, at.as_c_str()),
            Op::File { at, mode, content } => write_file(at, *mode, content),
            Op::Bind { from, at, attr, idmapped } => mounts::bind(from, at, *attr, self.id_map(*idmapped)?),
            Op::BindImage { from, at } => {
                mounts::bind(from, at, Attr::READ_ONLY, self.given.user_namespace.as_ref())
            }
            Op::Graft(graft) => graft::put(graft),
            Op::Overlay { lower, upper, at, userxattr } => {
                let upper = upper.as_ref().map(|(upper, work)| (&**upper, &**work));
                mounts::attach(mounts::overlay(lower, upper, *userxattr)?.as_fd(), at)
            }
            Op::Carry { from, attr, idmapped } => {
                let tree = mounts::cloned(from, *attr, self.id_map(*idmapped)?)?;
                self.carry(tree)
            }
            Op::CarryOverlay { lower, upper: (upper, work), userxattr } => {
                let tree = mounts::overlay(lower, Some((upper, work)), *userxattr)?;
                self.carry(tree)
            }
            Op::Put { at } => self.put(at),
            Op::Proc { at } => mounts::proc(at),
            Op::Devpts { at } => mounts::devpts(at),
            Op::ReadOnly { at } => mounts::read_only(at),
            Op::Writable { at } => mounts::writable(at),
            Op::PivotHere => mounts::pivot_here(),
            Op::EnterUserNamespace => {
                enter_user_namespace(self.given.user_namespace.as_ref().ok_or(Errno::BADF)?)
            }
            Op::NewCgroupNamespace => unshare(UnshareFlags::NEWCGROUP),
            Op::Hostname { name } => rustix::system::sethostname(name),
            Op::LoopbackUp => loopback_up(),
            Op::Netlink { request, optional } => request.send().or_else(|errno| none_if(*optional, errno)),
            Op::Doors { doors } => self.open_doors(doors),
            Op::ProbeDoors { at } => {
                at.iter().for_each(|at| door::knock(*at));
                Ok(())
            }
            Op::Limit { resource, value } => limit(*resource, *value),
            Op::Become { who } => become_user(*who),
            Op::BoundCapabilities { keep } => capability::bound(*keep),
            Op::Capabilities { keep } => capability::keep_only(*keep),
            Op::NoNewPrivileges => rustix::thread::set_no_new_privs(true),
            Op::Landlock { ruleset } => landlock::restrict(ruleset),
            Op::FillImage { image, program } => crate::image::seal(raw::borrowed(image), program),
            Op::TellSettled => self.child.tell_settled(),
            Op::ProbeLandlock { at } => self.child.tell_probe(landlock::probe(at)),
            Op::Seccomp { program, notify } => match seccomp::install(program, *notify)? {
                Some(listener) => self.child.hand_over_listener(&listener),
                None => Ok(()),
            },
            Op::Descriptors { channel, waits } => {
                descriptors(*channel, waits.then(|| self.child.socket.as_raw_fd()))
            }
            Op::Execute { image, name } => {
                rustix::process::umask(self.umask);
                Err(raw::execute(*image, name))
            }
            Op::TellGuest { socket, binding } => tell(raw::borrowed(socket), binding),
            Op::Leave => self.child.tell_done().map(|()| raw::exit_now(0)),
        }
    }
}

/// What a guest that waits is bound to.
fn tell(socket: BorrowedFd<'_>, binding: &[u8]) -> Result<(), Errno> {
    rustix::net::send(socket, binding, SendFlags::NOSIGNAL).map(drop)
}

impl Linux {
    fn id_map(&self, wanted: bool) -> Result<Option<&OwnedFd>, Errno> {
        match (wanted, &self.given.id_map) {
            (true, None) => Err(Errno::BADF),
            (true, map) => Ok(map.as_ref()),
            (false, _) => Ok(None),
        }
    }

    fn mount_given(&self, at: &CStr) -> Result<(), Errno> {
        mounts::attach(self.given.scratch.as_ref().ok_or(Errno::BADF)?.as_fd(), at)
    }

    fn carry(&mut self, tree: OwnedFd) -> Result<(), Errno> {
        // What was put down left a gap before those that are still carried; none is taken after that.
        let free = self.carried.iter_mut().find(|place| place.is_none()).ok_or(Errno::TOOBIG)?;
        *free = Some(tree);
        Ok(())
    }

    fn put(&mut self, at: &CStr) -> Result<(), Errno> {
        let first = self.carried.iter_mut().find_map(Option::take).ok_or(Errno::BADF)?;
        mounts::attach(first.as_fd(), at)
    }

    fn hand_over_dir(&self, at: &CStr) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        self.child.hand_over_layer(&rustix::fs::openat(CWD, at, flags, Mode::empty())?)
    }

    fn keep_place(&self) -> Result<(), Errno> {
        let open = |path: &CStr| rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let [mounts, network, user] =
            [open(c"/proc/self/ns/mnt")?, open(c"/proc/self/ns/net")?, open(c"/proc/self/ns/user")?];
        self.child.hand_over_place([mounts.as_fd(), network.as_fd(), user.as_fd()])?;
        unshare(UnshareFlags::NEWNS)
    }

    fn open_doors(&self, doors: &[door::Door]) -> Result<(), Errno> {
        let mut open: [Option<OwnedFd>; DOORS_MAX] = [const { None }; DOORS_MAX];
        if doors.len() > DOORS_MAX {
            return Err(Errno::TOOBIG);
        }
        for (place, door) in open.iter_mut().zip(doors) {
            *place = Some(door.open()?);
        }
        self.child.hand_over_doors(&open)
    }
}

fn make_dir(at: &CStr, mode: u32, owner: Option<(u32, u32)>) -> Result<(), Errno> {
    match rustix::fs::mkdirat(CWD, at, Mode::from_raw_mode(mode)) {
        Err(Errno::EXIST) => return Ok(()),
        other => other?,
    }
    match owner {
        Some((uid, gid)) => rustix::fs::chown(at, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))),
        None => Ok(()),
    }
}

fn whiteout(at: &CStr) -> Result<(), Errno> {
    rustix::fs::mknodat(CWD, at, rustix::fs::FileType::CharacterDevice, Mode::empty(), 0)
}

fn join(namespace: RawFd, kind: Kept) -> Result<(), Errno> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    let kind = match kind {
        Kept::Mounts => LinkNameSpaceType::Mount,
        Kept::Network => LinkNameSpaceType::Network,
    };
    move_into_link_name_space(raw::borrowed(&namespace), Some(kind))
}

fn enter_user_namespace(namespace: &OwnedFd) -> Result<(), Errno> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    move_into_link_name_space(rustix::fd::AsFd::as_fd(namespace), Some(LinkNameSpaceType::User))
}

pub(crate) fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: the caller (the boot child, a probe) has one thread, so no other thread can observe a half-changed process.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

fn write_all(path: &CStr, flags: OFlags, mode: Mode, content: &[u8]) -> Result<(), Errno> {
    let file = rustix::fs::openat(CWD, path, flags | OFlags::WRONLY | OFlags::CLOEXEC, mode)?;
    let mut rest = content;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = rest.get(written..).ok_or(Errno::IO)?;
    }
    Ok(())
}

/// A new file. An empty one is a place to mount on, and may be there already.
fn write_file(at: &CStr, mode: u32, content: &[u8]) -> Result<(), Errno> {
    let made =
        write_all(at, OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW, Mode::from_raw_mode(mode), content);
    match made {
        Err(Errno::EXIST) if content.is_empty() => Ok(()),
        other => other,
    }
}

/// The kernel wants `setgroups` refused before an unprivileged process may map its group.
pub(crate) fn map_own_ids(uid_map: &[u8], gid_map: &[u8]) -> Result<(), Errno> {
    let plain = |path: &CStr, content: &[u8]| write_all(path, OFlags::empty(), Mode::empty(), content);
    plain(c"/proc/self/setgroups", b"deny")?;
    plain(c"/proc/self/uid_map", uid_map)?;
    plain(c"/proc/self/gid_map", gid_map)
}

fn become_user(who: Access) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(who.uid), Gid::from_raw(who.gid));
    if who.drop_groups {
        rustix::thread::set_thread_groups(&[])?;
    }
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

fn limit(resource: Resource, value: u64) -> Result<(), Errno> {
    use rustix::process::{Resource as R, Rlimit};
    let resource = match resource {
        Resource::AddressSpace => R::As,
        Resource::Processes => R::Nproc,
        Resource::OpenFiles => R::Nofile,
        Resource::Core => R::Core,
    };
    let now = rustix::process::getrlimit(resource);
    let value = now.maximum.map_or(value, |most| value.min(most));
    rustix::process::setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })
}

pub(crate) fn loopback_up() -> Result<(), Errno> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: an all-zero `ifreq` is a valid value of that plain C struct.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    raw::ioctl(rustix::fd::AsFd::as_fd(&socket), libc::SIOCSIFFLAGS, &request)
}

fn descriptors(channel: RawFd, waits: Option<RawFd>) -> Result<(), Errno> {
    raw::duplicate_as(channel, 3)?;
    if let Some(socket) = waits {
        raw::duplicate_as(socket, late::DESCRIPTOR)?;
    }
    let null = rustix::fs::openat(CWD, c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    for number in 0..3 {
        raw::duplicate_as(null.as_raw_fd(), number)?;
    }
    raw::close_on_exec_from(if waits.is_some() { late::DESCRIPTOR + 1 } else { 4 })
}
