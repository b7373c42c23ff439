//! What must not get out, and what must not be found.

use crate::escape::check::Check;
use crate::escape::check::Host::{Road, World};
use crate::escape::check::Setting::Policy;
use crate::escape::probe::{files, network, processes};
use crate::escape::table::NETWORK;

pub(crate) const CHECKS: &[Check] = &[
    Check {
        tries: "find an interface that leads anywhere",
        because: "an own network namespace",
        weakened: NETWORK,
        ..Check::of("exfiltration.interface", network::interfaces)
    },
    Check {
        tries: "send a datagram to the host",
        because: "an own network namespace",
        weakened: NETWORK,
        ..Check::of("exfiltration.datagram", network::datagram)
    },
    Check {
        tries: "ask a cloud for the machine's credentials",
        because: "metadata addresses and names are refused whatever the policy says",
        host: World,
        setting: Policy,
        ..Check::of("exfiltration.metadata", network::metadata)
    },
    Check {
        tries: "carry data out in DNS questions",
        because: "no question is passed on",
        host: World,
        setting: Policy,
        ..Check::of("exfiltration.dns", network::dns)
    },
    Check {
        tries: "go out by QUIC",
        because: "datagrams come to us and end there",
        host: World,
        setting: Policy,
        ..Check::of("exfiltration.quic", network::quic)
    },
    Check {
        tries: "go out by something that is neither HTTP nor TLS",
        because: "only what can be judged is carried",
        host: World,
        setting: Policy,
        ..Check::of("exfiltration.raw_tcp", network::raw_tcp)
    },
    Check {
        tries: "name one host and ask another",
        because: "the names have to be one",
        host: Road,
        setting: Policy,
        ..Check::of("exfiltration.fronting", network::fronting)
    },
    Check {
        tries: "send a credential's placeholder to another host",
        because: "a placeholder elsewhere is refused",
        host: Road,
        setting: Policy,
        ..Check::of("exfiltration.placeholder", network::placeholder_elsewhere)
    },
    Check {
        tries: "put a placeholder where it may not stand",
        because: "a placeholder elsewhere is refused",
        host: Road,
        setting: Policy,
        ..Check::of("exfiltration.place", network::placeholder_in_place)
    },
    Check {
        tries: "read keys in the caller's home",
        because: "an empty home stands in its place",
        ..Check::of("planted_secret.home", files::home)
    },
    Check {
        tries: "read a registry's token among the tools of the home",
        because: "masked",
        ..Check::of("planted_secret.toolchain", files::toolchain)
    },
    Check {
        tries: "read the .env file of the project",
        because: "hidden: it does not exist in the layer above",
        ..Check::of("planted_secret.work_dir", files::work_dir_secret)
    },
    Check {
        tries: "read the environment of other processes",
        because: "an own pid namespace; ours is not dumpable",
        ..Check::of("planted_secret.environment", processes::environment)
    },
    Check {
        tries: "read the memory of another process",
        because: "an own pid namespace, and the filter",
        ..Check::of("planted_secret.memory", processes::memory)
    },
];
