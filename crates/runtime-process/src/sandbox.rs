//! A running sandbox of this tier.

use crate::cgroup::Told;
use crate::create::{Failure, Making};
use crate::layer;
use crate::layout::inside_home;
use crate::room::{self, Rooms};
use crate::users::{USER, Way, user_name};
use crate::watch::Ear;
use cofferdam_model::{
    Counters, EnforcementReport, FileDifference, LimitHit, Profile, Provenance, SkippedChange, Tier, Usage,
};
use cofferdam_runtime::{
    Agrees, Base, ChangeList, Committed, Doors, Finished, Identity, Refuses, RuntimeError, Sandbox,
    SandboxSpec, Standing, Witness,
};
use rustix::process::{Signal, WaitId, WaitIdOptions};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

pub(crate) struct ProcessSandbox {
    standing: Standing<Making, Failure>,
    report: EnforcementReport,
    changes: Option<Arc<ChangeList>>,
    rooms: Option<Rooms>,
    told: Told,
    finished: Option<Finished>,
}

impl ProcessSandbox {
    pub(crate) fn new(mut standing: Standing<Making, Failure>) -> Self {
        let empty = || EnforcementReport { tier: Tier::Process, kernel: String::new(), controls: Vec::new() };
        let report = standing.context.report.take().unwrap_or_else(empty);
        Self { standing, report, changes: None, rooms: None, told: Told::default(), finished: None }
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
            _ => {
                let name = self.making().spec.root.as_ref().map_or("user", |root| &root.user).to_owned();
                Identity { name, uid: USER, gid: USER, home }
            }
        }
    }

    fn ended(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd().filter(|_| !self.making().waited)
    }

    fn alarm(&self) -> Option<BorrowedFd<'_>> {
        self.making().ear.as_ref().and_then(Ear::alarm)
    }

    fn listen(&mut self, witness: Arc<dyn Witness>) -> Result<(), RuntimeError> {
        let making = &mut self.standing.context;
        let (Some(ear), Some(launched)) = (&mut making.ear, &making.launched) else { return Ok(()) };
        let guest =
            launched.pidfd().try_clone_to_owned().map_err(RuntimeError::io("hear of system calls"))?;
        ear.listen(witness, guest).map_err(|errno| RuntimeError::io("hear of system calls")(errno.into()))
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
        let making = self.making();
        Counters { disk: making.limits.written(making.layer.as_ref()), ..making.groups.counters() }
    }

    fn hits(&mut self) -> Vec<LimitHit> {
        let making = &self.standing.context;
        let mut hits = making.groups.hits(&making.limits.cgroup, &mut self.told);
        hits.extend(making.limits.full(making.layer.as_ref(), &mut self.told));
        hits
    }

    fn afterwards(&mut self) {
        self.standing.context.ids.wait();
    }

    fn dismiss(&mut self) {
        let making = &mut self.standing.context;
        making.groups.thaw();
        if let Some(launched) = making.launched.as_ref().filter(|_| !making.waited) {
            let _ = rustix::process::pidfd_send_signal(launched.pidfd(), Signal::KILL);
        }
    }

    fn finish(&mut self) -> Result<Finished, RuntimeError> {
        // Nothing is left that could reach a limit, and who asks again is to hear of those that were.
        if let Some(finished) = &self.finished {
            return Ok(finished.clone());
        }
        self.dismiss();
        let making = &mut self.standing.context;
        let mut usage = Usage::default();
        if let Some(launched) = making.launched.as_ref().filter(|_| !making.waited) {
            rustix::process::waitid(WaitId::PidFd(launched.pidfd()), WaitIdOptions::EXITED)
                .map_err(|errno| RuntimeError::io("wait for the sandbox to end")(errno.into()))?;
            making.waited = true;
        }
        // Everything was told by now.
        making.ear = None;
        usage.peak_memory = making.groups.peak_memory().unwrap_or(0);
        let finished = Finished { usage, limits: self.hits() };
        self.finished = Some(finished.clone());
        Ok(finished)
    }

    fn changes(&mut self) -> Result<Arc<ChangeList>, RuntimeError> {
        if let Some(changes) = &self.changes {
            return Ok(changes.clone());
        }
        room::bring_together(&mut self.standing.context)?;
        let changes = Arc::new(match &self.making().layer {
            Some(layer) => layer::diff(layer, room::spare(&self.making().spec))?,
            None => ChangeList::default(),
        });
        self.changes = Some(changes.clone());
        Ok(changes)
    }

    fn withhold(&mut self, refuses: Refuses<'_>) -> Result<Vec<SkippedChange>, RuntimeError> {
        let changes = self.changes()?;
        let (skipped, left) = layer::withhold(
            self.making().layer.as_ref(),
            &changes,
            refuses,
            room::spare(&self.making().spec),
        )?;
        self.changes = Some(left.map_or(changes, Arc::new));
        Ok(skipped)
    }

    fn commit(&mut self) -> Result<Committed, RuntimeError> {
        let changes = self.changes()?;
        let Some(layer) = &self.making().layer else { return Ok(Committed::default()) };
        layer::commit(layer, &changes, room::desk(&self.making().spec), layer::Watch::default())
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

    fn difference(&mut self, texts: bool, still: bool) -> Result<Vec<FileDifference>, RuntimeError> {
        let halted = still && !self.making().groups.is_frozen() && self.is_occupied();
        if halted {
            self.pause()?;
        }
        let found = room::difference(self.making(), self.rooms.as_ref(), texts);
        if halted {
            self.resume()?;
        }
        found
    }

    fn settle(&mut self, keep: bool, agrees: Agrees<'_>) -> Result<Committed, RuntimeError> {
        room::settle(&mut self.standing.context, &mut self.rooms, &self.report, keep, agrees)
    }

    fn provenance(&self) -> Option<Provenance> {
        room::outlives(self.making())
    }

    fn freeze(&mut self, to: &Path) -> Result<Provenance, RuntimeError> {
        room::freeze(&mut self.standing.context, &mut self.rooms, &self.report, to)
    }

    fn refurnish(&mut self, change: &mut dyn FnMut(&mut SandboxSpec)) -> Result<(), RuntimeError> {
        room::refurnish(&mut self.standing.context, &mut self.rooms, &self.report, change)
    }

    fn rebase(&mut self, base: Base) -> Result<(), RuntimeError> {
        room::rebase(&mut self.standing.context, &mut self.rooms, &self.report, base)
    }
}
