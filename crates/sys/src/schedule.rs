//! When a process gets its turn.

use crate::syscall::{number, syscall};
use rustix::io::Errno;

/// Lets whoever wakes the caller go on until it waits or has had its time. Where there is one processor, a program that
/// writes much is else interrupted after every write by the one that reads it. What the caller starts is scheduled as usual.
pub fn give_way() -> Result<(), Errno> {
    const BATCH: usize = 3;
    const RESET_ON_FORK: usize = 0x4000_0000;
    /// `struct sched_param`: of this policy there is one priority.
    const PRIORITY: i32 = 0;
    let at = core::ptr::from_ref(&PRIORITY) as usize;
    // SAFETY: the pointer is to a live number, which is the whole structure.
    unsafe { syscall(number::SCHED_SETSCHEDULER, [0, BATCH | RESET_ON_FORK, at]) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_gives_way_and_its_children_do_not() {
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
            let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
            assert_eq!(policy(&child.id().to_string()), "0");
            child.kill().unwrap();
            child.wait().unwrap();
        })
        .join()
        .unwrap();
    }
}
