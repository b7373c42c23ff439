//! How programs inside come to trust the session's own certificate authority, without flags and whatever they
//! are written in: by the bundles that libraries open, and by the variables that they read.

mod java;
mod ssh;

use cofferdam_runtime::ShownFile;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Where distributions keep the bundle of all authorities.
const BUNDLES: &[&str] = &[
    // Debian, Ubuntu, Alpine, Arch
    "/etc/ssl/certs/ca-certificates.crt",
    // Fedora, RHEL
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    // openSUSE
    "/etc/ssl/ca-bundle.pem",
    // Alpine's OpenSSL, BSD habits
    "/etc/ssl/cert.pem",
];

/// Files that are there whatever the host has.
const BUNDLE: &str = "/.cofferdam/ca-bundle.pem";
const OWN: &str = "/.cofferdam/ca.pem";
/// Some Python libraries (stripe's) bring a bundle and read no variable. A program of ours that Python runs when it
/// starts adds the authority to whatever they bring.
const PYTHON: &str = "/.cofferdam/python";
const PYTHON_START: &str = include_str!("trust/sitecustomize.py");
/// What is searched besides what the caller named, and so is joined to it.
pub(crate) const PYTHON_PATH: &str = "PYTHONPATH";

/// Variables that take the place of a program's own bundle, with who reads them.
const REPLACE: &[&str] = &[
    // OpenSSL, and with it Python's ssl, Ruby, PHP; Go
    "SSL_CERT_FILE",
    // requests and what is built on it, httpx through certifi
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    // boto3 and the AWS command line
    "AWS_CA_BUNDLE",
    "PIP_CERT",
    // libpq, and with it psql, psycopg and most that speaks to Postgres
    "PGSSLROOTCERT",
    // gRPC's own TLS, in every language but Go and Java
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
];

/// Variables that add to it.
const ADD: &[&str] = &["NODE_EXTRA_CA_CERTS", "DENO_CERT"];

pub(crate) use ssh::known_outside;

pub(crate) struct Trust {
    pub(crate) files: Vec<ShownFile>,
    pub(crate) variables: Vec<(&'static str, &'static str)>,
}

/// For an authority given in PEM, and the line that says which key hosts have which are reached over SSH.
pub(crate) fn spread(authority: &str, host_key: &str) -> Trust {
    let host = Host::now();
    let bundle = [host.bundle.as_slice(), b"\n", authority.as_bytes()].concat();
    let places = host.places.iter().cloned().chain([PathBuf::from(BUNDLE)]);
    let mut files: Vec<ShownFile> = places.map(|at| ShownFile { at, content: bundle.clone() }).collect();
    if let Some(store) = &host.store {
        let content = store.with(authority.as_bytes());
        let stores = host.stores.iter().cloned();
        files.extend(stores.map(|at| ShownFile { at, content: content.clone() }));
    }
    files.push(ShownFile { at: OWN.into(), content: authority.as_bytes().to_vec() });
    let start = Path::new(PYTHON).join("sitecustomize.py");
    files.push(ShownFile { at: start, content: PYTHON_START.into() });
    files.extend(ssh::files(host_key));
    let replace = REPLACE.iter().map(|name| (*name, BUNDLE));
    let mut variables: Vec<_> = replace.chain(ADD.iter().map(|name| (*name, OWN))).collect();
    variables.push((PYTHON_PATH, PYTHON));
    Trust { files, variables }
}

/// The authorities of this host, the same for every session until somebody changes a file. To put them into Java's form takes
/// longer than to make a sandbox, and a suite has hundreds.
struct Host {
    /// Of the first bundle that can be read.
    bundle: Vec<u8>,
    /// Where bundles stand, each once.
    places: Vec<PathBuf>,
    stores: Vec<PathBuf>,
    /// Where there is a Java.
    store: Option<java::Store>,
}

/// What says that a file is still the one that was read: device, node and size, and when it was written and changed.
type Stamp = ([u64; 3], [i64; 3]);

#[derive(PartialEq, Eq)]
struct Seen {
    bundles: Vec<(PathBuf, Stamp)>,
    stores: Vec<PathBuf>,
}

impl Seen {
    fn now() -> Self {
        let stamp = |meta: Metadata| {
            let times = [meta.mtime(), meta.ctime(), meta.ctime_nsec()];
            ([meta.dev(), meta.ino(), meta.size()], times)
        };
        let real = BUNDLES.iter().filter_map(|path| Path::new(path).canonicalize().ok());
        let bundles = real.filter_map(|path| path.metadata().ok().map(|meta| (path, stamp(meta)))).collect();
        Self { bundles, stores: java::stores() }
    }
}

impl Host {
    /// Looked at before it is read: whatever changes meanwhile is found changed the next time.
    fn now() -> Arc<Self> {
        static KNOWN: Mutex<Option<(Seen, Arc<Host>)>> = Mutex::new(None);
        let seen = Seen::now();
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((before, host)) if *before == seen => host.clone(),
            _ => {
                let host = Arc::new(Self::read(&seen));
                *known = Some((seen, host.clone()));
                host
            }
        }
    }

    fn read(seen: &Seen) -> Self {
        let mut places: Vec<PathBuf> = seen.bundles.iter().map(|(path, _)| path.clone()).collect();
        let bundle = places.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default();
        places.sort();
        places.dedup();
        let store = (!seen.stores.is_empty()).then(|| java::Store::of(&bundle));
        Self { bundle, places, stores: seen.stores.clone(), store }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_has_is_read_once_and_each_session_has_its_own_authority() {
        assert!(Arc::ptr_eq(&Host::now(), &Host::now()));
        let of = |authority: &str| {
            let bundle = spread(authority, "").files.into_iter().find(|file| file.at == Path::new(BUNDLE));
            String::from_utf8(bundle.unwrap().content).unwrap()
        };
        let (one, other) = (of("-----ONE-----\n"), of("-----OTHER-----\n"));
        assert!(one.contains("ONE") && !one.contains("OTHER") && !other.contains("-----ONE"));
    }

    #[test]
    fn an_authority_stands_in_every_bundle_beside_the_hosts_own() {
        let trust = spread("-----SESSION-----\n", "* ssh-ed25519 AAAA\n");
        let is_pem = |file: &&ShownFile| {
            let other =
                ["cacerts", "ssh_config", "ssh_known_hosts"].iter().any(|name| file.at.ends_with(name));
            !file.at.starts_with(PYTHON) && !other
        };
        for file in trust.files.iter().filter(is_pem) {
            assert!(file.content.ends_with(b"-----SESSION-----\n"), "{:?}", file.at);
        }
        let bundle = trust.files.iter().find(|file| file.at == Path::new(BUNDLE)).unwrap();
        if let Some(host) = BUNDLES.iter().find_map(|path| std::fs::read(path).ok()) {
            assert!(bundle.content.starts_with(&host));
        }
        assert!(trust.variables.iter().all(|(_, path)| trust.files.iter().any(|f| f.at.starts_with(path))));
    }
}
