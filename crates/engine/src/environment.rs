//! The environment of a command: a few harmless variables of the caller's, what the spec names, and nothing
//! else, since an environment is where credentials live.

use crate::trust::PYTHON_PATH;
use cofferdam_model::{SessionId, SessionSpec};
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

/// What a shell would search without a PATH.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// `NAME=value` of each variable, and the names alone for the trace.
pub(crate) struct Environment {
    pub(crate) entries: Vec<Vec<u8>>,
    pub(crate) names: Vec<String>,
}

pub(crate) fn build(
    spec: &SessionSpec,
    who: &Identity,
    session: &SessionId,
    told: &[(String, String)],
    caller: impl Fn(&str) -> Option<OsString>,
    locale: impl Iterator<Item = (OsString, OsString)>,
) -> Environment {
    let mut all: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut set = |name: &[u8], value: &OsStr| all.insert(name.to_vec(), value.as_bytes().to_vec());
    set(b"PATH", OsStr::new(PATH));
    for name in INHERITED {
        if let Some(value) = caller(name) {
            set(name.as_bytes(), &value);
        }
    }
    for (name, value) in locale.filter(|(name, _)| name.as_bytes().starts_with(b"LC_")) {
        set(name.as_bytes(), &value);
    }
    set(b"HOME", who.home.as_os_str());
    set(b"USER", OsStr::new(&who.name));
    set(b"LOGNAME", OsStr::new(&who.name));
    set(b"SHELL", OsStr::new("/bin/sh"));
    set(b"TMPDIR", OsStr::new("/tmp"));
    set(b"COFFERDAM_SESSION", OsStr::new(session.as_str()));
    for (name, value) in told.iter().map(|(name, value)| (name, value)).chain(&spec.env) {
        set(name.as_bytes(), OsStr::new(value));
    }
    let ours = told.iter().find(|(name, _)| name == PYTHON_PATH).map(|(_, value)| value);
    if let (Some(ours), Some(theirs)) = (ours, spec.env.get(PYTHON_PATH)) {
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
        let spec = SessionSpec { env: BTreeMap::from([("ASKED".into(), "1".into())]), ..Default::default() };
        let caller = |name: &str| match name {
            "TERM" => Some("xterm".into()),
            "AWS_SECRET_ACCESS_KEY" | "OPENAI_API_KEY" => Some("secret".into()),
            _ => None,
        };
        let locale = [("LC_ALL", "C"), ("STRIPE_KEY", "secret")].map(|(n, v)| (n.into(), v.into()));
        let made = build(&spec, &who, &SessionId::new(1, 2), &[], caller, locale.into_iter());
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
    fn what_we_tell_yields_to_what_was_asked_for_and_a_search_path_holds_both() {
        let who = Identity { name: "user".into(), uid: 1000, gid: 1000, home: "/home/u".into() };
        let asked = [("PYTHONPATH", "src"), ("http_proxy", "")].map(|(n, v)| (n.into(), v.into()));
        let spec = SessionSpec { env: BTreeMap::from(asked), ..Default::default() };
        let told = [("PYTHONPATH", "/ours"), ("http_proxy", "http://p")].map(|(n, v)| (n.into(), v.into()));
        let made = build(&spec, &who, &SessionId::new(1, 2), &told, |_| None, std::iter::empty());
        for expected in ["PYTHONPATH=src:/ours", "http_proxy="] {
            assert!(made.entries.iter().any(|entry| entry == expected.as_bytes()), "{expected}");
        }
    }
}
