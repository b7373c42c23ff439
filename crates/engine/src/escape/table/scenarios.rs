//! The 18 scenarios: each by one or more attempts of our own at the same thing.

use crate::escape::check::Check;
use crate::escape::check::Host::{Apart, Road, Shell};
use crate::escape::check::Setting::Policy;
use crate::escape::probe::{changes, files, kernel, network, processes};
use crate::escape::table::{
    CAPABILITIES, IPC, LANDLOCK, NETWORK, NETWORK_AND_LANDLOCK, NO_NEW_PRIVILEGES, PIDS, SECCOMP,
    SECCOMP_AND_LANDLOCK,
};

pub(crate) const CHECKS: &[Check] = &[
    Check {
        tries: "hold a capability, or be able to get one",
        because: "all sets are emptied, the bounding set too",
        weakened: CAPABILITIES,
        ..Check::of("privileged.capabilities", processes::capabilities)
    },
    Check {
        tries: "become root by a set-user-id program",
        because: "no_new_privs",
        weakened: NO_NEW_PRIVILEGES,
        ..Check::of("privileged.new_privileges", processes::new_privileges)
    },
    Check {
        tries: "open disks, memory, loop and virtual machine devices",
        because: "six harmless devices are all there are",
        ..Check::of("privileged.devices", files::disks)
    },
    Check {
        tries: "make a device node and open it",
        because: "a user namespace cannot make devices",
        ..Check::of("privileged.mknod", files::make_device)
    },
    Check {
        tries: "find shared memory of the host",
        because: "an own ipc namespace",
        weakened: IPC,
        ..Check::of("privileged.ipc", processes::shared_memory)
    },
    Check {
        tries: "call a daemon of the host by its socket",
        because: "/run and other directories of the host are not shown",
        ..Check::of("docker_socket.path", files::daemon_socket)
    },
    Check {
        tries: "call a daemon of the host by an abstract socket",
        because: "abstract names belong to the network namespace; Landlock scopes them",
        weakened: NETWORK_AND_LANDLOCK,
        ..Check::of("docker_socket.abstract", network::abstract_socket)
    },
    Check {
        tries: "open files of /etc and /usr for writing",
        because: "the host's files are shown read-only",
        ..Check::of("hostpath_etc.write", files::write_etc)
    },
    Check {
        tries: "write to a directory beside the work dir",
        because: "what is not named is not shown",
        ..Check::of("hostpath_etc.outside", files::write_outside)
    },
    Check {
        tries: "read from a directory beside the work dir",
        because: "what is not named is not shown",
        ..Check::of("hostpath_etc.read", files::read_outside)
    },
    Check {
        tries: "write to a file that was shown read-only",
        because: "mounts are read-only unless asked for",
        ..Check::of("hostpath_etc.mount", files::write_shown)
    },
    Check {
        tries: "write where the file's mode allows it and nobody meant to",
        because: "Landlock: writing only where writing is meant",
        weakened: LANDLOCK,
        ..Check::of("hostpath_etc.run", files::write_run)
    },
    Check {
        tries: "mount a file system",
        because: "the filter, and no capability",
        host: Apart,
        weakened: SECCOMP_AND_LANDLOCK,
        ..Check::of("sys_admin.mount", kernel::mount)
    },
    Check {
        tries: "make a file system by the new mount calls",
        because: "the filter, and no capability",
        host: Apart,
        weakened: SECCOMP,
        ..Check::of("sys_admin.mount_api", kernel::mount_api)
    },
    Check {
        tries: "copy the tree of mounts, without what covers them",
        because: "the filter, and no capability",
        host: Apart,
        ..Check::of("sys_admin.copy_tree", kernel::copy_tree)
    },
    Check {
        tries: "make a read-only mount writable",
        because: "the filter, no capability, and locked mounts",
        host: Apart,
        ..Check::of("sys_admin.remount", kernel::remount)
    },
    Check {
        tries: "take off a mask",
        because: "the filter, no capability, and locked mounts",
        host: Apart,
        ..Check::of("sys_admin.unmount", kernel::unmount)
    },
    Check {
        tries: "change the root, to get out of it",
        because: "the filter, and no capability",
        host: Apart,
        weakened: SECCOMP,
        ..Check::of("sys_admin.chroot", kernel::chroot)
    },
    Check {
        tries: "enter another namespace",
        because: "the filter, and no capability",
        host: Apart,
        weakened: SECCOMP,
        ..Check::of("sys_admin.setns", kernel::setns)
    },
    Check {
        tries: "make a mount namespace",
        because: "the filter, and no capability",
        host: Apart,
        weakened: SECCOMP,
        ..Check::of("sys_admin.unshare", kernel::unshare_mount)
    },
    Check {
        tries: "change the host's name",
        because: "the filter, and an own namespace",
        host: Apart,
        weakened: SECCOMP,
        ..Check::of("sys_admin.hostname", kernel::set_host_name)
    },
    Check {
        tries: "load a kernel module from memory",
        because: "the filter, and no capability",
        ..Check::of("sys_module.init", kernel::init_module)
    },
    Check {
        tries: "load a kernel module from a file",
        because: "the filter, and no capability",
        ..Check::of("sys_module.finit", kernel::finit_module)
    },
    Check {
        tries: "unload a kernel module",
        because: "the filter, and no capability",
        ..Check::of("sys_module.delete", kernel::delete_module)
    },
    Check {
        tries: "open a file by its handle, past every path",
        because: "the filter, and no capability",
        ..Check::of("dac_read_search.handle", kernel::open_by_handle)
    },
    Check {
        tries: "read the host's passwords",
        because: "its root is nobody inside",
        ..Check::of("dac_read_search.shadow", files::read_shadow)
    },
    Check {
        tries: "overwrite the first process's program by /proc",
        because: "a sealed file in memory, and not dumpable",
        ..Check::of("runc_overwrite.guest", files::overwrite_guest)
    },
    Check {
        tries: "overwrite the program that is shown, which is ours",
        because: "shown read-only",
        ..Check::of("runc_overwrite.tool", files::overwrite_tool)
    },
    Check {
        tries: "use a descriptor that the caller left open",
        because: "all are closed before the guest runs",
        ..Check::of("k8s_runc.descriptor", files::descriptors)
    },
    Check {
        tries: "go up from a working directory or another's root",
        because: "pivot_root, and the old root is gone",
        ..Check::of("k8s_runc.cwd", files::up_and_out)
    },
    Check {
        tries: "see processes of the host",
        because: "an own pid namespace with its own /proc",
        weakened: PIDS,
        ..Check::of("pid_namespace.see", processes::see)
    },
    Check {
        tries: "signal a process of the host",
        because: "an own pid namespace",
        ..Check::of("pid_namespace.signal", processes::signal)
    },
    Check {
        tries: "reach files by the root of another process",
        because: "an own pid namespace; ours is not dumpable",
        ..Check::of("pid_namespace.root", processes::root_of_others)
    },
    Check {
        tries: "open the memory, environment and descriptors of the first process",
        because: "it is not dumpable",
        ..Check::of("pid_namespace.guest", processes::guest_memory)
    },
    Check {
        tries: "mount control groups",
        because: "the filter, and no capability",
        host: Apart,
        ..Check::of("cgroup_release_agent.mount", kernel::mount_cgroup)
    },
    Check {
        tries: "write a release agent, move to another group",
        because: "/sys is not shown",
        ..Check::of("cgroup_release_agent.write", files::cgroup_files)
    },
    Check {
        tries: "change a read-only file through a private copy of it",
        because: "the kernel is past this bug",
        ..Check::of("dirty_cow.race", kernel::dirty_cow)
    },
    Check {
        tries: "change a read-only file through a pipe",
        because: "the kernel is past this bug",
        ..Check::of("dirty_pipe.splice", kernel::dirty_pipe)
    },
    Check {
        tries: "make a map for kernel programs",
        because: "the filter, and no capability",
        ..Check::of("bpf_privesc.map", kernel::bpf)
    },
    Check {
        tries: "see every packet",
        because: "the filter, and no capability",
        host: Apart,
        weakened: SECCOMP,
        ..Check::of("packet_socket.packet", kernel::packet_socket)
    },
    Check {
        tries: "send packets of any shape",
        because: "the filter, and no capability",
        host: Apart,
        weakened: SECCOMP,
        ..Check::of("packet_socket.raw", kernel::raw_socket)
    },
    Check {
        tries: "read the keys of the state directory",
        because: "it is not shown",
        ..Check::of("k8s_rbac.keys", files::state)
    },
    Check {
        tries: "answer for the session by its own control socket",
        because: "it is not shown",
        setting: Policy,
        ..Check::of("k8s_rbac.control", files::control_socket)
    },
    Check {
        tries: "leave a set-user-id file in the work dir",
        because: "keeping strips set-id bits",
        after: Some(changes::set_id_kept),
        ..Check::of("k8s_malicious_binary.set_id", changes::set_id_file)
    },
    Check {
        tries: "leave a file with a capability in the work dir",
        because: "no capability to set one, and keeping strips it",
        after: Some(changes::capability_kept),
        ..Check::of("k8s_malicious_binary.capability", changes::file_capability)
    },
    Check {
        tries: "have a kept file written through a link of the project",
        because: "keeping follows no link",
        after: Some(changes::link_kept),
        ..Check::of("k8s_malicious_binary.link", changes::through_link)
    },
    Check {
        tries: "reach a service on the host's loopback",
        because: "an own network namespace",
        weakened: NETWORK,
        ..Check::of("k8s_route_localnet.loopback", network::host_loopback)
    },
    Check {
        tries: "reach a service on the host's loopback by our proxy",
        because: "loopback addresses in every notation are refused",
        host: Road,
        setting: Policy,
        ..Check::of("k8s_route_localnet.proxy", network::loopback_by_proxy)
    },
    Check {
        tries: "set the program that the kernel runs after a crash",
        because: "/proc/sys is read-only",
        ..Check::of("k8s_crio.core_pattern", files::core_pattern)
    },
    Check {
        tries: "write settings of the kernel",
        because: "/proc/sys is read-only, and its owner is nobody inside",
        ..Check::of("k8s_crio.settings", files::kernel_settings)
    },
    Check {
        tries: "trigger the kernel's emergency keys",
        because: "read-only, and its owner is nobody inside",
        ..Check::of("k8s_crio.sysrq", files::sysrq)
    },
    Check {
        tries: "have file names taken for options or commands when they are kept",
        because: "no shell, and no name stands where an option could",
        host: Shell,
        after: Some(changes::names_kept),
        ..Check::of("k8s_crio.names", changes::names_as_options)
    },
];
