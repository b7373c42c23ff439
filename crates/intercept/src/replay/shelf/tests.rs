use super::super::recording::Response;
use super::*;
use proptest::prelude::*;
use std::time::Duration;

fn get(path: &str) -> Request {
    Request {
        scheme: "https".into(),
        host: "a.example".into(),
        port: 443,
        method: "GET".into(),
        path: path.into(),
        ..Request::default()
    }
}

fn post(body: &str) -> Request {
    let headers = vec![("content-type".into(), b"application/json".to_vec())];
    Request { method: "POST".into(), headers, body: body.into(), ..get("/v1") }
}

fn recording(all: &[(Request, &str)]) -> Recording {
    let whole = |text: &str| {
        let parts = vec![(Duration::ZERO, text.as_bytes().to_vec())];
        Answered::Whole(Response { status: 200, parts, ..Response::default() })
    };
    let one = |(seq, (request, answer)): (usize, &(Request, &str))| Recorded {
        seq: seq as u64,
        request: request.clone(),
        answer: whole(answer),
    };
    Recording { exchanges: all.iter().enumerate().map(one).collect(), given: Vec::new() }
}

fn shelf(all: &[(Request, &str)], rules: &str) -> Shelf {
    Shelf::new(recording(all), Rules::parse(&format!("[replay]\n{rules}")).unwrap())
}

/// Which exchange is served, with how it was found.
fn served(shelf: &mut Shelf, request: &Request) -> Result<(usize, bool), Miss> {
    shelf
        .take(request)
        .map(|found| (found.index, found.matching == Matching::Strict))
        .map_err(|missed| missed.why)
}

#[test]
fn each_is_served_once_in_the_order_of_the_recording() {
    let mut shelf = shelf(&[(get("/a"), "1"), (get("/b"), "2"), (get("/a"), "3")], "");
    for (path, expected) in
        [("/b", Ok((1, true))), ("/a", Ok((0, true))), ("/a", Ok((2, true))), ("/a", Err(Miss::UsedUp))]
    {
        assert_eq!(served(&mut shelf, &get(path)), expected, "{path}");
    }
    assert_eq!(served(&mut shelf, &get("/c")), Err(Miss::Different));
    let other = Request { host: "b.example".into(), ..get("/a") };
    assert_eq!(served(&mut shelf, &other), Err(Miss::UnknownHost));
}

#[test]
fn the_last_answer_is_repeated_only_where_that_is_declared() {
    let all = [(get("/a"), "1"), (get("/a"), "2"), (post("{}"), "3")];
    let mut shelf = shelf(&all, "repeat = [\"GET\"]");
    let found: Vec<_> =
        (0..3).map(|_| shelf.take(&get("/a")).unwrap()).map(|f| (f.index, f.repeated)).collect();
    assert_eq!(found, [(0, false), (1, false), (1, true)]);
    assert!(shelf.take(&post("{}")).is_ok());
    assert_eq!(served(&mut shelf, &post("{}")), Err(Miss::UsedUp));
}

#[test]
fn strict_is_strict() {
    let mut strict = shelf(&[(post(r#"{"a":1,"b":2}"#), "")], "mode = \"strict\"");
    assert_eq!(served(&mut strict, &post(r#"{"b":2,"a":1}"#)), Err(Miss::Different));
    assert_eq!(served(&mut strict, &post(r#"{"a":1,"b":2}"#)), Ok((0, true)));
    let accept = |value: &str| Request { headers: vec![("accept".into(), value.into())], ..get("/a") };
    let mut by_header = shelf(&[(accept("x"), "")], "mode = \"strict\"\nheaders = [\"Accept\"]");
    assert_eq!(served(&mut by_header, &accept("y")), Err(Miss::Different));
    let mut without = shelf(&[(accept("x"), "")], "mode = \"strict\"");
    assert_eq!(served(&mut without, &accept("y")), Ok((0, true)));
}

const A: &str = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0";
const B: &str = "1b1c2d3e-4f50-6172-8394-a5b6c7d8e9f1";
const X: &str = "ab1c2d3e-4f50-6172-8394-a5b6c7d8e9fa";
const Y: &str = "bb1c2d3e-4f50-6172-8394-a5b6c7d8e9fb";

fn with(id: &str) -> Request {
    post(&format!(r#"{{"thread":"{id}"}}"#))
}

#[test]
fn a_word_that_the_agent_made_up_may_be_another_one() {
    let mut shelf = shelf(&[(with(A), "{}"), (with(B), "{}"), (with(A), "{}")], "");
    assert_eq!(served(&mut shelf, &with(X)), Ok((0, false)));
    assert_eq!(shelf.renamed().collect::<Vec<_>>(), [(A, X)]);
    // The same word stands for the same thing from now on.
    assert_eq!(served(&mut shelf, &with(X)), Ok((2, false)));
    assert_eq!(served(&mut shelf, &with(X)), Err(Miss::UsedUp));
    assert_eq!(served(&mut shelf, &with(Y)), Ok((1, false)));
}

#[test]
fn a_word_that_came_from_outside_is_what_it_is() {
    let list = format!(r#"{{"ids":["{A}","{X}"]}}"#);
    let mut answered = shelf(&[(get("/list"), &list), (with(A), "{}")], "");
    assert_eq!(served(&mut answered, &with(X)), Err(Miss::Different));
    // Nor does a made-up word pass for a known one.
    assert_eq!(served(&mut answered, &with(Y)), Err(Miss::Different));
    assert_eq!(served(&mut answered, &with(A)), Ok((1, true)));
    let given = Recording { given: vec![format!("refund {A}")], ..recording(&[(with(A), "{}")]) };
    assert_eq!(served(&mut Shelf::new(given, Rules::default()), &with(X)), Err(Miss::Different));
}

#[test]
fn an_answer_may_repeat_what_the_agent_made_up() {
    let echo = format!("{{\"thread\": \"{A}\"}}");
    let mut shelf = shelf(&[(with(A), &echo), (with(A), &echo)], "");
    assert_eq!(served(&mut shelf, &with(X)), Ok((0, false)));
    assert_eq!(served(&mut shelf, &with(X)), Ok((1, false)));
}

#[test]
fn times_differ_without_being_names() {
    let at = |day: u32, hour: u32| post(&format!(r#"{{"today":"2026-01-{day:02}","at":"{hour:02}:00:00"}}"#));
    let mut shelf = shelf(&[(at(1, 1), ""), (at(1, 2), "")], "");
    assert_eq!(served(&mut shelf, &at(5, 3)), Ok((0, false)));
    assert_eq!(served(&mut shelf, &at(6, 3)), Ok((1, false)));
}

#[test]
fn an_answer_that_is_not_there_is_told() {
    let mut recording = recording(&[(get("/a"), "")]);
    recording.exchanges[0].answer = Answered::Not("it broke off".into());
    let missed = Shelf::new(recording, Rules::default()).take(&get("/a")).unwrap_err();
    assert_eq!((missed.why, missed.detail.as_str()), (Miss::NoAnswer, "it broke off"));
}

#[test]
fn a_miss_names_the_nearest() {
    // With what differs for no reason that counts left out.
    let mut shelf = shelf(&[(get("/a"), ""), (post(r#"{"q":"cats","at":"2026-01-01"}"#), "")], "");
    let nearest = shelf.take(&post(r#"{"q":"dogs","at":"2026-01-02"}"#)).unwrap_err().nearest.unwrap();
    assert_eq!(nearest.recorded, 1);
    let expected =
        Difference { at: "body.q".into(), recorded: Some("cats".into()), now: Some("dogs".into()) };
    assert_eq!(nearest.differences, [expected]);
}

use cofferdam_model::Difference;

/// A few requests, of which some are alike, and the order in which they are made again.
fn requests() -> impl Strategy<Value = (Vec<Request>, Vec<usize>)> {
    let one = (0u8..4, 0u8..3).prop_map(|(path, body)| {
        let text = format!(r#"{{"n":{body}}}"#);
        Request { path: format!("/{path}"), ..post(&text) }
    });
    prop::collection::vec(one, 1..12).prop_flat_map(|all| {
        let order: Vec<usize> = (0..all.len()).collect();
        (Just(all), Just(order).prop_shuffle())
    })
}

proptest! {
    /// Whatever the order, all are served, each once, and with an answer that was recorded for just this request.
    #[test]
    fn the_order_does_not_matter((all, order) in requests(), strict in any::<bool>()) {
        let rules = if strict { "mode = \"strict\"" } else { "" };
        let pairs: Vec<(Request, &str)> = all.iter().map(|request| (request.clone(), "x")).collect();
        let mut shelf = shelf(&pairs, rules);
        let mut used = HashSet::new();
        for index in &order {
            let found = shelf.take(&all[*index]).unwrap();
            prop_assert!(used.insert(found.index));
            prop_assert_eq!(&all[found.index], &all[*index]);
        }
        prop_assert_eq!(shelf.unused().count(), 0);
        for request in &all {
            prop_assert_eq!(shelf.take(request).unwrap_err().why, Miss::UsedUp);
        }
    }

    /// Any bytes at all: the same request gets the same answer, and nothing is served twice.
    #[test]
    fn bytes_are_compared_whatever_they_are(
        bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6),
        media in prop::sample::select(vec!["", "application/json", "multipart/form-data; boundary=0123456789"]),
        asked in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let of = |body: &Vec<u8>| Request {
            headers: vec![("content-type".into(), media.into())],
            body: body.clone(),
            ..post("")
        };
        let pairs: Vec<(Request, &str)> = bodies.iter().map(|body| (of(body), "x")).collect();
        let (mut one, mut other) = (shelf(&pairs, ""), shelf(&pairs, ""));
        prop_assert_eq!(one.take(&of(&asked)), other.take(&of(&asked)));
        let mut fresh = shelf(&pairs, "");
        let found: HashSet<usize> = bodies.iter().map(|body| fresh.take(&of(body)).unwrap().index).collect();
        prop_assert_eq!(found.len(), bodies.len());
    }

    #[test]
    fn json_is_the_same_in_any_order_of_names(fields in prop::collection::btree_map("[a-z]{1,4}", any::<i32>(), 1..8)) {
        let list: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
        let back: Vec<String> = list.iter().rev().cloned().collect();
        let mut shelf = shelf(&[(post(&format!("{{{}}}", list.join(","))), "")], "");
        let asked = post(&format!("{{ {} }}", back.join(" ,\n")));
        prop_assert!(shelf.take(&asked).is_ok());
    }
}
