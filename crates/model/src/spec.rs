//! What a session is asked to be: the one description that the CLI's flags, spec files (TOML or JSON) and
//! the API all turn into.

use crate::{Bytes, Cores, Live, Span, Syscalls, Tier, TierError, VolumeMount};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error("`{field}`: `{value}` is not one of {allowed}")]
    Choice { field: &'static str, value: String, allowed: &'static str },
    #[error("`command` is empty: name the program to run")]
    NoCommand,
    #[error("`env.{0}` cannot be set: a variable's name is not empty and has no `=` or NUL")]
    EnvName(String),
    #[error("`{field}` must be more than zero")]
    Zero { field: &'static str },
    #[error("`limits.share` is {0}: it is a weight from 1 to 10000, and 100 is everybody's")]
    Share(u32),
    #[error(
        "`live.name`: `{0}` is not a name: use up to 63 of a-z, 0-9 and `-`, a letter first, and no session's id"
    )]
    Name(String),
    #[error("`image` and `{0}` do not go together: an image has programs of its own")]
    ImageWith(&'static str),
    #[error(
        "`warm`: `{0}` is no module of Python: write `python:MODULE,MODULE`, as in `python:openai,requests`"
    )]
    Warm(String),
    #[error("`user = \"root\"` needs a box: add `profile = \"box\"` (`--profile box`)")]
    RootWithoutBox,
    #[error("`sudo` needs a box: add `profile = \"box\"` (`--profile box`), or leave it out")]
    SudoWithoutBox,
}

/// Which tier to use: a given one, or the strongest that truly works here at its normal speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    #[default]
    Auto,
    Tier(Tier),
}

/// What becomes of file changes in the work dir.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Changes {
    #[default]
    Keep,
    Discard,
    Ask,
}

/// Where the changes to the work dir are held until they are kept or dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerPlace {
    /// In memory, with the disk limit.
    #[default]
    Memory,
    /// In the state directory, for builds that write more than memory holds. A limit holds for it where loop devices
    /// can be mounted, which takes root.
    Disk,
}

/// How much of a machine the inside is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// One command as one user; everything dropped.
    #[default]
    Run,
    /// A machine for SDK users: several users, a root that is one only inside.
    Box,
}

/// Who a command is in a box. Elsewhere there is only the one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BoxUser {
    #[default]
    User,
    /// Root inside only: it owns files and users of the box, and nothing outside.
    Root,
}

/// Which host ids stand behind the inside's ids. Host uid 0 never does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UserMode {
    #[default]
    Auto,
    /// A range of sub-ids (always so when started by root).
    Range,
    /// The caller's own id and no other.
    Single,
}

/// Something weaker than the default that the caller accepts by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weakness {
    /// A demanded limit may be held per process (rlimits) where no cgroup is to be had.
    Rlimits,
    /// The kernel may lack Landlock.
    NoLandlock,
    /// The kernel may be unable to capture traffic (`nft_tproxy`): what does not ask the proxy reaches nothing.
    NoCapture,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    pub source: PathBuf,
    pub target: PathBuf,
    #[serde(default)]
    pub writable: bool,
}

/// Absent means "the default of this profile", which may be a limit too.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Cores, as in `1.5`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cores>,
    /// Its weight where processors are short, beside everybody's 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// Bytes that may be written: work dir layer, home and temporary files together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Bytes>,
    /// Files, directories and links that may be made in the same places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
    /// Open files per process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Bytes on stdout and stderr together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Bytes>,
}

impl Limits {
    /// Whether what is written is to be held within a number of bytes or of files.
    pub fn bound_files(&self) -> bool {
        self.disk.is_some() || self.inodes.is_some()
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionSpec {
    pub command: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<PathBuf>,
    /// Where the work dir stands inside; absent: at its own path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shown_at: Option<PathBuf>,
    /// What the inside has for its root in the place of the host's directories, by name or digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    pub isolation: Isolation,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor: Option<Tier>,
    pub profile: Profile,
    pub users: UserMode,
    /// Who the command is in a box: its user, or its root.
    pub user: BoxUser,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Volumes to show, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeMount>,
    /// The rules for everything that is to leave; without them nothing does. Relative to where it is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PathBuf>,
    /// Credentials of the vault that the session may use, by name: inside there are placeholders.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The registry of tools: which programs there are, what each may see and reach. Relative to where it is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<PathBuf>,
    /// Only this one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Paths to hide beyond the built-in list; relative ones lie in the work dir.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hide: Vec<PathBuf>,
    pub limits: Limits,
    pub changes: Changes,
    pub layer: LayerPlace,
    /// Let the inside create user namespaces of its own (browsers, nested sandboxes). Weaker, and reported.
    pub nested: bool,
    /// Which system calls are put on record.
    #[serde(skip_serializing_if = "Syscalls::is_default")]
    pub syscalls: Syscalls,
    /// Have the endpoint for workflow steps without a policy too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub steps: bool,
    /// Have a browser inside, driven only through an endpoint that records and judges what is asked of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub browser: bool,
    /// Let commands inside a box that stays ask for others as its root, by a `sudo` of its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sudo: bool,
    /// Controls that must be in full force, by their name in the enforcement report.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub require: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accept: Vec<Weakness>,
    /// What a session that stays keeps imported for its scripts.
    #[serde(skip_serializing_if = "Warm::is_default")]
    pub warm: Warm,
    /// For a session that stays when its commands have ended.
    #[serde(skip_serializing_if = "Live::is_default")]
    pub live: Live,
}

impl SessionSpec {
    /// Everything that can be wrong with a spec without looking at the host.
    pub fn check(&self) -> Result<(), SpecError> {
        if self.command.first().is_none_or(|program| program.is_empty()) {
            return Err(SpecError::NoCommand);
        }
        self.check_place()
    }

    fn check_limits(&self) -> Result<(), SpecError> {
        match self.limits.share {
            Some(share) if !(1..=10_000).contains(&share) => Err(SpecError::Share(share)),
            _ => Ok(()),
        }
    }

    /// The same for a session that is told later what to run.
    pub fn check_place(&self) -> Result<(), SpecError> {
        self.live.check()?;
        self.warm.check()?;
        if let Some(name) = self.env.keys().find(|n| n.is_empty() || n.contains(['=', '\0'])) {
            return Err(SpecError::EnvName(name.clone()));
        }
        if self.image.is_some() {
            let host = [("tools", self.tools.is_some()), ("browser", self.browser)];
            if let Some((field, _)) = host.into_iter().find(|(_, asked)| *asked) {
                return Err(SpecError::ImageWith(field));
            }
        }
        let zero = [
            ("limits.cpu", self.limits.cpu == Some(Cores { milli: 0 })),
            ("limits.memory", self.limits.memory == Some(Bytes(0))),
            ("limits.pids", self.limits.pids == Some(0)),
            ("limits.disk", self.limits.disk == Some(Bytes(0))),
            ("limits.inodes", self.limits.inodes == Some(0)),
            ("limits.files", self.limits.files == Some(0)),
            ("limits.timeout", self.limits.timeout.is_some_and(|s| s.0.is_zero())),
        ];
        match zero.into_iter().find(|(_, is_zero)| *is_zero) {
            Some((field, _)) => Err(SpecError::Zero { field }),
            None if self.user == BoxUser::Root && self.profile != Profile::Box => {
                Err(SpecError::RootWithoutBox)
            }
            None if self.sudo && self.profile != Profile::Box => Err(SpecError::SudoWithoutBox),
            None => self.check_limits(),
        }
    }
}

/// Interpreters that are kept with modules imported, to be copied for scripts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Warm {
    /// Modules of `python3`. None: there is no such interpreter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub python: Vec<String>,
}

impl Warm {
    fn is_default(&self) -> bool {
        self.python.is_empty()
    }

    fn check(&self) -> Result<(), SpecError> {
        let is_part = |part: &str| {
            let plain = part.chars().all(|letter| letter == '_' || letter.is_ascii_alphanumeric());
            plain && part.starts_with(|letter: char| letter == '_' || letter.is_ascii_alphabetic())
        };
        match self.python.iter().find(|module| !module.split('.').all(is_part)) {
            Some(module) => Err(SpecError::Warm(module.clone())),
            None => Ok(()),
        }
    }
}

/// `python:MODULE,MODULE`, as on the command line.
impl FromStr for Warm {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let modules = text.strip_prefix("python:").ok_or_else(|| SpecError::Warm(text.to_owned()))?;
        let warm = Self { python: modules.split(',').map(str::to_owned).collect() };
        warm.check().map(|()| warm)
    }
}

impl FromStr for Isolation {
    type Err = TierError;
    fn from_str(text: &str) -> Result<Self, TierError> {
        if text == "auto" { Ok(Self::Auto) } else { text.parse().map(Self::Tier) }
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Tier(tier) => tier.fmt(f),
        }
    }
}

impl Serialize for Isolation {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Isolation {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

macro_rules! choice {
    ($type:ty, $field:literal, $allowed:literal, $($text:literal => $value:expr),+) => {
        impl FromStr for $type {
            type Err = SpecError;
            fn from_str(text: &str) -> Result<Self, SpecError> {
                match text {
                    $($text => Ok($value),)+
                    _ => Err(SpecError::Choice { field: $field, value: text.to_owned(), allowed: $allowed }),
                }
            }
        }
    };
}

choice!(Changes, "changes", "keep, discard, ask", "keep" => Self::Keep, "discard" => Self::Discard, "ask" => Self::Ask);
choice!(LayerPlace, "layer", "memory, disk", "memory" => Self::Memory, "disk" => Self::Disk);
choice!(BoxUser, "user", "user, root", "user" => Self::User, "root" => Self::Root);
choice!(Profile, "profile", "run, box", "run" => Self::Run, "box" => Self::Box);
choice!(UserMode, "users", "auto, range, single", "auto" => Self::Auto, "range" => Self::Range, "single" => Self::Single);
choice!(Weakness, "accept", "rlimits, no-landlock, no-capture", "rlimits" => Self::Rlimits, "no-landlock" => Self::NoLandlock, "no-capture" => Self::NoCapture);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MountError {
    #[error("mount `{0}`: write SOURCE:TARGET, SOURCE:TARGET:ro or SOURCE:TARGET:rw")]
    Shape(String),
    #[error("mount `{0}`: the target must be an absolute path without `..`")]
    Target(String),
}

/// `SRC:DST[:ro|rw]`, as on the command line; read-only unless it says otherwise.
impl FromStr for Mount {
    type Err = MountError;
    fn from_str(text: &str) -> Result<Self, MountError> {
        let mut parts = text.split(':');
        let shape = || MountError::Shape(text.to_owned());
        let (source, target) = (parts.next().ok_or_else(shape)?, parts.next().ok_or_else(shape)?);
        let writable = match parts.next() {
            None | Some("ro") => false,
            Some("rw") => true,
            Some(_) => return Err(shape()),
        };
        if source.is_empty() || target.is_empty() || parts.next().is_some() {
            return Err(shape());
        }
        let target = PathBuf::from(target);
        if !target.is_absolute() || target.components().any(|c| c == std::path::Component::ParentDir) {
            return Err(MountError::Target(text.to_owned()));
        }
        Ok(Self { source: source.into(), target, writable })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_named_as_python_names_them() {
        let modules = |text: &str| text.parse::<Warm>().map(|warm| warm.python);
        assert_eq!(modules("python:openai,a.b_2"), Ok(vec!["openai".to_owned(), "a.b_2".to_owned()]));
        for bad in ["openai", "node:x", "python:", "python:a,,b", "python:os;x", "python:1a", "python:a..b"] {
            assert!(matches!(modules(bad), Err(SpecError::Warm(_))), "{bad}");
        }
        let spec = SessionSpec { warm: Warm { python: vec!["a b".into()] }, ..SessionSpec::default() };
        assert_eq!(spec.check_place(), Err(SpecError::Warm("a b".into())));
    }

    #[test]
    fn mounts() {
        let mount: Mount = "/data:/data:rw".parse().unwrap();
        assert!(mount.writable && mount.target.starts_with("/data"));
        assert!(!"/data:/in".parse::<Mount>().unwrap().writable);
        for bad in ["", "/a", ":/b", "/a:", "/a:b", "/a:/b:rx", "/a:/b:ro:x", "/a:/../b"] {
            assert!(bad.parse::<Mount>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_spec_is_checked_before_anything_is_done() {
        let good = SessionSpec { command: vec!["true".into()], ..Default::default() };
        assert_eq!(good.check(), Ok(()));
        assert_eq!(SessionSpec::default().check(), Err(SpecError::NoCommand));
        let env = BTreeMap::from([("A=B".to_owned(), String::new())]);
        assert!(matches!(SessionSpec { env, ..good.clone() }.check(), Err(SpecError::EnvName(_))));
        let limits = Limits { memory: Some(Bytes(0)), ..Default::default() };
        assert_eq!(SessionSpec { limits, ..good }.check(), Err(SpecError::Zero { field: "limits.memory" }));
    }

    #[test]
    fn an_unknown_key_is_an_error() {
        let error = serde_json::from_str::<SessionSpec>(r#"{"comand": ["true"]}"#).unwrap_err();
        assert!(error.to_string().contains("comand"), "{error}");
    }
}
