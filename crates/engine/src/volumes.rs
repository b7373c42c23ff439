//! Volumes: directories of the state directory that sessions are shown by name and that outlive them.
//!
//! ```text
//! volumes/NAME/data, volumes/@OWNER/NAME/data    what is shown
//! volumes/…/lock                                 held by every session that has it
//! volumes/.gone-ID                               one that is being removed
//! ```
//!
//! A volume comes about and goes by one rename, so that a killed process leaves none that is half of one. What lies in
//! one was written by the inside: no link of it is ever followed here.

use crate::Engine;
use crate::error::EngineError;
use cofferdam_model::{Mount, VolumeInfo, VolumeMount, VolumeName};
use rustix::fs::FlockOperation;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Names that are counted of one volume.
const COUNTED: u64 = 1_000_000;
/// Those that are on their way, in or out.
const MAKING: &str = ".making-";
const GONE: &str = ".gone-";

/// A volume that a session has: nobody removes it meanwhile.
pub(crate) struct Taken {
    pub(crate) mount: Mount,
    _lock: File,
}

fn failed(doing: &'static str) -> impl Fn(io::Error) -> EngineError {
    move |source| EngineError::Io { doing, source }
}

fn declined(text: String) -> EngineError {
    EngineError::Declined(text)
}

impl Engine {
    fn volume_dir(&self, name: &VolumeName) -> PathBuf {
        let all = self.home.volumes_dir();
        let above = name.owner.as_ref().map_or_else(|| all.clone(), |owner| all.join(format!("@{owner}")));
        above.join(&name.name)
    }

    fn no_volume(&self, name: &VolumeName) -> EngineError {
        declined(format!("there is no volume `{name}`: make it with `cofferdam volume create {name}`"))
    }

    /// Makes an empty volume.
    pub fn create_volume(&self, name: &VolumeName) -> Result<(), EngineError> {
        let dir = self.volume_dir(name);
        let all = self.home.volumes_dir();
        let making = all.join(format!("{MAKING}{}", self.new_id()?));
        let make = |path: &Path, mode| DirBuilder::new().recursive(true).mode(mode).create(path);
        let made = (|| {
            make(&all, 0o700)?;
            self.sweep_volumes();
            make(&making.join("data"), 0o700)?;
            // Whoever is inside owns it; who else is on this host does not get here.
            fs::set_permissions(making.join("data"), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(making.join("lock"))?;
            if let Some(above) = dir.parent() {
                make(above, 0o700)?;
            }
            // A directory that is there and not empty is not replaced by this.
            fs::rename(&making, &dir)
        })();
        made.map_err(|source: io::Error| {
            cofferdam_runtime_process::remove_layer(&making);
            match dir.exists() {
                true => declined(format!("there is a volume `{name}` already")),
                false => failed("make the volume")(source),
            }
        })
    }

    /// All of them, by name.
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        let listed = |dir: &Path| {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect::<Vec<_>>()
        };
        let all = self.home.volumes_dir();
        let mut names: Vec<VolumeName> = Vec::new();
        for entry in listed(&all) {
            match entry.strip_prefix('@') {
                Some(owner) => {
                    let own = listed(&all.join(&entry));
                    names.extend(own.iter().filter_map(|name| format!("{owner}/{name}").parse().ok()));
                }
                None => names.extend(entry.parse::<VolumeName>().ok()),
            }
        }
        names.sort();
        names.iter().filter_map(|name| self.volume(name).ok()).collect()
    }

    pub fn volume(&self, name: &VolumeName) -> Result<VolumeInfo, EngineError> {
        let dir = self.volume_dir(name);
        let made = fs::metadata(dir.join("lock")).map_err(|_| self.no_volume(name))?;
        let created = made.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let created_us = created.map_or(0, |since| since.as_micros() as u64);
        let (files, bytes) = count(&dir.join("data"));
        let in_use = lock(&dir).is_ok_and(|lock| is_held(&lock));
        Ok(VolumeInfo { name: name.clone(), created_us, bytes, files, in_use })
    }

    /// Where its files are, for who serves them by other means. What lies there is the inside's: follow no link.
    pub fn volume_files(&self, name: &VolumeName) -> Result<PathBuf, EngineError> {
        let data = self.volume_dir(name).join("data");
        if data.is_dir() { Ok(data) } else { Err(self.no_volume(name)) }
    }

    /// Removes a volume that no session has.
    pub fn remove_volume(&self, name: &VolumeName) -> Result<(), EngineError> {
        let dir = self.volume_dir(name);
        let lock = lock(&dir).map_err(|_| self.no_volume(name))?;
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(declined(format!("volume `{name}` is in use: end its sessions first")));
        }
        let gone = self.home.volumes_dir().join(format!("{GONE}{}", self.new_id()?));
        fs::rename(&dir, &gone).map_err(failed("remove the volume"))?;
        if let Some(above) = dir.parent().filter(|above| *above != self.home.volumes_dir()) {
            // The last of its owner's.
            let _ = fs::remove_dir(above);
        }
        cofferdam_runtime_process::remove_layer(&gone);
        Ok(())
    }

    /// What a process that was killed left on its way. Whoever makes one now holds no name that is older than an hour.
    fn sweep_volumes(&self) {
        for entry in fs::read_dir(self.home.volumes_dir()).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let old = || {
                let age =
                    entry.metadata().and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
                age.is_some_and(|age| age.as_secs() > 3600)
            };
            if name.starts_with(GONE) || (name.starts_with(MAKING) && old()) {
                cofferdam_runtime_process::remove_layer(&entry.path());
            }
        }
    }

    /// Takes these for a session over this work dir.
    pub(crate) fn take_volumes(
        &self,
        wanted: &[VolumeMount],
        workdir: &Path,
    ) -> Result<Vec<Taken>, EngineError> {
        wanted.iter().map(|volume| self.take(volume, workdir)).collect()
    }

    fn take(&self, wanted: &VolumeMount, workdir: &Path) -> Result<Taken, EngineError> {
        let name = &wanted.volume;
        let dir = self.volume_dir(name);
        let lock = lock(&dir).map_err(|_| self.no_volume(name))?;
        let gone = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared).is_err() || !dir.exists();
        if gone {
            return Err(declined(format!("volume `{name}` is being removed")));
        }
        let data = dir.join("data");
        own(&data, workdir, wanted)?;
        let mount = Mount { source: data, target: wanted.target.clone(), writable: !wanted.read_only };
        Ok(Taken { mount, _lock: lock })
    }
}

/// Root's sandboxes show what belongs to the owner of the work dir as the inside's own: a volume that is still empty
/// becomes that owner's, and another's cannot be written.
fn own(data: &Path, workdir: &Path, wanted: &VolumeMount) -> Result<(), EngineError> {
    let looked = || io::Result::Ok((fs::metadata(data)?, fs::metadata(workdir)?));
    let (volume, work) = looked().map_err(failed("look at the volume"))?;
    let same = (volume.uid(), volume.gid()) == (work.uid(), work.gid());
    if same || wanted.read_only || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let empty = fs::read_dir(data).is_ok_and(|mut entries| entries.next().is_none());
    if !empty {
        let (name, uid, other) = (&wanted.volume, volume.uid(), work.uid());
        return Err(declined(format!(
            "volume `{name}` belongs to uid {uid}, and the work dir to uid {other}, so it could not be written: \
             show it with `:ro`, or use another"
        )));
    }
    chown(data, Some(work.uid()), Some(work.gid())).map_err(failed("give the volume its owner"))
}

fn lock(dir: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).open(dir.join("lock"))
}

fn is_held(lock: &File) -> bool {
    rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive).is_err()
}

/// Files and what they take, with no link followed.
fn count(dir: &Path) -> (u64, u64) {
    let (mut files, mut bytes) = (0, 0);
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if files >= COUNTED {
                return (files, bytes);
            }
            files += 1;
            bytes += meta.blocks() * 512;
            if meta.is_dir() {
                open.push(entry.path());
            }
        }
    }
    (files, bytes)
}
