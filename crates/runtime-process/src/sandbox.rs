//! A running sandbox of this tier.

use crate::create::{Failure, Making};
use crate::filter;
use crate::layer;
use crate::layout::inside_home;
use crate::room::{self, Rooms};
use crate::users::{USER, Way, user_name};
use cofferdam_model::{
    BlockedAttempt, Counters, EnforcementReport, FileChange, FileDifference, Profile, Provenance, Tier, Usage,
};
use cofferdam_runtime::{Base, Committed, Doors, Finished, Identity, RuntimeError, Sandbox, Standing};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

pub(crate) struct ProcessSandbox {
    standing: Standing<Making, Failure>,
    report: EnforcementReport,
    changes: Option<Vec<FileChange>>,
    rooms: Option<Rooms>,
}

/// More attempts than this in a row are counted, not kept apart.
const ATTEMPTS_AT_ONCE: usize = 64;

impl ProcessSandbox {
    pub(crate) fn new(mut standing: Standing<Making, Failure>) -> Self {
        let empty = || EnforcementReport { tier: Tier::Process, kernel: String::new(), controls: Vec::new() };
        let report = standing.context.report.take().unwrap_or_else(empty);
        Self { standing, report, changes: None, rooms: None }
    }

    fn making(&self) -> &Making {
        &self.standing.context
    }

    fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.making().launched.as_ref().map(|launched| launched.pidfd())
    }
}

impl Sandbox for ProcessSandbox {
    fn report(&self) -> &EnforcementReport {
        &self.report
    }

    fn take_channel(&mut self) -> Option<OwnedFd> {
        self.standing.context.channel.take()
    }

    fn take_doors(&mut self) -> Option<Doors> {
        self.standing.context.doors.take()
    }

    fn identity(&self) -> Identity {
        let home = inside_home(&self.making().spec);
        match (&self.making().users, self.making().spec.profile) {
            (Some(users), Profile::Run) if users.way == Way::Single => {
                let name = user_name(users.uid).unwrap_or_else(|| "user".into());
                Identity { name, uid: users.uid, gid: users.gid, home }
            }
            _ => Identity { name: "user".into(), uid: USER, gid: USER, home },
        }
    }

    fn ended(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd().filter(|_| !self.making().waited)
    }

    fn alarm(&self) -> Option<BorrowedFd<'_>> {
        self.making().listener.as_ref().map(AsFd::as_fd)
    }

    fn attempts(&mut self) -> Result<Vec<BlockedAttempt>, RuntimeError> {
        let Some(listener) = &self.making().listener else { return Ok(Vec::new()) };
        let hearing = |errno: Errno| RuntimeError::io("hear of refused system calls")(errno.into());
        let mut heard: Vec<BlockedAttempt> = Vec::new();
        while heard.len() < ATTEMPTS_AT_ONCE && readable(listener.as_fd()) {
            let Some(attempt) = listener.next().map_err(hearing)? else { continue };
            let program = fs::read_to_string(format!("/proc/{}/comm", attempt.pid)).unwrap_or_default();
            let program =
                if listener.still_waits(&attempt) { program.trim().to_owned() } else { String::new() };
            let pid = inner_pid(attempt.pid);
            listener.refuse(&attempt, Errno::PERM).map_err(hearing)?;
            let (syscall, reason) = filter::explain(attempt.number);
            match heard.last_mut() {
                Some(last) if last.syscall == syscall && last.pid == pid && last.args == attempt.args => {
                    last.times += 1
                }
                _ => heard.push(BlockedAttempt {
                    syscall: syscall.into(),
                    args: attempt.args.to_vec(),
                    pid,
                    program,
                    reason: reason.into(),
                    times: 1,
                }),
            }
        }
        Ok(heard)
    }

    fn pause(&mut self) -> Result<(), RuntimeError> {
        self.standing.context.groups.freeze().map_err(|reason| {
            let what = format!("a sandbox here cannot be paused: {reason}");
            let fix = "run as root or under `systemd-run --user --scope -p Delegate=yes`, or let it run";
            RuntimeError::Refused { what, fix: fix.into() }
        })
    }

    fn resume(&mut self) -> Result<(), RuntimeError> {
        self.standing.context.groups.thaw();
        Ok(())
    }

    fn counters(&self) -> Counters {
        self.making().groups.counters()
    }

    fn finish(&mut self) -> Result<Finished, RuntimeError> {
        let making = &mut self.standing.context;
        making.groups.thaw();
        let mut usage = Usage::default();
        if let Some(launched) = making.launched.as_ref().filter(|_| !making.waited) {
            let _ = rustix::process::pidfd_send_signal(launched.pidfd(), Signal::KILL);
            rustix::process::waitid(WaitId::PidFd(launched.pidfd()), WaitIdOptions::EXITED)
                .map_err(|errno| RuntimeError::io("wait for the sandbox to end")(errno.into()))?;
            making.waited = true;
        }
        usage.peak_memory = making.groups.peak_memory().unwrap_or(0);
        Ok(Finished { usage, limits: making.groups.hits(&making.limits.cgroup) })
    }

    fn changes(&mut self) -> Result<Vec<FileChange>, RuntimeError> {
        if let Some(changes) = &self.changes {
            return Ok(changes.clone());
        }
        room::bring_together(&mut self.standing.context)?;
        let changes = match &self.making().layer {
            Some(layer) => layer::diff(layer)?,
            None => Vec::new(),
        };
        self.changes = Some(changes.clone());
        Ok(changes)
    }

    fn commit(&mut self) -> Result<Committed, RuntimeError> {
        let changes = self.changes()?;
        let Some(layer) = &self.making().layer else { return Ok(Committed::default()) };
        layer::commit(layer, &changes, &self.making().spec.layer, layer::Watch::default())
    }

    fn is_occupied(&self) -> bool {
        room::is_occupied(self.making())
    }

    fn depth(&self) -> usize {
        room::depth(self.rooms.as_ref())
    }

    fn begin_transaction(&mut self) -> Result<(), RuntimeError> {
        room::begin(&mut self.standing.context, &mut self.rooms, &self.report)
    }

    fn difference(&mut self, texts: bool) -> Result<Vec<FileDifference>, RuntimeError> {
        room::difference(self.making(), self.rooms.as_ref(), texts)
    }

    fn settle(&mut self, keep: bool) -> Result<Committed, RuntimeError> {
        room::settle(&mut self.standing.context, &mut self.rooms, &self.report, keep)
    }

    fn freeze(&mut self, to: &Path) -> Result<Provenance, RuntimeError> {
        room::freeze(&mut self.standing.context, &mut self.rooms, &self.report, to)
    }

    fn rebase(&mut self, base: Base) -> Result<(), RuntimeError> {
        room::rebase(&mut self.standing.context, &mut self.rooms, &self.report, base)
    }
}

fn readable(fd: BorrowedFd<'_>) -> bool {
    let mut set = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let now = rustix::event::Timespec::try_from(Duration::ZERO).ok();
    matches!(rustix::event::poll(&mut set, now.as_ref()), Ok(n) if n > 0)
        && set[0].revents().contains(PollFlags::IN)
}

/// The pid as the inside knows it: the last of its numbers, one per nested pid namespace.
fn inner_pid(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line.and_then(|l| l.split_whitespace().last()?.parse().ok()).unwrap_or(pid)
}
