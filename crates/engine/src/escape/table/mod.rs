//! The checks, as data: what is tried, what should stop it, how it is shown that it would work otherwise.

mod kernel;
mod leaks;
mod scenarios;

use super::check::{Attempt, Check};
use super::probe::network;

pub(crate) const CHECKS: &[&[Check]] = &[scenarios::CHECKS, leaks::CHECKS, kernel::CHECKS];

/// What has to be open inside for a refusal beside it to mean something.
pub(crate) const ROADS: &[(&str, Attempt)] = &[(ROAD, network::allowed_road)];
pub(crate) const ROAD: &str = "road.allowed";

/// Weakened profiles, by what they leave out.
const SECCOMP: &[&str] = &["seccomp"];
const CAPABILITIES: &[&str] = &["capabilities"];
const SECCOMP_AND_LANDLOCK: &[&str] = &["seccomp", "landlock"];
const NETWORK: &[&str] = &["namespace.net"];
const NETWORK_AND_LANDLOCK: &[&str] = &["namespace.net", "landlock"];
const IPC: &[&str] = &["namespace.ipc"];
const LANDLOCK: &[&str] = &["landlock"];
const NO_NEW_PRIVILEGES: &[&str] = &["no-new-privileges"];
const PIDS: &[&str] = &["namespace.pid"];
const PROC: &[&str] = &["proc"];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The scenarios of the published benchmark that ours are analogues of.
    const SCENARIOS: [&str; 18] = [
        "privileged",
        "docker_socket",
        "hostpath_etc",
        "sys_admin",
        "sys_module",
        "dac_read_search",
        "runc_overwrite",
        "k8s_runc",
        "pid_namespace",
        "cgroup_release_agent",
        "dirty_cow",
        "dirty_pipe",
        "bpf_privesc",
        "packet_socket",
        "k8s_rbac",
        "k8s_malicious_binary",
        "k8s_route_localnet",
        "k8s_crio",
    ];

    fn all() -> impl Iterator<Item = &'static Check> {
        CHECKS.iter().flat_map(|table| table.iter())
    }

    #[test]
    fn every_scenario_has_a_check_and_every_check_a_name_of_its_own() {
        let found: BTreeSet<&str> = all().map(Check::scenario).collect();
        assert!(SCENARIOS.iter().all(|name| found.contains(name)), "{found:?}");
        let ids: BTreeSet<&str> = all().map(|check| check.id).collect();
        assert_eq!(ids.len(), all().count());
        assert!(!ids.contains(ROAD));
    }

    #[test]
    fn every_check_says_what_and_why() {
        for check in all() {
            assert!(check.tries.len() > 8 && check.because.len() > 5, "{}", check.id);
            assert_eq!(check.id.split('.').count(), 2, "{}", check.id);
        }
    }
}
