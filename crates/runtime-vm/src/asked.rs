//! What a machine is asked to make, in the words of the program inside.

use crate::identity;
use crate::vmm::Size;
use cofferdam_inside::wire::Make;
use cofferdam_model::{Limits, RawPath};
use cofferdam_runtime::{Network, RuntimeError, SandboxSpec, ShownFile};
use cofferdam_runtime_process::Look;
use std::path::PathBuf;

/// A session, and the machine it is to be in.
pub(crate) struct Asked<'a> {
    pub(crate) spec: &'a SandboxSpec,
    pub(crate) look: &'a Look,
    pub(crate) size: Size,
}

impl Asked<'_> {
    /// With who the machine is to be from now on, drawn for this.
    pub(crate) fn make(
        &self,
        show: Vec<RawPath>,
        programs_at: &[PathBuf],
        without: Vec<String>,
    ) -> Result<Make, RuntimeError> {
        let Self { spec, look, size } = self;
        Ok(Make {
            id: spec.id.to_string(),
            who: identity::new()?,
            show,
            programs_at: raw(programs_at),
            workdir: RawPath::from(spec.workdir.as_path()),
            home: RawPath::from(spec.home.as_path()),
            path: raw(&spec.path),
            mounts: look.mounts.clone(),
            hide: raw(&spec.hide),
            profile: spec.profile,
            // The VMM is held to its processors, and commands to their time and output, from outside.
            limits: Limits {
                cpu: None,
                share: None,
                timeout: None,
                output: None,
                disk: None,
                ..spec.limits.clone()
            },
            nested: spec.nested,
            sudo: spec.sudo,
            tracing: spec.tracing,
            syscalls: spec.syscalls,
            programs: spec.programs.as_deref().map(raw),
            shown_at: spec.shown_at.as_deref().map(RawPath::from),
            doors: spec.network == Network::Doors,
            files: announced(&spec.files),
            accept: spec.accept.clone(),
            base: spec.base.layers.len(),
            disk: room(spec, *size),
            without,
        })
    }
}

/// Bytes that may be changed.
pub(crate) fn room(spec: &SandboxSpec, size: Size) -> u64 {
    spec.limits.disk.map_or(size.room(), |disk| disk.0)
}

pub(crate) fn announced(files: &[ShownFile]) -> Vec<(RawPath, u64)> {
    files.iter().map(|file| (file.at.as_path().into(), file.content.len() as u64)).collect()
}

fn raw(paths: &[PathBuf]) -> Vec<RawPath> {
    paths.iter().map(|path| RawPath::from(path.as_path())).collect()
}
