use super::super::recording::{Recorded, Recording};
use super::*;
use cofferdam_model::BlobRef;

#[derive(Default)]
struct Kept(Mutex<Vec<(Option<u64>, Body)>>);

impl Record for Kept {
    fn append(&self, parent: Option<u64>, body: &Body) -> Result<u64, NotRecorded> {
        lock(&self.0).push((parent, body.clone()));
        Ok(0)
    }

    fn keep(&self, _: &[u8]) -> Result<BlobRef, NotRecorded> {
        Err(NotRecorded::bytes("nothing is kept here"))
    }
}

fn recorded(path: &str, answer: Answered) -> Recorded {
    let request = Request {
        scheme: "https".into(),
        host: "a.example".into(),
        port: 443,
        method: "POST".into(),
        path: path.into(),
        body: b"in /then/x".to_vec(),
        ..Request::default()
    };
    Recorded { seq: 40, request, answer }
}

fn stream() -> Answered {
    let parts = vec![
        (Duration::from_millis(5), b"data: /then/y\n\n".to_vec()),
        (Duration::from_millis(7), b"data: 2\n\n".to_vec()),
    ];
    let headers = vec![("content-type".into(), b"text/event-stream".to_vec())];
    Answered::Whole(Response { status: 200, headers, parts, first: Duration::from_millis(100) })
}

fn replay(rules: &str, inner: Option<Arc<dyn Tap>>) -> (Arc<Replay>, Arc<dyn Tap>, Arc<Kept>) {
    let rules = Rules::parse(&format!("[replay]\n{rules}")).unwrap();
    let recording = Recording { exchanges: vec![recorded("/v1", stream())], given: Vec::new() };
    let (shelf, kept) = (Shelf::new(recording, rules.clone()), Arc::new(Kept::default()));
    let places = vec![("/now".to_owned(), "/then".to_owned())];
    let replay = Arc::new(Replay::new(shelf, rules, places));
    let tap = replay.tap(kept.clone(), inner);
    (replay, tap, kept)
}

fn outgoing<'a>(path: &'a str) -> Outgoing<'a> {
    Outgoing {
        event: 9,
        scheme: "https",
        host: "a.example",
        port: 443,
        method: "POST",
        path,
        query: None,
        headers: &[],
        rule: None,
        credentials: &[],
    }
}

fn ask(replay: &Arc<dyn Tap>, path: &str, body: &[u8]) -> Next {
    let mut watcher = replay.open(&outgoing(path)).unwrap().unwrap();
    assert!(watcher.holds());
    body.chunks(3).for_each(|chunk| watcher.sent(chunk));
    let next = watcher.sent_all();
    watcher.ended(Ending::Complete).unwrap();
    next
}

#[test]
fn a_stream_comes_in_its_parts_and_the_paths_of_this_session() {
    for (speed, waits) in [("full", [0, 0]), ("recorded", [105, 7])] {
        let (replay, tap, kept) = replay(&format!("speed = \"{speed}\""), None);
        let Next::Answer(reply) = ask(&tap, "/v1", b"in /now/x") else { panic!("not served") };
        let parts: Vec<(u128, &[u8])> =
            reply.parts.iter().map(|(wait, part)| (wait.as_millis(), part.as_slice())).collect();
        assert_eq!(parts, [(waits[0], &b"data: /now/y\n\n"[..]), (waits[1], b"data: 2\n\n")]);
        assert_eq!(lock(&kept.0)[0].0, Some(9));
        assert!(matches!(&lock(&kept.0)[0].1, Body::ReplayServed(fact) if fact.recorded == 40));
        let tally = replay.tally();
        assert_eq!((tally.served, tally.recorded, tally.missed.len(), tally.unused.len()), (1, 1, 0, 0));
    }
}

#[test]
fn a_miss_is_told_recorded_and_counted() {
    for (fallback, refused) in [("error", true), ("review", true), ("live", false)] {
        let (replay, tap, kept) = replay(&format!("fallback = \"{fallback}\""), None);
        match ask(&tap, "/v2", b"in /now/x") {
            Next::Refuse(stop) if refused => {
                assert!(stop.reason.contains("nearest is event 40"), "{}", stop.reason);
                assert!(stop.reason.contains("path: `/v1` was recorded, now `/v2`"), "{}", stop.reason);
            }
            Next::Forward if !refused => {}
            other => panic!("{fallback}: {other:?}"),
        }
        assert!(matches!(&lock(&kept.0)[0], (Some(9), Body::ReplayMissed(_))));
        let tally = replay.tally();
        assert_eq!(
            (tally.served, tally.missed.len(), tally.unused),
            (0, 1, vec![(40, "POST https://a.example/v1".into())])
        );
    }
}

/// What watches as if nothing were replayed.
struct Inner(Arc<Mutex<Vec<String>>>, bool);

impl Tap for Inner {
    fn open(&self, _: &Outgoing<'_>) -> Result<Option<Box<dyn Watcher>>, Stop> {
        Ok(Some(Box::new(Inner(self.0.clone(), self.1))))
    }
}

impl Watcher for Inner {
    fn holds(&self) -> bool {
        self.1
    }
    fn sent(&mut self, chunk: &[u8]) {
        lock(&self.0).push(String::from_utf8_lossy(chunk).into_owned());
    }
    fn sent_all(&mut self) -> Next {
        Next::Refuse(Stop { cause: "spend-cap".into(), reason: "too dear".into() })
    }
    fn answered(&mut self, _: u16, _: &[(&str, &[u8])]) {}
    fn received(&mut self, _: &[u8]) {}
    fn ended(self: Box<Self>, _: Ending) -> Result<(), NotRecorded> {
        lock(&self.0).push("ended".into());
        Ok(())
    }
}

#[test]
fn who_else_watches_sees_the_request_as_it_is_and_may_stop_it() {
    for holds in [true, false] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (_, tap, _) = replay("", Some(Arc::new(Inner(seen.clone(), holds))));
        let next = ask(&tap, "/v1", b"in /now/x");
        assert_eq!(matches!(next, Next::Refuse(_)), holds, "{next:?}");
        assert_eq!(lock(&seen).concat(), "in /now/xended");
    }
}
