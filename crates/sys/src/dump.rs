//! Keeps this process's memory out of core dumps, for whoever holds secrets.
//!
//! Not by `PR_SET_DUMPABLE`: it takes the files of `/proc/self` away from a plain user, and with them the id maps
//! that a sandbox is started with.

use rustix::process::{Resource, Rlimit, setrlimit};
use std::fs::OpenOptions;
use std::io::{self, Write};

/// From now on a dump of this process, or of one it starts, holds none of its memory.
pub fn keep_memory_out() -> io::Result<()> {
    dump_no_mapping()?;
    dump_nothing()
}

/// Holds also where the dump goes to a program, for which limits do not count.
fn dump_no_mapping() -> io::Result<()> {
    OpenOptions::new().write(true).open("/proc/self/coredump_filter")?.write_all(b"0")
}

fn dump_nothing() -> io::Result<()> {
    Ok(setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getrlimit;
    use std::fs;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    const ROLE: &str = "COFFERDAM_TEST_DUMP";

    /// Only in memory, since no file holds it in this form.
    fn secret() -> Vec<u8> {
        b"only in the memory of the child".iter().map(|byte| byte.wrapping_add(1)).collect()
    }

    fn abort_with_a_secret(role: &str) {
        let held = secret();
        let hard = getrlimit(Resource::Core).maximum;
        setrlimit(Resource::Core, Rlimit { current: hard, maximum: hard }).unwrap();
        match role {
            "plain" => {}
            "no mapping" => dump_no_mapping().unwrap(),
            _ => keep_memory_out().unwrap(),
        }
        std::hint::black_box(&held);
        std::process::abort();
    }

    /// The dumps that a child in this role leaves.
    fn dumps(role: &str) -> Vec<Vec<u8>> {
        let name = format!("cofferdam-dump-{}-{}", std::process::id(), role.replace(' ', "-"));
        let dir = std::env::temp_dir().join(name);
        fs::create_dir(&dir).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "dump::tests::a_dump_holds_no_memory"]).current_dir(&dir).env(ROLE, role);
        let status = child.output().unwrap().status;
        assert_eq!(status.signal(), Some(6), "{role}: {status}");
        let dumps =
            fs::read_dir(&dir).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect();
        fs::remove_dir_all(&dir).unwrap();
        dumps
    }

    #[test]
    fn a_dump_holds_no_memory() {
        if let Ok(role) = std::env::var(ROLE) {
            abort_with_a_secret(&role);
        }
        let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
        if pattern.starts_with(['|', '/']) || getrlimit(Resource::Core).maximum == Some(0) {
            eprintln!("not tried: this machine writes no dumps to the current directory");
            return;
        }
        let holds = |dump: &Vec<u8>| dump.windows(secret().len()).any(|window| window == secret());
        assert!(dumps("plain").iter().any(holds), "the search finds what an unprotected process held");
        let dumped = dumps("no mapping");
        assert!(!dumped.is_empty() && !dumped.iter().any(holds));
        assert!(dumps("all").is_empty());
    }
}
