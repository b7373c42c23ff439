//! What the checker says of whole runs. A file per subject: `places`, what belongs where a value stands; `people`, names and
//! addresses; `sums`, numbers that were counted or worked out.

mod people;
mod places;
mod sums;

use super::*;
use cofferdam_model::{Act, Status};
use proptest::prelude::*;

const EVENTS: &str = "- id_: '6'\n  description: Weekly sync on updates.\n  end_time: 2024-05-15 11:00:00\n  start_time: 2024-05-15 10:00:00\n  title: Team Sync\n\
    - id_: '9'\n  description: Catch up over food.\n  end_time: 2024-05-15 13:30:00\n  start_time: 2024-05-15 12:30:00\n  title: Lunch with Sarah\n\
    - id_: '24'\n  description: Meeting the clients.\n  end_time: 2024-05-15 16:30:00\n  start_time: 2024-05-15 15:00:00\n  title: Introductory meeting\n";
const BILLS: &str = "- amount: 100.0\n  subject: Pizza party\n- amount: 250.5\n  subject: New year gift\n";

fn act(kind: ActKind, name: &str, text: &str) -> Act {
    Act {
        at: 0,
        within: None,
        kind,
        name: name.into(),
        args: serde_json::Value::Null,
        text: text.into(),
        status: Status::Ok,
        effect: Default::default(),
        decided: None,
    }
}

fn asked(user: &str, read: &str, answer: &str) -> Run {
    let acts = vec![
        act(ActKind::Told, "user", user),
        act(ActKind::Tool, "get_items", read),
        act(ActKind::Said, "assistant", answer),
    ];
    Run { acts, ..Run::default() }
}

fn statuses(run: &Run) -> Vec<(String, ClaimStatus)> {
    super::check(run).claims.into_iter().map(|c| (c.text, c.status)).collect()
}

fn check(run: &Run, expected: &[(&str, ClaimStatus)]) {
    let expected: Vec<_> = expected.iter().map(|(t, s)| ((*t).to_owned(), *s)).collect();
    assert_eq!(statuses(run), expected, "{:#?}", super::check(run));
}

use ClaimStatus::{Contradicted, Derived, NotCheckable, QuotedFromUser, Supported, Unsupported};

#[test]
fn a_value_in_another_dress_is_supported_and_shows_where() {
    let run = asked("When is the sync?", EVENTS, "Team Sync is on May 15th, 2024 from 10:00 AM to 11:00 AM.");
    check(
        &run,
        &[
            ("Team Sync", Supported),
            ("May 15th, 2024", Supported),
            ("10:00 AM", Supported),
            ("11:00 AM", Supported),
        ],
    );
    let report = super::check(&run);
    let place = &report.claims[2].evidence[0].place;
    let (from, to) = place.bytes.unwrap();
    assert_eq!((place.act, &run.acts[1].text[from..to]), (1, "10:00:00"));
    assert_eq!(report.claims[0].why, Why::Verbatim);
    assert_eq!(report.claims[2].why, Why::SameValue);
}

#[test]
fn a_value_of_another_record_is_contradicted_by_the_right_one() {
    let run = asked(
        "When?",
        EVENTS,
        "1. **Team Sync**\n   - **Time:** 12:30 PM\n2. **Lunch with Sarah**\n   - **Time:** 10:00 AM\n",
    );
    let report = super::check(&run);
    let times: Vec<_> = report.claims.iter().filter(|c| c.kind == ClaimKind::Time).collect();
    for (claim, right) in times.iter().zip(["10:00:00", "12:30:00"]) {
        let Why::OtherValue { found, .. } = &claim.why else { panic!("{claim:#?}") };
        assert_eq!(found.text, right);
    }
    let said: Vec<String> = report.reasons().into_iter().map(|reason| reason.text).collect();
    assert_eq!(
        said,
        [
            "the answer says `Team Sync`, but `title` of what it is about is `Lunch with Sarah` (act 1)",
            "the answer says `12:30 PM`, but `start time` of `Team Sync` is `10:00:00` (act 1)",
            "the answer says `10:00 AM`, but `start time` of `Lunch with Sarah` is `12:30:00` (act 1)",
        ]
    );
}

#[test]
fn a_value_that_stands_nowhere_is_flagged() {
    check(
        &asked("How much?", BILLS, "The gift was 260.5 and the party 100."),
        &[("260.5", Contradicted), ("100", Supported)],
    );
    check(&asked("Who?", BILLS, "It was paid by Gareth to a friend."), &[("Gareth", Unsupported)]);
    check(&asked("Who?", EVENTS, "2. **Lunch with Gareth**"), &[("Gareth", Contradicted)]);
}

#[test]
fn the_users_own_words_and_offers_are_no_claims_of_the_model() {
    check(
        &asked("Send 75 to Gareth", BILLS, "You asked me to send 75 to Gareth."),
        &[("75", QuotedFromUser), ("Gareth", QuotedFromUser)],
    );
    check(&asked("Hi", BILLS, "Would you like me to send 75 instead?"), &[("75", NotCheckable)]);
}

#[test]
fn tables_and_json_are_read_too() {
    check(
        &asked(
            "?",
            BILLS,
            "| Subject | Amount |\n|---|---|\n| Pizza party | 100.00 |\n| New year gift | 25.50 |\n",
        ),
        &[("100.00", Supported), ("25.50", Contradicted)],
    );
    check(
        &asked("?", BILLS, "{\"subject\": \"Pizza party\", \"amount\": 100}"),
        &[("Pizza party", Supported), ("100", Supported)],
    );
}

#[test]
fn an_empty_run_and_a_run_that_read_nothing_claim_nothing_wrong() {
    assert_eq!(super::check(&Run::default()), ClaimReport::default());
    let run = Run { acts: vec![act(ActKind::Said, "assistant", "It costs $5 in Paris.")], ..Run::default() };
    check(&run, &[("$5", NotCheckable), ("Paris", NotCheckable)]);
}

#[test]
fn ten_thousand_identical_results_are_read_once() {
    let mut acts: Vec<Act> = (0..10_000).map(|_| act(ActKind::Tool, "get_items", BILLS)).collect();
    acts.push(act(ActKind::Said, "assistant", "The pizza party was 100."));
    assert_eq!(statuses(&Run { acts, ..Run::default() }), [("100".to_owned(), Supported)]);
}

#[test]
fn what_a_baseline_says_too_is_usual_unless_it_also_says_the_right_one() {
    let of = |answer: &str| super::check(&asked("When?", EVENTS, answer));
    let wrong = of("1. **Team Sync**\n   - **Time:** 12:30 PM\n");
    let time = wrong.claims.iter().find(|c| c.kind == ClaimKind::Time).unwrap();
    assert_eq!(time.status, Contradicted);
    assert!(!time.is_usual(&[]));
    assert!(time.is_usual(&[of("It is at 12:30 PM.")]));
    assert!(!time.is_usual(&[of("It is at 12:30 PM."), of("It is at 10:00 AM.")]));
    assert!(!time.is_usual(&[of("It is at 15:00.")]));
}

proptest! {
    #[test]
    fn what_grows_adds_up_or_is_doubted(from in 1u32..5000, by in 1u32..5000, off in 1u32..50) {
        let read = format!("- old: {from}\n- raise: {by}\n- new: {}\n- wrong: {}\n", from + by, from + by + off);
        let of = |to: u32| {
            let said = format!("It was increased by {by}, from {from} to {to}.");
            super::check(&asked("Raise it", &read, &said)).claims
        };
        prop_assert!(of(from + by + off).iter().any(|c| c.status.flagged()));
        prop_assert!(of(from + by).iter().all(|c| c.status != Contradicted));
    }

    #[test]
    fn any_run_is_checked_and_ranges_are_characters(
        read in "(?s).{0,80}|(- |a: |1|0:0|é|\\{|\\[|\"x\": |,|\n| |2024-0|Bob ){0,20}",
        said in "(?s).{0,80}|(\\| ?|- |\\*\\*|:|1|0:00|é|\\{|\"a\":|May |Bob |'|\n| |\\$5|%|three ){0,24}",
    ) {
        let run = asked("Bob 1", &read, &said);
        for claim in super::check(&run).claims {
            prop_assert_eq!(said.get(claim.bytes.0..claim.bytes.1), Some(claim.text.as_str()));
            for quoted in claim.evidence {
                if let Some((from, to)) = quoted.place.bytes {
                    prop_assert_eq!(run.acts[quoted.place.act].text.get(from..to), Some(quoted.text.as_str()));
                }
            }
        }
        let _ = crate::ground::check(&run);
    }
}
