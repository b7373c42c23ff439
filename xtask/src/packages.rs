//! What must be on the machine, as data: which package, how to see that it is there, who needs it. Missing
//! ones are installed from the distribution where root or a passwordless sudo allows it; otherwise the exact
//! command is printed. It knows apt and nothing else: elsewhere the list is for people to read.

use crate::command::{self, CommandError};
use std::process::Command;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    pub(crate) package: &'static str,
    /// A program that is there when the package is; or a file, by a path in which one `*` stands for any name.
    pub(crate) program: &'static str,
    pub(crate) why: &'static str,
    /// Without it the task cannot do its job; the others only leave something out.
    pub(crate) essential: bool,
}

const fn need(package: &'static str, program: &'static str, why: &'static str) -> Need {
    Need { package, program, why, essential: true }
}

const fn extra(package: &'static str, program: &'static str, why: &'static str) -> Need {
    Need { package, program, why, essential: false }
}

pub(crate) const TESTS: &[Need] = &[
    need("gcc", "cc", "SQLite, zstd and ring are built from C"),
    need("busybox-static", "busybox", "what the images of the tests consist of"),
    need("chromium", "chromium", "the browser tests drive it inside a sandbox"),
    need("clang", "clang", "compiles C to WebAssembly for the tests of scorers"),
    need("curl", "curl", "the egress tests use it inside a sandbox"),
    need("default-jdk-headless", "javac", "the egress tests use it inside a sandbox"),
    need("docker-registry", "docker-registry", "a real registry for the tests of images"),
    need("git", "git", "the end-to-end tests use it inside a sandbox"),
    need("gron", "gron", "the egress tests use it inside a sandbox: a client written in Go"),
    need("libclang-rt-dev-wasm32", "/usr/share/doc/libclang-rt-dev-wasm32", "what C needs in WebAssembly"),
    need("libxml2-utils", "xmllint", "another program checks JUnit files against their schema"),
    need("cpio", "cpio", "another program reads what a machine boots with"),
    need("linux-image-cloud-amd64", "/boot/vmlinuz-*-cloud-amd64", "the kernel that machines boot"),
    need("lld", "wasm-ld", "links C to WebAssembly for the tests of scorers"),
    need("nodejs", "node", "the egress tests use it inside a sandbox"),
    need("npm", "npm", "the egress tests use it inside a sandbox"),
    need("openssh-client", "ssh-keygen", "the SSH tests use it inside a sandbox"),
    need("openssh-server", "sshd", "a real server for the SSH tests"),
    need("openssl", "openssl", "the egress tests use it inside a sandbox"),
    need("passwd", "useradd", "the end-to-end tests make a plain user"),
    need("python3", "python3", "the escape attempts, the test servers and the example agent are Python"),
    need("python3-pip", "pip3", "installs test servers and clients, and is one of the clients"),
    need("postgresql", "/usr/lib/postgresql/*/bin/initdb", "a real server for the tests of databases"),
    need("postgresql-client", "psql", "the database tests use it inside a sandbox"),
    need("qemu-system-x86", "qemu-system-x86_64", "the microVM tier's machines"),
    need("skopeo", "skopeo", "another program writes archives of images, and puts them into a registry"),
    need("uidmap", "newuidmap", "a plain user's range of sub-ids"),
    need("umoci", "umoci", "another program makes the images of the tests"),
    need("util-linux", "setpriv", "the end-to-end tests become a plain user"),
    need("wasi-libc", "/usr/lib/wasm32-wasi/libc.a", "C's library in WebAssembly"),
    need("wget", "wget", "the egress tests use it inside a sandbox"),
    need("zstd", "zstd", "another program reads the evidence bundle with it"),
    extra("bubblewrap", "bwrap", "the yardstick of the start benchmark"),
    extra("e2fsprogs", "mkfs.ext4", "a small file system that can run full"),
    extra("iproute2", "ip", "network namespaces as another tool sees them"),
    extra("strace", "strace", "system calls as another tool sees them"),
];

pub(crate) const DEMO: &[Need] = &[
    need("gcc", "cc", "SQLite, zstd and ring are built from C"),
    need("openssl", "openssl", "the payment service of the demonstration needs a certificate"),
    need("python3", "python3", "the example agent is Python"),
    extra("uidmap", "newuidmap", "a plain user's range of sub-ids"),
];

pub(crate) const PEERS: &[Need] = &[
    extra("bubblewrap", "bwrap", "a peer"),
    extra("crun", "crun", "a peer"),
    extra("runc", "runc", "a peer"),
    extra("util-linux", "unshare", "a peer"),
    extra("npm", "npm", "installs the peer srt"),
    extra("socat", "socat", "srt needs it"),
    extra("ripgrep", "rg", "srt needs it"),
];

pub(crate) const EGRESS_PEERS: &[Need] = &[
    extra("squid-openssl", "squid", "a peer"),
    extra("python3-venv", "python3", "installs the peer mitmproxy"),
];

/// How this user can install.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Means {
    Root,
    Sudo,
    /// No apt, or no right to use it.
    None,
}

/// What is missing now, after an attempt to install it if that was wanted and possible.
pub(crate) fn provide(needs: &[Need], install: bool) -> Result<Vec<Need>, CommandError> {
    let absent = missing(needs, |program| command::find(program).is_some());
    if absent.is_empty() {
        return Ok(absent);
    }
    let means = means();
    if install && means != Means::None {
        println!("installing {}", names(&absent));
        // A stale index may still serve, so a failure here is not the end.
        command::status(&mut apt(means, &["update", "-qq"]))?;
        let mut line = vec!["install", "-y", "-qq", "--no-install-recommends"];
        line.extend(absent.iter().map(|n| n.package));
        command::status(&mut apt(means, &line))?;
    }
    let absent = missing(needs, |program| command::find(program).is_some());
    print!("{}", advice(&absent));
    Ok(absent)
}

fn missing(needs: &[Need], is_there: impl Fn(&str) -> bool) -> Vec<Need> {
    needs.iter().filter(|n| !is_there(n.program)).copied().collect()
}

fn means() -> Means {
    let sudo = || Command::new("sudo").args(["-n", "true"]).output().is_ok_and(|o| o.status.success());
    match command::find("apt-get") {
        None => Means::None,
        Some(_) if command::is_root() => Means::Root,
        Some(_) if sudo() => Means::Sudo,
        Some(_) => Means::None,
    }
}

fn apt(means: Means, args: &[&str]) -> Command {
    let mut command = Command::new(if means == Means::Sudo { "sudo" } else { "env" });
    if means == Means::Sudo {
        command.args(["-n", "env"]);
    }
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]).args(args);
    command
}

fn names(needs: &[Need]) -> String {
    needs.iter().map(|n| n.package).collect::<Vec<_>>().join(" ")
}

fn advice(absent: &[Need]) -> String {
    if absent.is_empty() {
        return String::new();
    }
    let row = |n: &Need| {
        let weight = if n.essential { "needed" } else { "optional" };
        format!("missing: {} ({weight}): {}\n", n.package, n.why)
    };
    let rows: String = absent.iter().map(row).collect();
    format!("{rows}to install: sudo apt-get install -y --no-install-recommends {}\n", names(absent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_the_reason_and_the_command() {
        let absent = missing(TESTS, |program| program != "newuidmap" && program != "strace");
        assert_eq!(
            advice(&absent),
            "missing: uidmap (needed): a plain user's range of sub-ids\n\
             missing: strace (optional): system calls as another tool sees them\n\
             to install: sudo apt-get install -y --no-install-recommends uidmap strace\n"
        );
        assert_eq!(advice(&missing(TESTS, |_| true)), "");
    }

    #[test]
    fn sudo_is_never_asked_for_a_password() {
        let line = |means| command::line(&apt(means, &["update"]));
        assert_eq!(line(Means::Root), "env DEBIAN_FRONTEND=noninteractive apt-get update");
        assert_eq!(line(Means::Sudo), "sudo -n env DEBIAN_FRONTEND=noninteractive apt-get update");
    }
}
