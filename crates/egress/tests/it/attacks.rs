//! Attempts to go elsewhere, to be read in two ways, or to get a secret out. Each is refused, on record, and
//! stands beside its harmless twin that passes.

use crate::harness::{PLACEHOLDER, Proxy, REAL, Setup, allow, credential, curl, upstream};
use crate::protocols::{h2_client, runtime, tunnel};
use crate::upstream::Server;
use cofferdam_egress::{Accepted, Door};
use cofferdam_testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const HOST: &str = "api.example.com";
const OTHER: &str = "other.example";

/// Two hosts that are allowed and stand for one server, which is the best case for an attacker.
fn two_hosts() -> (Server, Proxy) {
    let server = Server::tls(&[HOST, OTHER], &["h2", "http/1.1"]);
    let policy = upstream(HOST, server.address)
        + &upstream(OTHER, server.address)
        + &allow("one", HOST, "port = 443")
        + &allow("two", OTHER, "port = 443");
    let proxy = Setup::new(&policy, &server.ca).credentials(vec![credential(&[HOST])]).start();
    (server, proxy)
}

fn plain_host() -> (Server, Proxy) {
    let server = Server::plain();
    let policy = upstream("plain.example", server.address) + &allow("all", "plain.example", "");
    let proxy = Setup::new(&policy, &server.ca).start();
    (server, proxy)
}

/// The last refusal on record is for this cause; it may be recorded a moment after the client is told.
fn refused_for(proxy: &Proxy, cause: &str) {
    eventually(cause, || proxy.refused().pop().filter(|refused| refused.cause == cause));
}

#[test]
fn a1_a3_the_hello_must_name_where_the_tunnel_goes() {
    let (server, proxy) = two_hosts();
    runtime().block_on(async {
        assert!(tunnel(&proxy, HOST, HOST, "h2").await.is_ok());
        assert!(tunnel(&proxy, HOST, OTHER, "h2").await.is_err());
        refused_for(&proxy, "name-mismatch");
        // An address in the place of a name is sent as no name at all.
        assert!(tunnel(&proxy, HOST, "192.0.2.1", "h2").await.is_err());
        refused_for(&proxy, "no-name");
    });
    assert_eq!(server.seen.count(), 0);
    // Directly, the server would have answered under either name.
    let connect = format!("{OTHER}:443:{}", server.address);
    let direct = curl(&["-k", "--connect-to", &connect, &format!("https://{OTHER}/")]);
    assert_eq!(direct.status, 200, "{direct:?}");
}

#[test]
fn a2_a14_host_and_authority_must_be_the_connections_own() {
    let (server, proxy) = two_hosts();
    let url = format!("https://{HOST}/");
    for version in ["--http1.1", "--http2"] {
        assert_eq!(proxy.curl(&[version, "-H", "Host: API.Example.Com.", &url]).status, 200);
        let got = proxy.curl(&[version, "-H", &format!("Host: {OTHER}"), &url]);
        assert!(got.status == 421 && got.body.contains(OTHER), "{got:?}");
        refused_for(&proxy, "name-mismatch");
    }
    assert_eq!(server.seen.count(), 2);
    runtime().block_on(async {
        let (mut sender, connection) = h2_client(&proxy).await;
        tokio::spawn(connection);
        let ask = |host: &str, field: Option<&str>| {
            let mut request = http::Request::get(format!("https://{host}/"));
            if let Some(field) = field {
                request = request.header("host", field);
            }
            request.body(String::new()).unwrap()
        };
        assert_eq!(sender.send_request(ask(HOST, Some(HOST))).await.unwrap().status(), 200);
        assert_eq!(sender.send_request(ask(OTHER, None)).await.unwrap().status(), 421);
        assert_eq!(sender.send_request(ask(HOST, Some(OTHER))).await.unwrap().status(), 400);
    });
    assert_eq!(server.seen.count(), 3);
}

#[test]
fn a6_a7_addresses_that_are_never_reached() {
    // The policy allows all of them by name, and it makes no difference.
    let hosts = [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.168.1.1",
        "0.0.0.0",
        "2130706433",
        "0177.0.0.1",
        "0x7f000001",
        "127.1",
        "[::1]",
        "[::ffff:10.0.0.1]",
        "[fd00:ec2::254]",
        "[64:ff9b::a00:1]",
        "[fe80::1]",
    ];
    let policy = allow("everything", "*", "");
    let proxy = Setup::new(&policy, Server::plain().ca.as_str()).start();
    for host in hosts {
        let connect = proxy.raw(format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        assert!(connect.starts_with("HTTP/1.1 403 "), "{host}: {connect}");
        let plain = proxy.raw(
            format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes(),
        );
        assert!(plain.starts_with("HTTP/1.1 403 ") && plain.contains("forbidden-address"), "{host}: {plain}");
        refused_for(&proxy, "forbidden-address");
    }
    assert!(proxy.refused().iter().all(|refused| refused.alarm));
    // A name of this machine is resolved, and then refused.
    let local = proxy.curl(&["http://localhost/"]);
    assert!(local.status == 403 || local.status == 502, "{local:?}");
    // An override of the operator's leads to loopback, and may.
    let (server, proxy) = plain_host();
    assert_eq!(proxy.curl(&["http://plain.example/"]).status, 200);
    assert_eq!(server.seen.count(), 1);
}

#[test]
fn a15_ports_are_part_of_the_rule_and_dns_ports_are_closed() {
    let (server, proxy) = two_hosts();
    let denied = proxy.curl(&[&format!("https://{HOST}:8443/")]);
    assert_eq!(denied.status, 403, "{denied:?}");
    let dot = proxy.raw(format!("CONNECT {HOST}:853 HTTP/1.1\r\nHost: {HOST}:853\r\n\r\n").as_bytes());
    assert!(dot.starts_with("HTTP/1.1 403 "), "{dot}");
    refused_for(&proxy, "dns-port");
    assert_eq!(server.seen.count(), 0);
    assert_eq!(proxy.curl(&[&format!("https://{HOST}:443/")]).status, 200);
}

#[test]
fn b1_dns_over_https_is_refused_on_allowed_hosts() {
    let (server, proxy) = two_hosts();
    let url = |path: &str| format!("https://{HOST}{path}");
    for args in [
        vec!["-H".to_owned(), "accept: application/dns-message".to_owned(), url("/x")],
        vec![url("/dns-query?name=a.example")],
        vec![url("/x?dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA2NvbQAAAQAB")],
    ] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        assert_eq!(proxy.curl(&args).status, 403, "{args:?}");
        refused_for(&proxy, "dns-over-https");
    }
    assert_eq!(proxy.curl(&[&url("/x?dns=short")]).status, 200);
    assert_eq!(server.seen.count(), 1);
}

#[test]
fn b4_b6_b7_no_tunnels_in_tunnels_and_nothing_but_http() {
    let (server, proxy) = plain_host();
    let in_tunnel = |bytes: &[u8]| {
        let head: &[u8] = b"CONNECT plain.example:80 HTTP/1.1\r\nHost: plain.example\r\n\r\n";
        let out = proxy.raw(&[head, bytes].concat());
        out.strip_prefix("HTTP/1.1 200 OK\r\n\r\n").map(str::to_owned).unwrap_or(out)
    };
    let good = in_tunnel(b"GET /a HTTP/1.1\r\nHost: plain.example\r\nConnection: close\r\n\r\n");
    assert!(good.starts_with("HTTP/1.1 200 OK"), "{good}");
    let connect = in_tunnel(
        b"CONNECT plain.example:80 HTTP/1.1\r\nHost: plain.example:80\r\nConnection: close\r\n\r\n",
    );
    assert!(connect.starts_with("HTTP/1.1 405 "), "{connect}");
    let h2c = in_tunnel(b"GET /b HTTP/1.1\r\nHost: plain.example\r\nConnection: upgrade, http2-settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n\r\n");
    assert!(h2c.starts_with("HTTP/1.1 200 OK") && !h2c.contains("h2c"), "{h2c}");
    let masque = in_tunnel(b"GET /c HTTP/1.1\r\nHost: plain.example\r\nConnection: upgrade, close\r\nUpgrade: connect-udp\r\n\r\n");
    assert!(masque.starts_with("HTTP/1.1 400 "), "{masque}");
    let prior = in_tunnel(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert!(prior.starts_with("HTTP/1.1 400 "), "{prior}");
    for other in [&b"*1\r\n$4\r\nPING\r\n"[..], b"\x00\x01\x02\x03", b"\x16\x03\x01\x00\x05hello"] {
        assert_eq!(in_tunnel(other), "");
        refused_for(&proxy, "not-http-or-tls");
    }
    // SSH is spoken with us, and nobody is asked for anything before a command was judged.
    assert!(
        in_tunnel(b"SSH-2.0-OpenSSH_9.2\r\n\xff\xff\xff\xff\xff\xff").starts_with("SSH-2.0-Cofferdam\r\n")
    );
    assert_eq!(server.seen.count(), 2);
}

#[test]
fn c1_c4_what_has_two_readings_is_refused_and_nothing_behind_it_passes() {
    let (server, proxy) = plain_host();
    let behind =
        "GET http://plain.example/smuggled HTTP/1.1\r\nHost: plain.example\r\nConnection: close\r\n\r\n";
    let post = |fields: &str, body: &str| {
        proxy.raw(
            format!(
                "POST http://plain.example/a HTTP/1.1\r\nHost: plain.example\r\n{fields}\r\n{body}{behind}"
            )
            .as_bytes(),
        )
    };
    // The harmless twin: both requests are answered.
    let twin = post("Content-Length: 5\r\n", "0\r\n\r\n");
    assert_eq!(twin.matches("HTTP/1.1 200 OK").count(), 2, "{twin}");
    assert_eq!(server.seen.count(), 2);
    for (fields, body) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", "0\r\n\r\n"),
        ("Content-Length: 5\r\nContent-Length: 0\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding: chunked\t\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"),
        ("X: a\r\n Transfer-Encoding: chunked\r\n", ""),
        ("X: a\nTransfer-Encoding: chunked\r\n", ""),
        ("X: a\0b\r\n", ""),
        ("Host: other.example\r\n", ""),
    ] {
        let out = post(fields, body);
        assert!(out.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{fields:?}: {out}");
        assert!(out.contains("connection: close"), "{out}");
        assert_eq!(
            (out.matches("x-cofferdam-refused").count(), out.matches("200 OK").count()),
            (1, 0),
            "{out}"
        );
        assert!(proxy.refused().last().is_some_and(|refused| refused.alarm), "{fields:?}");
    }
    // Only now it shows in the body: the request breaks off, and the next one is not seen.
    let out = post("Transfer-Encoding: chunked\r\n", "5;a=b\r\nhello\r\n0\r\n\r\n");
    assert!(!out.contains("200 OK"), "{out}");
    assert!(!server.seen.all().contains("hello"), "{}", server.seen.all());
    assert_eq!(server.seen.all().matches("/smuggled").count(), 1);
}

#[test]
fn c4_a_request_behind_a_denied_one_is_judged_for_itself() {
    let server = Server::plain();
    let policy =
        upstream("plain.example", server.address) + &allow("ok", "plain.example", "paths = [\"/ok\"]");
    let proxy = Setup::new(&policy, &server.ca).start();
    let out = proxy.raw(
        b"GET http://plain.example/no HTTP/1.1\r\nHost: plain.example\r\n\r\n\
          GET http://plain.example/ok HTTP/1.1\r\nHost: plain.example\r\n\r\n\
          GET http://plain.example/no2 HTTP/1.1\r\nHost: plain.example\r\nConnection: close\r\n\r\n",
    );
    let statuses: Vec<&str> = out.split("HTTP/1.1 ").skip(1).map(|part| &part[..3]).collect();
    assert_eq!(statuses[0], "403", "{out}");
    assert_eq!(statuses[1], "200", "{out}");
    assert_eq!(statuses.last(), Some(&"403"), "{out}");
    assert_eq!(server.seen.count(), 1);
}

#[test]
fn c7_paths_with_two_readings_do_not_match_a_rule() {
    let server = Server::tls(&[HOST], &["h2", "http/1.1"]);
    let policy = upstream(HOST, server.address) + &allow("public", HOST, "paths = [\"/public/**\"]");
    let proxy = Setup::new(&policy, &server.ca).start();
    let get = |path: &str| proxy.curl(&["--path-as-is", &format!("https://{HOST}{path}")]).status;
    assert_eq!(get("/public/a%20b"), 200);
    for path in [
        "/public/../admin",
        "/public/%2e%2e/admin",
        "/public/..%2fadmin",
        "/public/%252e%252e/admin",
        "/public/..\\admin",
    ] {
        assert!(matches!(get(path), 400 | 403), "{path}");
    }
    assert_eq!(server.seen.count(), 1);
}

#[test]
fn d1_d2_a_secret_that_comes_back_is_a_placeholder_again() {
    let (server, proxy) = two_hosts();
    let basic = |key: &str| format!("u:{key}");
    for version in ["--http1.1", "--http2"] {
        let got =
            proxy.curl(&[version, "-u", &basic(PLACEHOLDER), &format!("https://{HOST}/?key={PLACEHOLDER}")]);
        assert_eq!(got.status, 200, "{got:?}");
        assert!(!got.body.contains(REAL) && got.body.contains(PLACEHOLDER), "{got:?}");
    }
    assert!(server.seen.all().contains(&format!("key={REAL}")), "{}", server.seen.all());
    // Directly, the same server tells back what it got.
    let connect = format!("{HOST}:443:{}", server.address);
    let direct = curl(&["-k", "--connect-to", &connect, &format!("https://{HOST}/?key={REAL}")]);
    assert!(direct.body.contains(REAL));
    assert!(!format!("{:?}", proxy.events()).contains(REAL));
}

#[test]
fn d3_trace_is_never_forwarded() {
    let (server, proxy) = two_hosts();
    assert_eq!(proxy.curl(&["-X", "TRACE", &format!("https://{HOST}/")]).status, 405);
    assert_eq!(proxy.curl(&["-X", "OPTIONS", &format!("https://{HOST}/")]).status, 200);
    assert_eq!(server.seen.count(), 1);
}

#[test]
fn d13_a_placeholder_for_another_host_or_place_is_refused_and_alarmed() {
    let (server, proxy) = two_hosts();
    let bearer = format!("authorization: Bearer {PLACEHOLDER}");
    let (right, wrong) = (format!("https://{HOST}/"), format!("https://{OTHER}/"));
    assert_eq!(proxy.curl(&["-H", &bearer, &right]).status, 200);
    let count = server.seen.count();
    let field = format!("x-note: {PLACEHOLDER}");
    let query = format!("{wrong}?q={PLACEHOLDER}");
    for args in [vec!["-H", &bearer, &wrong], vec![query.as_str()], vec!["-H", &field, &right]] {
        let got = proxy.curl(&args);
        assert!(got.status == 403 && got.body.contains("key"), "{args:?} {got:?}");
        let last = proxy.refused().pop().unwrap();
        assert!(last.cause == "credential-misused" && last.alarm, "{last:?}");
    }
    assert_eq!(server.seen.count(), count);
    // In a body it is found before anything leaves, whether its length is known or not.
    for framing in ["x-framing: length", "transfer-encoding: chunked"] {
        for (url, body) in [(&wrong, PLACEHOLDER), (&right, PLACEHOLDER), (&right, REAL)] {
            let before = proxy.handle.stats().refused;
            let got = proxy.curl(&["--http1.1", "-H", framing, "-d", &format!("a={body}"), url]);
            assert!(got.status == 403 && got.head.contains("credential-misused"), "{got:?}");
            assert_eq!(proxy.handle.stats().refused, before + 1);
            let last = proxy.refused().pop().unwrap();
            assert!(last.cause == "credential-misused" && last.alarm, "{last:?}");
        }
    }
    assert_eq!(server.seen.count(), count);
    assert_eq!(proxy.wait_ended(1).len(), 1);
}

#[test]
fn d19_no_event_ever_holds_a_value() {
    let (_server, proxy) = two_hosts();
    for args in [
        vec!["-u".to_owned(), format!("{PLACEHOLDER}:"), format!("https://{HOST}/")],
        vec![format!("https://{HOST}/?key={PLACEHOLDER}")],
        vec!["-d".to_owned(), REAL.to_owned(), format!("https://{HOST}/")],
        vec![format!("https://{HOST}/{REAL}")],
        vec!["-H".to_owned(), format!("x: {REAL}"), format!("https://{OTHER}/")],
    ] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        proxy.curl(&args);
    }
    eventually("all to end", || (proxy.handle.stats().open == 0).then_some(()));
    let told: Vec<_> =
        proxy.events().into_iter().filter(|event| format!("{event:?}").contains(REAL)).collect();
    assert!(told.is_empty(), "{told:?}");
    assert!(proxy.events().len() > 5);
}

#[test]
fn guarded_shapes_do_not_leave() {
    let (server, proxy) = two_hosts();
    let url = format!("https://{HOST}/");
    let key = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let clean = proxy.curl(&["-d", "nothing special", &url]);
    assert_eq!(clean.status, 200);
    let before = server.seen.all().len();
    let got = proxy.curl(&["--http1.1", "-d", &format!("token={key}"), &url]);
    assert_eq!(got.status, 403, "{got:?}");
    refused_for(&proxy, "secret");
    assert!(!server.seen.all()[before..].contains(key));
}

#[test]
fn transparent_streams_go_by_their_name_and_to_no_bare_address() {
    let server = Server::tls(&[HOST], &["http/1.1"]);
    let plain = Server::plain();
    let policy =
        upstream(HOST, server.address) + &upstream("plain.example", plain.address) + &allow("all", "*", "");
    let setup = Setup::new(&policy, &server.ca);
    let names = setup.names.clone();
    let proxy = setup.start();
    let http = b"GET /t HTTP/1.1\r\nHost: plain.example\r\nConnection: close\r\n\r\n";
    let ask = |to: std::net::SocketAddr, bytes: &'static [u8]| {
        runtime().block_on(async {
            let (mut near, far) = tokio::io::duplex(4096);
            proxy.handle.accept(Accepted {
                stream: Box::new(far),
                door: Door::Transparent(to),
                program: None,
            });
            near.write_all(bytes).await.unwrap();
            let mut out = Vec::new();
            let _ = near.read_to_end(&mut out).await;
            String::from_utf8_lossy(&out).into_owned()
        })
    };
    let named = (names.address_of("plain.example").unwrap(), 80).into();
    let out = ask(named, http);
    assert!(out.starts_with("HTTP/1.1 200 OK") && out.contains("GET /t"), "{out}");
    // The same bytes to the address that stands for another name, and to bare addresses.
    let other = (names.address_of("elsewhere.example").unwrap(), 80).into();
    assert!(ask(other, http).starts_with("HTTP/1.1 421 "));
    assert!(ask("93.184.216.34:80".parse().unwrap(), http).starts_with("HTTP/1.1 421 "));
    assert!(ask("10.0.0.1:80".parse().unwrap(), http).starts_with("HTTP/1.1 403 "));
    refused_for(&proxy, "forbidden-address");
    assert_eq!(ask(named, b"*1\r\n$4\r\nPING\r\n"), "");
    refused_for(&proxy, "not-http-or-tls");
    assert!(ask(named, b"SSH-2.0-x\r\n\xff\xff\xff\xff\xff\xff").starts_with("SSH-2.0-Cofferdam\r\n"));
    assert_eq!(plain.seen.count(), 1);
}
