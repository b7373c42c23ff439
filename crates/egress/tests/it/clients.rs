//! Ordinary clients, unmodified.

use crate::harness::{PLACEHOLDER, Proxy, REAL, Setup, allow, credential, upstream};
use crate::upstream::Server;
use cofferdam_model::{Body, Ending, Verdict};
use std::process::Command;

fn proxy_to(server: &Server, host: &str) -> Proxy {
    let policy = upstream(host, server.address) + &allow("all", host, "");
    Setup::new(&policy, &server.ca).credentials(vec![credential(&[host])]).start()
}

#[test]
fn curl_speaks_h1_and_h2_through_a_tunnel_with_the_real_credential() {
    let server = Server::tls(&["api.example.com"], &["h2", "http/1.1"]);
    let proxy = proxy_to(&server, "api.example.com");
    for (flag, version) in [("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2.0")] {
        let bearer = format!("authorization: Bearer {PLACEHOLDER}");
        let got = proxy.curl(&[flag, "-H", &bearer, "-d", "a body", "https://api.example.com/x?y=1"]);
        assert_eq!(got.status, 200, "{got:?}");
        assert!(got.body.contains("a body"), "{got:?}");
        // The echo comes back with the placeholder…
        assert!(got.body.contains(PLACEHOLDER) && !got.body.contains(REAL), "{got:?}");
        // …and the server got the real value, in the client's own version.
        let seen = server.seen.heads.lock().unwrap().pop().unwrap();
        assert!(seen.contains(REAL) && !seen.contains(PLACEHOLDER), "{seen}");
        assert!(seen.contains(version), "{seen}");
        for absent in ["via:", "x-forwarded-for", "proxy-", "forwarded:"] {
            assert!(!seen.to_lowercase().contains(absent), "{seen}");
        }
    }
    let ended = proxy.wait_ended(2);
    assert!(ended.iter().all(|e| e.ending == Ending::Complete && e.status == Some(200) && e.sent == 6));
    assert!(ended.iter().all(|e| e.scrubbed >= 1), "{ended:?}");
    let decided = &proxy.decided()[0];
    assert_eq!((decided.path.as_str(), decided.query.as_deref()), ("/x", Some("y=1")));
    assert_eq!(decided.credentials, ["key"]);
    let text = format!("{:?}", proxy.events());
    assert!(!text.contains(REAL));
    assert!(
        proxy.events().iter().any(|body| matches!(body, Body::CredentialUsed(used) if used.name == "key"))
    );
}

#[test]
fn curl_speaks_plain_http_with_a_full_url() {
    let server = Server::plain();
    let proxy = proxy_to(&server, "plain.example");
    let got = proxy.curl(&["-H", "proxy-authorization: Basic eDp5", "http://plain.example/a?b=c"]);
    assert_eq!(got.status, 200, "{got:?}");
    let seen = server.seen.all();
    assert!(seen.starts_with("GET /a?b=c HTTP/1.1\n"), "{seen}");
    assert!(seen.contains("host: plain.example\n") && !seen.contains("proxy-"), "{seen}");
}

#[test]
fn connections_are_kept_and_reused() {
    let server = Server::tls(&["api.example.com"], &["http/1.1"]);
    let proxy = proxy_to(&server, "api.example.com");
    let url = "https://api.example.com/";
    let got = proxy.curl(&["--http1.1", url, url, url, url]);
    assert_eq!(got.status, 200, "{got:?}");
    assert_eq!(server.seen.count(), 4);
    assert_eq!(server.seen.connections.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[test]
fn head_redirects_and_errors_come_through_as_they_are() {
    let server = Server::tls(&["api.example.com"], &["h2", "http/1.1"]);
    let proxy = proxy_to(&server, "api.example.com");
    for version in ["--http1.1", "--http2"] {
        let head = proxy.curl(&[version, "-I", "https://api.example.com/"]);
        assert!(head.status == 200 && head.head.contains("content-length: 5"), "{head:?}");
        let lost = proxy.curl(&[version, "https://api.example.com/404"]);
        assert!(lost.status == 404 && lost.body == "nothing here", "{lost:?}");
        let moved = proxy.curl(&[version, "https://api.example.com/redirect"]);
        assert!(moved.status == 302 && moved.head.contains("location: https://evil.example/"), "{moved:?}");
        let alt = proxy.curl(&[version, "https://api.example.com/alt"]);
        assert!(alt.head.contains("x-kept") && !alt.head.contains("alt-svc"), "{alt:?}");
    }
}

#[test]
fn a_denial_says_which_rule_and_what_to_do() {
    let server = Server::tls(&["api.example.com"], &["h2", "http/1.1"]);
    let policy = "[defaults]\ncontact = \"ask #agents\"\n\n".to_owned()
        + &upstream("api.example.com", server.address)
        + &allow("read", "api.example.com", "methods = [\"GET\"]")
        + "[[rule]]\nid = \"no-admin\"\nreason = \"people only\"\neffect = \"deny\"\nhost = \"api.example.com\"\npaths = [\"/admin/**\"]\n";
    let proxy = Setup::new(&policy, &server.ca).start();
    assert_eq!(proxy.curl(&["https://api.example.com/"]).status, 200);
    let denied = proxy.curl(&["https://api.example.com/admin/x"]);
    assert_eq!(denied.status, 403);
    assert!(denied.body.contains("no-admin") && denied.body.contains("people only"), "{denied:?}");
    assert!(denied.body.contains("ask #agents"), "{denied:?}");
    let unmatched = proxy.curl(&["-H", "accept: application/json", "-d", "x", "https://api.example.com/"]);
    let json: serde_json::Value = serde_json::from_str(&unmatched.body).unwrap();
    assert_eq!(json["error"]["type"], "denied");
    assert!(json["error"]["allow"].as_str().unwrap().contains("[[rule]]"), "{json}");
    let other = proxy.curl(&["https://unlisted.example/"]);
    assert!(other.status == 403 && other.body.contains("no rule allows it"), "{other:?}");
    assert_eq!(server.seen.count(), 1);
    let effects: Vec<_> = proxy.decided().iter().map(|d| d.effect).collect();
    assert_eq!(effects, [Verdict::Allow, Verdict::Deny, Verdict::Deny, Verdict::Deny]);
}

#[test]
fn node_fetch_and_python_speak_through_it() {
    let server = Server::tls(&["api.example.com"], &["h2", "http/1.1"]);
    let proxy = proxy_to(&server, "api.example.com");
    let python = format!(
        "import urllib.request, ssl\n\
         context = ssl.create_default_context(cafile={:?})\n\
         opener = urllib.request.build_opener(urllib.request.ProxyHandler({{'https': 'http://{}'}}), \
         urllib.request.HTTPSHandler(context=context))\n\
         request = urllib.request.Request('https://api.example.com/py', data=b'hello', \
         headers={{'Authorization': 'Bearer {PLACEHOLDER}'}})\n\
         print(opener.open(request).read().decode())",
        proxy.ca(),
        proxy.address
    );
    let out = Command::new("python3").args(["-c", &python]).output().expect("python3: install it");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.contains("hello") && text.contains(PLACEHOLDER), "{text} {out:?}");
    let node = format!(
        "const http=require('http'),tls=require('tls'),fs=require('fs');\
         http.request({{host:'127.0.0.1',port:{},method:'CONNECT',path:'api.example.com:443'}})\
         .on('connect',(r,s)=>{{const t=tls.connect({{socket:s,servername:'api.example.com',ca:fs.readFileSync({:?})}},\
         ()=>{{const q=require('https').request({{host:'api.example.com',port:443,path:'/node',createConnection:()=>t,\
         headers:{{authorization:'Bearer {PLACEHOLDER}'}}}},\
         a=>{{a.on('data',d=>process.stdout.write(d));a.on('end',()=>process.exit(0))}});q.end()}})}}).end()",
        proxy.address.port(),
        proxy.ca()
    );
    let out = Command::new("node").args(["-e", &node]).output().expect("node: install it");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.contains("/node") && text.contains(PLACEHOLDER), "{text} {out:?}");
    assert_eq!(server.seen.all().matches(REAL).count(), 2);
}
