//! The users that sandboxes are started by.

use crate::Site;
use std::fs::{self, File};
use std::process::Command;
use std::sync::OnceLock;

/// A plain user that no machine has, so that nothing but its one id stands behind it.
const NOBODY_ELSE: u32 = 54_321;
/// A plain user that owns sub-ids; made where it is missing.
const ACCOUNT: &str = "cofferdam-test";
const SUB_IDS: &str = "1800000000-1800065535";

/// One of the three ways in which ids of the host stand behind those inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Started by root.
    Root,
    /// Started by a plain user: its own id and no other.
    Single,
    /// Started by a plain user with sub-ids.
    Range,
}

impl Mode {
    /// The user and group that start it.
    pub fn ids(self) -> (u32, u32) {
        match (self, is_root()) {
            (Self::Root, _) => (0, 0),
            (_, false) => (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
            (Self::Single, true) => (NOBODY_ELSE, NOBODY_ELSE),
            (Self::Range, true) => account(),
        }
    }

    pub fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Root => &[],
            Self::Single => &["--users", "single"],
            Self::Range => &["--users", "range"],
        }
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether this test can run; says why if not.
pub fn needs_root(what: &str) -> bool {
    if !is_root() {
        eprintln!("not tried: {what} needs root, and this is uid {}", rustix::process::geteuid().as_raw());
    }
    is_root()
}

/// All modes as root; else the one that this user has.
pub fn modes() -> &'static [Mode] {
    if is_root() { &[Mode::Root, Mode::Single, Mode::Range] } else { &[Mode::Single] }
}

/// Runs a test once for each kind of user, each in a place of its own.
pub fn for_each_mode(binary: &str, test: impl Fn(&Site)) {
    if !is_root() {
        eprintln!("only the mode `single` is tried: the others need root");
    }
    for &mode in modes() {
        eprintln!("mode {mode:?}");
        test(&Site::new(mode, binary));
    }
}

fn account() -> (u32, u32) {
    static FOUND: OnceLock<(u32, u32)> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // Several test programs may look at once.
        let lock = File::create(std::env::temp_dir().join("cofferdam-test.lock")).unwrap();
        lock.lock().unwrap();
        if ids_in_passwd().is_none() {
            order("useradd", &["--system", "--no-create-home", "--shell", "/bin/sh", ACCOUNT]);
        }
        for (file, flag) in [("/etc/subuid", "--add-subuids"), ("/etc/subgid", "--add-subgids")] {
            let listed = fs::read_to_string(file).unwrap_or_default();
            if !listed.lines().any(|line| line.starts_with(&format!("{ACCOUNT}:"))) {
                order("usermod", &[flag, SUB_IDS, ACCOUNT]);
            }
        }
        assert!(crate::program("newuidmap").is_some(), "newuidmap is missing: apt-get install uidmap");
        ids_in_passwd().expect("useradd made no account")
    })
}

fn ids_in_passwd() -> Option<(u32, u32)> {
    let text = fs::read_to_string("/etc/passwd").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{ACCOUNT}:")))?;
    let mut fields = line.split(':').skip(1).map(|id| id.parse::<u32>());
    Some((fields.next()?.ok()?, fields.next()?.ok()?))
}

fn order(program: &str, args: &[&str]) {
    let path =
        crate::program(program).unwrap_or_else(|| panic!("{program} is missing: apt-get install passwd"));
    let output = Command::new(path).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}
