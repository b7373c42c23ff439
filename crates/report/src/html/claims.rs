//! What the agent told people, and what each of its statements rests on: the ones that rest on nothing first.

use super::lanes::anchor;
use cofferdam_compare::Side;
use cofferdam_compare::claims::{Claim, ClaimReport, ClaimStatus, Operation, Quoted, Why};
use maud::{Markup, html};

/// More than this are in the trace.
const CLAIMS: usize = 40;
/// Places of one claim.
const PLACES: usize = 2;
/// Of a quotation.
const WIDTH: usize = 160;

pub(super) fn table(report: &ClaimReport, number: usize) -> Markup {
    let mut told: Vec<&Claim> =
        report.claims.iter().filter(|claim| claim.status != ClaimStatus::NotCheckable).collect();
    told.sort_by_key(|claim| std::cmp::Reverse(grave(claim.status)));
    let doubtful = told.iter().take_while(|claim| claim.status.flagged()).count();
    let (doubtful, sound) = told.split_at(doubtful);
    html! {
        @if !told.is_empty() {
            h3 { "What it said, and what that rests on" }
            (list(doubtful, number))
            @if !sound.is_empty() {
                details .whole {
                    summary { (sound.len()) @if sound.len() == 1 { " statement rests" } @else { " statements rest" }
                        " on what was read, done or told" }
                    (list(sound, number))
                }
            }
        }
    }
}

fn list(claims: &[&Claim], number: usize) -> Markup {
    html! {
        @if !claims.is_empty() {
            ul .claims {
                @for claim in claims.iter().take(CLAIMS) { (line(claim, number)) }
                @if claims.len() > CLAIMS { li .more { "and " (claims.len() - CLAIMS) " more" } }
            }
        }
    }
}

fn line(claim: &Claim, number: usize) -> Markup {
    let (class, word) = status(claim.status);
    html! {
        li .(class) {
            span .scorer { (word) } " "
            a .said href={ "#" (anchor(number, Side::New, claim.act)) } { "“" (short(&claim.text)) "”" }
            " " (why(claim, number))
        }
    }
}

/// In words, with links to where it was read.
fn why(claim: &Claim, number: usize) -> Markup {
    let act = |act: usize, text: Markup| html! { a href={ "#" (anchor(number, Side::New, act)) } { (text) } };
    match &claim.why {
        Why::Nowhere => html! { "stands nowhere in what was read, done or told before" },
        Why::NothingRead => html! { "was said before anything had been read" },
        Why::OtherValue { field, of, found } => html! {
            @match field { Some(field) => { code { (short(field)) } } None => "what was read" }
            @if let Some(of) = of { " of “" (short(of)) "”" }
            " is "
            (quoted(found, number))
        },
        Why::Likelier { of, found, .. } => html! {
            "was read, and " (quoted(found, number))
            @if let Some(of) = of { ", of “" (short(of)) "”," }
            " fits better there"
        },
        Why::SaidTwice { .. } => html! { "is named twice in one enumeration" },
        Why::Misfit { wants, found, .. } => html! {
            "stands where " (wants) " belongs"
            @if let Some(found) = found { "; it was read in " (quoted(found, number)) }
        },
        Why::OtherWeekday { date, weekday } => html! { (date) " is a " (weekday) },
        Why::NotDone { act: at, name } => {
            html! { (act(*at, html! { code { (short(name)) } " #" (at) })) " was not carried out" }
        }
        Why::Done { act: at, name } => html! { "by " (act(*at, html! { code { (short(name)) } " #" (at) })) },
        Why::Computed { operation, operands } => html! {
            (word_of(*operation)) " of "
            @for (at, operand) in operands.iter().take(PLACES + 1).enumerate() {
                @if at > 0 { ", " }
                (quoted(operand, number))
            }
            @if operands.len() > PLACES + 1 { " and " (operands.len() - PLACES - 1) " more" }
        },
        Why::UsersOwn => html! { "was in the request" },
        Why::Verbatim | Why::SameValue => html! {
            @for (at, evidence) in claim.evidence.iter().take(PLACES).enumerate() {
                @if at > 0 { "; " }
                (quoted(evidence, number))
            }
        },
        Why::NotAsserted | Why::NoReferent => html! {},
    }
}

fn quoted(found: &Quoted, number: usize) -> Markup {
    html! {
        code .value { (short(&found.text)) } " "
        a href={ "#" (anchor(number, found.place.side, found.place.act)) } { "#" (found.place.act) }
    }
}

fn short(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(WIDTH) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

fn grave(status: ClaimStatus) -> u8 {
    match status {
        ClaimStatus::Contradicted => 3,
        ClaimStatus::Unsupported => 2,
        ClaimStatus::Derived => 1,
        ClaimStatus::Supported | ClaimStatus::QuotedFromUser | ClaimStatus::NotCheckable => 0,
    }
}

fn status(status: ClaimStatus) -> (&'static str, &'static str) {
    match status {
        ClaimStatus::Contradicted => ("fail", "contradicted"),
        ClaimStatus::Unsupported => ("review", "unsupported"),
        ClaimStatus::Derived => ("pass", "worked out"),
        ClaimStatus::Supported => ("pass", "read"),
        ClaimStatus::QuotedFromUser => ("pass", "told"),
        ClaimStatus::NotCheckable => ("pass", "not checked"),
    }
}

fn word_of(operation: Operation) -> &'static str {
    match operation {
        Operation::Count => "the number",
        Operation::Sum => "the sum",
        Operation::Difference => "the difference",
        Operation::Average => "the average",
        Operation::Share => "a share",
        Operation::Product => "the product or quotient",
        Operation::Span => "the time between",
        Operation::Weekday => "the weekday",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_compare::Place;
    use cofferdam_compare::claims::{ClaimKind, Totals};

    fn claim(text: &str, status: ClaimStatus, why: Why, evidence: Vec<Quoted>) -> Claim {
        let (kind, value) = (ClaimKind::Money, None);
        Claim { act: 5, bytes: (0, 3), text: text.into(), kind, value, hedged: false, status, why, evidence }
    }

    #[test]
    fn each_has_its_ground_and_what_has_none_comes_first() {
        let read = |text: &str| Quoted { place: Place::new(2), text: text.into() };
        let other = Why::OtherValue { field: Some("total".into()), of: None, found: read("<500>") };
        let claims = vec![
            claim("39.5", ClaimStatus::Supported, Why::Verbatim, vec![read("39.5")]),
            claim("900", ClaimStatus::Contradicted, other, vec![]),
            claim("hi", ClaimStatus::NotCheckable, Why::NoReferent, vec![]),
        ];
        let made = table(&ClaimReport { answers: vec![5], claims, totals: Totals::default() }, 7).0;
        let (first, second) = (made.find("contradicted").unwrap(), made.find("39.5").unwrap());
        assert!(first < second && !made.contains("“hi”"), "{made}");
        assert!(made.contains("<code>total</code> is <code class=\"value\">&lt;500&gt;</code>"), "{made}");
        assert!(made.contains("href=\"#s7-new-2\""), "{made}");
        assert_eq!(table(&ClaimReport::default(), 1).0, "");
    }
}
