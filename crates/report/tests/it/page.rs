//! The page.

use super::{HOSTILE, sample};
use cofferdam_compare::Outcome;
use cofferdam_report::{Page, Session};

fn page() -> String {
    let (result, [base, same, other], comparisons) = sample();
    let mut page = Page::begin(Vec::new(), &result).unwrap();
    for (at, (verdict, comparison)) in result.sessions.iter().zip(&comparisons).enumerate() {
        let new = if at == 1 { &other } else { &same };
        let session =
            Session { verdict: &verdict, comparison: Some(comparison), base: Some(&base), new: Some(new) };
        page.session(&session).unwrap();
    }
    String::from_utf8(page.end(&result).unwrap()).unwrap()
}

#[test]
fn the_verdict_comes_first_and_the_difference_is_shown() {
    let page = page();
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("`{text}` is missing"));
    assert!(
        at("class=\"verdict\"") < at("1 of 3 sessions failed")
            && at("1 of 3") < at("id=\"session-order-other\"")
    );
    // The amount, on both sides and between them.
    at("<div class=\"set\"><dt>amount</dt><dd>500</dd></div>");
    at("<div class=\"set\"><dt>amount</dt><dd>900</dd></div>");
    at("<code>amount</code>: <del>500</del> → <ins>900</ins>");
    at("acts are the same");
    at("cofferdam gate suite.toml --only order-other");
    at("cofferdam record suite.toml --only order-other");
    assert!(
        !page.contains("cofferdam record suite.toml --only order-same"),
        "what passed is the baseline already"
    );
    // A reason leads to an act that is there.
    let link = page.split("href=\"#").nth(1).unwrap().split('"').next().unwrap();
    at(&format!("id=\"{link}\""));
}

#[test]
fn nothing_that_an_agent_wrote_is_markup() {
    let page = page();
    assert!(page.contains("&lt;script&gt;alert(1)"), "it is there, as text");
    assert!(!page.contains(HOSTILE) && !page.contains("<script>alert"));
    assert_eq!(page.matches("<script").count(), 1, "only our own");
}

#[test]
fn it_needs_nothing_from_elsewhere() {
    let page = page();
    for reference in ["src=", "@import", "url(", "href=\"http", "<link"] {
        assert!(!page.contains(reference), "{reference}");
    }
    assert!(page.contains("default-src &#39;none&#39;") || page.contains("default-src 'none'"));
}

#[test]
fn failures_are_open_and_the_rest_is_folded() {
    let (result, ..) = sample();
    let page = page();
    for session in result.sessions.iter() {
        let tag =
            page.split("<details").find(|tag| tag.contains(&format!("session-{}\"", session.id))).unwrap();
        let is_open = tag.split('>').next().unwrap().ends_with(" open");
        assert_eq!(is_open, session.outcome == Outcome::Fail, "{}", session.id);
    }
}
