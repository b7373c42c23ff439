//! A program that asks before it opens a file for reading and writing: it can be given another in its place.

use super::{Check, Listener, Rule, Test, Verdict, compile, install};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::thread::scope;

/// What some C libraries add to every call, and means nothing here.
const LARGE: u32 = 0o10_0000;

/// Neither made, nor emptied, nor anything else than opened for both.
const FOR_BOTH: Check = Check {
    any: &[&[Test { arg: 2, mask: !LARGE, one_of: &[libc::O_RDWR as u32] }]],
    then: Verdict::Record,
    otherwise: Verdict::Allow,
};

/// Starts something whose `openat` for reading and writing is answered by who listens; when nobody does any more, it is
/// refused. Everything else goes on as before.
///
/// It is started by a thread of its own, so that nothing else of this process asks.
pub fn asking<T: Send>(start: impl FnOnce() -> T + Send) -> Result<(Listener, T), Errno> {
    let rules = [(libc::SYS_openat as u32, Rule::Depends(FOR_BOTH))];
    let program = compile(BTreeMap::from(rules), Verdict::Allow, true);
    let begin = || {
        // Nobody without rights may narrow a program that could come by more than its own.
        rustix::thread::set_no_new_privs(true)?;
        let listener = install(&program, true)?.map(Listener::new).ok_or(Errno::INVAL)?;
        Ok((listener, start()))
    };
    scope(|scope| scope.spawn(begin).join()).unwrap_or(Err(Errno::CANCELED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::{CWD, Mode, OFlags};
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use std::path::Path;
    use std::process::{Command, Stdio};

    const PLACE: &str = "COFFERDAM_TEST_OPENS";

    /// The program that asks, when this is run by the test below: says what it can do with what it opens.
    #[test]
    fn opens_for_both() {
        let Some(place) = std::env::var_os(PLACE) else { return };
        let open = |path: &str| rustix::fs::openat(CWD, path, OFlags::RDWR, Mode::empty()).map(File::from);
        let lent = open("/nowhere").unwrap();
        let mut bytes = [0; 4];
        rustix::io::pread(&lent, &mut bytes, 0).unwrap();
        let written = rustix::io::pwrite(&lent, b"x", 0).err();
        let refused = (written == Some(Errno::BADF), open("/dev/null").err() == Some(Errno::NOSYS));
        let said = format!("{} {refused:?}", str::from_utf8(&bytes).unwrap());
        fs::write(Path::new(&place).join("said"), said).unwrap();
    }

    #[test]
    fn what_is_asked_for_is_another_and_cannot_be_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lent");
        fs::write(&path, "lent").unwrap();
        let lent = File::open(&path).unwrap();
        let mut asks = Command::new(std::env::current_exe().unwrap());
        asks.args(["--exact", "seccomp::ask::tests::opens_for_both"]).env(PLACE, dir.path());
        let (listener, started) = asking(|| asks.stdout(Stdio::null()).spawn()).unwrap();
        poll(&mut [PollFd::new(&listener, PollFlags::IN)], None).unwrap();
        let attempt = listener.next().unwrap().unwrap();
        listener.give(&attempt, lent.as_fd()).unwrap();
        drop(listener);
        assert!(started.unwrap().wait().unwrap().success());
        let said = fs::read_to_string(dir.path().join("said")).unwrap();
        assert_eq!(said, "lent (true, true)");
        assert_eq!(fs::read_to_string(&path).unwrap(), "lent");
        // Who started it asks nobody.
        assert!(rustix::fs::openat(CWD, &path, OFlags::RDWR, Mode::empty()).is_ok());
    }

    #[test]
    fn what_is_opened_otherwise_is_not_asked_about() {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "read x < /dev/null; echo y > /dev/null; echo z"]);
        let (listener, said) = asking(|| shell.output()).unwrap();
        assert_eq!(said.unwrap().stdout, b"z\n");
        let mut set = [PollFd::new(&listener, PollFlags::IN)];
        poll(&mut set, Some(&Timespec::default())).unwrap();
        assert!(!set[0].revents().contains(PollFlags::IN));
    }
}
