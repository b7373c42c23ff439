//! A tier made of memory, for testing what stands above: it starts nothing and reports what it is told to.

use crate::{
    Agrees, Backend, Base, Begun, ChangeList, Committed, Doors, Finished, Identity, Probe, RuntimeError,
    Sandbox, SandboxSpec,
};
use cofferdam_model::{Counters, EnforcementReport, FileChange, FileDifference, Provenance, Tier};
use std::io::pipe;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Hands out the given end of a stream as its guest channel.
pub struct FakeBackend {
    pub channel: Mutex<Option<OwnedFd>>,
    pub report: EnforcementReport,
    pub changes: Vec<FileChange>,
}

struct FakeSandbox {
    channel: Option<OwnedFd>,
    report: EnforcementReport,
    changes: Vec<FileChange>,
    home: PathBuf,
    ended: OwnedFd,
    /// Closing it is the end.
    alive: Option<OwnedFd>,
}

impl Backend for FakeBackend {
    fn tier(&self) -> Tier {
        self.report.tier
    }

    fn probe(&self) -> Probe {
        Probe { tier: self.tier(), works: true, detail: "made of memory".into(), fix: None }
    }

    fn begin(&self, spec: SandboxSpec) -> Result<Box<dyn Begun>, RuntimeError> {
        let (ended, alive) = pipe().map_err(RuntimeError::io("make a pipe"))?;
        let channel = self.channel.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        Ok(Box::new(FakeSandbox {
            channel,
            report: self.report.clone(),
            changes: self.changes.clone(),
            home: spec.home,
            ended: ended.into(),
            alive: Some(alive.into()),
        }))
    }
}

impl Begun for FakeSandbox {
    fn adopt(&mut self, spec: SandboxSpec) -> Result<(), RuntimeError> {
        self.home = spec.home;
        Ok(())
    }

    fn complete(self: Box<Self>, meanwhile: &mut dyn FnMut()) -> Result<Box<dyn Sandbox>, RuntimeError> {
        meanwhile();
        Ok(self)
    }
}

impl Sandbox for FakeSandbox {
    fn report(&self) -> &EnforcementReport {
        &self.report
    }

    fn take_channel(&mut self) -> Option<OwnedFd> {
        self.channel.take()
    }

    fn take_doors(&mut self) -> Option<Doors> {
        None
    }

    fn identity(&self) -> Identity {
        Identity { name: "user".into(), uid: 1000, gid: 1000, home: self.home.clone() }
    }

    fn ended(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ended.as_fd())
    }

    fn pause(&mut self) -> Result<(), RuntimeError> {
        Ok(())
    }

    fn resume(&mut self) -> Result<(), RuntimeError> {
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn finish(&mut self) -> Result<Finished, RuntimeError> {
        self.alive = None;
        Ok(Finished::default())
    }

    fn changes(&mut self) -> Result<Arc<ChangeList>, RuntimeError> {
        Ok(Arc::new(self.changes.clone().into()))
    }

    fn commit(&mut self) -> Result<Committed, RuntimeError> {
        Ok(Committed { applied: self.changes.len() as u64, skipped: Vec::new(), aside: None })
    }

    fn is_occupied(&self) -> bool {
        false
    }

    fn depth(&self) -> usize {
        0
    }

    fn begin_transaction(&mut self) -> Result<(), RuntimeError> {
        Err(no_layers())
    }

    fn difference(&mut self, _: bool, _: bool) -> Result<Vec<FileDifference>, RuntimeError> {
        let told = |change: &FileChange| FileDifference { change: change.clone(), diff: None, omitted: None };
        Ok(self.changes.iter().map(told).collect())
    }

    fn settle(&mut self, _: bool, _: Agrees<'_>) -> Result<Committed, RuntimeError> {
        Err(no_layers())
    }

    fn freeze(&mut self, _: &Path) -> Result<Provenance, RuntimeError> {
        Err(no_layers())
    }

    fn rebase(&mut self, _: Base) -> Result<(), RuntimeError> {
        Err(no_layers())
    }
}

fn no_layers() -> RuntimeError {
    RuntimeError::Refused { what: "this tier has no layers".into(), fix: "use another tier".into() }
}
