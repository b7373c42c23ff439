//! Clients and a browser that say what the test wants, and what is on record of it.

use super::*;
use crate::kept::tests::Kept;
use cofferdam_model::{Answer, Body, BrowserOutcome, Content, OwnRequest, Sight};
use cofferdam_policy::Policy;
use serde_json::{Value, json};
use std::sync::Arc;

const RULES: &str = r#"
[[rule]]
id = "shop"
reason = "the shop is its work"
effect = "allow"
browser = ["navigate", "open", "click", "fill", "type", "press", "script", "read"]
host = "shop.example"

[[rule]]
id = "blank"
reason = "an empty page"
effect = "allow"
browser = ["open", "navigate"]
when = "args.url == '' || args.url == 'about:blank'"

[[rule]]
id = "buying"
reason = "money leaves"
effect = "review"
browser = "click"
host = "shop.example"
when = "args.name == 'Buy now'"

[[rule]]
id = "no-admin"
reason = "not its business"
effect = "deny"
browser = "*"
host = "shop.example"
paths = "/admin/**"
"#;

struct Stage {
    mediator: Mediator,
    kept: Arc<Kept>,
    client: u64,
    out: Vec<Out>,
}

impl Stage {
    /// A browser that is up, with a page in the shop and a client that is attached to it as `P`.
    fn new(rules: Option<&str>) -> Self {
        let kept = Arc::new(Kept::default());
        let policy = rules.map(|rules| Arc::new(Policy::parse(rules).unwrap()));
        let mut mediator = Mediator::new(kept.clone(), Arc::new(move || policy.clone()), true);
        assert_eq!(mediator.open("/devtools/browser/session"), None);
        mediator.begins();
        let mut stage = Self { mediator, kept, client: 0, out: Vec::new() };
        stage.browser(json!({"id": 1, "result": {"product": "Chrome/1", "protocolVersion": "1.3"}}));
        stage.browser(json!({"id": 2, "result": {}}));
        let (client, out) = stage.mediator.open("/devtools/browser/session").unwrap();
        stage.client = client;
        stage.out = out;
        stage.reply("Target.attachToBrowserTarget", json!({"sessionId": "ROOT"}));
        let info = json!({"targetId": "T", "type": "page", "url": "https://shop.example/cart"});
        stage.browser(json!({"method": "Target.targetCreated", "params": {"targetInfo": info}}));
        stage.reply("Target.attachToTarget", json!({"sessionId": "EYE"}));
        stage.browser(json!({"method": "Target.attachedToTarget", "sessionId": "ROOT", "params": {"sessionId": "P", "targetInfo": info}}));
        stage.out.clear();
        stage
    }

    fn browser(&mut self, message: Value) {
        let out = self.mediator.from_browser(message.to_string().as_bytes()).unwrap();
        self.out.extend(out);
    }

    fn client(&mut self, message: Value) {
        let out = self.mediator.from_client(self.client, &message.to_string()).unwrap();
        self.out.extend(out);
    }

    /// Commands that the browser has heard and not answered.
    fn commands(&self) -> Vec<Value> {
        self.out
            .iter()
            .filter_map(|out| match out {
                Out::ToBrowser(bytes) => Some(serde_json::from_slice(bytes).unwrap()),
                _ => None,
            })
            .collect()
    }

    /// Answers the last command of this name.
    #[track_caller]
    fn reply(&mut self, method: &str, result: Value) {
        let found = self.commands().into_iter().rfind(|command| command["method"] == method);
        let Some(command) = found else { panic!("no {method} in {:?}", self.out) };
        self.browser(json!({"id": command["id"], "result": result}));
    }

    fn said(&self) -> Vec<Value> {
        self.out
            .iter()
            .filter_map(|out| match out {
                Out::ToClient(_, text) => Some(serde_json::from_str(text).unwrap()),
                _ => None,
            })
            .collect()
    }

    /// The lookup of an element, as the page would answer.
    fn element(&mut self, element: Value) {
        self.reply("Page.createIsolatedWorld", json!({"executionContextId": 9}));
        self.reply("Runtime.evaluate", json!({"result": {"value": element}}));
    }

    /// Action, args and effect of everything that was asked; what pages did stands in brackets.
    fn told(&self) -> Vec<String> {
        let text = |content: &Content| match content {
            Content::Text(text) => text.clone(),
            Content::Kept(blob) => String::from_utf8(self.kept.bytes(blob)).unwrap(),
        };
        self.kept
            .bodies()
            .iter()
            .filter_map(|body| match body {
                Body::BrowserActed(fact) => {
                    Some(format!("{:?} {} {}", fact.effect, fact.action, text(&fact.args)))
                }
                Body::BrowserDone(fact) => {
                    let result = fact.result.as_ref().map(text).unwrap_or_default();
                    Some(format!("  {:?} {result}", fact.outcome))
                }
                Body::BrowserSeen(fact) if fact.what != Sight::Opened => {
                    Some(format!("[{:?} {} {}]", fact.what, fact.url, fact.detail))
                }
                Body::BrowserFault(fact) => Some(format!("fault of {}: {}", fact.client, fact.cause)),
                _ => None,
            })
            .collect()
    }
}

fn press(id: i64) -> Value {
    let params = json!({"type": "mousePressed", "x": 1, "y": 2, "button": "left"});
    json!({"id": id, "sessionId": "P", "method": "Input.dispatchMouseEvent", "params": params})
}

fn release(id: i64) -> Value {
    let params = json!({"type": "mouseReleased", "x": 1, "y": 2, "button": "left"});
    json!({"id": id, "sessionId": "P", "method": "Input.dispatchMouseEvent", "params": params})
}

fn more() -> Value {
    json!({"role": "button", "name": "More", "selector": "#more", "secret": false})
}

#[test]
fn a_click_is_looked_at_before_the_browser_hears_of_it() {
    let mut stage = Stage::new(Some(RULES));
    stage.client(press(7));
    stage.client(release(8));
    let heard = |stage: &Stage| {
        let of = |command: &Value| command["params"]["type"].as_str().map(str::to_owned);
        stage.commands().iter().filter_map(of).collect::<Vec<_>>()
    };
    assert_eq!(heard(&stage), [""; 0]);
    stage.element(more());
    assert_eq!(heard(&stage), ["mousePressed", "mouseReleased"]);
    let id = stage.commands().iter().find(|c| c["params"]["type"] == "mousePressed").unwrap()["id"].clone();
    stage.browser(json!({"id": id, "result": {}, "sessionId": "P"}));
    assert_eq!(stage.said(), [json!({"id": 7, "result": {}, "sessionId": "P"})]);
    assert_eq!(
        stage.told(),
        [
            r##"Allow click {"button":"left","name":"More","role":"button","selector":"#more","url":"https://shop.example/cart"}"##,
            "  Ok ",
        ]
    );
}

#[test]
fn what_no_rule_allows_the_browser_never_hears() {
    let mut stage = Stage::new(Some(RULES));
    for (id, method, params) in [
        (1, "Page.navigate", json!({"url": "https://other.example/"})),
        (2, "Page.navigate", json!({"url": "https://shop.example/admin/users"})),
        (3, "Runtime.evaluate", json!({"expression": "fetch('/x')"})),
        (4, "Storage.clearDataForOrigin", json!({"origin": "*"})),
        (5, "Target.exposeDevToolsProtocol", json!({"targetId": "T"})),
    ] {
        stage.client(json!({"id": id, "sessionId": "P", "method": method, "params": params}));
    }
    assert_eq!(stage.commands(), [] as [Value; 0]);
    let said = stage.said();
    assert_eq!(said.len(), 5);
    for (answer, word) in
        said.iter().zip(["denied", "not its business", "denied", "denied", "past the record"])
    {
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("cofferdam: ") && message.contains(word), "{message}");
    }
    assert_eq!(stage.told().iter().filter(|line| line.starts_with("Deny")).count(), 4);
}

#[test]
fn a_person_is_asked_and_what_comes_after_waits() {
    let mut stage = Stage::new(Some(RULES));
    stage.client(press(1));
    stage.client(release(2));
    stage.element(json!({"role": "button", "name": "Buy now", "selector": "#buy", "secret": false}));
    let held = stage.out.iter().find_map(|out| match out {
        Out::Hold(held) => Some(held.clone()),
        _ => None,
    });
    let held = held.unwrap();
    assert_eq!((held.rule.as_str(), held.action.as_str()), ("buying", "click"));
    let presses = |stage: &Stage| stage.commands().iter().filter(|c| c["params"]["button"] == "left").count();
    assert_eq!(presses(&stage), 0);
    let out = stage.mediator.answered(held.event, Answer::Denied, "me", 5).unwrap();
    stage.out.extend(out);
    assert_eq!(presses(&stage), 0, "neither the press nor its release");
    assert!(stage.said().iter().all(|answer| answer["error"]["message"].is_string()));
    stage.client(press(3));
    stage.element(json!({"role": "button", "name": "Buy now", "selector": "#buy", "secret": false}));
    let event = stage.kept.events.lock().unwrap().len() as u64 - 1;
    let out = stage.mediator.answered(event, Answer::Allowed, "me", 5).unwrap();
    stage.out.extend(out);
    assert_eq!(presses(&stage), 1);
}

#[test]
fn secrets_are_on_record_nowhere() {
    let mut stage = Stage::new(None);
    let fill =
        json!({"id": 1, "sessionId": "P", "method": "Input.insertText", "params": {"text": "hunter22"}});
    stage.client(fill);
    stage.element(json!({"role": "textbox", "name": "Password", "selector": "#pw", "secret": true}));
    let forwarded = stage.commands().into_iter().find(|c| c["method"] == "Input.insertText").unwrap();
    assert_eq!(forwarded["params"]["text"], "hunter22", "the browser gets it as it is");
    let read = json!({"id": 2, "sessionId": "P", "method": "Runtime.evaluate", "params": {"expression": "pw.value + 'hunter22'"}});
    stage.client(read);
    stage.reply("Runtime.evaluate", json!({"result": {"type": "string", "value": "it is hunter22"}}));
    // A field that nobody could describe may be one for secrets.
    stage.client(
        json!({"id": 3, "sessionId": "P", "method": "Input.insertText", "params": {"text": "unseen99"}}),
    );
    stage.reply("Page.createIsolatedWorld", json!({}));
    let told = stage.told().join("\n");
    assert!(told.contains("[masked]") && told.contains("it is [masked]"), "{told}");
    assert!(!told.contains("hunter22") && !told.contains("unseen99"), "{told}");
}

#[test]
fn letters_are_told_as_a_text() {
    let mut stage = Stage::new(None);
    let field = json!({"role": "textbox", "name": "Name", "selector": "#name", "secret": false});
    for (id, letter) in ["A", "d", "a"].iter().enumerate() {
        let params = json!({"type": "keyDown", "text": letter, "key": letter});
        stage.client(
            json!({"id": id, "sessionId": "P", "method": "Input.dispatchKeyEvent", "params": params}),
        );
        stage.element(field.clone());
    }
    stage.client(json!({"id": 9, "sessionId": "P", "method": "Input.dispatchKeyEvent", "params": {"type": "keyDown", "key": "Enter"}}));
    stage.element(field);
    let told = stage.told();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].starts_with("Allow type") && told[1] == "  Ok \"Ada\"" && told[2].contains("\"Enter\""));
}

/// The page's dialogs are told by every session on it, in any order.
#[test]
fn a_dialog_is_on_record_once_and_before_anybody_can_answer_it() {
    let mut stage = Stage::new(Some(RULES));
    let opens = |session: &str, text: &str| {
        json!({"method": "Page.javascriptDialogOpening", "sessionId": session,
        "params": {"url": "https://shop.example/cart", "type": "alert", "message": text}})
    };
    for (first, then, text) in [("P", "EYE", "one"), ("EYE", "P", "two"), ("P", "EYE", "two")] {
        let before = stage.told().len();
        stage.browser(opens(first, text));
        assert_eq!(stage.told().len(), before + 1, "{text} by {first}");
        stage.browser(opens(then, text));
        assert_eq!(stage.told().len(), before + 1, "{text} once more by {then}");
        assert_eq!(stage.told()[before], format!("[Dialog https://shop.example/cart alert: {text}]"));
    }
    assert_eq!(stage.said().len(), 3, "the client heard of each");
}

#[test]
fn pages_go_nowhere_that_no_rule_allows() {
    let mut stage = Stage::new(Some(RULES));
    let paused = |id: &str, url: &str| json!({"method": "Fetch.requestPaused", "sessionId": "EYE", "params": {"requestId": id, "request": {"url": url}}});
    stage.browser(paused("1", "https://shop.example/done"));
    stage.browser(paused("2", "https://evil.example/?q=cart"));
    let heard: Vec<Value> =
        stage.commands().iter().map(|c| json!([c["method"], c["params"]["requestId"]])).collect();
    assert_eq!(heard, [json!(["Fetch.continueRequest", "1"]), json!(["Fetch.failRequest", "2"])]);
    assert!(stage.told()[0].starts_with("[Navigated https://evil.example/?q=cart denied"));
    let info = json!({"targetId": "T", "type": "page", "url": "https://shop.example/done"});
    stage.browser(json!({"method": "Target.targetInfoChanged", "params": {"targetInfo": info}}));
    assert_eq!(stage.told()[1], "[Navigated https://shop.example/done ]");
    assert_eq!(stage.said(), [] as [Value; 0], "our own eyes are nobody's business");
}

#[test]
fn clients_do_not_reach_each_other() {
    let mut stage = Stage::new(None);
    let first = stage.client;
    let (second, out) = stage.mediator.open("/devtools/browser/session").unwrap();
    stage.out.extend(out);
    stage.reply("Target.attachToBrowserTarget", json!({"sessionId": "OTHER"}));
    stage.out.clear();
    stage.client = second;
    stage.client(json!({"id": 1, "sessionId": "P", "method": "Page.reload"}));
    stage.client(json!({"id": 2, "method": "Target.detachFromTarget", "params": {"sessionId": "P"}}));
    stage.client(
        json!({"id": 3, "method": "Target.disposeBrowserContext", "params": {"browserContextId": "X"}}),
    );
    assert_eq!(stage.commands(), [] as [Value; 0]);
    assert!(stage.said().iter().all(|answer| answer["error"].is_object()));
    stage.out.clear();
    stage.browser(json!({"method": "Page.loadEventFired", "sessionId": "P", "params": {"timestamp": 1}}));
    assert!(matches!(&stage.out[..], [Out::ToClient(client, _)] if *client == first));
    stage.out.clear();
    stage.client(json!({"id": 4, "method": "Browser.close"}));
    assert_eq!(stage.commands(), [] as [Value; 0], "the browser is the session's");
    assert!(stage.out.contains(&Out::Close(second)));
}

#[test]
fn a_flood_and_a_browser_that_dies() {
    let mut stage = Stage::new(None);
    stage.client(press(1));
    let long = "x".repeat(3 << 20);
    for id in 2..5 {
        stage.client(json!({"id": id, "sessionId": "P", "method": "Page.enable", "params": {"a": long}}));
    }
    assert!(stage.out.contains(&Out::Close(stage.client)), "too much behind a command that waits");
    assert_eq!(stage.told(), ["fault of 1: flood"]);
    let mut stage = Stage::new(None);
    stage.client(
        json!({"id": 1, "sessionId": "P", "method": "Page.navigate", "params": {"url": "https://a.example"}}),
    );
    let out = stage.mediator.gone("it was ended by signal 11").unwrap();
    assert!(out.contains(&Out::Close(stage.client)));
    let gone = |body: &Body| matches!(body, Body::BrowserDone(fact) if fact.outcome == BrowserOutcome::Gone);
    assert!(stage.kept.bodies().iter().any(gone));
    assert!(
        matches!(stage.kept.bodies().last(), Some(Body::BrowserEnded(fact)) if fact.reason.contains("11"))
    );
    let request = OwnRequest {
        method: "GET",
        path: "/json/version",
        prefix: "",
        host: Some("127.0.0.1:3128"),
        origin: None,
        content_type: None,
        content_encoding: None,
        body: &[],
    };
    let at = Where { authority: "127.0.0.1:3128", prefix: "" };
    assert_eq!(stage.mediator.page(&request, at).unwrap().status, 503);
    for (host, origin, stranger) in [
        ("127.0.0.1:3128", None, false),
        ("localhost", None, false),
        ("[::1]:80", None, false),
        ("evil.example:3128", None, true),
        ("127.0.0.1:3128", Some("https://evil.example"), true),
    ] {
        let asked = OwnRequest { host: Some(host), origin, ..request };
        assert_eq!(Mediator::stranger(&asked).is_some(), stranger, "{host} {origin:?}");
    }
}

#[test]
fn what_cannot_be_recorded_does_not_happen() {
    let mut stage = Stage::new(None);
    stage.kept.is_broken.store(true, std::sync::atomic::Ordering::Relaxed);
    let go =
        json!({"id": 1, "sessionId": "P", "method": "Page.navigate", "params": {"url": "https://a.example"}});
    assert!(stage.mediator.from_client(stage.client, &go.to_string()).is_err());
    assert_eq!(stage.commands(), [] as [Value; 0]);
}

#[test]
fn texts_that_are_no_whole_characters_pass_as_they_are() {
    let mut stage = Stage::new(None);
    let event = br#"{"method":"Console.messageAdded","params":{"text":"\ud83d"},"sessionId":"P"}"#;
    let out = stage.mediator.from_browser(event).unwrap();
    assert!(matches!(&out[..], [Out::ToClient(_, text)] if text.contains(r#""\ud83d""#)));
}

proptest::proptest! {
    #[test]
    fn any_bytes_of_either_side_are_survived(
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
        text in "\\PC{0,80}",
        id in proptest::prelude::any::<u64>(),
        method in "(Target|Runtime|Page|Fetch|Browser|Input)\\.[a-zA-Z]{0,24}",
    ) {
        let mut stage = Stage::new(None);
        let _ = stage.mediator.from_browser(&bytes);
        let _ = stage.mediator.from_client(1, &text);
        stage.browser(json!({"id": id, "result": {"sessionId": text}}));
        stage.browser(json!({"method": method, "sessionId": "P", "params": {"targetInfo": text, "context": {"id": id}}}));
        stage.client(json!({"id": 5, "method": method, "sessionId": "P", "params": {"type": text, "x": id}}));
    }
}
