//! Rewrites, budgets and triggers as others read them.

use crate::policy;
use cofferdam_policy::{Alarm, AlertFormat, AlertTo, Deed, Http, Notice, Occasion, Policy};
use serde_json::json;
use std::time::Duration;

fn http<'a>(method: &'a str, path: &'a str) -> Http<'a> {
    Http {
        scheme: "https",
        host: "api.a.com",
        port: 443,
        sni: None,
        method,
        path,
        query: None,
        headers: &(),
        body: None,
        content_type: None,
        length: Some(0),
        program: None,
    }
}

const REWRITE: &str = r#"
[[rewrite]]
id = "tag"
host = "*.a.com"
methods = ["POST"]
paths = ["/v1/**"]
headers = { set = { X-Agent = "cofferdam" }, remove = ["Cookie"] }
query = { set = { safe = "1" }, remove = "debug" }
json = { set = { "metadata.agent" = true, max_tokens = 1000 }, remove = ["store"] }
"#;

#[test]
fn rewrites_apply_to_what_they_name() {
    let policy = policy(REWRITE);
    let rewrite = policy.rewrites(&http("POST", "/v1/x")).next().unwrap();
    assert_eq!(rewrite.headers.set, [("x-agent".to_owned(), "cofferdam".to_owned())]);
    assert_eq!(rewrite.headers.remove, ["cookie"]);
    assert_eq!(rewrite.query.remove, ["debug"]);
    assert!(rewrite.json.set.contains(&("metadata.agent".to_owned(), json!(true))));
    assert_eq!(policy.rewrites(&http("GET", "/v1/x")).count(), 0);
    assert_eq!(policy.rewrites(&http("POST", "/v2/x")).count(), 0);
    // No spelling of the path slips past it.
    assert_eq!(policy.rewrites(&http("POST", "//v1/x")).count(), 1);
}

#[test]
fn the_floor_has_the_last_word_on_rewrites() {
    let both = Policy::layer(&policy(&REWRITE.replace("tag", "floor")), &policy(REWRITE));
    let http = http("POST", "/v1/x");
    let ids: Vec<_> = both.rewrites(&http).map(|rewrite| rewrite.id.as_str()).collect();
    assert_eq!(ids, ["tag", "floor"]);
}

#[test]
fn budgets_add_up() {
    let policy = policy(
        "[[budget]]\nid = \"all\"\nhost = \"*\"\nrequests = 100\nbytes_up = \"1M\"\n[[budget]]\nid = \"model\"\nhost = \"api.a.com\"\nspend = 2.50\nbytes_down = 10",
    );
    let found: Vec<_> = policy.budgets("API.a.com").collect();
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].requests, found[0].bytes_up), (Some(100), Some(1 << 20)));
    assert_eq!((found[1].spend, found[1].bytes_down), (Some(2_500_000), Some(10)));
    assert_eq!(policy.budgets("b.com").count(), 1);
    assert_eq!(policy.all_budgets().count(), 2);
}

#[test]
fn triggers_fire_on_their_occasion() {
    let policy = policy(
        r#"
[[rule]]
id = "mail"
reason = "r"
effect = "allow"
host = "mail.a.com"

[[on]]
id = "after-mail"
after = { rule = "mail" }
do = { narrow = ["summarise", "answer"], revoke = "mail" }

[[on]]
id = "after-reading"
after = { tool = "read_*" }
do = { pause = true }

[[on]]
id = "leak"
after = { alarm = "placeholder-misused" }
do = { revoke = ["stripe"], pause = true }
"#,
    );
    let deeds = |occasion: &Occasion<'_>| {
        policy.triggers(occasion).flat_map(|trigger| trigger.deeds.clone()).collect::<Vec<_>>()
    };
    let narrow = Deed::Narrow(vec!["summarise".into(), "answer".into()]);
    assert_eq!(deeds(&Occasion::Rule("mail")), [narrow, Deed::Revoke(vec!["mail".into()])]);
    assert_eq!(deeds(&Occasion::Tool("read_inbox")), [Deed::Pause]);
    assert_eq!(deeds(&Occasion::Tool("write")), []);
    assert_eq!(
        deeds(&Occasion::Alarm(Alarm::PlaceholderMisused)),
        [Deed::Pause, Deed::Revoke(vec!["stripe".into()])]
    );
    assert_eq!(deeds(&Occasion::Alarm(Alarm::Budget)), []);
}

#[test]
fn an_alert_goes_where_it_may() {
    let to = |text: &str| {
        let read = Policy::parse(&format!("[[alert]]\nid = \"a\"\nto = \"{text}\""));
        read.map(|policy| policy.alerts().next().unwrap().to.clone()).map_err(|errors| errors.to_string())
    };
    let web = |tls, host: &str, port, target: &str| {
        Ok(AlertTo::Web { tls, host: host.into(), port, target: target.into() })
    };
    assert_eq!(to("https://Hooks.example/a?b=1"), web(true, "hooks.example", 443, "/a?b=1"));
    assert_eq!(to("http://127.0.0.1:99"), web(false, "127.0.0.1", 99, "/"));
    assert_eq!(to("http://[::1]:99/x"), web(false, "::1", 99, "/x"));
    assert_eq!(to("syslog"), Ok(AlertTo::Local("/dev/log".into())));
    assert_eq!(to("syslog:/run/log"), Ok(AlertTo::Local("/run/log".into())));
    assert_eq!(to("syslog:siem.example:514"), Ok(AlertTo::Udp { host: "siem.example".into(), port: 514 }));
    assert_eq!(to("syslog-tcp:[::1]:601"), Ok(AlertTo::Tcp { host: "::1".into(), port: 601 }));
    assert_eq!(to("file:/var/log/a"), Ok(AlertTo::File("/var/log/a".into())));
    for wrong in [
        "http://hooks.example/",
        "http://10.0.0.1/",
        "http://localhost/",
        "https://user:pass@hooks.example/",
        "https:///a",
        "wss://hooks.example/",
        "ftp://hooks.example/",
        "file:relative",
        "syslog:",
        "syslog:host",
        "syslog:host:0",
        "syslog-tcp:a b:1",
        "",
    ] {
        assert!(to(wrong).is_err(), "{wrong}");
    }
    // A path is what lets one post there: it is not told.
    assert_eq!(to("https://hooks.example/secret").unwrap().to_string(), "webhook hooks.example:443");
}

#[test]
fn an_alert_is_about_what_it_names() {
    let policy = policy(
        r#"
[[alert]]
id = "all"
to = "https://a.example/"
format = "slack"
key = "hook.key"
every = "5m"

[[alert]]
id = "some"
to = "syslog"
on = ["alarm", "held"]
format = "ocsf"
"#,
    );
    let alerts: Vec<_> = policy.alerts().collect();
    assert_eq!((alerts[0].every, alerts[1].every), (Duration::from_secs(300), Duration::from_secs(60)));
    assert_eq!((alerts[0].format, alerts[1].format), (AlertFormat::Slack, AlertFormat::Ocsf));
    let wanted = |notice| [alerts[0].wants(notice), alerts[1].wants(notice)];
    assert_eq!(wanted(Notice::Held), [true, true]);
    assert_eq!(wanted(Notice::Refused), [true, false]);
    assert_eq!(wanted(Notice::Alarm(Alarm::Denied)), [true, false]);
    for alarm in Alarm::ALL.into_iter().filter(|alarm| *alarm != Alarm::Denied) {
        assert_eq!(wanted(Notice::Alarm(alarm)), [true, true], "{alarm:?}");
    }
    let all = Alarm::ALL.map(Notice::Alarm).into_iter().chain([Notice::Refused, Notice::Held]);
    assert_eq!(all.map(Notice::index).collect::<Vec<_>>(), (0..Notice::COUNT).collect::<Vec<_>>());
}

#[test]
fn how_long_a_person_has_is_the_most_impatient_layers_word() {
    let of = |text: &str| policy(&format!("[defaults]\nreview_timeout = \"{text}\"\n"));
    assert_eq!(policy("").review_timeout(), None);
    assert_eq!(of("90s").review_timeout(), Some(Duration::from_secs(90)));
    let both = cofferdam_policy::Policy::layer(&of("1h"), &of("2m"));
    assert_eq!(both.review_timeout(), Some(Duration::from_secs(120)));
    for (wrong, why) in
        [("0s", "write 1s to 24h"), ("2d", "write 1s to 24h"), ("soon", "is not a length of time")]
    {
        let text = format!("[defaults]\nreview_timeout = \"{wrong}\"\n");
        let error = cofferdam_policy::Policy::parse(&text).unwrap_err().to_string();
        assert!(error.contains("defaults.review_timeout") && error.contains(why), "{error}");
    }
}
