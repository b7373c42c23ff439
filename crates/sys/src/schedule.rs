//! When a process gets its turn.

use crate::syscall::{number, syscall};
use core::sync::atomic::{AtomicBool, Ordering};
use rustix::io::Errno;

const USUAL: usize = 0;
const BATCH: usize = 3;

/// What this process starts would give way as it does.
static GIVES_WAY: AtomicBool = AtomicBool::new(false);

fn set(policy: usize) -> Result<(), Errno> {
    /// `struct sched_param`: of these policies there is one priority.
    const PRIORITY: i32 = 0;
    let at = core::ptr::from_ref(&PRIORITY) as usize;
    // SAFETY: the pointer is to a live number, which is the whole structure.
    unsafe { syscall(number::SCHED_SETSCHEDULER, [0, policy, at]) }.map(drop)
}

/// Lets whoever wakes the caller go on until it waits or has had its time. Where there is one processor, a program that
/// writes much is else interrupted after every write by the one that reads it. What `spawn` starts is scheduled as usual.
pub fn give_way() -> Result<(), Errno> {
    set(BATCH)?;
    GIVES_WAY.store(true, Ordering::Relaxed);
    Ok(())
}

/// For a child of one that gives way, which the kernel would have do the same.
pub(crate) fn as_usual() {
    if GIVES_WAY.load(Ordering::Relaxed) {
        // Whoever may give way may stop to.
        let _ = set(USUAL);
    }
}

/// Has a child that was just started begin on another processor than the one that this goes on with. A kernel may leave it
/// where its parent is, in line behind it, and the two do one after the other what they could do at once. Afterwards it
/// may run wherever we may.
#[cfg(feature = "std")]
pub fn begin_elsewhere(child: rustix::process::Pid) {
    use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let mut others = allowed;
    others.unset(sched_getcpu());
    // Nothing depends on it: one that has ended, or may run nowhere else, stays where it is.
    if others.count() > 0 && sched_setaffinity(Some(child), &others).is_ok() {
        let _ = sched_setaffinity(Some(child), &allowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spawn::{Command, spawn};
    use std::os::fd::AsFd;

    #[test]
    fn a_child_that_begins_elsewhere_may_run_anywhere() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        begin_elsewhere(pid);
        let allowed = |pid| rustix::thread::sched_getaffinity(pid).unwrap();
        assert_eq!(allowed(Some(pid)), allowed(None));
        child.kill().unwrap();
        child.wait().unwrap();
        begin_elsewhere(pid);
    }

    #[test]
    fn the_caller_gives_way_and_what_it_starts_does_not() {
        let policy = |of: &str| {
            let stat = std::fs::read_to_string(format!("/proc/{of}/stat")).unwrap();
            // After the name, which may have anything in it.
            let after = stat.rsplit_once(')').unwrap().1.to_owned();
            after.split_whitespace().nth(38).unwrap().to_owned()
        };
        // Of this thread alone.
        std::thread::spawn(move || {
            assert_eq!(policy("thread-self"), "0");
            give_way().unwrap();
            assert_eq!(policy("thread-self"), "3");
            let null = std::fs::File::open("/dev/null").unwrap();
            let argv = vec![c"/bin/sleep".to_owned(), c"30".to_owned()];
            let (env, cwd, stdio) = (Vec::new(), c"/".to_owned(), [null.as_fd(); 3]);
            let child =
                spawn(Command { argv, env, cwd, stdio, place: crate::spawn::Place::Apart, user: None })
                    .unwrap();
            assert_eq!(policy(&child.as_raw_nonzero().to_string()), "0");
            rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
            rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap();
        })
        .join()
        .unwrap();
    }
}
