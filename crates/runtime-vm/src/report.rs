//! What holds for a machine: what the inside's kernel says of the inside, what the VMM says of itself, and what the
//! host's kernel says of the VMM.

use crate::kernel::refused;
use crate::machine::Machine;
use crate::qemu::Accelerator;
use crate::qmp::Qmp;
use crate::template::Manifest;
use cofferdam_model::{Bytes, Control, EnforcementReport, State, Tier};
use cofferdam_runtime::RuntimeError;
use serde_json::{Value, json};

fn line(name: &str, state: State, detail: String, value: Value) -> Control {
    Control { name: name.into(), state, detail, value }
}

pub(crate) fn read(
    inside: EnforcementReport,
    monitor: &mut Qmp,
    machine: &Machine,
    manifest: &Manifest,
) -> Result<EnforcementReport, RuntimeError> {
    let mut ask =
        |command: &str| monitor.ask(command, json!({})).map_err(RuntimeError::io("ask the VMM what it is"));
    let version = ask("query-version")?;
    let kvm = ask("query-kvm")?;
    let status = ask("query-status")?;
    let memory = ask("query-memory-size-summary")?;
    let processors = ask("query-cpus-fast")?;
    let number = |value: &Value, name: &str| value.get(name).and_then(Value::as_u64).unwrap_or(0);
    let qemu = version.get("qemu").cloned().unwrap_or_default();
    let told = format!("{}.{}.{}", number(&qemu, "major"), number(&qemu, "minor"), number(&qemu, "micro"));
    let accelerated = kvm.get("enabled").and_then(Value::as_bool) == Some(true);
    let accelerator = if accelerated { Accelerator::Kvm } else { Accelerator::Tcg };
    let count = processors.as_array().map_or(0, Vec::len);
    let size = number(&memory, "base-memory");
    let running = status.get("status").and_then(Value::as_str) == Some("running");
    let mut controls = vec![
        line(
            "vm.monitor",
            if running { State::Enforced } else { State::Absent },
            format!("QEMU {told}, a machine of its own, in a sandbox of its own"),
            json!({ "vmm": "qemu", "version": told, "machine": "microvm" }),
        ),
        accelerator_line(accelerator),
        line(
            "vm.kernel",
            State::Enforced,
            format!("Linux {}, shared with nobody", inside.kernel),
            json!(inside.kernel),
        ),
        line(
            "vm.size",
            State::Enforced,
            format!("{} of memory, {count} processors", Bytes(size)),
            json!({ "memory": size, "processors": count }),
        ),
        line(
            "vm.shared",
            State::Enforced,
            "no file, no network device; three read-only disks, one stream each for commands, connections, orders and refused calls".into(),
            json!({ "disks": "read-only", "network": "none", "template": manifest.system }),
        ),
    ];
    controls.extend(inside.controls);
    controls.extend(machine.report().controls.iter().map(|control| {
        let name = format!("vmm.{}", control.name);
        Control { name, ..control.clone() }
    }));
    Ok(EnforcementReport { tier: Tier::Microvm, kernel: inside.kernel, controls })
}

fn accelerator_line(accelerator: Accelerator) -> Control {
    let (state, detail) = match accelerator {
        Accelerator::Kvm => (State::Enforced, "KVM: the processor keeps it apart"),
        Accelerator::Tcg => (
            State::Weaker,
            "TCG: a program executes its instructions, slowly; what keeps it in is the sandbox around that program",
        ),
    };
    line("vm.accelerator", state, detail.into(), json!(accelerator.name()))
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
