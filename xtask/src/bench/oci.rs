//! The smallest OCI bundle that runs `true` with the host's `/usr`: what `runc spec` writes, with the root
//! file system and the command changed, and the same namespaces that the other contenders get.

use serde_json::{Value, json};
use std::io;
use std::path::Path;

/// Folders that old programs expect beside `/usr`; on a merged system they are links into it.
const BESIDE_USR: &[&str] = &["bin", "sbin", "lib", "lib64"];

pub(crate) fn write_bundle(bundle: &Path, ids: Option<(u32, u32)>) -> io::Result<()> {
    let root = bundle.join("rootfs");
    for dir in ["usr", "etc", "proc", "dev", "sys", "tmp", "work"] {
        std::fs::create_dir_all(root.join(dir))?;
    }
    for name in BESIDE_USR.iter().filter(|name| Path::new("/").join(name).exists()) {
        let link = root.join(name);
        if !link.is_symlink() {
            std::os::unix::fs::symlink(format!("usr/{name}"), link)?;
        }
    }
    std::fs::write(bundle.join("config.json"), serde_json::to_vec_pretty(&config(bundle, ids))?)
}

/// `ids`: the user and group to map to root inside, for a plain user; root needs no user namespace.
fn config(bundle: &Path, ids: Option<(u32, u32)>) -> Value {
    let mut namespaces = vec!["pid", "network", "ipc", "uts", "mount"];
    let mut linux = json!({
        "maskedPaths": ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
        "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
    });
    if let Some((uid, gid)) = ids {
        namespaces.push("user");
        linux["uidMappings"] = json!([{ "containerID": 0, "hostID": uid, "size": 1 }]);
        linux["gidMappings"] = json!([{ "containerID": 0, "hostID": gid, "size": 1 }]);
    }
    linux["namespaces"] = namespaces.iter().map(|kind| json!({ "type": kind })).collect();
    json!({
        "ociVersion": "1.0.2",
        "hostname": "bench",
        "root": { "path": "rootfs", "readonly": true },
        "process": {
            "terminal": false,
            "user": { "uid": 0, "gid": 0 },
            "args": ["/bin/true"],
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/work",
            "noNewPrivileges": true,
            "capabilities": { "bounding": [], "effective": [], "permitted": [], "ambient": [] },
        },
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc" },
            { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"] },
            { "destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"] },
            { "destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"] },
            { "destination": "/etc", "type": "bind", "source": "/etc", "options": ["rbind", "ro"] },
            { "destination": "/work", "type": "bind", "source": bundle, "options": ["rbind", "rw"] },
        ],
        "linux": linux,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_has_a_config_and_a_root() {
        let dir = tempfile::tempdir().unwrap();
        write_bundle(dir.path(), None).unwrap();
        write_bundle(dir.path(), None).unwrap();
        let config: Value =
            serde_json::from_slice(&std::fs::read(dir.path().join("config.json")).unwrap()).unwrap();
        assert_eq!(config["process"]["args"], json!(["/bin/true"]));
        assert!(dir.path().join("rootfs/usr").is_dir() && dir.path().join("rootfs/bin").is_symlink());
    }

    #[test]
    fn a_plain_user_gets_a_user_namespace() {
        let plain = config(Path::new("/b"), Some((1000, 100)));
        assert_eq!(plain["linux"]["uidMappings"][0]["hostID"], 1000);
        assert_eq!(plain["linux"]["namespaces"].as_array().unwrap().len(), 6);
        assert_eq!(config(Path::new("/b"), None)["linux"]["namespaces"].as_array().unwrap().len(), 5);
    }
}
