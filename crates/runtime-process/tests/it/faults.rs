//! Each step made to fail: what the steps before it did is undone.

use crate::place::Place;
use cofferdam_model::{Bytes, LayerPlace, Limits};
use cofferdam_runtime::{Backend, Fault, Network, RuntimeError, SandboxSpec};
use cofferdam_runtime_process::{ProcessBackend, step_names};
use cofferdam_testkit::needs_root;

#[test]
fn a_failing_step_leaves_nothing_behind() {
    let place = Place::new();
    let mut kinds = vec![
        (LayerPlace::Memory, Network::None, None),
        (LayerPlace::Disk, Network::None, None),
        (LayerPlace::Memory, Network::Doors, None),
    ];
    if needs_root("a loop device") {
        kinds.push((LayerPlace::Disk, Network::None, Some(Bytes(1 << 20))));
    }
    for (layer, network, disk) in kinds {
        for step in step_names() {
            let limits = Limits { disk, ..Limits::default() };
            let spec = SandboxSpec { network, limits, ..place.spec(layer) };
            let session = spec.id.clone();
            let backend = ProcessBackend { fault: Fault(Some(step)), ..ProcessBackend::default() };
            match backend.create(spec) {
                Err(RuntimeError::Step { step: at, .. }) => assert_eq!(at, step),
                Err(other) => panic!("{step}: {other}"),
                Ok(_) => panic!("{step} did not fail"),
            }
            place.is_clean(&session, step);
        }
    }
}

#[test]
fn a_sandbox_that_is_dropped_leaves_nothing_behind() {
    let place = Place::new();
    for layer in [LayerPlace::Memory, LayerPlace::Disk] {
        let spec = place.spec(layer);
        let session = spec.id.clone();
        let sandbox = ProcessBackend::default().create(spec).unwrap();
        assert!(sandbox.ended().is_some());
        drop(sandbox);
        place.is_clean(&session, "a drop");
        let spec = place.spec(layer);
        let session = spec.id.clone();
        let mut sandbox = ProcessBackend::default().create(spec).unwrap();
        sandbox.finish().unwrap();
        assert!(sandbox.ended().is_none());
        assert!(sandbox.changes().unwrap().is_empty());
        drop(sandbox);
        place.is_clean(&session, "a finish");
    }
}

/// Failures of the world's own making, in the middle of the steps.
#[test]
fn a_sandbox_that_cannot_be_made_leaves_nothing_behind() {
    let place = Place::new();
    let wrong: [fn(&mut cofferdam_runtime::SandboxSpec); 4] = [
        |spec| spec.staging = "/no/such/staging".into(),
        |spec| spec.require = vec!["no-such-control".into()],
        |spec| spec.workdir = "/no/such/dir".into(),
        |spec| spec.mounts = vec!["/no/such/source:/target".parse().unwrap()],
    ];
    for (at, spoil) in wrong.into_iter().enumerate() {
        for layer in [LayerPlace::Memory, LayerPlace::Disk] {
            let mut spec = place.spec(layer);
            spoil(&mut spec);
            let session = spec.id.clone();
            assert!(ProcessBackend::default().create(spec).is_err(), "{at}");
            place.is_clean(&session, "a refusal");
        }
    }
}

#[test]
fn the_steps_are_these() {
    let begun = ["users", "cgroup-to-be-born-in", "launch"];
    let completed =
        ["limits", "layout", "layer", "plan", "cgroups", "confine", "supervise", "readback", "floor"];
    let steps: Vec<_> = begun.into_iter().chain(completed).collect();
    assert_eq!(step_names(), steps);
}
