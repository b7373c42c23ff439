use super::*;
use crate::kept::tests::Kept;
use cofferdam_model::{Body, Content, ExchangeRecorded, ModelCalled};
use serde_json::json;
use std::sync::atomic::Ordering::Relaxed;

struct Stage {
    record: Arc<Kept>,
    observer: Observer,
}

fn stage(policy: &str) -> Stage {
    let record = Arc::new(Kept::default());
    let policy = Arc::new(Policy::parse(policy).unwrap());
    let observer = Observer::new(record.clone(), policy, Prices::new(None).unwrap());
    Stage { record, observer }
}

fn outgoing<'a>(path: &'a str, headers: &'a [(&'a str, &'a [u8])]) -> Outgoing<'a> {
    Outgoing {
        event: 0,
        scheme: "https",
        host: "api.openai.com",
        port: 443,
        method: "POST",
        path,
        query: None,
        headers,
        rule: None,
        credentials: &[],
    }
}

const CHAT: &str = "/v1/chat/completions";

impl Stage {
    /// One exchange: what is sent, and what comes back in parts.
    fn exchange(
        &self,
        path: &str,
        body: &[u8],
        answer: Option<(u16, &[&[u8]])>,
        ending: Ending,
    ) -> Result<(), Stop> {
        let mut watcher =
            self.observer.open(&outgoing(path, &[("content-type", b"application/json")]))?.unwrap();
        watcher.sent(body);
        let (holds, next) = (watcher.holds(), watcher.sent_all());
        if let (true, Next::Refuse(stop)) = (holds, next) {
            watcher.ended(Ending::Refused).unwrap();
            return Err(stop);
        }
        if let Some((status, parts)) = answer {
            watcher.answered(status, &[("content-type", b"application/json")]);
            parts.iter().for_each(|part| watcher.received(part));
        }
        watcher.ended(ending).unwrap();
        Ok(())
    }

    fn ask(&self, messages: serde_json::Value, answer: &serde_json::Value) -> Result<(), Stop> {
        let body = json!({ "model": "gpt-4o", "max_tokens": 100, "messages": messages }).to_string();
        let answer = answer.to_string();
        self.exchange(CHAT, body.as_bytes(), Some((200, &[answer.as_bytes()])), Ending::Complete)
    }

    fn calls(&self) -> Vec<ModelCalled> {
        let of = |body| if let Body::ModelCalled(call) = body { Some(*call) } else { None };
        self.record.bodies().into_iter().filter_map(of).collect()
    }

    fn exchanges(&self) -> Vec<ExchangeRecorded> {
        let of = |body| if let Body::ExchangeRecorded(one) = body { Some(*one) } else { None };
        self.record.bodies().into_iter().filter_map(of).collect()
    }
}

fn answer(text: &str, output: u64) -> serde_json::Value {
    json!({ "model": "gpt-4o-2024-08-06", "choices": [{ "message": { "content": text }, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 10, "completion_tokens": output } })
}

fn user(text: &str) -> serde_json::Value {
    json!({ "role": "user", "content": text })
}

#[test]
fn a_call_is_told_with_what_it_cost_and_its_bytes() {
    let stage = stage("");
    stage.ask(json!([user("hi")]), &answer("hello", 4)).unwrap();
    let call = &stage.calls()[0];
    assert_eq!(
        (call.provider.as_str(), call.api.as_str(), call.model.as_str()),
        ("openai", "chat.completions", "gpt-4o")
    );
    assert_eq!(call.answered_by, "gpt-4o-2024-08-06");
    // 10 tokens at 2.5 and 4 at 10 millionths.
    assert_eq!((call.cost_micros, call.price.as_str()), (Some(65), "gpt-4o of 2025-11-15, not checked"));
    assert_eq!(call.parameters["max_tokens"], "100");
    assert_eq!(call.answer.as_ref().unwrap().text, Some(Content::Text("hello".into())));
    let exchange = &stage.exchanges()[0];
    assert!(matches!(stage.record.bodies()[call.exchange as usize], Body::ExchangeRecorded(_)));
    let sent = exchange.body.as_ref().unwrap();
    assert!(sent.is_whole() && stage.record.bytes(&sent.head).starts_with(b"{\"max_tokens\""));
    let back = exchange.answer.as_ref().unwrap();
    assert_eq!(
        stage.record.bytes(&back.body.as_ref().unwrap().head),
        answer("hello", 4).to_string().as_bytes()
    );
}

#[test]
fn a_call_goes_on_from_the_one_before() {
    let stage = stage("");
    let said = json!({ "role": "assistant", "content": "hello" });
    stage.ask(json!([user("hi")]), &answer("hello", 4)).unwrap();
    stage.ask(json!([user("hi"), said, user("more")]), &answer("well", 4)).unwrap();
    stage.ask(json!([user("something else")]), &answer("well", 4)).unwrap();
    let calls = stage.calls();
    let told: Vec<_> = calls.iter().map(|call| (call.follows, call.same, call.messages.len())).collect();
    assert_eq!(told, [(None, 0, 1), (Some(1), 1, 2), (None, 0, 1)]);
    assert_eq!(calls[1].messages[1].text, Some(Content::Text("more".into())));
}

#[test]
fn a_repeated_call_names_the_one_that_failed() {
    let stage = stage("");
    let body = json!({ "model": "local", "messages": [user("hi")] }).to_string();
    let overloaded = json!({ "error": { "message": "later", "type": "overloaded" } }).to_string();
    let ok = answer("hello", 4).to_string();
    stage.exchange(CHAT, body.as_bytes(), Some((529, &[overloaded.as_bytes()])), Ending::Complete).unwrap();
    stage.exchange(CHAT, body.as_bytes(), None, Ending::UpstreamFailed).unwrap();
    stage.exchange(CHAT, body.as_bytes(), Some((200, &[ok.as_bytes()])), Ending::Complete).unwrap();
    let calls = stage.calls();
    assert_eq!(calls.iter().map(|call| call.retries).collect::<Vec<_>>(), [None, Some(1), Some(3)]);
    let error = calls[0].error.as_ref().unwrap();
    assert_eq!(
        (error.status, error.kind.as_str(), error.message.as_str()),
        (Some(529), "overloaded", "later")
    );
    assert_eq!(calls[1].error.as_ref().unwrap().message, "there was no answer: UpstreamFailed");
    // The one that answered has a price that is known; the one that was asked for had none.
    assert_eq!(calls[0].price, "no price is known for `local`");
    assert_eq!(calls[2].price, "gpt-4o of 2025-11-15, not checked");
}

#[test]
fn what_is_no_call_or_cannot_be_read_is_recorded_raw() {
    let stage = stage("");
    for body in [&b"{\"subject\":\"a mail\"}"[..], b"{\"messages\":", b"\xff\xfe"] {
        stage.exchange("/v1/messages", body, Some((200, &[b"ok"])), Ending::Complete).unwrap();
    }
    assert_eq!((stage.calls().len(), stage.exchanges().len()), (0, 3));
    let body = json!({ "model": "gpt-4o", "stream": true, "messages": [] }).to_string();
    stage
        .exchange(CHAT, body.as_bytes(), Some((200, &[b"data: {\"cho", b"ices\":"])), Ending::ClientGone)
        .unwrap();
    let call = &stage.calls()[0];
    assert_eq!(call.problems.len(), 2, "{call:?}");
    assert!(call.problems[0].starts_with("an event is not JSON"));
    assert_eq!(call.problems[1], "the answer broke off: ClientGone");
    assert_eq!(stage.exchanges()[3].answer.as_ref().unwrap().parts.len(), 2);
}

#[test]
fn a_giant_call_still_fits_its_event() {
    let stage = stage("");
    let messages: Vec<_> = (0..3000).map(|n| user(&format!("\u{1}{n}").repeat(200))).collect();
    stage.ask(json!(messages), &answer(&"x".repeat(5000), 4)).unwrap();
    let call = &stage.calls()[0];
    assert!(serde_json::to_vec(call).unwrap().len() < 1 << 19);
    assert_eq!((call.messages.len(), call.problems.len()), (256, 1), "{:?}", call.problems);
    let Some(Content::Kept(blob)) = &call.answer.as_ref().unwrap().text else { panic!("{call:?}") };
    assert_eq!(stage.record.bytes(blob), "x".repeat(5000).as_bytes());
}

#[test]
fn a_budget_stops_the_next_call_and_not_the_last() {
    // A call of these can cost some 40 + 1000 millionths, and costs 1025.
    let stage = stage("[[budget]]\nid = \"models\"\nhost = \"api.openai.com\"\nspend = 0.0022\n");
    let ask = || stage.ask(json!([user("hi")]), &answer("hello", 100));
    ask().unwrap();
    ask().unwrap();
    let stop = ask().unwrap_err();
    assert_eq!(stop.cause, "spend-cap");
    assert!(stop.reason.contains("budget `models` has $0.00015 left"), "{stop}");
    assert_eq!((stage.calls().len(), stage.exchanges().len()), (2, 3));
    // What is no call is not counted, and what cannot be read does not go.
    stage.exchange("/v1/files", b"x", Some((200, &[b"ok"])), Ending::Complete).unwrap();
    assert!(
        stage
            .exchange(CHAT, b"{\"model\"", None, Ending::Complete)
            .unwrap_err()
            .reason
            .contains("send it as JSON")
    );
    let unpriced = json!({ "model": "mine", "messages": [] }).to_string();
    let stop = stage.exchange(CHAT, unpriced.as_bytes(), None, Ending::Complete).unwrap_err();
    assert!(stop.reason.starts_with("the price of model `mine` is not known"), "{stop}");
    // A larger budget counts what went before.
    let larger = "[[budget]]\nid = \"models\"\nhost = \"*\"\nspend = 0.0040\n";
    stage.observer.set_policy(Arc::new(Policy::parse(larger).unwrap()));
    ask().unwrap();
    assert!(ask().is_err());
}

#[test]
fn breaking_off_early_is_no_way_around_a_budget() {
    let stage = stage("[[budget]]\nid = \"models\"\nhost = \"*\"\ntokens = 400\n");
    let body =
        json!({ "model": "mine", "stream": true, "max_tokens": 100, "messages": [user("hi")] }).to_string();
    let part = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"h\"}}]}\n\n";
    let ask = || stage.exchange(CHAT, body.as_bytes(), Some((200, &[part])), Ending::ClientGone);
    let most = 100 + (body.len() as u64).div_ceil(2);
    let went = (0..10).filter(|_| ask().is_ok()).count() as u64;
    assert_eq!(went, 400 / most);
    assert!(stage.calls().iter().all(|call| call.estimated));
}

#[test]
fn a_host_can_stay_without_bodies() {
    let stage = stage("[record]\nwithout_bodies = [\"api.openai.com\"]\n");
    stage.ask(json!([user("a secret of the house")]), &answer("hello", 4)).unwrap();
    let all = serde_json::to_string(&stage.record.bodies()).unwrap();
    assert!(!all.contains("secret of the house") && !all.contains("hello"), "{all}");
    let exchange = &stage.exchanges()[0];
    assert_eq!(exchange.without_bodies, "the policy keeps no bodies of this host");
    assert!(exchange.body.is_none() && exchange.answer.as_ref().unwrap().body.is_none());
    assert_eq!((stage.calls()[0].tokens.output, stage.calls()[0].cost_micros), (4, Some(65)));
}

#[test]
fn what_cannot_be_recorded_fails() {
    let stage = stage("");
    let watcher = stage.observer.open(&outgoing("/", &[])).unwrap().unwrap();
    stage.record.is_broken.store(true, Relaxed);
    assert!(watcher.ended(Ending::Complete).is_err());
}
