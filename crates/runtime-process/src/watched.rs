//! Which calls are put on record although they are let through (`--syscalls all`): data. Nothing is decided here; a
//! call stands here because it does something that a reader of the record wants to know of, and is told in full by
//! its registers and what they point to.
//!
//! Left out, because each costs its caller some ten microseconds: what works on open descriptors (reads, writes),
//! memory, time, threads, forks (who does something else executes a program), and datagrams without a connection,
//! which are seen where they come out.

/// What of the caller's memory is looked at for the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// The argument that points to a path.
    Path(u8),
    /// Two of them.
    Paths(u8, u8),
    /// The arguments that point to the program's path and to its own arguments.
    Exec(u8, u8),
    /// The arguments that are the address of a socket and its length.
    Address(u8, u8),
}

/// Name, number, class, what to look at.
pub(crate) type Watched = (&'static str, libc::c_long, &'static str, Look);

pub(crate) const EXEC: &str = "exec";
const OPEN: &str = "open";
const CHANGE: &str = "change";
const NETWORK: &str = "network";

/// All classes, in the order in which they are told.
pub(crate) const CLASSES: &[&str] = &[EXEC, OPEN, CHANGE, NETWORK];

#[rustfmt::skip]
pub(crate) const WATCHED: &[Watched] = &[
    ("execve", libc::SYS_execve, EXEC, Look::Exec(0, 1)),
    ("execveat", libc::SYS_execveat, EXEC, Look::Exec(1, 2)),
    ("openat", libc::SYS_openat, OPEN, Look::Path(1)),
    ("openat2", libc::SYS_openat2, OPEN, Look::Path(1)),
    ("unlinkat", libc::SYS_unlinkat, CHANGE, Look::Path(1)),
    ("renameat", libc::SYS_renameat, CHANGE, Look::Paths(1, 3)),
    ("renameat2", libc::SYS_renameat2, CHANGE, Look::Paths(1, 3)),
    ("linkat", libc::SYS_linkat, CHANGE, Look::Paths(1, 3)),
    ("symlinkat", libc::SYS_symlinkat, CHANGE, Look::Paths(0, 2)),
    ("mkdirat", libc::SYS_mkdirat, CHANGE, Look::Path(1)),
    ("mknodat", libc::SYS_mknodat, CHANGE, Look::Path(1)),
    ("fchmodat", libc::SYS_fchmodat, CHANGE, Look::Path(1)),
    ("fchmodat2", 452, CHANGE, Look::Path(1)),
    ("fchownat", libc::SYS_fchownat, CHANGE, Look::Path(1)),
    ("truncate", libc::SYS_truncate, CHANGE, Look::Path(0)),
    ("setxattr", libc::SYS_setxattr, CHANGE, Look::Paths(0, 1)),
    ("lsetxattr", libc::SYS_lsetxattr, CHANGE, Look::Paths(0, 1)),
    ("removexattr", libc::SYS_removexattr, CHANGE, Look::Paths(0, 1)),
    ("connect", libc::SYS_connect, NETWORK, Look::Address(1, 2)),
    ("bind", libc::SYS_bind, NETWORK, Look::Address(1, 2)),
];

/// The same, on the architecture that still has them.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
pub(crate) const WATCHED_HERE: &[Watched] = &[
    ("open", libc::SYS_open, OPEN, Look::Path(0)),
    ("creat", libc::SYS_creat, OPEN, Look::Path(0)),
    ("unlink", libc::SYS_unlink, CHANGE, Look::Path(0)),
    ("rmdir", libc::SYS_rmdir, CHANGE, Look::Path(0)),
    ("rename", libc::SYS_rename, CHANGE, Look::Paths(0, 1)),
    ("link", libc::SYS_link, CHANGE, Look::Paths(0, 1)),
    ("symlink", libc::SYS_symlink, CHANGE, Look::Paths(0, 1)),
    ("mkdir", libc::SYS_mkdir, CHANGE, Look::Path(0)),
    ("mknod", libc::SYS_mknod, CHANGE, Look::Path(0)),
    ("chmod", libc::SYS_chmod, CHANGE, Look::Path(0)),
    ("chown", libc::SYS_chown, CHANGE, Look::Path(0)),
    ("lchown", libc::SYS_lchown, CHANGE, Look::Path(0)),
];
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const WATCHED_HERE: &[Watched] = &[];

pub(crate) fn all() -> impl Iterator<Item = &'static Watched> {
    WATCHED.iter().chain(WATCHED_HERE)
}
