//! From a kernel's refusal to what is missing on this host, and what to do about it.

use crate::create::Failure;
use cofferdam_sys::boot::Op;
use rustix::io::Errno;
use std::fs;
use std::path::Path;

const APPARMOR: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";

fn is_one(path: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.trim() == "1")
}

/// The reason why user namespaces are not to be had, if one of the known ones.
pub(crate) fn user_namespace_fix() -> String {
    let value = |path: &str| fs::read_to_string(path).unwrap_or_default();
    if is_one(APPARMOR) {
        return "this Ubuntu restricts user namespaces: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0".into();
    }
    if value("/proc/sys/kernel/unprivileged_userns_clone").trim() == "0" {
        return "allow user namespaces: sudo sysctl -w kernel.unprivileged_userns_clone=1".into();
    }
    if value("/proc/sys/user/max_user_namespaces").trim() == "0" {
        return "allow user namespaces: sudo sysctl -w user.max_user_namespaces=15000".into();
    }
    if in_container() {
        return container_fix();
    }
    "run `cofferdam doctor` to see what this host lacks".into()
}

pub(crate) fn in_container() -> bool {
    Path::new("/.dockerenv").exists() || Path::new("/run/.containerenv").exists()
}

pub(crate) fn container_fix() -> String {
    "in a container, start it with: docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined --cap-add SYS_ADMIN --cap-add NET_ADMIN".into()
}

pub(crate) fn explain_launch(doing: &str, errno: Errno) -> Failure {
    let what = format!("{doing}: {errno}");
    match errno {
        Errno::PERM | Errno::ACCESS | Errno::NOSPC | Errno::USERS => {
            Failure::What(what, user_namespace_fix())
        }
        Errno::NOSYS => {
            Failure::What(what, format!("this kernel or its container has no clone3; {}", container_fix()))
        }
        Errno::AGAIN => Failure::What(what, "too many processes: end some, or raise `ulimit -u`".into()),
        _ => Failure::What(what, "run `cofferdam doctor` to see what this host lacks".into()),
    }
}

pub(crate) fn explain_op(op: &Op, errno: Errno, workdir: &Path) -> Failure {
    let what = format!("{op}: {errno}");
    let fix = match (op, errno) {
        (Op::Overlay { .. } | Op::CarryOverlay { .. }, Errno::INVAL) => match mounts_below(workdir) {
            Some(mount) => format!("the work dir has a mount beneath it, {mount}: unmount it, or choose another work dir"),
            None => "the work dir's file system cannot be the lower side of an overlay: choose a work dir on ext4, xfs, btrfs or tmpfs".into(),
        },
        (Op::Bind { idmapped: true, .. } | Op::Carry { idmapped: true, .. }, Errno::INVAL | Errno::PERM) => {
            "this file system has no idmapped mounts: run as the plain user who owns the work dir".into()
        }
        (Op::Proc { .. }, Errno::PERM) => {
            format!("/proc is partly masked here, as in a container; {}", container_fix())
        }
        (Op::MapOwnIds { .. } | Op::Unshare { .. } | Op::PrivateMounts | Op::Tmpfs { .. }, Errno::PERM | Errno::ACCESS) => user_namespace_fix(),
        (Op::Netlink { request, .. }, _) if request.name == "capture" => {
            "this kernel cannot capture traffic: load the module as root with `modprobe nft_tproxy` (CONFIG_NFT_TPROXY), or accept with `--accept no-capture` that only programs which ask the proxy reach anything".into()
        }
        (_, Errno::NOSYS) => "this kernel is too old: Linux 5.12 or newer is needed".into(),
        (_, Errno::NOSPC) => "the disk or memory for this sandbox is full".into(),
        _ => "run `cofferdam doctor` to see what this host lacks".into(),
    };
    Failure::What(what, fix)
}

fn mounts_below(workdir: &Path) -> Option<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let points = text.lines().filter_map(|line| line.split(' ').nth(4));
    points.filter(|p| Path::new(p).starts_with(workdir) && Path::new(p) != workdir).map(str::to_owned).next()
}
