//! Who a call is for, and where its paths are.

use super::Call;
use super::fault::{Code, Fault};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_engine::inside::{Account, FileProblem, InsideError};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use std::path::{Path, PathBuf};

/// Who a call is for that does not say.
const DEFAULT: &str = "user";
/// A path of the kernel's.
const PATH_MAX: usize = 4095;

/// `Basic base64("NAME:")`.
pub(super) fn named(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let decoded = STANDARD.decode(value.strip_prefix("Basic ")?.trim()).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    let (name, _) = text.split_once(':').unwrap_or((&text, ""));
    (!name.is_empty()).then(|| name.to_owned())
}

impl Call {
    pub(super) async fn account(&self, name: Option<&str>) -> Result<Account, Fault> {
        let default = self.sandbox.record().adds.user.clone();
        let default = default.as_deref().unwrap_or(DEFAULT);
        let name = name.filter(|name| !name.is_empty()).unwrap_or(default);
        let unknown = || Fault::new(Code::Unauthenticated, format!("invalid username: '{name}'"));
        if name.len() > 256 || name.contains(['\0', '\n', ':', '/']) {
            return Err(unknown());
        }
        match self.inside.account(name).await {
            Ok(account) => Ok(account),
            Err(InsideError::File { kind: FileProblem::NoAccount }) => Err(unknown()),
            Err(error) => Err(Fault::of(error, name)),
        }
    }
}

/// As the inside sees it: relative ones and `~` are of that user's home. What it leads to is decided inside.
pub(super) fn path(text: &str, who: &Account) -> Result<PathBuf, Fault> {
    let whole = match text.strip_prefix('~') {
        Some("") => who.home.clone(),
        Some(rest) if rest.starts_with('/') => who.home.join(rest.trim_start_matches('/')),
        Some(_) => {
            return Err(Fault::invalid(format!("path '{text}': the home of another user is not resolved")));
        }
        None => who.home.join(text),
    };
    if text.contains('\0') || whole.as_os_str().len() > PATH_MAX {
        return Err(Fault::invalid("the path has a NUL in it or is too long"));
    }
    Ok(plain(&whole))
}

/// Without `.`, `..` and doubled slashes: names in answers are the shortest. `..` of the root is the root.
fn plain(path: &Path) -> PathBuf {
    use std::path::Component;
    let mut plain = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => _ = plain.pop(),
            _ => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_of_the_user() {
        let who = Account {
            name: "user".into(),
            uid: 1000,
            gid: 1000,
            groups: Vec::new(),
            home: "/home/user".into(),
            shell: "/bin/bash".into(),
        };
        let check = |text: &str, expected: &str| {
            assert_eq!(path(text, &who).unwrap(), Path::new(expected), "{text}");
        };
        check("a.txt", "/home/user/a.txt");
        check("", "/home/user");
        check("~", "/home/user");
        check("~/x/", "/home/user/x");
        check("./a/../b//c", "/home/user/b/c");
        check("/etc/../../..", "/");
        check("/tmp/x/", "/tmp/x");
        assert!(path("~root/x", &who).is_err());
        assert!(path("a\0b", &who).is_err());
        assert!(path(&"x".repeat(5000), &who).is_err());
    }

    #[test]
    fn a_user_is_named_by_basic_authentication() {
        let check = |value: &str, expected: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            assert_eq!(named(&headers).as_deref(), expected, "{value}");
        };
        check("Basic cm9vdDo=", Some("root"));
        check("Basic cm9vdA==", Some("root"));
        check("Basic Og==", None);
        check("Basic !", None);
        check("Bearer x", None);
    }
}
