//! Which modules a machine needs, with what those need, in the order in which they can be loaded.

use super::{refused, unpack};
use cofferdam_runtime::RuntimeError;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

/// By name, with why. What is built into the kernel is not looked for.
const NEEDED: &[(&str, &str)] = &[
    ("virtio_mmio", "every device of such a machine is found by it"),
    ("virtio_blk", "the disks that the inside is shown on"),
    ("virtio_console", "the channel"),
    ("crc32c_generic", "file systems and nftables count with it"),
    ("erofs", "the form that the disks have"),
    ("overlay", "changes apart from what they change"),
    ("nf_tables", "capture of what is sent out"),
    ("nft_tproxy", "the same"),
];

/// Used where they are there.
const WELCOME: &[&str] =
    &["tcp_diag", "udp_diag", "virtio_rng", "vmw_vsock_virtio_transport", "crc32c_intel"];

/// File names and contents, in order.
pub(super) fn collect(dir: &Path) -> Result<Vec<(String, Vec<u8>)>, RuntimeError> {
    let text = |name: &str| {
        fs::read_to_string(dir.join(name))
            .map_err(RuntimeError::io(format!("read {}", dir.join(name).display())))
    };
    let listed = text("modules.dep")?;
    let dependencies = parse(&listed);
    let built_in: HashSet<String> =
        text("modules.builtin").unwrap_or_default().lines().map(module_name).collect();
    let mut order = Vec::new();
    for (name, why) in NEEDED {
        if !built_in.contains(*name) && !place(name, &dependencies, &mut order) {
            let what = format!("the kernel in {} has no module `{name}` ({why})", dir.display());
            return Err(refused(what, super::FIX));
        }
    }
    for name in WELCOME {
        place(name, &dependencies, &mut order);
    }
    order.into_iter().map(|path| load(dir, &path)).collect()
}

fn load(dir: &Path, path: &str) -> Result<(String, Vec<u8>), RuntimeError> {
    let whole = dir.join(path);
    let bytes = fs::read(&whole).map_err(RuntimeError::io(format!("read {}", whole.display())))?;
    let bytes = unpack::module(bytes).map_err(|what| {
        refused(format!("the module {} cannot be used: {what}", whole.display()), super::FIX)
    })?;
    Ok((format!("{}.ko", module_name(path)), bytes))
}

/// `a/b-c.ko.xz` is `b_c`.
fn module_name(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.split(".ko").next().unwrap_or(name).replace('-', "_")
}

type Dependencies<'a> = HashMap<String, (&'a str, Vec<&'a str>)>;

fn parse(text: &str) -> Dependencies<'_> {
    let mut found = Dependencies::new();
    for text in text.lines() {
        if let Some((path, needs)) = text.split_once(':') {
            // The kernel's own tool lists the nearest first.
            found.insert(module_name(path), (path, needs.split_whitespace().rev().collect()));
        }
    }
    found
}

fn place(name: &str, all: &Dependencies<'_>, order: &mut Vec<String>) -> bool {
    let Some((path, needs)) = all.get(name) else { return false };
    for need in needs.iter().chain([path]) {
        if !order.iter().any(|there| there == need) {
            order.push((*need).to_owned());
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_comes_first_and_once() {
        let text =
            "k/nft_tproxy.ko.xz: k/nf-six.ko k/nf_tables.ko k/crc.ko\nk/nf_tables.ko: k/crc.ko\nk/crc.ko:\n";
        let all = parse(text);
        let mut order = Vec::new();
        assert!(place("nf_tables", &all, &mut order) && place("nft_tproxy", &all, &mut order));
        assert_eq!(order, ["k/crc.ko", "k/nf_tables.ko", "k/nf-six.ko", "k/nft_tproxy.ko.xz"]);
        assert!(!place("absent", &all, &mut order));
        assert_eq!(module_name("kernel/a/virtio-rng.ko.zst"), "virtio_rng");
    }
}
