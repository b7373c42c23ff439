//! What a policy says beyond its rules: who may spend a credential, how much may be done, what must not be in a body,
//! what follows an alarm, and which TLS is left alone.

use super::{ALL, staged, staged_once};

const AUTH: &str = r#"-H "Authorization: Bearer $KEY""#;

/// A credential that belongs to a tool is of no use to another program that gets hold of the placeholder.
#[test]
fn a_credential_of_one_program() {
    staged(|stage| {
        let real = super::fresh_value();
        stage.server.admit(&real);
        let add = ["secret", "add", "tool", "--for", "api.corp.example", "--program", "/usr/bin/wget"];
        stage.site.call(&add).input(real.clone()).exits(0);
        let script = "wget -qO- --header \"Authorization: Bearer $TOOL\" https://api.corp.example/wget; echo $?\n\
             curl -sS -H \"Authorization: Bearer $TOOL\" -w '%{http_code}\\n' https://api.corp.example/curl\n\
             cp /usr/bin/wget mine; ./mine -qO- --header \"Authorization: Bearer $TOOL\" https://api.corp.example/mine; echo $?";
        let out = stage.sh(script).with(&["--secret", "tool"]).exits(0).out();
        let lines: Vec<&str> = out.lines().collect();
        assert!(lines[0].starts_with("{\"ok\": true") && lines[0].ends_with("}0"), "{out}");
        assert!(
            lines[1].starts_with("cofferdam: credential `tool`") && lines[1].contains("program"),
            "{out}"
        );
        assert_eq!(lines[2..], ["403", "8"], "{out}");
        let paths: Vec<_> = stage.server.seen_with(&real).iter().map(|seen| seen["path"].clone()).collect();
        assert_eq!(paths, ["/wget"]);
        let decided = stage.site.bodies("egress.decided");
        assert_eq!(decided[0]["program"], "/usr/bin/wget", "{decided:#?}");
    });
}

#[test]
fn a_budget_is_spent() {
    staged_once(|stage| {
        stage
            .policy(&format!("{ALL}\n[[budget]]\nid = \"few\"\nhost = \"api.corp.example\"\nrequests = 3\n"));
        let script = format!(
            "for n in 1 2 3 4 5; do curl -sS -o answer -w '%{{http_code}} ' {AUTH} https://api.corp.example/ok; done; cat answer\n\
             curl -sS -o /dev/null -w '%{{http_code}}' https://open.corp.example/ok"
        );
        let out = stage.sh(&script).exits(0).out();
        assert!(
            out.starts_with("200 200 200 429 429 cofferdam: ") && out.contains("few") && out.ends_with("200"),
            "{out}"
        );
        assert_eq!(stage.server.seen_with(&stage.real).len(), 3);
        assert!(!stage.refused("over-budget").is_empty());
    });
}

const DECLARED: &str = r#"
[[rule]]
id = "reads"
reason = "looking is free"
effect = "allow"
host = "api.corp.example"
methods = ["GET"]

[[rule]]
id = "refund"
reason = "the one way to give money back"
effect = "allow"
host = "api.corp.example"
methods = ["POST"]
paths = ["/refunds"]
schema = """
{ "type": "object", "required": ["charge", "amount"], "additionalProperties": false,
  "properties": { "charge": { "type": "string" }, "amount": { "type": "integer", "maximum": 500 } } }
"""
"#;

/// What is declared is the only way to write, and only as it is declared.
#[test]
fn a_write_keeps_to_its_declaration() {
    staged_once(|stage| {
        stage.policy(DECLARED);
        let script = format!(
            "go() {{ curl -sS -o answer -w '%{{http_code}} ' {AUTH} -H \"content-type: ${{3-application/json}}\" -d \"$2\" \"https://api.corp.example$1\"; head -n 1 answer; echo; }}\n\
             go /refunds '{{\"charge\": \"ch_1\", \"amount\": 5}}'\n\
             go /refunds '{{\"charge\": \"ch_1\", \"amount\": 501}}'\n\
             go /refunds '{{\"charge\": \"ch_1\", \"amount\": 5, \"to\": \"me\"}}'\n\
             go /refunds '{{\"charge\": \"ch_1\", \"amount\": 5, \"amount\": 501}}'\n\
             go /refunds '{{\"charge\": '\n\
             go /refunds 'charge=ch_1&amount=5' application/x-www-form-urlencoded\n\
             go /transfers '{{\"charge\": \"ch_1\", \"amount\": 5}}'\n\
             curl -sS -o /dev/null -w '%{{http_code}}\\n' {AUTH} https://api.corp.example/refunds"
        );
        let out = stage.sh(&script).exits(0).out();
        let lines: Vec<&str> = out.lines().filter(|line| !line.is_empty()).collect();
        assert!(lines.len() == 8 && lines[0].starts_with("200 ") && lines[7] == "200", "{out}");
        assert!(lines[1..7].iter().all(|line| line.starts_with("4")), "{out}");
        assert!(lines[1].contains("denied by rule refund: /amount"), "{out}");
        let seen = stage.server.seen_with(&stage.real);
        let seen: Vec<_> = seen.iter().map(|seen| (seen["method"].as_str(), seen["path"].as_str())).collect();
        assert_eq!(seen, [(Some("POST"), Some("/refunds")), (Some("GET"), Some("/refunds"))]);
    });
}

/// Keys that are in no vault, on their way out in a body. The words are made here, so that no file of ours holds one.
#[test]
fn keys_of_others_do_not_leave_in_a_body() {
    staged(|stage| {
        let path = format!("/gulps/{}", &stage.real[8..]);
        let post = |word: &str| {
            format!(
                "curl -s -o answer -w '%{{http_code}} ' https://open.corp.example{path} -d \"note={word}\"; head -n 1 answer\n"
            )
        };
        let script = [
            "AKIA$(printf QYLPMN5HFIQR7XYA)",
            "ghp_$(printf 16C7e42F292c6912E7710c838347Ae178B4a)",
            "nothing of that kind",
        ]
        .map(post)
        .concat();
        let out = stage.sh(&script).exits(0).out();
        let lines: Vec<&str> = out.lines().collect();
        assert!(
            lines[0].starts_with("403 cofferdam: the body holds a secret of its own (aws-access-key: "),
            "{out}"
        );
        assert!(
            lines[1].starts_with("403 cofferdam: the body holds a secret of its own (github-token: "),
            "{out}"
        );
        assert!(lines[2].starts_with("200 {\"bytes\": 25}"), "{out}");
        let refused = stage.refused("secret");
        assert!(refused.len() == 2 && refused.iter().all(|body| body["alarm"] == true), "{refused:#?}");
        assert!(refused.iter().all(|body| !body.to_string().contains("QYLPMN5H")), "{refused:#?}");
    });
}

/// After the first attempt to carry the placeholder elsewhere, the credential is gone.
#[test]
fn an_alarm_takes_the_credential_back() {
    staged(|stage| {
        let on = "[[on]]\nid = \"leak\"\nafter = { alarm = \"placeholder-misused\" }\ndo = { revoke = [\"key\"] }\n";
        stage.policy(&format!("{ALL}\n{on}"));
        let script = format!(
            "use() {{ curl -sS -o answer -w '%{{http_code}} ' {AUTH} https://api.corp.example/ok; }}\n\
             use; curl -sS -o /dev/null -w '%{{http_code}} ' \"https://open.corp.example/?q=$KEY\"; use; cat answer"
        );
        let out = stage.sh(&script).exits(0).out();
        assert!(
            out.starts_with("200 403 403 cofferdam: credential `key`") && out.contains("revoked"),
            "{out}"
        );
        let changed = stage.site.bodies("control.changed");
        assert_eq!((changed.len(), &changed[0]["what"]), (1, &"revoke".into()), "{changed:#?}");
        assert!(changed[0]["by"].as_str().unwrap().contains("leak"), "{changed:#?}");
    });
}

/// TLS that is passed through is the server's own: its name is checked and on record, nothing in it is seen, and so
/// no credential is put in.
#[test]
fn tls_that_is_left_alone() {
    staged(|stage| {
        stage.policy(&format!("[tls]\npass_through = [\"api.corp.example\"]\n{ALL}"));
        let authority = stage.site.write("authority.pem", std::fs::read(stage.server.authority()).unwrap());
        let script = format!(
            "curl -sS -o /dev/null -w '%{{http_code}} ' --cacert authority.pem {AUTH} https://api.corp.example/pinned\n\
             curl -s -o /dev/null -w '%{{exitcode}} ' {AUTH} https://api.corp.example/pinned\n\
             curl -s -o /dev/null -w '%{{exitcode}} ' --cacert authority.pem --connect-to open.corp.example:443:api.corp.example:443 https://open.corp.example/\n\
             curl -s -o /dev/null -w '%{{http_code}}' https://open.corp.example/ok"
        );
        assert!(authority.is_file());
        // 60: the session's authority did not sign it; 35: another name is refused.
        assert_eq!(stage.sh(&script).exits(0).out(), "401 60 35 200");
        assert!(stage.server.seen_with(&stage.real).is_empty());
        let decided = stage.site.bodies("egress.decided");
        assert_eq!((&decided[0]["scheme"], &decided[0]["host"]), (&"tls".into(), &"api.corp.example".into()));
        assert!(decided[0].get("path").is_none() && stage.site.bodies("credential.used").is_empty());
    });
}
