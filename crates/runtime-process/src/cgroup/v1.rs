//! Limits in the files of version 1.

use super::{Controller, Wanted};
use std::fs;
use std::io;
use std::path::Path;

pub(super) fn set(path: &Path, controller: Controller, wanted: &Wanted) -> io::Result<()> {
    let write = |file: &str, value: String| fs::write(path.join(file), value);
    match controller {
        Controller::Memory => {
            let limit = wanted.memory.map_or(u64::MAX, |bytes| bytes.0).to_string();
            write("memory.limit_in_bytes", limit.clone())?;
            // With swap counted, or the limit would only push pages out. Kernels without swap lack the file.
            match write("memory.memsw.limit_in_bytes", limit) {
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
        Controller::Pids => write("pids.max", wanted.pids.unwrap_or(u32::MAX).to_string()),
        Controller::Cpu => {
            if let Some(cores) = wanted.cpu {
                write("cpu.cfs_period_us", "100000".into())?;
                write("cpu.cfs_quota_us", (u64::from(cores.milli) * 100).to_string())?;
            }
            match wanted.share {
                // Here everybody has 1024.
                Some(share) => write("cpu.shares", (u64::from(share) * 1024 / 100).max(2).to_string()),
                None => Ok(()),
            }
        }
    }
}
