//! What sessions that were killed have left: commits that were decided on, layers, control groups. Whoever starts next
//! completes or removes it.

use crate::Engine;
use crate::error::EngineError;
use cofferdam_runtime_process::Grounds;
use cofferdam_trace::Reader;
use std::path::Path;
use std::sync::Mutex;

/// Sessions of other state directories that are looked at in one go.
const OTHERS: usize = 8;

impl Engine {
    /// What can wait for a moment in which there is nothing else to do. Failing at it is no reason not to run.
    pub(crate) fn housekeeping(&self) {
        self.prepare_trace();
        self.reap_leftovers();
        self.prune_conflicts(|| crate::live::conflicts_kept(&self.home));
    }

    /// The place of the next trace. One thread at a time: of several that made it only one would be used, and the others'
    /// removed.
    pub(crate) fn prepare_trace(&self) {
        static MAKING: Mutex<()> = Mutex::new(());
        let Ok(_alone) = MAKING.try_lock() else { return };
        let _ = cofferdam_trace::prepare(&self.home.spare_trace_in_the_making(), &self.home.spare_trace());
    }

    /// Commits that a killed supervisor had decided on, before anything of their work dir is read. One that
    /// cannot be completed stops only who would see half of it.
    pub(crate) fn complete_commits(&self, workdir: &Path) -> Result<(), EngineError> {
        for id in self.home.layered() {
            let dir = self.home.layer_dir(&id);
            let Some(pending) = cofferdam_runtime_process::layer::pending(&dir) else { continue };
            if Reader::open(&self.home.trace_dir(&id)).is_ok_and(|trace| trace.is_live()) {
                continue;
            }
            if let Err(error) = cofferdam_runtime_process::layer::recover(&dir, Default::default())
                && pending == workdir
            {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// What supervisors that were killed left behind. A session lives as long as its trace's writer holds the
    /// lock on it, from before anything else of it is made; the kernel lets go of it with the process, however
    /// that ends. Where a session is born into its group, that is there first, and held in the same way. Groups without
    /// a trace here are another state directory's, or of a session that did not come so far, and go only when they are
    /// deserted.
    fn reap_leftovers(&self) {
        self.reap_pool();
        let grounds = Grounds::look();
        let (ours, others): (Vec<_>, Vec<_>) =
            grounds.sessions().into_iter().partition(|id| self.home.trace_dir(id).is_dir());
        // The oldest first, and a few at a time: a machine that is full of others' sessions must not slow down ours.
        others.iter().take(OTHERS).for_each(|id| grounds.reap_if_deserted(id));
        let mut found = self.home.layered();
        found.extend(ours);
        found.sort();
        found.dedup();
        for id in found {
            let is_live = Reader::open(&self.home.trace_dir(&id)).is_ok_and(|trace| trace.is_live());
            if !is_live && !grounds.is_held(&id) {
                // What is to be read by another start stays as it is.
                if self.rescue(&id) {
                    cofferdam_runtime_process::reap(&id, &self.home.layer_dir(&id));
                }
            }
        }
    }
}
