//! What holds for a machine: what the inside's kernel says of the inside, what the VMM says of itself, and what the
//! host's kernel says of the VMM.

use crate::kernel::refused;
use crate::machine::Machine;
use crate::template::Manifest;
use crate::vmm::{Accelerator, Kind, Told};
use cofferdam_model::{Bytes, Control, EnforcementReport, State, Tier};
use cofferdam_runtime::RuntimeError;
use serde_json::{Value, json};

fn line(name: &str, state: State, detail: String, value: Value) -> Control {
    Control { name: name.into(), state, detail, value }
}

pub(crate) fn read(
    inside: EnforcementReport,
    vmm: Told,
    machine: &Machine,
    manifest: &Manifest,
) -> EnforcementReport {
    let Told { kind, version, accelerator, memory, processors, is_running } = vmm;
    let (value, disks) = match kind {
        Kind::Qemu => {
            let value = json!({ "vmm": kind.word(), "version": version, "machine": "microvm" });
            (value, "three read-only disks")
        }
        Kind::Firecracker => {
            let value = json!({ "vmm": kind.word(), "version": version });
            (value, "three read-only disks, which are files made for it")
        }
    };
    let mut controls = vec![
        line(
            "vm.monitor",
            if is_running { State::Enforced } else { State::Absent },
            format!("{} {version}, a machine of its own, in a sandbox of its own", kind.name()),
            value,
        ),
        accelerator_line(accelerator, manifest),
        line(
            "vm.kernel",
            State::Enforced,
            format!("Linux {}, shared with nobody", inside.kernel),
            json!(inside.kernel),
        ),
        line(
            "vm.size",
            State::Enforced,
            format!("{} of memory, {processors} processors", Bytes(memory)),
            json!({ "memory": memory, "processors": processors }),
        ),
        line(
            "vm.shared",
            State::Enforced,
            format!(
                "no file, no network device; {disks}, one stream each for commands, connections, orders and refused calls"
            ),
            json!({ "disks": "read-only", "network": "none", "template": manifest.system }),
        ),
    ];
    controls.extend(inside.controls);
    controls.extend(machine.report().controls.iter().map(|control| {
        let name = format!("vmm.{}", control.name);
        Control { name, ..control.clone() }
    }));
    EnforcementReport { tier: Tier::Microvm, kernel: inside.kernel, controls }
}

fn accelerator_line(accelerator: Accelerator, manifest: &Manifest) -> Control {
    let (state, mut detail) = match accelerator {
        Accelerator::Kvm => (State::Enforced, "KVM: the processor keeps it apart".to_owned()),
        Accelerator::Tcg => (
            State::Weaker,
            "TCG: a program executes its instructions, slowly; what keeps it in is the sandbox around that program"
                .to_owned(),
        ),
    };
    if crate::qemu::is_at_an_address(accelerator, manifest.vmm.numbers()) {
        detail.push_str("; programs in it lie at the same addresses every time");
    }
    line("vm.accelerator", state, detail, json!(accelerator.name()))
}

/// What was demanded must be in full force.
pub(crate) fn check(report: &EnforcementReport, require: &[String]) -> Result<(), RuntimeError> {
    for name in require {
        let held = report.control(name).is_some_and(|control| control.state == State::Enforced);
        if !held {
            let why = report
                .control(name)
                .map_or("this tier has no such control", |control| control.detail.as_str());
            return Err(refused(
                format!("`{name}` is required and not in full force: {why}"),
                "run `cofferdam doctor`",
            ));
        }
    }
    Ok(())
}
