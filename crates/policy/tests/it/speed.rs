//! How long a decision takes with a hundred rules: printed, never asserted (`--nocapture` shows it).

use crate::{policy, rule};
use cofferdam_policy::{Action, Http, Policy};
use std::hint::black_box;
use std::time::Instant;

fn hundred() -> Policy {
    let fields = |at: usize| {
        format!(
            "host = \"api{}.example.com\"\nmethods = [\"GET\", \"POST\"]\npaths = [\"/v{at}/**\", \"/users/*/repos\"]",
            at / 5
        )
    };
    let mut text: String = (0..97).map(|at| rule(&format!("r{at}"), "allow", &fields(at))).collect();
    text += &rule("wild", "allow", "host = \"*.wild.example.com\"\npaths = \"/**\"");
    text += &rule("no-delete", "deny", "host = \"*\"\nmethods = \"DELETE\"");
    text += &rule("cel", "allow", "host = \"cel.example.com\"\nwhen = \"int(request.query.limit) <= 100\"");
    policy(&text)
}

#[test]
fn nanoseconds_for_each_decision() {
    const BATCHES: u32 = 200;
    const BATCH: u32 = 50;
    let policy = hundred();
    let request = |host, path| Http {
        scheme: "https",
        host,
        port: 443,
        sni: Some(host),
        method: "GET",
        path,
        query: Some("limit=10"),
        headers: &(),
        body: None,
        content_type: None,
        length: Some(0),
        program: None,
    };
    for (name, http, allowed) in [
        ("one of five rules of a host", request("api7.example.com", "/v37/charges/ch_1/refunds"), true),
        ("a wildcard host", request("a.b.wild.example.com", "/x"), true),
        ("nothing matches", request("nowhere.org", "/x"), false),
        ("a condition", request("cel.example.com", "/x"), true),
    ] {
        let action = Action::Http(http);
        assert_eq!(policy.decide(&action).is_allowed(), allowed, "{name}");
        let batch = |_| {
            let started = Instant::now();
            for _ in 0..BATCH {
                black_box(policy.decide(black_box(&action)));
            }
            started.elapsed() / BATCH
        };
        // The least disturbed one: others use the machine too.
        println!("{name}: {:?}", (0..BATCHES).map(batch).min().unwrap_or_default());
    }
}
