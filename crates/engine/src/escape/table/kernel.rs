//! Doors of the kernel that few programs need.

use crate::escape::check::Check;
use crate::escape::probe::{files, kernel, processes};
use crate::escape::table::{PROC, SECCOMP};

pub(crate) const CHECKS: &[Check] = &[
    Check {
        tries: "make a ring, whose operations pass no filter",
        because: "the filter",
        weakened: SECCOMP,
        ..Check::of("kernel.io_uring", kernel::io_uring)
    },
    Check {
        tries: "hold the kernel still in the middle of a copy",
        because: "the filter",
        weakened: SECCOMP,
        ..Check::of("kernel.userfaultfd", kernel::userfaultfd)
    },
    Check {
        tries: "open performance events",
        because: "the filter",
        weakened: SECCOMP,
        ..Check::of("kernel.perf", kernel::perf)
    },
    Check {
        tries: "ask for key rings, which no namespace divides",
        because: "the filter",
        weakened: SECCOMP,
        ..Check::of("kernel.keyctl", kernel::keyctl)
    },
    Check {
        tries: "put a key in a ring",
        because: "the filter",
        weakened: SECCOMP,
        ..Check::of("kernel.add_key", kernel::add_key)
    },
    Check {
        tries: "compare kernel objects of processes",
        because: "the filter",
        weakened: SECCOMP,
        ..Check::of("kernel.kcmp", kernel::kcmp)
    },
    Check {
        tries: "trace another process",
        because: "the filter",
        weakened: SECCOMP,
        ..Check::of("kernel.ptrace", processes::ptrace)
    },
    Check {
        tries: "read memory by process number",
        because: "the filter",
        weakened: SECCOMP,
        ..Check::of("kernel.process_vm", processes::read_own_memory)
    },
    Check {
        tries: "take a descriptor of another process",
        because: "the filter",
        weakened: SECCOMP,
        ..Check::of("kernel.pidfd_getfd", processes::take_descriptor)
    },
    Check {
        tries: "become root of a user namespace",
        because: "the filter",
        weakened: SECCOMP,
        ..Check::of("kernel.unshare_user", kernel::unshare_user)
    },
    Check {
        tries: "have a child that is root of a user namespace",
        because: "the filter, which lets no flags through that it cannot see",
        weakened: SECCOMP,
        ..Check::of("kernel.clone_user", kernel::clone_user)
    },
    Check {
        tries: "watch whole file systems",
        because: "the filter",
        weakened: SECCOMP,
        ..Check::of("kernel.fanotify", kernel::fanotify)
    },
    Check {
        tries: "change segments",
        because: "the filter",
        weakened: SECCOMP,
        ..Check::of("kernel.modify_ldt", kernel::modify_ldt)
    },
    Check {
        tries: "make a call that is newer than the filter",
        because: "what the filter does not know does not exist",
        weakened: SECCOMP,
        ..Check::of("kernel.new_call", kernel::new_call)
    },
    Check {
        tries: "make calls by the numbers of another architecture",
        because: "the filter kills who does",
        weakened: SECCOMP,
        ..Check::of("kernel.other_numbers", kernel::other_numbers)
    },
    Check {
        tries: "type into a terminal",
        because: "the filter",
        weakened: SECCOMP,
        ..Check::of("kernel.tty_input", kernel::type_into_terminal)
    },
    Check {
        tries: "reach the hypervisor by vsock",
        because: "the filter",
        weakened: SECCOMP,
        ..Check::of("kernel.vsock", kernel::vsock)
    },
    Check {
        tries: "talk to the kernel's packet filter",
        because: "the filter",
        weakened: SECCOMP,
        ..Check::of("kernel.netfilter", kernel::netfilter)
    },
    Check {
        tries: "use the kernel's ciphers by a socket",
        because: "the filter",
        weakened: SECCOMP,
        ..Check::of("kernel.crypto", kernel::kernel_crypto)
    },
    Check {
        tries: "read the kernel's log",
        because: "the filter",
        ..Check::of("kernel.log", kernel::kernel_log)
    },
    Check {
        tries: "use ports of the machine",
        because: "the filter, and no capability",
        ..Check::of("kernel.iopl", kernel::port_access)
    },
    Check {
        tries: "load another kernel",
        because: "the filter, and no capability",
        ..Check::of("kernel.kexec", kernel::kexec)
    },
    Check {
        tries: "load another kernel from a file",
        because: "the filter, and no capability",
        ..Check::of("kernel.kexec_file", kernel::kexec_file)
    },
    Check {
        tries: "restart the machine",
        because: "the filter, and no capability",
        ..Check::of("kernel.reboot", kernel::reboot)
    },
    Check {
        tries: "give the machine other swap space",
        because: "the filter, and no capability",
        ..Check::of("kernel.swapon", kernel::swap)
    },
    Check {
        tries: "have accounting written to a file",
        because: "the filter, and no capability",
        ..Check::of("kernel.acct", kernel::accounting)
    },
    Check {
        tries: "read the kernel's memory and lists by /proc",
        because: "masked",
        weakened: PROC,
        ..Check::of("kernel.kcore", files::kcore)
    },
    Check {
        tries: "write settings in /sys",
        because: "/sys is empty inside",
        ..Check::of("kernel.sys", files::sys_write)
    },
];
