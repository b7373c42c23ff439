//! What `/proc` says about the guest's process: parsed, not judged.

use crate::procfs::read;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

pub(super) struct Seen {
    /// Name, our inode, its inode.
    pub(super) namespaces: Vec<(&'static str, u64, u64)>,
    /// Inside, outside, count.
    pub(super) uid_map: Vec<(u64, u64, u64)>,
    pub(super) groups: Vec<u32>,
    pub(super) no_new_privileges: bool,
    pub(super) seccomp_mode: u32,
    pub(super) seccomp_filters: u32,
    pub(super) capabilities: Capabilities,
    pub(super) mounts: Vec<Mount>,
    pub(super) interfaces: Vec<String>,
    cgroup: String,
    limits: String,
}

#[derive(Default)]
pub(super) struct Capabilities {
    pub(super) effective: u64,
    pub(super) permitted: u64,
    pub(super) bounding: u64,
}

pub(super) struct Mount {
    pub(super) point: String,
    pub(super) kind: String,
    pub(super) read_only: bool,
    options: String,
}

const NAMESPACES: [(&str, &str); 7] = [
    ("user", "user"),
    ("mount", "mnt"),
    ("pid", "pid"),
    ("net", "net"),
    ("ipc", "ipc"),
    ("uts", "uts"),
    ("cgroup", "cgroup"),
];

/// What of a guest nothing changes any more once it is in its namespaces and groups, whatever is mounted there later:
/// of one that waits it is read when there is time.
pub(crate) struct Fixed {
    place: OwnedFd,
    namespaces: Vec<(&'static str, u64, u64)>,
    uid_map: String,
    network: String,
    cgroup: String,
}

/// What is the same before and after the guest's image is executed, so that it can be read while that happens. Ids,
/// capabilities and the filter are not: whoever executes may gain and lose them.
pub(crate) struct Settled {
    fixed: Fixed,
    mounts: Vec<Mount>,
    limits: String,
}

/// Our own namespaces, which we never leave.
static OURS: OnceLock<[u64; NAMESPACES.len()]> = OnceLock::new();

/// Reads what of a report is about us, while there is nothing else to do.
pub(crate) fn look_at_ourselves() {
    // Where that fails, whoever needs it says so.
    let _ = ours();
}

fn ours() -> io::Result<[u64; NAMESPACES.len()]> {
    if let Some(known) = OURS.get() {
        return Ok(*known);
    }
    let place = open_place("self")?;
    let mut found = [0; NAMESPACES.len()];
    for (inode, (_, file)) in found.iter_mut().zip(NAMESPACES) {
        *inode = inode_of(&place, file)?;
    }
    Ok(*OURS.get_or_init(|| found))
}

impl Fixed {
    pub(crate) fn read(pid: i32) -> io::Result<Self> {
        let place = open_place(&pid.to_string())?;
        let file = |name: &str| read(&place, name);
        Ok(Self {
            namespaces: namespaces(&place)?,
            uid_map: file("uid_map")?,
            network: file("net/dev")?,
            cgroup: file("cgroup").unwrap_or_default(),
            place,
        })
    }

    /// With the rest, as it is now.
    pub(crate) fn settled(self) -> io::Result<Settled> {
        let mounts = read(&self.place, "mountinfo")?.lines().filter_map(Mount::parse).collect();
        Ok(Settled { mounts, limits: read(&self.place, "limits")?, fixed: self })
    }
}

impl Settled {
    pub(crate) fn read(pid: i32) -> io::Result<Self> {
        Fixed::read(pid)?.settled()
    }
}

impl Seen {
    pub(super) fn read(settled: Settled) -> io::Result<Self> {
        let Settled { fixed, mounts, limits } = settled;
        let status = read(&fixed.place, "status")?;
        let field = |name: &str| {
            status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).unwrap_or("").trim()
        };
        let hex = |name: &str| u64::from_str_radix(field(name), 16).unwrap_or(u64::MAX);
        Ok(Self {
            namespaces: fixed.namespaces,
            uid_map: fixed.uid_map.lines().filter_map(triple).collect(),
            groups: field("Groups").split_whitespace().filter_map(|g| g.parse().ok()).collect(),
            no_new_privileges: field("NoNewPrivs") == "1",
            seccomp_mode: field("Seccomp").parse().unwrap_or(0),
            seccomp_filters: field("Seccomp_filters").parse().unwrap_or(0),
            capabilities: Capabilities {
                effective: hex("CapEff"),
                permitted: hex("CapPrm"),
                bounding: hex("CapBnd"),
            },
            mounts,
            interfaces: interfaces(&fixed.network),
            cgroup: fixed.cgroup,
            limits,
        })
    }

    /// The mount at a path: the last one listed covers the others.
    pub(super) fn mount(&self, point: &str) -> Option<&Mount> {
        self.mounts.iter().rev().find(|mount| mount.point == point)
    }

    /// Whether it is in the group of this name: in the hierarchy of a controller of version 1, or in that of version 2.
    pub(super) fn is_in_group(&self, controller: Option<&str>, name: &str) -> bool {
        is_in_group(&self.cgroup, controller, name)
    }

    /// The hard limit, where there is one.
    pub(super) fn limit(&self, name: &str) -> Option<u64> {
        let line = self.limits.lines().find_map(|l| l.strip_prefix(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }
}

fn is_in_group(cgroup: &str, controller: Option<&str>, name: &str) -> bool {
    cgroup.lines().any(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
        let is_meant = match controller {
            Some(controller) => controllers.split(',').any(|one| one == controller),
            None => controllers.is_empty(),
        };
        is_meant && path.rsplit('/').next() == Some(name)
    })
}

/// A process's directory in `/proc`: what is read through it is of one process, whoever gets its number next.
fn open_place(who: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(format!("/proc/{who}"), flags, Mode::empty())?)
}

/// By the text of the links, `net:[4026531840]`: to look at what they lead to costs the kernel an inode each.
fn inode_of(place: &OwnedFd, file: &str) -> io::Result<u64> {
    let link = rustix::fs::readlinkat(place, format!("ns/{file}"), Vec::with_capacity(32))?;
    let number = link.to_str().ok().and_then(|text| text.split_once('[')?.1.strip_suffix(']')?.parse().ok());
    number.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("ns/{file} is {link:?}")))
}

fn namespaces(theirs: &OwnedFd) -> io::Result<Vec<(&'static str, u64, u64)>> {
    let pair =
        |((name, file), ours): (&(&'static str, &str), u64)| Ok((*name, ours, inode_of(theirs, file)?));
    NAMESPACES.iter().zip(ours()?).map(pair).collect()
}

fn triple(line: &str) -> Option<(u64, u64, u64)> {
    let mut numbers = line.split_whitespace().map(|n| n.parse().ok());
    Some((numbers.next()??, numbers.next()??, numbers.next()??))
}

fn interfaces(text: &str) -> Vec<String> {
    text.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

impl Mount {
    fn parse(line: &str) -> Option<Self> {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(4);
        let mut back = back.split(' ');
        let (point, flags) = (front.next()?, front.next()?);
        Some(Self {
            point: unescape(point),
            kind: back.next()?.to_owned(),
            read_only: flags.split(',').any(|flag| flag == "ro"),
            options: back.nth(1)?.to_owned(),
        })
    }

    pub(super) fn option(&self, name: &str) -> Option<&str> {
        self.options.split(',').find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }
}

/// `\040` and the like.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let octal =
            bytes.get(at + 1..at + 4).and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        match (bytes[at], octal) {
            (b'\\', Some(byte)) => {
                out.push(byte);
                at += 4;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group of the same name elsewhere holds nothing.
    #[test]
    fn a_group_counts_in_its_own_hierarchy() {
        let cgroup = "4:memory:/a/ours\n1:cpu,cpuacct:/ours\n0::/user.slice/ours\n2:pids:/other\n";
        for (controller, expected) in
            [(Some("memory"), true), (Some("cpu"), true), (Some("pids"), false), (None, true)]
        {
            assert_eq!(is_in_group(cgroup, controller, "ours"), expected, "{controller:?}");
        }
        assert!(!is_in_group("4:memory:/ours\n0::/\n", None, "ours"));
    }

    #[test]
    fn mounts_are_parsed_with_their_escapes() {
        let line = r"36 35 98:0 / /a\040b ro,nosuid - tmpfs tmpfs rw,size=16384k";
        let mount = Mount::parse(line).unwrap();
        assert_eq!((mount.point.as_str(), mount.kind.as_str(), mount.read_only), ("/a b", "tmpfs", true));
        assert_eq!(mount.option("size"), Some("16384k"));
    }
}
