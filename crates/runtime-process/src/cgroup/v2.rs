//! Limits in the files of version 2.

use super::{Controller, Wanted};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
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

/// Which of these controllers groups below `parent` can have.
pub(super) fn offered(parent: &Path, controllers: &[Controller]) -> Vec<Controller> {
    let listed = names(parent, "cgroup.controllers");
    let has = |controller: &Controller| match controller.is_core() {
        true => super::freeze::kernel_has_it(),
        false => listed.split_whitespace().any(|name| name == controller.name()),
    };
    controllers.iter().copied().filter(has).collect()
}

/// Makes sure that groups below `parent` get these controllers.
pub(super) fn enable(parent: &Path, controllers: &[Controller], is_own: bool) -> Result<(), String> {
    let given = names(parent, "cgroup.subtree_control");
    let lacking: Vec<&str> = controllers
        .iter()
        .filter(|controller| !controller.is_core())
        .map(|controller| controller.name())
        .filter(|name| !given.split_whitespace().any(|there| there == *name))
        .collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let order: Vec<String> = lacking.iter().map(|name| format!("+{name}")).collect();
    let give = || fs::write(parent.join("cgroup.subtree_control"), order.join(" "));
    let failed = |error: &io::Error| format!("{} gives no {}: {error}", parent.display(), lacking.join(", "));
    match give() {
        Err(error) if is_own && error.raw_os_error() == Some(libc::EBUSY) => {
            let back = step_aside(parent)?;
            give().map_err(|error| {
                back();
                failed(&error)
            })
        }
        given => given.map_err(|error| failed(&error)),
    }
}

/// Where we go if our own group is the one that was delegated to us.
const ASIDE: &str = "cofferdam.self";

/// A group that others have their limits from must hold no process. We leave it for one below, with those of our own
/// that are in it: a client that waits, or who started us. Whoever else is in it is not ours to move. Returns the way
/// back.
fn step_aside(own: &Path) -> Result<impl Fn(), String> {
    let aside = own.join(ASIDE);
    let program = |pid: &str| fs::metadata(format!("/proc/{pid}/exe")).map(|file| (file.dev(), file.ino()));
    let (us, inside) = (program("self").ok(), names(own, "cgroup.procs"));
    let is_ours = |pid: &&str| match program(pid) {
        Ok(other) => Some(other) == us,
        // It has ended meanwhile.
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    if let Some(other) = inside.split_whitespace().find(|pid| !is_ours(pid)) {
        let what = "holds other processes than ours, so that no group in it can have a limit";
        return Err(format!("{} {what}: process {other}", own.display()));
    }
    super::make_dir(&aside).map_err(|error| format!("cannot make {}: {error}", aside.display()))?;
    let go = |to: &Path| -> io::Result<()> {
        let mut going = inside.split_whitespace().map(|pid| fs::write(to.join("cgroup.procs"), pid));
        let gone = |moved: &io::Result<()>| {
            moved.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ESRCH))
        };
        going.find(|moved| moved.is_err() && !gone(moved)).unwrap_or(Ok(()))
    };
    go(&aside).map_err(|error| format!("cannot go into {}: {error}", aside.display()))?;
    let (own, inside) = (own.to_owned(), inside.clone());
    Ok(move || {
        inside.split_whitespace().for_each(|pid| _ = fs::write(own.join("cgroup.procs"), pid));
        let _ = fs::remove_dir(own.join(ASIDE));
    })
}

fn names(group: &Path, file: &str) -> String {
    fs::read_to_string(group.join(file)).unwrap_or_default()
}
