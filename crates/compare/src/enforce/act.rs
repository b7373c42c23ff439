//! An act as the policy's engine takes it: the same questions as live, asked of the record.

use cofferdam_model::{Act, ActKind};
use cofferdam_policy::{Access, Action, Browser, Decision, Exec, File, Http, Policy, Step, Tool};
use serde_json::Value;

/// None for what is told or said: nobody asks a policy about words.
pub(super) fn decide(policy: &Policy, act: &Act) -> Option<Decision> {
    let name = act.name.as_str();
    let args = &act.args;
    let text = |key: &str| args.get(key).and_then(Value::as_str);
    Some(match act.kind {
        ActKind::Instructed | ActKind::Told | ActKind::Said | ActKind::Model => return None,
        ActKind::Tool => policy.decide(&Action::Tool(Tool { name, args })),
        ActKind::Step => policy.decide(&Action::Step(Step { name, args })),
        ActKind::Browser => policy.decide(&Action::Browser(Browser { name, url: text("url"), args })),
        ActKind::Exec => {
            let argv = words(args.get("argv").or(args.get("args")), name);
            policy.decide(&Action::Exec(Exec { argv: &argv, cwd: text("cwd") }))
        }
        ActKind::File => {
            let access = match text("access").or(text("change")) {
                Some("read") => Access::Read,
                Some("delete" | "deleted" | "removed") => Access::Delete,
                // What a file act does not say is a change: that is what it is recorded for.
                _ => Access::Write,
            };
            policy.decide(&Action::File(File { path: text("path").unwrap_or(name), access }))
        }
        ActKind::Egress => request(policy, act),
    })
}

/// The words of a command; its name alone where the record has no more.
fn words<'a>(argv: Option<&'a Value>, name: &'a str) -> Vec<&'a str> {
    let words: Vec<&str> =
        argv.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    if words.is_empty() { vec![name] } else { words }
}

/// `POST api.example.com/v1/items?x=1`, with what the arguments add. The body is not in a reduced run: a rule that
/// looks at it cannot be judged here and so denies, as it does live.
fn request(policy: &Policy, act: &Act) -> Decision {
    let text = |key: &str| act.args.get(key).and_then(Value::as_str);
    let (method, address) = act.name.split_once(' ').unwrap_or(("GET", &act.name));
    let (scheme, address) = address.split_once("://").unwrap_or(("https", address));
    let scheme = text("scheme").unwrap_or(scheme);
    let cut = address.find(['/', '?']).unwrap_or(address.len());
    let (authority, target) = address.split_at(cut);
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, text("query")),
    };
    let named = authority.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    let usual = if scheme == "http" { 80 } else { 443 };
    let (host, port) = named.unwrap_or((authority, usual));
    let port = act
        .args
        .get("port")
        .and_then(Value::as_u64)
        .and_then(|port| u16::try_from(port).ok())
        .unwrap_or(port);
    let host = text("host").unwrap_or(host);
    policy.decide(&Action::Http(Http {
        scheme,
        host,
        port,
        sni: text("sni").or((scheme == "https").then_some(host)),
        method: text("method").unwrap_or(method),
        path: text("path").unwrap_or(if path.is_empty() { "/" } else { path }),
        query,
        headers: &(),
        body: None,
        content_type: text("content_type"),
        length: None,
        program: text("program"),
    }))
}
