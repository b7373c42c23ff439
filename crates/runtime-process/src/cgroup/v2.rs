//! Limits in the files of version 2.

use super::{Controller, Wanted};
use std::fs;
use std::io;
use std::path::Path;

pub(super) fn set(path: &Path, controller: Controller, wanted: &Wanted) -> io::Result<()> {
    let write = |file: &str, value: String| fs::write(path.join(file), value);
    match controller {
        Controller::Memory => {
            write("memory.max", wanted.memory.map_or_else(|| "max".into(), |bytes| bytes.0.to_string()))?;
            match write("memory.swap.max", "0".into()) {
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound
                        || error.kind() == io::ErrorKind::PermissionDenied =>
                {
                    Ok(())
                }
                other => other,
            }
        }
        Controller::Freezer | Controller::Account => Ok(()),
        Controller::Pids => write("pids.max", wanted.pids.map_or_else(|| "max".into(), |n| n.to_string())),
        Controller::Cpu => {
            if let Some(cores) = wanted.cpu {
                write("cpu.max", format!("{} 100000", u64::from(cores.milli) * 100))?;
            }
            match wanted.share {
                Some(share) => write("cpu.weight", share.to_string()),
                None => Ok(()),
            }
        }
    }
}

/// Makes sure that children of `parent` get this controller.
pub(super) fn enable(parent: &Path, controller: Controller) -> bool {
    let has = |file: &str| {
        let text = fs::read_to_string(parent.join(file)).unwrap_or_default();
        text.split_whitespace().any(|name| name == controller.name())
    };
    has("cgroup.subtree_control")
        || (has("cgroup.controllers")
            && fs::write(parent.join("cgroup.subtree_control"), format!("+{}", controller.name())).is_ok())
}
