//! A command that somebody inside asks for, as words of the host's. The guest said all of it, and whoever asked said it to
//! the guest: nothing of it is known to be so. What cannot be put on record as it is, is refused.

use cofferdam_guest::host::PleaId;
use cofferdam_guest::wire;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Of an account's name.
const NAME: usize = 256;
/// The kernel takes many more; an account has as many as this.
const GROUPS: usize = 64;

/// One of them: who asks, for what, or what is wrong with it.
#[derive(Debug, Clone)]
pub(crate) struct Asking {
    pub(crate) plea: PleaId,
    /// As told apart from others, for each to have its share: the command of the host's that it belongs to.
    pub(crate) asker: u32,
    pub(crate) wanted: Result<Asked, &'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) argv: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) cwd: PathBuf,
    pub(crate) tty: bool,
    /// Who it is to be, by whatever name.
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    pub(crate) home: PathBuf,
}

impl Asked {
    pub(super) fn read(plea: &wire::Plea<'_>) -> Result<Self, &'static str> {
        let wire::Request { argv, env, cwd, tty, who } = &plea.request;
        let text = |bytes: &&[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
        let argv: Option<Vec<String>> = argv.iter().map(text).collect();
        let argv = argv.filter(|argv| !argv.is_empty()).ok_or("a command has to be given, as UTF-8")?;
        let pair = |entry: &&[u8]| {
            let entry = std::str::from_utf8(entry).ok()?;
            entry.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        let env: Option<BTreeMap<String, String>> = env.iter().map(pair).collect();
        let env = env.ok_or("the environment has to be NAME=value each, as UTF-8")?;
        let path =
            |bytes: &[u8]| Some(PathBuf::from(OsStr::from_bytes(bytes))).filter(|path| path.is_absolute());
        let cwd = path(cwd).ok_or("the directory has to be an absolute path")?;
        let home = path(&who.home).ok_or("that account has no home")?;
        let is_name = |name: &&str| {
            !name.is_empty()
                && name.len() <= NAME
                && !name.contains(|c: char| c.is_control() || ":/".contains(c))
        };
        let name =
            std::str::from_utf8(&who.name).ok().filter(is_name).ok_or("that is no account")?.to_owned();
        // To the kernel it means "as it is", which is the guest's own.
        if [who.uid, who.gid].iter().chain(&who.groups).any(|id| *id == u32::MAX) {
            return Err("that is nobody's number");
        }
        if who.groups.len() > GROUPS {
            return Err("that account is in too many groups");
        }
        Ok(Self {
            argv,
            env,
            cwd,
            tty: *tty,
            name,
            uid: who.uid,
            gid: who.gid,
            groups: who.groups.clone(),
            home,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut wire::Request<'static>)) -> Result<Asked, &'static str> {
        let who = wire::Account {
            name: b"root".to_vec(),
            uid: 0,
            gid: 0,
            groups: vec![1],
            home: b"/root".to_vec(),
            shell: b"/bin/sh".to_vec(),
        };
        let (argv, env) = (vec![&b"id"[..]], vec![&b"A=b=c"[..]]);
        let mut request = wire::Request { argv, env, cwd: b"/tmp", tty: false, who };
        change(&mut request);
        Asked::read(&wire::Plea { request, uid: 1000, pid: 2 })
    }

    #[test]
    fn what_cannot_be_recorded_as_it_is_is_refused() {
        let asked = check(|_| ()).unwrap();
        assert_eq!((asked.argv[0].as_str(), asked.env["A"].as_str(), asked.uid), ("id", "b=c", 0));
        assert!(check(|r| r.argv.clear()).is_err());
        assert!(check(|r| r.argv.push(b"\xff")).is_err());
        assert!(check(|r| r.env.push(b"NOVALUE")).is_err());
        assert!(check(|r| r.cwd = b"tmp").is_err());
        assert!(check(|r| r.who.home = Vec::new()).is_err());
        assert!(check(|r| r.who.groups = vec![7; GROUPS + 1]).is_err());
        assert!(check(|r| r.who.uid = u32::MAX).is_err(), "which the kernel takes for no change");
        assert!(check(|r| r.who.gid = u32::MAX).is_err());
        assert!(check(|r| r.who.groups = vec![u32::MAX]).is_err());
        for name in [&b""[..], b"a\nb", b"a:b", b"../x", b"\xff", &[b'x'; NAME + 1]] {
            assert!(check(|r| r.who.name = name.to_vec()).is_err(), "{name:?}");
        }
    }
}
