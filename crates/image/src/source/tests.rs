//! A registry that wants a token, has several variants, and sends elsewhere for layers. It writes down who asked how.

use super::{Access, Place, open};
use crate::unpack::tests::{Layout, Tar};
use crate::{ImageError, Imported, Most, import, oci};
use cofferdam_seal::digest;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

struct Registry {
    address: String,
    /// Path and authorization of every request.
    heard: Arc<Mutex<Vec<(String, String)>>>,
}

fn answer(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) {
    let head =
        format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

/// Serves the blobs of a layout; manifests are asked for under their digests and as `1`.
fn serve(blobs: PathBuf, top: Vec<u8>) -> Registry {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let store = elsewhere.local_addr().unwrap().to_string();
    let heard = Arc::new(Mutex::new(Vec::new()));
    for (listener, is_store) in [(listener, false), (elsewhere, true)] {
        let (blobs, top, heard) = (blobs.clone(), top.clone(), heard.clone());
        let (address, store) = (address.clone(), store.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
                let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
                let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let own = headers.iter().find_map(|line| {
                    let (name, value) = line.split_once(": ")?;
                    name.eq_ignore_ascii_case("authorization").then(|| value.to_owned())
                });
                let own = own.unwrap_or_default();
                heard
                    .lock()
                    .unwrap()
                    .push((format!("{}{path}", if is_store { "store " } else { "" }), own.clone()));
                let name = path.rsplit("sha256:").next().unwrap_or_default();
                let blob = fs::read(blobs.join(name)).unwrap_or_default();
                if is_store {
                    answer(&mut stream, "200 OK", "", &blob);
                } else if path.starts_with("/token") {
                    answer(&mut stream, "200 OK", "", br#"{"access_token":"secret-token"}"#);
                } else if own != "Bearer secret-token" {
                    let realm = format!(
                        "www-authenticate: Bearer realm=\"http://{address}/token\",service=\"reg\"\r\n"
                    );
                    answer(&mut stream, "401 Unauthorized", &realm, b"");
                } else if path.ends_with("/manifests/1") {
                    answer(&mut stream, "200 OK", "", &top);
                } else if path.contains("/blobs/") {
                    let to = format!("location: http://{store}/sha256:{name}\r\n");
                    answer(&mut stream, "307 Temporary Redirect", &to, b"");
                } else {
                    answer(&mut stream, if blob.is_empty() { "404 Not Found" } else { "200 OK" }, "", &blob);
                }
            }
        });
    }
    Registry { address, heard }
}

fn take(registry: &Registry, version: &str) -> (tempfile::TempDir, Result<Imported, ImageError>) {
    let into = tempfile::tempdir().unwrap();
    let reference = format!("docker://{}/team/app{version}", registry.address).parse().unwrap();
    let access = Access { login: Some("ada:password".into()) };
    let taken = open(&Place::Registry(reference), access, into.path(), Most::default())
        .and_then(|mut source| import(source.as_mut(), None, into.path(), Most::default()));
    (into, taken)
}

#[test]
fn a_registry_is_asked_with_a_token_that_goes_nowhere_else() {
    let layout = Layout::plain(vec![Tar::default().dir("etc").file("etc/a", "from a registry")]);
    let dir = layout.write();
    let index = fs::read_to_string(dir.join("index.json")).unwrap();
    let own = index.trim_start_matches(r#"{"manifests":[{"#).trim_end_matches("}]}").to_owned();
    let other = format!(
        r#"{{"digest":"sha256:{}","size":3,"platform":{{"os":"linux","architecture":"s390x"}}}}"#,
        "1".repeat(64)
    );
    let own = format!(r#"{{{own},"platform":{{"os":"linux","architecture":"{}"}}}}"#, oci::architecture());
    let top = format!(r#"{{"manifests":[{other},{own}]}}"#);
    let registry = serve(dir.join("blobs/sha256"), top.clone().into_bytes());
    let (into, taken) = take(&registry, ":1");
    taken.unwrap();
    assert_eq!(fs::read_to_string(into.path().join("etc/a")).unwrap(), "from a registry");
    let heard = registry.heard.lock().unwrap().clone();
    let basic = format!("Basic {}", cofferdam_seal::base64(b"ada:password"));
    for (path, authorization) in &heard {
        match path {
            path if path.starts_with("store ") => assert_eq!(authorization, "", "{path}"),
            path if path.starts_with("/token") => {
                assert_eq!(authorization, &basic);
                assert!(
                    path.contains("scope=repository%3Ateam%2Fapp%3Apull") && path.contains("service=reg"),
                    "{path}"
                );
            }
            _ => assert!(
                ["", "Bearer secret-token"].contains(&authorization.as_str()),
                "{path} {authorization}"
            ),
        }
    }
    assert!(heard.iter().any(|(path, _)| path.starts_with("store ")));
    // Pinned to something else than what comes.
    let (_, taken) = take(&registry, &format!("@sha256:{}", digest(b"other")));
    assert!(matches!(taken.unwrap_err(), ImageError::Answer { status: 404, .. }));
}

#[test]
fn a_registry_that_lies_is_not_believed() {
    let layout = Layout::plain(vec![Tar::default().file("a", "1")]);
    let dir = layout.write();
    let blobs = dir.join("blobs/sha256");
    let manifest = fs::read_dir(&blobs).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
    let manifest = manifest.into_iter().find(|bytes| bytes.starts_with(b"{\"config\"")).unwrap();
    let registry = serve(blobs.clone(), manifest.clone());
    assert!(take(&registry, ":1").1.is_ok());
    // Another file under the same name, of the same size.
    let layer = fs::read_dir(&blobs)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .max_by_key(|path| path.metadata().unwrap().len());
    let layer = layer.unwrap();
    let mut bytes = fs::read(&layer).unwrap();
    bytes[512] ^= 1;
    fs::write(&layer, &bytes).unwrap();
    let said = take(&registry, ":1").1.unwrap_err();
    assert!(matches!(said, ImageError::Digest { .. }), "{said}");
}
