//! The operations a boot is made of, as data: what is to be done, in order, with nothing left to decide.

use crate::door::Door;
use crate::landlock::Ruleset;
use crate::netlink::Request;
use crate::seccomp::Program;
use rustix::fd::RawFd;
use rustix::thread::UnshareFlags;
use std::ffi::CString;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// Mount attributes. Everything of the host's is `nosuid`; the rest is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attr {
    pub read_only: bool,
    pub no_dev: bool,
    pub no_exec: bool,
}

impl Attr {
    pub const READ_ONLY: Self = Self { read_only: true, no_dev: true, no_exec: false };
    pub const WRITABLE: Self = Self { read_only: false, no_dev: true, no_exec: false };
    pub const DEVICE: Self = Self { read_only: false, no_dev: false, no_exec: true };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    AddressSpace,
    Processes,
    OpenFiles,
    Core,
}

/// A namespace that can be joined later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    Mounts,
    Network,
}

/// Who a process becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    pub uid: u32,
    pub gid: u32,
    /// Whether supplementary groups can be dropped: not under a single-id map, where the kernel forbids it.
    pub drop_groups: bool,
}

/// What is to be put where in a root that is not ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graft {
    /// Relative to the working directory.
    pub from: CString,
    /// The root that it is put into.
    pub root: CString,
    /// The way to its place, outer ones first and the place itself last: each as a path below the root, and its last
    /// name.
    pub places: Vec<(CString, CString)>,
    /// Whether it is a directory.
    pub dir: bool,
    /// Whether the place is made if it is not there; else nothing is put anywhere.
    pub make: bool,
    /// Whether no link may stand on the way: one that does is replaced.
    pub own: bool,
}

/// One operation. Paths are relative to the working directory that `Enter` sets, or absolute on the host.
pub enum Op {
    /// Die when the supervisor's thread does.
    DieWithSupervisor,
    /// Map the caller's own ids to themselves and no others.
    MapOwnIds {
        uid_map: Vec<u8>,
        gid_map: Vec<u8>,
    },
    /// Wait until the supervisor has done its part (the control groups).
    AwaitSupervisor,
    /// Enter a control group by its file `tasks`. Only a thread that moves itself needs no lock on all others.
    JoinGroup {
        tasks: CString,
    },
    /// Give the supervisor the mount, network and user namespaces as they are now, and go on in a copy of the
    /// mounts: whoever joins them later finds them as we left them.
    KeepPlace,
    /// Join a namespace that was kept, by its descriptor.
    Join {
        namespace: RawFd,
        kind: Kept,
    },
    /// New namespaces besides those that the child was born in. Made by the child, since making them takes long.
    Unshare {
        namespaces: UnshareFlags,
    },
    /// Keep mounts made here from the host, and the host's from here.
    PrivateMounts,
    Tmpfs {
        at: CString,
        options: CString,
        attr: Attr,
    },
    /// Another size for a memory file system that is mounted.
    Resize {
        at: CString,
        options: CString,
    },
    /// So many files more in a memory file system than it holds now, and not one beyond.
    AllowFiles {
        at: CString,
        more: u64,
    },
    /// The file system that the supervisor gives, where a memory file system would be.
    MountGiven {
        at: CString,
    },
    /// So many bytes in a file system that lies in a file, and so many files if that is said: what is free beyond that
    /// is taken by what is put into this directory, which is made for it.
    LeaveRoom {
        ballast: CString,
        bytes: u64,
        files: Option<u64>,
    },
    Enter {
        at: CString,
    },
    /// A directory, which may be there already; with an owner given by id.
    Dir {
        at: CString,
        mode: u32,
        owner: Option<(u32, u32)>,
    },
    /// The overlay's mark for "nothing is here", in an upper layer.
    Whiteout {
        at: CString,
    },
    /// Give the supervisor a descriptor of this directory.
    HandOver {
        at: CString,
    },
    Symlink {
        at: CString,
        to: CString,
    },
    File {
        at: CString,
        mode: u32,
        content: Vec<u8>,
    },
    Bind {
        from: CString,
        at: CString,
        attr: Attr,
        /// With owners translated by the id map that the supervisor gives.
        idmapped: bool,
    },
    /// The files of an image, to be read only. Where the supervisor gave a user namespace, owners are those that the
    /// image's ids are in it.
    BindImage {
        from: CString,
        at: CString,
    },
    /// Puts what stands at `from`, with all that is mounted in it, at a path of another root, whose files are hostile:
    /// no link of it leads out of it.
    Graft(Graft),
    Overlay {
        /// Upper ones first. More than one takes Linux 6.5.
        lower: Vec<CString>,
        /// Where changes go, and where overlayfs works. Nothing: it is only to be read.
        upper: Option<(CString, CString)>,
        at: CString,
        userxattr: bool,
    },
    /// Takes along a copy of what is mounted here, to be put somewhere in another mount namespace. At most
    /// `CARRIED_MAX` at once.
    Carry {
        from: CString,
        attr: Attr,
        /// With owners translated by the id map that the supervisor gives.
        idmapped: bool,
    },
    /// Takes along an overlay that is mounted nowhere else.
    CarryOverlay {
        lower: Vec<CString>,
        upper: (CString, CString),
        userxattr: bool,
    },
    /// Puts down what was taken along first.
    Put {
        at: CString,
    },
    Proc {
        at: CString,
    },
    Devpts {
        at: CString,
    },
    ReadOnly {
        at: CString,
    },
    /// What was made read-only, for the moment in which more is put into it.
    Writable {
        at: CString,
    },
    /// The working directory becomes the root, and the old root goes.
    PivotHere,
    /// Join the user namespace that the supervisor has made, mapped and given.
    EnterUserNamespace,
    NewCgroupNamespace,
    Hostname {
        name: Vec<u8>,
    },
    LoopbackUp,
    /// Configure the network namespace.
    Netlink {
        request: Request,
        /// Its failure is no reason to stop: whoever looks finds out that it is not in force.
        optional: bool,
    },
    /// Make these sockets (at most `DOORS_MAX`), give them to the supervisor and keep none.
    Doors {
        doors: Vec<Door>,
    },
    /// Knock at these addresses, for the supervisor to see whether it is heard at the doors.
    ProbeDoors {
        at: Vec<SocketAddr>,
    },
    Limit {
        resource: Resource,
        value: u64,
    },
    Become {
        who: Access,
    },
    /// Keep these capabilities in the bounding set, drop all others from it.
    BoundCapabilities {
        keep: u64,
    },
    /// Keep these capabilities, drop all others from every set.
    Capabilities {
        keep: u64,
    },
    NoNewPrivileges,
    Landlock {
        ruleset: Ruleset,
    },
    /// Write the guest's program into the image that the child was born with, and close that for all times.
    FillImage {
        image: RawFd,
        program: &'static [u8],
    },
    /// Tell the supervisor that nothing below changes namespaces, mounts and limits any more.
    TellSettled,
    /// Try a write that only Landlock would refuse, and tell the supervisor what came of it.
    ProbeLandlock {
        at: CString,
    },
    Seccomp {
        program: Arc<Program>,
        notify: bool,
    },
    /// The given descriptor becomes number 3, stdio becomes the null device, everything else closes on exec: but the
    /// socket to the supervisor, which becomes `late::DESCRIPTOR`, where the guest is to wait for the rest.
    Descriptors {
        channel: RawFd,
        waits: bool,
    },
    Execute {
        image: RawFd,
        name: CString,
    },
    /// Tell a guest that waits what it is to be bound to, by a descriptor of the supervisor's end of its socket: it
    /// then goes on without anybody having to be woken in between.
    TellGuest {
        socket: RawFd,
        binding: Vec<u8>,
    },
    /// Tells the supervisor that all is done, and ends.
    Leave,
}

impl Op {
    /// The name a failure is reported under.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::DieWithSupervisor => "die-with-supervisor",
            Self::MapOwnIds { .. } => "map-own-ids",
            Self::AwaitSupervisor => "await-supervisor",
            Self::JoinGroup { .. } => "join-group",
            Self::KeepPlace => "keep-place",
            Self::Join { .. } => "join",
            Self::Unshare { .. } => "new namespaces",
            Self::PrivateMounts => "private-mounts",
            Self::Tmpfs { .. } => "tmpfs",
            Self::Resize { .. } => "resize",
            Self::AllowFiles { .. } => "allow-files",
            Self::MountGiven { .. } => "mount-given",
            Self::LeaveRoom { .. } => "leave-room",
            Self::Enter { .. } => "enter",
            Self::Dir { .. } => "dir",
            Self::Whiteout { .. } => "whiteout",
            Self::HandOver { .. } => "hand-over",
            Self::Symlink { .. } => "symlink",
            Self::File { .. } => "file",
            Self::Bind { .. } => "bind",
            Self::BindImage { .. } => "bind-image",
            Self::Graft(_) => "graft",
            Self::Overlay { .. } => "overlay",
            Self::Carry { .. } => "carry",
            Self::CarryOverlay { .. } => "carry-overlay",
            Self::Put { .. } => "put",
            Self::Proc { .. } => "proc",
            Self::Devpts { .. } => "devpts",
            Self::ReadOnly { .. } => "read-only",
            Self::Writable { .. } => "writable",
            Self::PivotHere => "pivot-root",
            Self::EnterUserNamespace => "user-namespace",
            Self::NewCgroupNamespace => "cgroup-namespace",
            Self::Hostname { .. } => "hostname",
            Self::LoopbackUp => "loopback-up",
            Self::Netlink { .. } => "netlink",
            Self::Doors { .. } => "doors",
            Self::ProbeDoors { .. } => "probe-doors",
            Self::Limit { .. } => "rlimit",
            Self::Become { .. } => "become",
            Self::BoundCapabilities { .. } => "bound-capabilities",
            Self::Capabilities { .. } => "capabilities",
            Self::NoNewPrivileges => "no-new-privileges",
            Self::Landlock { .. } => "landlock",
            Self::ProbeLandlock { .. } => "probe-landlock",
            Self::Seccomp { .. } => "seccomp",
            Self::Descriptors { .. } => "descriptors",
            Self::Execute { .. } => "execute",
            Self::FillImage { .. } => "fill-image",
            Self::TellSettled => "tell-settled",
            Self::TellGuest { .. } => "tell-guest",
            Self::Leave => "leave",
        }
    }
}

/// The operation and its object, as errors and recordings show it.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |path: &CString| path.to_string_lossy().into_owned();
        f.write_str(self.name())?;
        match self {
            Self::Tmpfs { at, options, attr } => {
                write!(f, " {} ({}){}", show(at), show(options), Flags(*attr))
            }
            Self::Resize { at, options } => write!(f, " {} ({})", show(at), show(options)),
            Self::AllowFiles { at, more } => write!(f, " {} {more}", show(at)),
            Self::LeaveRoom { ballast, bytes, files } => {
                write!(f, " {} {bytes}", show(ballast))?;
                files.map_or(Ok(()), |files| write!(f, " {files}"))
            }
            Self::Enter { at }
            | Self::MountGiven { at }
            | Self::JoinGroup { tasks: at }
            | Self::Proc { at }
            | Self::Devpts { at }
            | Self::ReadOnly { at }
            | Self::Writable { at }
            | Self::Put { at }
            | Self::Whiteout { at }
            | Self::HandOver { at }
            | Self::ProbeLandlock { at } => write!(f, " {}", show(at)),
            Self::Dir { at, mode, .. } | Self::File { at, mode, .. } => write!(f, " {} {mode:04o}", show(at)),
            Self::Symlink { at, to } => write!(f, " {} -> {}", show(at), show(to)),
            Self::Bind { from, at, attr, idmapped } => {
                let mapped = if *idmapped { " idmapped" } else { "" };
                write!(f, " {} on {}{}{mapped}", show(from), show(at), Flags(*attr))
            }
            Self::Carry { from, attr, idmapped } => {
                let mapped = if *idmapped { " idmapped" } else { "" };
                write!(f, " {}{}{mapped}", show(from), Flags(*attr))
            }
            Self::CarryOverlay { lower, .. } => {
                lower.iter().try_for_each(|lower| write!(f, " {}", show(lower)))
            }
            Self::BindImage { from, at } => write!(f, " {} on {}", show(from), show(at)),
            Self::Graft(Graft { from, places, make, .. }) => {
                let place = places.last().map(|(path, _)| show(path)).unwrap_or_default();
                write!(f, " {} on {place}{}", show(from), if *make { "" } else { " if it is there" })
            }
            Self::Overlay { lower, at, .. } => {
                lower.iter().try_for_each(|lower| write!(f, " {}", show(lower)))?;
                write!(f, " on {}", show(at))
            }
            Self::Join { kind, .. } => write!(f, " {kind:?}"),
            Self::Descriptors { waits: true, .. } => f.write_str(" and wait"),
            Self::Netlink { request, .. } => write!(f, " {}", request.name),
            Self::Doors { doors } => {
                doors.iter().try_for_each(|door| write!(f, " {:?} {}", door.kind, door.at))
            }
            Self::ProbeDoors { at } => at.iter().try_for_each(|at| write!(f, " {at}")),
            Self::Limit { resource, value } => write!(f, " {resource:?} {value}"),
            Self::Become { who } => write!(f, " {}:{}", who.uid, who.gid),
            Self::BoundCapabilities { keep } | Self::Capabilities { keep } => write!(f, " {keep:#x}"),
            _ => Ok(()),
        }
    }
}

struct Flags(Attr);

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Attr { read_only, no_dev, no_exec } = self.0;
        f.write_str(if read_only { " ro" } else { " rw" })?;
        f.write_str(if no_dev { " nodev" } else { "" })?;
        f.write_str(if no_exec { " noexec" } else { "" })
    }
}
