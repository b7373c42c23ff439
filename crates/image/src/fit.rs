//! Makes a tree fit to be the root of a sandbox: the places that a sandbox mounts something on are directories, and the
//! user that commands are has an account and a home. Done once, so that no session has to.

use crate::error::ImageError;
use crate::unpack::{self, Tree};
use cofferdam_model::ImageAccount;
use rustix::fs::{Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Each with its mode.
const PLACES: &[(&str, u32)] = &[
    ("dev", 0o755),
    ("proc", 0o555),
    ("sys", 0o555),
    ("run", 0o755),
    ("tmp", 0o1777),
    (".cofferdam", 0o755),
];

/// Who commands are, where a sandbox has several users.
const USER: u32 = 1000;
/// So many ids a sandbox has.
const IDS: u32 = 65_536;
const NAME: &str = "user";
/// Another one, where the image has that name for somebody else.
const OTHER_NAME: &str = "sandbox";
const HOME: &str = "/home/user";
/// Of the files that hold accounts.
const ACCOUNTS: u64 = 1 << 20;

/// Who commands are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) home: PathBuf,
}

/// `workdir` is where the image's own command is to run.
pub(crate) fn fit(tree: &Tree, workdir: Option<&str>) -> Result<Account, ImageError> {
    let failed = |errno: Errno| ImageError::Io { doing: "make the image fit".into(), source: errno.into() };
    for (name, mode) in PLACES {
        place(tree, name, *mode).map_err(failed)?;
    }
    let etc = tree.make_dir(Path::new("etc")).map_err(failed)?;
    let passwd = read(tree, "etc/passwd").map_err(failed)?;
    let group = read(tree, "etc/group").map_err(failed)?;
    let (account, mut added) = account(&passwd);
    let mut groups = String::new();
    if !has_id(&group, 0) {
        groups.push_str("root:x:0:\n");
    }
    if !added.is_empty() && !has_id(&group, USER) {
        groups.push_str(&format!("{}:x:{USER}:\n", account.name));
    }
    if !passwd.lines().any(|line| line.starts_with("root:")) {
        added.insert_str(0, "root:x:0:0:root:/root:/bin/sh\n");
    }
    // A plain user may be itself inside, and nobody else.
    if !tree.owners {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        if uid != USER && !has_id(&passwd, uid) {
            added.push_str(&format!("caller:x:{uid}:{gid}:caller:{}:/bin/sh\n", account.home.display()));
        }
        if gid != USER && !has_id(&group, gid) {
            groups.push_str(&format!("caller:x:{gid}:\n"));
        }
    }
    for (name, text, more) in [("passwd", &passwd, added), ("group", &group, groups)] {
        if !more.is_empty() {
            write(tree, &etc, name, &joined(text, &more)).map_err(failed)?;
        }
    }
    home(tree, &account.home).map_err(failed)?;
    if let Some(workdir) = workdir.and_then(|path| unpack::plain(path.as_bytes())) {
        tree.make_dir(&workdir).map_err(failed)?;
    }
    Ok(account)
}

fn joined(text: &str, more: &str) -> String {
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{text}{end}{more}")
}

/// The third field, in both files.
fn id(line: &str) -> Option<u32> {
    line.split(':').nth(2)?.parse().ok()
}

fn has_id(text: &str, wanted: u32) -> bool {
    text.lines().any(|line| id(line) == Some(wanted))
}

/// Who the user is, and what has to be added for it.
fn account(passwd: &str) -> (Account, String) {
    let field = |line: &str, at: usize| line.split(':').nth(at).unwrap_or_default().to_owned();
    let named = passwd.lines().find(|line| field(line, 0) == NAME);
    let usable = |home: &str| {
        home.starts_with('/')
            && home.len() > 1
            && !Path::new(home).components().any(|part| part == std::path::Component::ParentDir)
    };
    if let Some(line) = named.filter(|line| id(line) == Some(USER)) {
        let home = Some(field(line, 5)).filter(|home| usable(home)).unwrap_or_else(|| HOME.into());
        return (Account { name: NAME.into(), home: home.into() }, String::new());
    }
    let name = if named.is_some() { OTHER_NAME } else { NAME };
    let account = Account { name: name.into(), home: HOME.into() };
    (account, format!("{name}:x:{USER}:{USER}:{name}:{HOME}:/bin/sh\n"))
}

/// Who `NAME[:GROUP]` of a config is, by the image's accounts. Root is nobody to be told of: it is what every image says
/// that says nothing; and who has no id of a sandbox's cannot be had.
pub(crate) fn runs_as(tree: &Tree, asked: &str) -> Result<Option<ImageAccount>, ImageError> {
    let failed =
        |errno: Errno| ImageError::Io { doing: "read the image's accounts".into(), source: errno.into() };
    let passwd = read(tree, "etc/passwd").map_err(failed)?;
    let group = read(tree, "etc/group").map_err(failed)?;
    Ok(somebody(asked, &passwd, &group))
}

fn somebody(asked: &str, passwd: &str, group: &str) -> Option<ImageAccount> {
    let (user, of) = asked.split_once(':').map_or((asked, None), |(user, of)| (user, Some(of)));
    let number = user.parse::<u32>().ok();
    let field = |line: &str, at: usize| line.split(':').nth(at).unwrap_or_default().to_owned();
    let is_it = |line: &&str| match number {
        Some(uid) => id(line) == Some(uid),
        None => field(line, 0) == user && id(line).is_some(),
    };
    let line = passwd.lines().find(is_it);
    let uid = number.or_else(|| id(line?))?;
    let gid = match of.filter(|of| !of.is_empty()) {
        Some(of) => of.parse().ok().or_else(|| id(group.lines().find(|line| field(line, 0) == of)?))?,
        None => line.and_then(|line| field(line, 3).parse().ok()).unwrap_or(0),
    };
    let home = line.map(|line| PathBuf::from(field(line, 5))).filter(|home| home.is_absolute());
    let name = line.map_or_else(|| uid.to_string(), |line| field(line, 0));
    let account =
        ImageAccount { name, uid, gid, home: home.unwrap_or_else(|| "/".into()), named: line.is_some() };
    (uid != 0 && uid < IDS && gid < IDS).then_some(account)
}

fn own(tree: &Tree, file: &OwnedFd, id: u32) -> Result<(), Errno> {
    match tree.owners {
        true => rustix::fs::fchown(file, Some(Uid::from_raw(id)), Some(Gid::from_raw(id))),
        false => Ok(()),
    }
}

/// A directory of the root itself, and no link to one.
fn place(tree: &Tree, name: &str, mode: u32) -> Result<(), Errno> {
    let spot = tree.spot(Path::new(name))?;
    if spot.kind()? != Some(rustix::fs::FileType::Directory) {
        spot.clear()?;
        rustix::fs::mkdirat(&spot.dir, spot.name.as_c_str(), Mode::RWXU)?;
        let dir = tree.dir(Path::new(name))?;
        own(tree, &dir, 0)?;
        rustix::fs::fchmod(&dir, Mode::from_raw_mode(mode))?;
    }
    Ok(())
}

fn home(tree: &Tree, home: &Path) -> Result<(), Errno> {
    let path = home.strip_prefix("/").unwrap_or(home);
    match tree.dir(path) {
        Ok(_) => return Ok(()),
        Err(Errno::NOENT | Errno::NOTDIR) => {}
        Err(errno) => return Err(errno),
    }
    let dir = tree.make_dir(path)?;
    own(tree, &dir, USER)?;
    rustix::fs::fchmod(&dir, Mode::from_raw_mode(0o755))
}

/// What is no ordinary file, or not there, has nothing in it.
fn read(tree: &Tree, path: &str) -> Result<String, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = match rustix::fs::openat2(tree.root(), path, flags, Mode::empty(), within) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => return Ok(String::new()),
        Err(errno) => return Err(errno),
    };
    let stat = rustix::fs::fstat(&file)?;
    if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() || stat.st_size as u64 > ACCOUNTS {
        return Ok(String::new());
    }
    let mut bytes = Vec::new();
    let read = std::fs::File::from(file).take(ACCOUNTS).read_to_end(&mut bytes);
    read.map_err(|error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn write(tree: &Tree, etc: &OwnedFd, name: &str, text: &str) -> Result<(), Errno> {
    let spot = tree.spot(&Path::new("etc").join(name))?;
    spot.clear()?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(etc, name, flags, Mode::from_raw_mode(0o644))?;
    own(tree, &file, 0)?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644))?;
    let written = std::fs::File::from(file).write_all(text.as_bytes());
    written.map_err(|error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_tree_without_anything_becomes_one_to_live_in() {
        let dir = tempfile::tempdir().unwrap();
        let account = fit(&Tree::open(dir.path()).unwrap(), Some("/srv/../x")).unwrap();
        assert_eq!(account, Account { name: "user".into(), home: "/home/user".into() });
        let passwd = fs::read_to_string(dir.path().join("etc/passwd")).unwrap();
        assert!(passwd.starts_with("root:x:0:0:") && passwd.contains("\nuser:x:1000:1000:"), "{passwd}");
        for (name, _) in PLACES {
            assert!(dir.path().join(name).symlink_metadata().unwrap().is_dir(), "{name}");
        }
        assert!(dir.path().join("home/user").is_dir());
    }

    #[test]
    fn links_in_the_place_of_directories_lead_nowhere() {
        let outside = tempfile::tempdir().unwrap();
        let dir = tempfile::tempdir().unwrap();
        for name in ["dev", "proc", "home"] {
            symlink(outside.path(), dir.path().join(name)).unwrap();
        }
        fs::create_dir(dir.path().join("etc")).unwrap();
        symlink(outside.path().join("passwd"), dir.path().join("etc/passwd")).unwrap();
        fit(&Tree::open(dir.path()).unwrap(), Some("/dev/app")).unwrap();
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        assert!(dir.path().join("dev").symlink_metadata().unwrap().is_dir());
        assert!(dir.path().join("etc/passwd").symlink_metadata().unwrap().is_file());
    }

    #[test]
    fn accounts_of_the_image_are_kept() {
        let own = "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/srv/user:/bin/bash\n";
        assert_eq!(account(own), (Account { name: "user".into(), home: "/srv/user".into() }, String::new()));
        let (other, added) = account("root:x:0:0::/root:/bin/sh\nuser:x:500:500::/u:/bin/sh\n");
        assert_eq!(other.name, "sandbox");
        assert!(added.starts_with("sandbox:x:1000:1000:"), "{added}");
        let (node, added) = account("node:x:1000:1000::/home/node:/bin/sh");
        assert_eq!(node.name, "user");
        assert_eq!(joined("node:x:1000", &added).lines().count(), 2);
    }

    #[test]
    fn who_a_config_names_is_found_in_the_accounts() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\nnode:x:1001:1002::/home/node:/bin/sh\nweb:x:33:33::relative:/x\n";
        let group = "root:x:0:\nstaff:x:50:web\n";
        let found = |asked: &str| {
            somebody(asked, passwd, group)
                .map(|who| (who.name, who.uid, who.gid, who.home.display().to_string()))
        };
        let who = |name: &str, uid, gid, home: &str| Some((name.to_owned(), uid, gid, home.to_owned()));
        for (asked, expected) in [
            ("node", who("node", 1001, 1002, "/home/node")),
            ("1001", who("node", 1001, 1002, "/home/node")),
            ("node:staff", who("node", 1001, 50, "/home/node")),
            ("node:7", who("node", 1001, 7, "/home/node")),
            ("web", who("web", 33, 33, "/")),
            ("4711", who("4711", 4711, 0, "/")),
            ("4711:4712", who("4711", 4711, 4712, "/")),
            ("root", None),
            ("0:50", None),
            ("nobody-here", None),
            ("node:none", None),
            ("70000", None),
            ("", None),
            ("-1", None),
        ] {
            assert_eq!(found(asked), expected, "{asked}");
        }
    }
}
