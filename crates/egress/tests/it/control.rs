//! What is switched while a session runs: it holds for the next request, and for what is under way.

use crate::harness::{PLACEHOLDER, Proxy, REAL, Setup, allow, credential, rules, upstream};
use crate::protocols::{h2_client, runtime, tunnel};
use crate::upstream::Server;
use cofferdam_model::{Answer, Body, Cap, Ending, Verdict};
use cofferdam_testkit::eventually;
use cofferdam_vault::{Bound, Plain};
use http_body_util::BodyExt;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const HOST: &str = "api.example.com";

fn policy(server: &Server, more: &str) -> String {
    upstream(HOST, server.address) + &allow("all", HOST, "") + more
}

fn proxy_to(server: &Server) -> Proxy {
    Setup::new(&policy(server, ""), &server.ca).credentials(vec![credential(&[HOST])]).start()
}

fn url(path: &str) -> String {
    format!("https://{HOST}{path}")
}

fn bearer() -> String {
    format!("authorization: Bearer {PLACEHOLDER}")
}

/// Opens a stream without end that uses the credential, does something to the proxy, and reads to the cut.
fn cut_by(server: &Server, proxy: &Proxy, act: impl FnOnce()) {
    runtime().block_on(async {
        let (mut sender, connection) = h2_client(proxy).await;
        tokio::spawn(connection);
        let request = http::Request::get(url("/endless"))
            .header("authorization", format!("Bearer {PLACEHOLDER}"))
            .body(String::new())
            .unwrap();
        let mut answer = sender.send_request(request).await.unwrap().into_body();
        answer.frame().await.unwrap().unwrap();
        act();
        while let Some(frame) = answer.frame().await {
            if frame.is_err() {
                return;
            }
        }
    });
    assert!(server.seen.count() > 0);
}

#[test]
fn f2_revoking_refuses_the_next_request_and_cuts_open_streams() {
    let server = Server::tls(&[HOST], &["h2", "http/1.1"]);
    let proxy = proxy_to(&server);
    assert_eq!(proxy.curl(&["-H", &bearer(), &url("/")]).status, 200);
    cut_by(&server, &proxy, || assert_eq!(proxy.handle.revoke("key", "me").unwrap(), 1));
    let ended = proxy.wait_ended(2);
    assert_eq!(ended[1].ending, Ending::Revoked);
    let count = server.seen.count();
    let refused = proxy.curl(&["-H", &bearer(), &url("/")]);
    assert!(refused.status == 403 && refused.body.contains("revoked"), "{refused:?}");
    assert_eq!(server.seen.count(), count);
    // What does not use it goes on.
    assert_eq!(proxy.curl(&[&url("/")]).status, 200);
}

#[test]
fn f2_revoking_cuts_a_websocket_and_an_upload() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = Server::tls(&[HOST], &["http/1.1"]);
    let proxy = proxy_to(&server);
    runtime().block_on(async {
        let mut socket = tunnel(&proxy, HOST, HOST, "http/1.1").await.unwrap();
        let upgrade = format!(
            "GET /raw HTTP/1.1\r\nHost: {HOST}\r\nConnection: upgrade\r\nUpgrade: echo\r\n{}\r\n\r\n",
            bearer()
        );
        socket.write_all(upgrade.as_bytes()).await.unwrap();
        let mut upload = tunnel(&proxy, HOST, HOST, "http/1.1").await.unwrap();
        let head = format!(
            "PUT /count HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 1000000\r\n{}\r\n\r\nstart",
            bearer()
        );
        upload.write_all(head.as_bytes()).await.unwrap();
        let mut buffer = [0; 1024];
        assert!(socket.read(&mut buffer).await.unwrap() > 0);
        while server.seen.body_bytes.load(Relaxed) < 5 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(proxy.handle.revoke("key", "me").unwrap(), 2);
        let mut rest = Vec::new();
        let _ = upload.read_to_end(&mut rest).await;
        assert!(
            String::from_utf8_lossy(&rest).starts_with("HTTP/1.1 403"),
            "{}",
            String::from_utf8_lossy(&rest)
        );
        assert!(!matches!(socket.read(&mut buffer).await, Ok(n) if n > 0));
    });
    let ended = proxy.wait_ended(2);
    assert!(ended.iter().all(|e| e.ending == Ending::Revoked), "{ended:?}");
}

#[test]
fn a_rotated_value_is_the_one_that_is_sent() {
    let server = Server::tls(&[HOST], &["h2", "http/1.1"]);
    let proxy = proxy_to(&server);
    let fresh = "sk_real_9999999999999999abcdefgh";
    cut_by(&server, &proxy, || {
        assert_eq!(
            proxy.handle.rotate(Bound { plain: Plain::new(fresh.into()), ..credential(&[]) }, "me").unwrap(),
            1
        );
    });
    let got = proxy.curl(&["-H", &bearer(), &url("/")]);
    assert!(got.status == 200 && got.body.contains(PLACEHOLDER) && !got.body.contains(fresh), "{got:?}");
    let last = server.seen.heads.lock().unwrap().pop().unwrap();
    assert!(last.contains(fresh) && !last.contains(REAL));
}

#[test]
fn pausing_stops_everything_and_resuming_lets_it_go_on() {
    let server = Server::tls(&[HOST], &["h2", "http/1.1"]);
    let proxy = proxy_to(&server);
    cut_by(&server, &proxy, || assert_eq!(proxy.handle.pause("me").unwrap(), 1));
    let paused = proxy.curl(&[&url("/")]);
    assert!(paused.status == 503 && paused.body.contains("paused"), "{paused:?}");
    proxy.handle.resume("me").unwrap();
    assert_eq!(proxy.curl(&[&url("/")]).status, 200);
    let changes: Vec<_> = proxy
        .events()
        .into_iter()
        .filter_map(|body| if let Body::ControlChanged(c) = body { Some((c.what, c.by)) } else { None })
        .collect();
    assert_eq!(changes, [("pause".to_owned(), "me".to_owned()), ("resume".to_owned(), "me".to_owned())]);
}

#[test]
fn a_new_policy_holds_for_kept_connections_and_open_streams() {
    let server = Server::tls(&[HOST], &["h2", "http/1.1"]);
    let proxy = proxy_to(&server);
    let narrow = upstream(HOST, server.address) + &allow("less", HOST, "paths = [\"/ok\"]");
    cut_by(&server, &proxy, || {
        assert_eq!(proxy.handle.replace_policy(rules(&narrow, &server.ca), "me").unwrap(), 1);
    });
    assert_eq!(proxy.wait_ended(1)[0].ending, Ending::PolicyChanged);
    assert_eq!(proxy.curl(&[&url("/endless")]).status, 403);
    assert_eq!(proxy.curl(&[&url("/ok")]).status, 200);
}

#[test]
fn review_holds_until_a_person_answers() {
    let server = Server::tls(&[HOST], &["http/1.1"]);
    let review = format!(
        "[[rule]]\nid = \"ask\"\nreason = \"money\"\neffect = \"review\"\nhost = \"{HOST}\"\npaths = [\"/pay\"]\nwhen = 'int(request.body.amount) > 5'\n"
    );
    let proxy = Setup::new(&policy(&server, &review), &server.ca).start();
    let held = |answer: &dyn Fn(u64)| {
        std::thread::scope(|scope| {
            let client = scope.spawn(|| proxy.curl(&["-d", "amount=50", &url("/pay?to=me")]));
            let held = eventually("the request to be held", || proxy.handle.approvals().pending().pop());
            assert_eq!((held.rule.as_str(), held.url.as_str()), ("ask", "https://api.example.com/pay?to=me"));
            answer(held.id);
            client.join().unwrap()
        })
    };
    let before = server.seen.count();
    assert_eq!(held(&|id| proxy.handle.approvals().deny(id, "ann").unwrap()).status, 403);
    assert_eq!(server.seen.count(), before);
    assert_eq!(held(&|id| proxy.handle.approvals().allow(id, "ann").unwrap()).status, 200);
    assert_eq!(server.seen.count(), before + 1);
    let answers: Vec<_> = answers(&proxy);
    assert_eq!(answers, [(Answer::Denied, "ann".to_owned()), (Answer::Allowed, "ann".to_owned())]);
    assert!(proxy.decided().iter().all(|decided| decided.effect == Verdict::Review));
}

fn answers(proxy: &Proxy) -> Vec<(Answer, String)> {
    let told = |body| if let Body::ApprovalAnswered(a) = body { Some((a.answer, a.by)) } else { None };
    proxy.events().into_iter().filter_map(told).collect()
}

#[test]
fn f3_no_answer_a_client_that_left_and_a_changed_policy_are_no() {
    let server = Server::tls(&[HOST], &["http/1.1"]);
    let review = format!(
        "[[rule]]\nid = \"ask\"\nreason = \"money\"\neffect = \"review\"\nhost = \"{HOST}\"\npaths = [\"/pay\"]\n"
    );
    let setup = || Setup::new(&policy(&server, &review), &server.ca);
    let short = setup().limits(|limits| limits.review_time = Duration::from_millis(100)).start();
    let late = short.curl(&[&url("/pay")]);
    assert!(late.status == 403 && late.body.contains("in time"), "{late:?}");
    assert_eq!(answers(&short), [(Answer::TimedOut, String::new())]);

    let proxy = setup().start();
    let gone = proxy.curl(&["--max-time", "1", &url("/pay")]);
    assert_eq!(gone.status, 0);
    eventually("the question to be withdrawn", || {
        proxy.handle.approvals().pending().is_empty().then_some(())
    });
    eventually("the answer", || (answers(&proxy) == [(Answer::Withdrawn, String::new())]).then_some(()));

    let changed = std::thread::scope(|scope| {
        let client = scope.spawn(|| proxy.curl(&[&url("/pay")]));
        let held = eventually("the request to be held", || proxy.handle.approvals().pending().pop());
        let none = rules(&upstream(HOST, server.address), &server.ca);
        proxy.handle.replace_policy(none, "me").unwrap();
        proxy.handle.approvals().allow(held.id, "ann").unwrap();
        client.join().unwrap()
    });
    assert_eq!(changed.status, 403, "{changed:?}");
    assert_eq!(server.seen.count(), 0);
}

#[test]
fn what_cannot_be_recorded_does_not_happen() {
    let server = Server::tls(&[HOST], &["h2", "http/1.1"]);
    let proxy = proxy_to(&server);
    assert_eq!(proxy.curl(&["-H", &bearer(), &url("/")]).status, 200);
    proxy.wait_ended(1);
    proxy.kept.is_broken.store(true, Relaxed);
    let refused = proxy.curl(&["-H", &bearer(), &url("/")]);
    assert!(refused.status == 503 && refused.body.contains("not on record"), "{refused:?}");
    assert_eq!(server.seen.count(), 1);
}

#[test]
fn f4_budgets_hold_under_many_requests_at_once() {
    let server = Server::tls(&[HOST], &["h2", "http/1.1"]);
    let budget = format!("[[budget]]\nid = \"ten\"\nhost = \"{HOST}\"\nrequests = 10\n");
    let proxy = Setup::new(&policy(&server, &budget), &server.ca).start();
    let statuses: Vec<u16> = runtime().block_on(async {
        let (sender, connection) = h2_client(&proxy).await;
        tokio::spawn(connection);
        let all = (0..50).map(|_| {
            let mut sender = sender.clone();
            tokio::spawn(async move {
                let request = http::Request::get(url("/")).body(String::new()).unwrap();
                sender.send_request(request).await.unwrap().status().as_u16()
            })
        });
        futures_util::future::join_all(all).await.into_iter().map(Result::unwrap).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 10, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 40, "{statuses:?}");
    assert_eq!(server.seen.count(), 10);
}

#[test]
fn a_budget_of_bytes_cuts_what_goes_over() {
    let server = Server::tls(&[HOST], &["http/1.1"]);
    let budget = format!("[[budget]]\nid = \"small\"\nhost = \"{HOST}\"\nbytes_down = \"1MiB\"\n");
    let proxy = Setup::new(&policy(&server, &budget), &server.ca).start();
    let got = proxy.curl(&["-o", "/dev/null", &url("/big")]);
    assert!(!got.error.is_empty(), "{got:?}");
    let ended = proxy.wait_ended(1);
    assert_eq!(ended[0].ending, Ending::OverBudget);
    assert!(ended[0].received < (2 << 20), "{ended:?}");
    assert_eq!(proxy.curl(&[&url("/")]).status, 429);
}

#[test]
fn triggers_act_by_themselves() {
    let server = Server::tls(&[HOST], &["http/1.1"]);
    let on = "[[on]]\nid = \"leak\"\nafter = { alarm = \"placeholder-misused\" }\ndo = { revoke = [\"key\"], pause = true }\n";
    let setup = Setup::new(&(policy(&server, on) + &allow("other", "other.example", "")), &server.ca);
    let proxy = setup.credentials(vec![credential(&[HOST])]).start();
    assert_eq!(proxy.curl(&["-H", &bearer(), &url("/")]).status, 200);
    assert_eq!(proxy.curl(&["-H", &bearer(), "https://other.example/"]).status, 403);
    assert_eq!(proxy.curl(&[&url("/")]).status, 503);
    proxy.handle.resume("me").unwrap();
    assert_eq!(proxy.curl(&[&url("/")]).status, 200);
    assert_eq!(proxy.curl(&["-H", &bearer(), &url("/")]).status, 403);
}

#[test]
fn the_end_cuts_and_records() {
    let server = Server::tls(&[HOST], &["h2", "http/1.1"]);
    let Proxy { handle, kept, address, dir } = proxy_to(&server);
    let proxy = Proxy { handle, kept: kept.clone(), address, dir };
    runtime().block_on(async {
        let (mut sender, connection) = h2_client(&proxy).await;
        tokio::spawn(connection);
        let request = http::Request::get(url("/endless")).body(String::new()).unwrap();
        let mut answer = sender.send_request(request).await.unwrap().into_body();
        answer.frame().await.unwrap().unwrap();
        assert_eq!(proxy.handle.stats().open, 1);
        tokio::task::spawn_blocking(move || proxy.handle.shutdown()).await.unwrap();
        while let Some(Ok(_)) = answer.frame().await {}
    });
    let events = kept.events.lock().unwrap();
    let ended =
        events.iter().find_map(|(_, b)| if let Body::EgressEnded(e) = b { Some(e.ending) } else { None });
    assert_eq!(ended, Some(Ending::SessionEnded));
}

#[test]
fn a_cap_holds_from_when_it_is_set() {
    let server = Server::tls(&[HOST], &["h2", "http/1.1"]);
    let proxy = proxy_to(&server);
    assert_eq!(proxy.curl(&[&url("/")]).status, 200);
    cut_by(&server, &proxy, || {
        proxy.handle.cap(Cap { bytes_down: Some(100), ..Cap::default() }, "me").unwrap();
    });
    assert_eq!(proxy.wait_ended(2)[1].ending, Ending::OverBudget);
    assert_eq!(proxy.curl(&[&url("/")]).status, 429);
    proxy.handle.cap(Cap::default(), "me").unwrap();
    assert_eq!(proxy.curl(&[&url("/")]).status, 200);
}
