//! Who executes a machine's instructions here: the processor, by KVM, or a program. That there is a device proves
//! nothing: a guest of a few instructions is run on it, with a deadline, and the answer is remembered for as long as the
//! host runs.

use crate::kernel::refused;
use crate::vmm::{Accelerator, Kind, Program};
use cofferdam_runtime::RuntimeError;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Says which is to be used: `kvm`, `tcg`, or what is found to work.
pub(crate) const WANTED: &str = "COFFERDAM_VM_ACCEL";
pub(crate) const DEVICE: &str = "/dev/kvm";
/// Rounds of two instructions: a moment for a processor, minutes for an emulator in a kernel.
const ROUNDS: u32 = 50_000_000;
const DEADLINE: Duration = Duration::from_secs(2);
/// The first QEMU that can be handed the device, where it may open nothing itself.
const HANDED: (u32, u32) = (8, 1);

/// The guest itself: whether it counted so far.
pub fn count(rounds: u32) -> io::Result<bool> {
    #[cfg(target_arch = "x86_64")]
    return Ok(cofferdam_sys::kvm::count(rounds)? == cofferdam_sys::kvm::Ran::Done);
    #[cfg(not(target_arch = "x86_64"))]
    return Err(io::Error::new(io::ErrorKind::Unsupported, format!("no guest of {rounds} rounds here")));
}

/// What was found, and for what it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// Of the host's run.
    boot: String,
    vmm: Program,
    pub(crate) works: bool,
    pub(crate) why: String,
}

pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// Each VMM has its own answer, so that none forgets another's.
fn place(dir: &Path, kind: Kind) -> PathBuf {
    match kind {
        Kind::Qemu => dir.join("kvm.json"),
        Kind::Firecracker => dir.join("kvm-firecracker.json"),
    }
}

fn written(dir: &Path, kind: Kind) -> Option<Answer> {
    serde_json::from_slice(&fs::read(place(dir, kind)).ok()?).ok()
}

/// What was found before, in this run of the host, with this VMM.
fn known(dir: &Path, vmm: &Program) -> Option<Answer> {
    written(dir, vmm.kind).filter(|answer| answer.boot == boot_id() && answer.vmm == *vmm)
}

/// Whether it was tried before, in this run of the host and with the VMM that is here, and found to work. Every start
/// asks this: where the answer is no, the VMM is not even looked for.
pub(crate) fn is_known_to_work(dir: &Path, kind: Kind, find: impl FnOnce() -> Option<Program>) -> bool {
    let answer = written(dir, kind).filter(|answer| answer.works && answer.boot == boot_id());
    answer.is_some_and(|answer| find().is_some_and(|vmm| answer.vmm == vmm))
}

/// Which one to use, and why.
pub(crate) fn choose(
    env: impl Fn(&str) -> Option<PathBuf>,
    dir: &Path,
    vmm: &Program,
    program: &Path,
) -> Result<(Accelerator, String), RuntimeError> {
    let wanted = env(WANTED);
    let wanted = wanted.as_deref().and_then(Path::to_str).unwrap_or("auto");
    if wanted == "tcg" {
        return Ok((Accelerator::Tcg, format!("{WANTED} says so")));
    }
    if !["kvm", "auto"].contains(&wanted) {
        return Err(refused(format!("{WANTED} is `{wanted}`"), "set it to kvm, tcg or auto"));
    }
    let answer = known(dir, vmm).unwrap_or_else(|| {
        let tried = attempt(vmm, Path::new(DEVICE), program, OsStr::new("vm-count"), DEADLINE);
        let (works, why) = match tried {
            Ok(()) => (true, "a guest on it runs at the processor's speed".to_owned()),
            Err(why) => (false, why),
        };
        let answer = Answer { boot: boot_id(), vmm: vmm.clone(), works, why };
        let _ = serde_json::to_vec(&answer).map(|text| fs::write(place(dir, vmm.kind), text));
        answer
    });
    match (answer.works, wanted) {
        (true, _) => Ok((Accelerator::Kvm, answer.why)),
        (false, "kvm") => {
            Err(refused(format!("KVM cannot be used: {}", answer.why), format!("leave {WANTED} out")))
        }
        (false, _) => Ok((Accelerator::Tcg, answer.why)),
    }
}

/// As if it had been tried, for tests where there is none.
#[cfg(test)]
pub(crate) fn remember(dir: &Path, vmm: &Program) {
    let answer = Answer { boot: boot_id(), vmm: vmm.clone(), works: true, why: "a test says so".into() };
    fs::write(place(dir, vmm.kind), serde_json::to_vec(&answer).unwrap()).unwrap();
}

/// Tries it, with a program that runs the guest and can be ended.
fn attempt(
    vmm: &Program,
    device: &Path,
    program: &Path,
    word: &OsStr,
    deadline: Duration,
) -> Result<(), String> {
    File::options()
        .read(true)
        .write(true)
        .open(device)
        .map_err(|error| format!("{} cannot be opened: {error}", device.display()))?;
    // Others open it by themselves. One that cannot use it need not wait for what it would be.
    if vmm.kind == Kind::Qemu && vmm.numbers() < HANDED {
        let (major, minor) = HANDED;
        return Err(format!("QEMU {} cannot be handed it in its sandbox: {major}.{minor} can", vmm.version));
    }
    let failed = |error: io::Error| format!("{} could not be tried: {error}", device.display());
    let mut child = Command::new(program)
        .arg(word)
        .arg(ROUNDS.to_string())
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let until = Instant::now() + deadline;
    let ended = loop {
        match child.try_wait().map_err(failed)? {
            Some(status) => break status,
            None if Instant::now() > until => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!(
                    "a guest on {} did not come to its end within {} s: an emulator runs it",
                    device.display(),
                    deadline.as_secs()
                ));
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    if !ended.success() {
        return Err(format!("a guest on {} does not run ({ended})", device.display()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn who_asks_at_every_start_does_not_pay_for_a_no() {
        let dir = tempfile::tempdir().unwrap();
        let here = Program::of_version(Kind::Qemu, "9.0.0");
        let never = || -> Option<Program> { panic!("QEMU was looked for") };
        assert!(!is_known_to_work(dir.path(), Kind::Qemu, never));
        let answer = |works, boot: &str| {
            let answer = Answer { boot: boot.into(), vmm: here.clone(), works, why: String::new() };
            fs::write(dir.path().join("kvm.json"), serde_json::to_vec(&answer).unwrap()).unwrap();
        };
        answer(false, &boot_id());
        assert!(!is_known_to_work(dir.path(), Kind::Qemu, never));
        answer(true, "another run of the host");
        assert!(!is_known_to_work(dir.path(), Kind::Qemu, never));
        answer(true, &boot_id());
        assert!(is_known_to_work(dir.path(), Kind::Qemu, || Some(here.clone())));
        assert!(
            !is_known_to_work(dir.path(), Kind::Qemu, || Some(Program::of_version(Kind::Qemu, "9.1.0")))
                && !is_known_to_work(dir.path(), Kind::Qemu, || None)
        );
    }

    /// A program that does as it is told instead of the guest.
    fn program(dir: &Path, script: &str) -> PathBuf {
        let path = dir.join("program");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn only_a_guest_that_comes_to_its_end_in_time_counts() {
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().join("kvm");
        let check_with = |vmm: Program, script: &str, expected: Result<(), &str>| {
            let program = program(dir.path(), script);
            let deadline = Duration::from_millis(if script.contains("sleep") { 200 } else { 20_000 });
            let tried = attempt(&vmm, &device, &program, OsStr::new("x"), deadline);
            match (&tried, expected) {
                (Ok(()), Ok(())) => {}
                (Err(said), Err(part)) => assert!(said.contains(part), "{said}"),
                _ => panic!("{tried:?} and not {expected:?}"),
            }
        };
        let check = |version: &str, script: &str, expected| {
            check_with(Program::of_version(Kind::Qemu, version), script, expected);
        };
        check("9.0.0", "true", Err("cannot be opened"));
        fs::write(&device, "").unwrap();
        check("9.0.0", "true", Ok(()));
        check("9.0.0", "exit 1", Err("does not run"));
        check("9.0.0", "exec sleep 100", Err("an emulator runs it"));
        check("7.2.22 (Debian 1:7.2)", "true", Err("cannot be handed it"));
        check_with(Program::of_version(Kind::Firecracker, "1.9.0"), "true", Ok(()));
    }

    #[test]
    fn an_answer_holds_for_one_run_of_the_host_and_one_qemu() {
        let dir = tempfile::tempdir().unwrap();
        let qemu = Program::of_version(Kind::Qemu, "9.0.0");
        assert_eq!(known(dir.path(), &qemu), None);
        let answer = Answer { boot: boot_id(), vmm: qemu.clone(), works: true, why: "tried".into() };
        let write =
            |answer: &Answer| fs::write(dir.path().join("kvm.json"), serde_json::to_vec(answer).unwrap());
        write(&answer).unwrap();
        assert_eq!(known(dir.path(), &qemu), Some(answer.clone()));
        assert_eq!(known(dir.path(), &Program::of_version(Kind::Qemu, "9.0.1")), None);
        write(&Answer { boot: "another".into(), ..answer }).unwrap();
        assert_eq!(known(dir.path(), &qemu), None);
    }
}
