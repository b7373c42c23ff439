//! Against a little server that answers as the KV version 2 store of a HashiCorp Vault does, over HTTP and TLS.

use crate::doubles::{Place, refusal};
use cofferdam_vault::Draft;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

const TOKEN: &str = "hvs.test-token-of-the-little-server";
const VALUE: &str = "value-from-the-store-\u{fc}-with \\\"quotes\\\"";

/// What the server says to one request.
fn answer(head: &str) -> String {
    let (status, body) = match head.lines().next().unwrap_or_default() {
        _ if !head.lines().any(|line| line.eq_ignore_ascii_case(&format!("x-vault-token: {TOKEN}"))) => {
            ("403 Forbidden", r#"{"errors":["permission denied"]}"#.to_owned())
        }
        "GET /v1/secret/data/apps/stripe%20live HTTP/1.1" => {
            let fields = format!(r#"{{"key":"{VALUE}","count":7,"other":"not-this-one"}}"#);
            (
                "200 OK",
                format!(r#"{{"request_id":"x","data":{{"data":{fields},"metadata":{{"version":3}}}}}}"#),
            )
        }
        "GET /v1/kv1/data/x HTTP/1.1" => ("200 OK", r#"{"data":{"key":"no nested data"}}"#.to_owned()),
        "GET /v1/moved/data/x HTTP/1.1" => ("307 Temporary Redirect", String::new()),
        "GET /v1/huge/data/x HTTP/1.1" => ("200 OK", "x".repeat(5 << 20)),
        "GET /v1/broken/data/x HTTP/1.1" => ("200 OK", "<html>".to_owned()),
        _ => ("404 Not Found", r#"{"errors":[]}"#.to_owned()),
    };
    format!(
        "HTTP/1.1 {status}\r\nlocation: http://169.254.169.254/\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn serve(mut stream: impl Read + Write) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
        head.push(byte[0]);
    }
    // A client that does not want all of it leaves early.
    let _ = stream.write_all(answer(&String::from_utf8_lossy(&head)).as_bytes());
    let _ = stream.flush();
}

/// Serves for as long as the test program lives; says where.
fn start(each: impl Fn(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || listener.incoming().flatten().for_each(each));
    port
}

fn place(address: String) -> Place {
    let mut place = Place::new();
    place.env.insert("VAULT_ADDR", address.into());
    place.env.insert("VAULT_TOKEN", TOKEN.into());
    place
}

fn add(place: &Place, from: &str) -> Result<cofferdam_vault::Kept, cofferdam_vault::SecretError> {
    place.add(Draft { from: Some(from.into()), ..Place::draft("a") }, "")
}

#[test]
fn a_field_is_read_by_its_path() {
    let mut place = place(format!("http://127.0.0.1:{}/", start(serve)));
    let expected = VALUE.replace('\\', "");
    let kept = add(&place, "vault:secret/apps/stripe live#key").unwrap();
    assert_eq!(kept.entry.source, "vault:secret/apps/stripe live#key");
    assert_eq!(place.value("a"), expected);
    place.vault().remove("a").unwrap();
    // The token that `vault login` leaves.
    place.env.remove("VAULT_TOKEN");
    place.env.insert("HOME", place.dir.path().into());
    std::fs::write(place.file(".vault-token"), format!("{TOKEN}\n")).unwrap();
    add(&place, "vault:secret/apps/stripe live#key").unwrap();
    assert_eq!(place.value("a"), expected);
}

#[test]
fn what_cannot_be_had_is_named_and_no_other_field_is() {
    let mut place = place(format!("http://127.0.0.1:{}", start(serve)));
    let check = |place: &Place, from: &str, says: &str| {
        let error = refusal(add(place, from));
        assert!(error.contains(says) && !error.contains("not-this-one") && !error.contains(TOKEN), "{error}");
    };
    check(&place, "vault:secret/apps/stripe live#nope", "it has `count`, `key`, `other`");
    check(&place, "vault:secret/apps/stripe live#count", "not a text");
    check(&place, "vault:secret/nope#key", "404");
    check(&place, "vault:kv1/x#key", "as a KV version 2 store");
    check(&place, "vault:broken/x#key", "as a KV version 2 store");
    check(&place, "vault:moved/x#key", "VAULT_ADDR to the active server");
    check(&place, "vault:huge/x#key", "cannot ask");
    place.env.insert("VAULT_TOKEN", "wrong".into());
    check(&place, "vault:secret/apps/stripe live#key", "403");
    place.env.insert("VAULT_TOKEN", "two\r\nx-evil: lines".into());
    check(&place, "vault:secret/apps/stripe live#key", "one line");
    place.env.remove("VAULT_TOKEN");
    check(&place, "vault:secret/apps/stripe live#key", "VAULT_TOKEN");
    for (address, says) in [
        ("", "VAULT_ADDR"),
        ("vault.example.com", "VAULT_ADDR"),
        ("ftp://127.0.0.1/", "VAULT_ADDR"),
        ("http://vault.example.com:8200", "clear text"),
        ("http://10.0.0.1:8200", "clear text"),
    ] {
        place.env.insert("VAULT_ADDR", address.into());
        check(&place, "vault:secret/x#key", says);
    }
}

#[test]
fn a_server_is_believed_by_its_certificate_only() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let port = start(move |stream| {
        let connection = ServerConnection::new(config.clone()).unwrap();
        serve(StreamOwned::new(connection, stream));
    });
    let mut place = place(format!("https://localhost:{port}"));
    let error = refusal(add(&place, "vault:secret/apps/stripe live#key"));
    assert!(error.contains("certificate"), "a stranger's certificate: {error}");
    let trust = place.file("ca.pem");
    std::fs::write(&trust, made.cert.pem()).unwrap();
    place.env.insert("VAULT_CACERT", trust.clone().into());
    add(&place, "vault:secret/apps/stripe live#key").unwrap();
    assert_eq!(place.value("a"), VALUE.replace('\\', ""));
    place.env.insert("VAULT_ADDR", format!("https://127.0.0.1:{port}").into());
    place.vault().remove("a").unwrap();
    assert!(
        refusal(add(&place, "vault:secret/apps/stripe live#key")).contains("certificate"),
        "another name"
    );
    std::fs::write(&trust, "nothing").unwrap();
    assert!(refusal(add(&place, "vault:secret/apps/stripe live#key")).contains("VAULT_CACERT"));
}
