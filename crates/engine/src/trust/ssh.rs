//! How OpenSSH inside comes to know the key of the session, which every host has there: by its system-wide configuration,
//! of which the inside is shown ours with the host's own behind it. And what the operator's own OpenSSH knows, outside.

use crate::error::EngineError;
use cofferdam_runtime::ShownFile;
use std::io::ErrorKind;
use std::path::PathBuf;

const CONFIG: &str = "/etc/ssh/ssh_config";
const SYSTEM: &str = "/etc/ssh/ssh_known_hosts";
const KNOWN: &str = "/.cofferdam/ssh_known_hosts";

/// Nothing where there is no OpenSSH.
pub(super) fn files(host_key: &str) -> Vec<ShownFile> {
    let mut files = vec![ShownFile { at: KNOWN.into(), content: host_key.into() }];
    if let Ok(theirs) = std::fs::read(CONFIG) {
        // The first word on something is the one that holds.
        let ours = format!("GlobalKnownHostsFile {KNOWN} {SYSTEM}\n\n");
        files.push(ShownFile { at: CONFIG.into(), content: [ours.as_bytes(), &theirs].concat() });
    }
    files
}

/// What the user that we are, and this machine, know of hosts. A file that is there and cannot be read may say of a key
/// that it was taken back.
pub(crate) fn known_outside() -> Result<String, EngineError> {
    let home = std::env::home_dir().map(|home| home.join(".ssh/known_hosts"));
    let mut all = String::new();
    for path in home.into_iter().chain([PathBuf::from(SYSTEM)]) {
        match std::fs::read(&path) {
            Ok(bytes) => all.push_str(&String::from_utf8_lossy(&bytes)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(source) => return Err(EngineError::Unreadable { path, source }),
        }
        all.push('\n');
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_hosts_own_configuration_stands_behind_ours() {
        let files = files("* ssh-ed25519 AAAA\n");
        assert_eq!(
            (files[0].at.as_path(), files[0].content.as_slice()),
            (Path::new(KNOWN), &b"* ssh-ed25519 AAAA\n"[..])
        );
        if let (Ok(theirs), Some(shown)) = (std::fs::read(CONFIG), files.get(1)) {
            assert!(
                shown.content.starts_with(b"GlobalKnownHostsFile /.cofferdam/")
                    && shown.content.ends_with(&theirs)
            );
        }
    }
}
