//! Machines that stand where a session begins. What most sessions do first is to make their inside, and where several
//! begin alike, in a work dir that has not changed, all of them make the same. So after a few of those a copy of the
//! template is taken to where its inside is made, stopped, and kept; sessions that begin alike are copies of that. Each is
//! made another machine before anything runs in it, as a fork is.

use crate::asked::Asked;
use crate::begin::Given;
use crate::house::House;
use crate::kernel::refused;
use crate::machine::Machine;
use crate::memory::{self, Lock};
use crate::nbd::Disks;
use crate::pending::{Found, Pending};
use crate::snapshot::stand_in;
use crate::stamp;
use crate::standing::Standing;
use crate::template::{Manifest, Parts, Template, make_dir, place, short};
use crate::vmm::{Kind, Vmm};
use cofferdam_inside::wire::{Ask, Identity, Made, Make, Tell};
use cofferdam_model::SessionId;
use cofferdam_runtime::{RuntimeError, SandboxSpec, ShownFile};
use cofferdam_runtime_process::Look;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// So many have to begin alike before one is kept: to make it takes about as long as these three took to make their inside.
const WORTH: u32 = 3;
/// So many are kept; those that were used last.
const KEPT: usize = 4;
/// So many kinds of session are known, of which most have nothing kept.
const KNOWN: usize = 64;
const PATIENCE: Duration = Duration::from_secs(60);
const NAME: &str = "start.json";
const SEEN: &str = "seen";

fn io(doing: &'static str) -> impl FnOnce(io::Error) -> RuntimeError {
    RuntimeError::io(doing)
}

/// What is written beside one.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    manifest: Manifest,
    /// What its inside said of itself when it was made.
    made: Made,
}

/// A kind of session: all that decides how its inside is made, but for what is in its work dir.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    dir: PathBuf,
    /// What the last ones began with, and how many of them there were.
    last: Option<(String, u32)>,
}

impl Shape {
    /// Nothing where none would be kept.
    pub(crate) fn of(parts: &Parts, template: &Template, spec: &SandboxSpec, look: &Look) -> Option<Self> {
        if spec.ahead || parts.vmm.kind != Kind::Qemu {
            return None;
        }
        let programs: Vec<PathBuf> = look.toolchains.iter().map(|(path, _)| path.clone()).collect();
        let asked = Asked { spec, look, size: template.manifest.size };
        let make = asked.make(Vec::new(), &programs, parts.without.clone()).ok()?;
        // Who it is, and what is in the files that it is shown, is another's every time.
        let who = Identity {
            clock: crate::identity::EPOCH,
            seed: Vec::new(),
            machine: String::new(),
            host: String::new(),
        };
        let files = make.files.iter().map(|(path, _)| (path.clone(), 0)).collect();
        let make = Make { id: String::new(), who, files, ..make };
        let mut key = cofferdam_seal::Hasher::new();
        key.update(template.dir.as_os_str().as_encoded_bytes());
        key.update(template.manifest.state.as_bytes());
        key.update(&serde_json::to_vec(&make).ok()?);
        let dir = parts.dir.join("starts").join(short(key.finish()));
        let seen = fs::read_to_string(dir.join(SEEN)).ok();
        let last = seen.as_deref().and_then(|text| {
            let (content, count) = text.split_once(' ')?;
            Some((content.to_owned(), count.parse().ok()?))
        });
        Some(Self { dir, last })
    }

    /// Whether it is worth while to look what is in the work dir before a machine is begun.
    pub(crate) fn is_frequent(&self) -> bool {
        self.last.as_ref().is_some_and(|(_, count)| *count + 1 >= WORTH)
    }

    /// That one more has begun with this.
    pub(crate) fn count(&self, content: &str) {
        let count = match &self.last {
            Some((last, count)) if last == content => count.saturating_add(1),
            _ => 1,
        };
        let made = make_dir(&self.dir).is_ok();
        let making = self.dir.join(format!("{SEEN}.{}", std::process::id()));
        // Who cannot count is not quicker the next time.
        if made && fs::write(&making, format!("{content} {count}")).is_ok() {
            let _ = fs::rename(making, self.dir.join(SEEN));
        }
        if count == 1 {
            let _ = fs::remove_dir_all(self.dir.join("machine"));
            tidy(self.dir.parent().unwrap_or(&self.dir), SEEN, KNOWN, &self.dir);
        }
    }

    /// The one that is kept for sessions that begin with this, made if it is not there. Nothing where other sessions were
    /// the last, or it cannot be had: then a session makes its inside itself.
    pub(crate) fn find(
        &mut self,
        of: (&Parts, &Template),
        (spec, look): (&SandboxSpec, &Look),
        (given, disks): (&Given, &Disks),
    ) -> Option<(Template, Made)> {
        let (last, _) = self.last.as_ref()?;
        if *last != given.content {
            return None;
        }
        if let Some(found) = self.found(of) {
            return Some(found);
        }
        let _lock = Lock::take(&of.0.dir).ok()?;
        if let Some(found) = self.found(of) {
            return Some(found);
        }
        let making = self.dir.join(format!("making-{}", std::process::id()));
        let _ = fs::remove_dir_all(&making);
        let wanted = Wanted { parts: of.0, template: of.1, spec, look, given, disks };
        let made = make_dir(&making).and_then(|()| wanted.make(&making));
        if made.and_then(|()| place(&making, &self.dir.join("machine"))).is_err() {
            let _ = fs::remove_dir_all(&making);
            // Nobody tries again before as many have come once more.
            self.last = None;
            return None;
        }
        tidy(self.dir.parent().unwrap_or(&self.dir), "machine", KEPT, &self.dir);
        self.found(of)
    }

    fn found(&self, (parts, template): (&Parts, &Template)) -> Option<(Template, Made)> {
        let dir = self.dir.join("machine");
        let written: Written = serde_json::from_slice(&fs::read(dir.join(NAME)).ok()?).ok()?;
        let state = fs::read(dir.join("state")).ok()?;
        let Written { manifest, made } = written;
        let whole = manifest.vmm == parts.vmm
            && stamp(&dir.join("ram")) == Some(manifest.memory)
            && manifest.state == cofferdam_seal::digest(&state).to_string();
        if !whole {
            let _ = fs::remove_dir_all(&dir);
            return None;
        }
        // It is used, which is by what the others go first.
        let _ = File::open(&dir).and_then(|dir| dir.set_modified(SystemTime::now()));
        Some((Template { dir, manifest, system: template.system.clone() }, made))
    }
}

/// Removes what was used first where there are too many that have something of this name.
fn tidy(dir: &Path, name: &str, most: usize, own: &Path) {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<(i64, PathBuf)> = entries
        .filter(|path| path != own)
        .filter_map(|path| Some((fs::metadata(path.join(name)).ok()?.mtime(), path)))
        .collect();
    found.sort();
    let over = found.len().saturating_sub(most - 1);
    found.into_iter().take(over).for_each(|(_, path)| _ = fs::remove_dir_all(path));
}

/// What one is made of.
struct Wanted<'a> {
    parts: &'a Parts,
    template: &'a Template,
    spec: &'a SandboxSpec,
    look: &'a Look,
    given: &'a Given,
    disks: &'a Disks,
}

impl Wanted<'_> {
    /// Takes a copy of the template to where its inside is made, and writes it down.
    fn make(&self, dir: &Path) -> Result<(), RuntimeError> {
        // It is nobody's, and held to what a session would be.
        let spec = SandboxSpec { id: stand_in()?, layer: dir.join("layer"), ..self.spec.clone() };
        let mut pending = Pending::default();
        let copied =
            self.template.copy(self.parts, &spec, (&dir.join("run"), false), self.disks, &mut pending)?;
        let (mut machine, mut vmm) = self.template.restore(copied, &mut pending)?;
        if !matches!(pending.finish(), Found::Good) {
            return Err(refused("what it would be a copy of is damaged", "run this again"));
        }
        let made = self.made(&machine)?;
        let sum =
            self.keep(&machine, vmm.as_mut(), dir).map_err(io("keep a machine where a session begins"))?;
        let _ = machine.end();
        drop(machine);
        let state = fs::read(dir.join("state")).map_err(io("keep the machine's state"))?;
        let manifest = Manifest {
            state: cofferdam_seal::digest(&state).to_string(),
            memory: stamp(&dir.join("ram")).unwrap_or_default(),
            sum,
            ..self.template.manifest.clone()
        };
        let text = serde_json::to_vec(&Written { manifest, made });
        let text = text.map_err(|error| io("keep the machine's description")(error.into()))?;
        fs::write(dir.join(NAME), text).map_err(io("keep the machine's description"))
    }

    /// Stops it, and writes it down. Gives the sum of its memory.
    fn keep(&self, machine: &Machine, vmm: &mut dyn Vmm, dir: &Path) -> io::Result<u32> {
        let size = self.template.manifest.size.memory;
        vmm.pause()?;
        vmm.keep(&File::create_new(dir.join("state"))?)?;
        memory::put_down(&Standing::of(machine, size)?, &dir.join("ram"), size)
    }

    /// Has it make the inside. Files that it is to be shown are there, and nothing is in them.
    fn made(&self, machine: &Machine) -> Result<Made, RuntimeError> {
        let files = self.spec.files.iter().map(|file| ShownFile { at: file.at.clone(), content: Vec::new() });
        let spec = SandboxSpec { id: SessionId::new(0, 0), files: files.collect(), ..self.spec.clone() };
        let asked = Asked { spec: &spec, look: self.look, size: self.template.manifest.size };
        let Given { show, programs_at, .. } = self.given;
        let make = asked.make(show.clone(), programs_at, self.parts.without.clone())?;
        let look_into = Ask::LookInto { path: make.path.clone() };
        let asked = || -> io::Result<[Tell; 2]> {
            let mut house = House::new(machine.house.try_clone()?)?;
            let mut ask = |ask: &Ask| house.ask(ask, PATIENCE, machine.ended());
            Ok([ask(&Ask::Make(Box::new(make)))?, ask(&look_into)?])
        };
        match asked().map_err(io("have the machine make an inside"))? {
            [Tell::Made(made), Tell::Done] => Ok(*made),
            [Tell::Refused { what, fix }, _] => Err(RuntimeError::Refused { what, fix }),
            _ => Err(refused("the machine answers something else", "report this")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_begin_alike_are_counted_until_one_begins_otherwise() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("starts/one");
        let seen = || {
            let text = fs::read_to_string(at.join(SEEN)).unwrap_or_default();
            let last =
                text.split_once(' ').map(|(content, count)| (content.to_owned(), count.parse().unwrap()));
            Shape { dir: at.clone(), last }
        };
        let check = |content: &str, is_frequent: bool| {
            seen().count(content);
            assert_eq!(seen().is_frequent(), is_frequent, "{:?}", seen().last);
        };
        assert!(!seen().is_frequent());
        check("a", false);
        check("a", true);
        fs::create_dir_all(at.join("machine")).unwrap();
        check("a", true);
        assert!(at.join("machine").exists());
        check("b", false);
        assert!(!at.join("machine").exists(), "what nobody begins with is not kept");
        check("a", false);
    }

    #[test]
    fn those_that_were_used_first_go_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = |number: u64| dir.path().join(number.to_string());
        for number in 0..5 {
            fs::create_dir_all(path(number).join("machine")).unwrap();
            let used = SystemTime::UNIX_EPOCH + Duration::from_secs(1000 * ((number + 2) % 5));
            File::open(path(number).join("machine")).unwrap().set_modified(used).unwrap();
        }
        // This one is used now, whatever its time says; of another nothing is kept.
        fs::create_dir_all(path(9)).unwrap();
        tidy(dir.path(), "machine", 3, &path(3));
        let left: Vec<bool> = (0..5).map(|number| path(number).exists()).collect();
        assert_eq!(left, [false, true, true, true, false]);
        assert!(path(9).exists());
    }
}
