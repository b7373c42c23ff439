//! The environment of a command: a few harmless variables of the caller's, what the spec names, and nothing
//! else, since an environment is where credentials live.

use crate::trust::PYTHON_PATH;
use cofferdam_model::{ImageConfig, SessionId};
use cofferdam_runtime::Identity;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Taken over from the caller.
const INHERITED: &[&str] = &[
    "PATH",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "FORCE_COLOR",
    "LANG",
    "LANGUAGE",
    "TZ",
    "COLUMNS",
    "LINES",
    "EDITOR",
    "CI",
    "PYENV_ROOT",
    "NVM_DIR",
    "VOLTA_HOME",
    "RUSTUP_HOME",
    "CARGO_HOME",
    "RUSTUP_TOOLCHAIN",
    "GOPATH",
    "GOROOT",
    "JAVA_HOME",
];

/// Of those, what means the same where another system's programs are.
const WITH_IMAGE: &[&str] =
    &["TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "LANG", "LANGUAGE", "TZ", "COLUMNS", "LINES", "CI"];

/// What a shell would search without a PATH.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// `NAME=value` of each variable, and the names alone for the trace.
pub(crate) struct Environment {
    pub(crate) entries: Vec<Vec<u8>>,
    pub(crate) names: Vec<String>,
}

/// Whose variables those of a command come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Caller {
    /// This process's own.
    Own,
    /// Those of someone who asked for a session and is not this process.
    Asker(BTreeMap<String, String>),
}

impl Caller {
    /// What of this process's environment a session elsewhere may know.
    pub(crate) fn of_this_process() -> BTreeMap<String, String> {
        let known = |name: &str| INHERITED.contains(&name) || name == "HOME" || name.starts_with("LC_");
        let text =
            |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        std::env::vars_os().filter_map(text).filter(|(name, _)| known(name)).collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<OsString> {
        match self {
            Self::Own => std::env::var_os(name),
            Self::Asker(variables) => variables.get(name).map(OsString::from),
        }
    }

    fn locale(&self) -> Vec<(OsString, OsString)> {
        let is_locale = |(name, _): &(OsString, OsString)| name.as_bytes().starts_with(b"LC_");
        match self {
            Self::Own => std::env::vars_os().filter(is_locale).collect(),
            Self::Asker(all) => all.iter().map(|(n, v)| (n.into(), v.into())).filter(is_locale).collect(),
        }
    }
}

pub(crate) fn build(
    asked: &BTreeMap<String, String>,
    who: &Identity,
    session: &SessionId,
    told: &[(String, String)],
    caller: &Caller,
    image: Option<&ImageConfig>,
) -> Environment {
    let mut all: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut set = |name: &[u8], value: &OsStr| all.insert(name.to_vec(), value.as_bytes().to_vec());
    set(b"PATH", OsStr::new(PATH));
    for name in if image.is_some() { WITH_IMAGE } else { INHERITED } {
        if let Some(value) = caller.get(name) {
            set(name.as_bytes(), &value);
        }
    }
    for (name, value) in caller.locale() {
        set(name.as_bytes(), &value);
    }
    for (name, value) in image.iter().flat_map(|image| &image.env).filter_map(|entry| entry.split_once('=')) {
        set(name.as_bytes(), OsStr::new(value));
    }
    set(b"HOME", who.home.as_os_str());
    set(b"USER", OsStr::new(&who.name));
    set(b"LOGNAME", OsStr::new(&who.name));
    set(b"SHELL", OsStr::new("/bin/sh"));
    set(b"TMPDIR", OsStr::new("/tmp"));
    set(b"COFFERDAM_SESSION", OsStr::new(session.as_str()));
    for (name, value) in told.iter().map(|(name, value)| (name, value)).chain(asked) {
        set(name.as_bytes(), OsStr::new(value));
    }
    let ours = told.iter().find(|(name, _)| name == PYTHON_PATH).map(|(_, value)| value);
    if let (Some(ours), Some(theirs)) = (ours, asked.get(PYTHON_PATH)) {
        set(PYTHON_PATH.as_bytes(), OsStr::new(&format!("{theirs}:{ours}")));
    }
    let names =
        all.keys().map(|name| OsString::from_vec(name.clone()).to_string_lossy().into_owned()).collect();
    let entries = all.into_iter().map(|(name, value)| [name, value].join(&b'=')).collect();
    Environment { entries, names }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_credentials_stay_outside() {
        let who = Identity { name: "user".into(), uid: 1000, gid: 1000, home: "/home/u".into() };
        let asked = BTreeMap::from([("ASKED".into(), "1".into())]);
        let variables = [
            ("TERM", "xterm"),
            ("LC_ALL", "C"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("OPENAI_API_KEY", "secret"),
        ];
        let caller = Caller::Asker(variables.map(|(n, v)| (n.into(), v.into())).into());
        let made = build(&asked, &who, &SessionId::new(1, 2), &[], &caller, None);
        let text: Vec<String> =
            made.entries.iter().map(|e| String::from_utf8_lossy(e).into_owned()).collect();
        assert!(
            text.contains(&"ASKED=1".into())
                && text.contains(&"TERM=xterm".into())
                && text.contains(&"LC_ALL=C".into())
        );
        assert!(text.iter().all(|entry| !entry.contains("secret")), "{text:?}");
        assert_eq!(made.names.len(), made.entries.len());
    }

    #[test]
    fn an_image_has_a_search_path_of_its_own() {
        let who = Identity { name: "user".into(), uid: 1000, gid: 1000, home: "/home/u".into() };
        let env = ["PATH=/image/bin", "HOME=/root", "BROKEN", "X=1=2"].map(str::to_owned).to_vec();
        let image = ImageConfig { env, ..ImageConfig::default() };
        let variables = [("PATH", "/host/bin"), ("GOROOT", "/host/go"), ("TERM", "xterm")];
        let caller = Caller::Asker(variables.map(|(n, v)| (n.into(), v.into())).into());
        let made = build(&BTreeMap::new(), &who, &SessionId::new(1, 2), &[], &caller, Some(&image));
        let has = |entry: &str| made.entries.iter().any(|made| made == entry.as_bytes());
        assert!(has("PATH=/image/bin") && has("HOME=/home/u") && has("X=1=2") && has("TERM=xterm"));
        assert!(!made.names.iter().any(|name| name == "GOROOT" || name == "BROKEN"));
    }

    #[test]
    fn what_we_tell_yields_to_what_was_asked_for_and_a_search_path_holds_both() {
        let who = Identity { name: "user".into(), uid: 1000, gid: 1000, home: "/home/u".into() };
        let asked = [("PYTHONPATH", "src"), ("http_proxy", "")].map(|(n, v)| (n.into(), v.into()));
        let told = [("PYTHONPATH", "/ours"), ("http_proxy", "http://p")].map(|(n, v)| (n.into(), v.into()));
        let caller = Caller::Asker(BTreeMap::new());
        let made = build(&BTreeMap::from(asked), &who, &SessionId::new(1, 2), &told, &caller, None);
        for expected in ["PYTHONPATH=src:/ours", "http_proxy="] {
            assert!(made.entries.iter().any(|entry| entry == expected.as_bytes()), "{expected}");
        }
    }
}
