//! The store of authorities that Java opens, which reads no PEM and no variable: all of a bundle in Java's own
//! format. Written, never read.

use cofferdam_seal::sha1;
use std::path::{Path, PathBuf};

/// Where distributions keep it; those of a runtime are links to it, or stand beside.
const STORES: &[&str] = &["/etc/ssl/certs/java/cacerts", "/etc/pki/ca-trust/extracted/java/cacerts"];
const RUNTIMES: &str = "/usr/lib/jvm";
/// Under a runtime.
const BESIDE: &str = "lib/security/cacerts";

/// No secret: every Java has it, and it is only a checksum's salt.
const PASSWORD: &str = "changeit";
const SALT: &[u8] = b"Mighty Aphrodite";
const MAGIC: u32 = 0xFEED_FEED;
const VERSION: u32 = 2;
const TRUSTED: u32 = 2;

/// The stores of this host, each once.
pub(super) fn stores() -> Vec<PathBuf> {
    let runtimes = std::fs::read_dir(RUNTIMES).into_iter().flatten().flatten();
    let own = std::env::var_os("JAVA_HOME").map(PathBuf::from);
    let beside = runtimes.map(|entry| entry.path()).chain(own).map(|runtime| runtime.join(BESIDE));
    let all = STORES.iter().map(PathBuf::from).chain(beside);
    let mut found: Vec<PathBuf> = all.filter_map(|path| Path::canonicalize(&path).ok()).collect();
    found.sort();
    found.dedup();
    found
}

/// The authorities of a bundle in Java's form, to which others can be added.
pub(super) struct Store {
    entries: Vec<u8>,
    count: usize,
}

impl Store {
    pub(super) fn of(bundle: &[u8]) -> Self {
        let mut store = Self { entries: Vec::with_capacity(bundle.len()), count: 0 };
        store.count = put(&mut store.entries, 0, bundle);
        store
    }

    /// A whole store: these authorities, and those of another bundle.
    pub(super) fn with(&self, others: &[u8]) -> Vec<u8> {
        let mut added = Vec::with_capacity(others.len());
        let count = put(&mut added, self.count, others);
        let mut out = Vec::with_capacity(self.entries.len() + added.len() + 64);
        for word in [MAGIC, VERSION, count as u32] {
            out.extend(word.to_be_bytes());
        }
        out.extend(&self.entries);
        out.extend(&added);
        let password: Vec<u8> = PASSWORD.encode_utf16().flat_map(u16::to_be_bytes).collect();
        let sum = sha1(&[&password, SALT, &out]);
        out.extend(sum);
        out
    }
}

/// Adds the certificates of a bundle behind so many. Returns how many there are then.
fn put(out: &mut Vec<u8>, before: usize, bundle: &[u8]) -> usize {
    let authorities = pem::parse_many(bundle).unwrap_or_default();
    let certificates = authorities.iter().filter(|item| item.tag() == "CERTIFICATE");
    let mut number = before;
    for certificate in certificates.map(pem::Pem::contents) {
        out.extend(TRUSTED.to_be_bytes());
        text(out, &format!("cofferdam-{number}"));
        // The day it was added: of no use to anyone.
        out.extend(0u64.to_be_bytes());
        text(out, "X.509");
        out.extend((certificate.len() as u32).to_be_bytes());
        out.extend(certificate);
        number += 1;
    }
    number
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u16).to_be_bytes());
    out.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_an_entry_for_each_certificate_and_nothing_else() {
        let pem = |tag: &str, content: &str| pem::encode(&pem::Pem::new(tag, content));
        let bundle = format!(
            "# a comment\n{}{}{}",
            pem("CERTIFICATE", "one"),
            pem("OTHER", "x"),
            pem("CERTIFICATE", "two")
        );
        let made = Store::of(b"").with(bundle.as_bytes());
        let (first, second) = bundle.split_at(bundle.find("-----BEGIN OTHER").unwrap());
        assert_eq!(Store::of(first.as_bytes()).with(second.as_bytes()), made, "whatever came from where");
        assert_eq!(made[..12], [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 2]);
        assert!(
            made.windows(7).any(|part| part == b"\0\0\0\x03one")
                && made.windows(3).any(|part| part == b"two")
        );
        assert_eq!(Store::of(b"").with(b"")[..12], [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 0]);
    }
}
