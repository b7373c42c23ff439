//! Claims: what a model's words assert, linked to where it was read. An answer is cut into values, names, quotes and
//! statuses; each is looked up in what the run had read, done and been told before it. It refuses to guess: what was
//! not vouched for or cannot be looked up is "not checkable", which is neither good nor bad.

mod about;
pub(crate) mod amount;
pub(crate) mod answer;
mod bind;
mod company;
mod context;
mod cue;
mod derive;
mod equation;
pub(crate) mod evidence;
mod exchange;
mod extract;
mod extreme;
mod fit;
mod form;
mod joint;
pub(crate) mod layout;
mod link;
pub(crate) mod moment;
mod naming;
mod object;
mod person;
mod rank;
mod reading;
mod report;
mod rival;
pub(crate) mod scan;
mod status;
mod subject;
mod titled;
mod together;
mod twice;
mod unknown;
mod usual;
mod whom;
mod whose;
pub(crate) mod words;

pub use amount::{Amount, Unit};
pub use fit::{FITS, Fit};
pub use moment::{Date, Time};
pub use rank::Candidate;
pub use report::{Claim, ClaimKind, ClaimReport, ClaimStatus, Operation, Quoted, Totals, Why};
pub use scan::Value;

pub(crate) fn off(c: char) -> bool {
    static OFF: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    OFF.get_or_init(|| std::env::var("OFF").unwrap_or_default()).contains(c)
}
use cofferdam_model::{ActKind, Run};
use evidence::Evidence;

/// Every claim of a run's answers. An answer is what the model said last before the user spoke again or the run ended;
/// what it said on the way there was to itself.
pub fn check(run: &Run) -> ClaimReport {
    let evidence = Evidence::of(run);
    let mut report = ClaimReport::default();
    for act in answers(run) {
        report.answers.push(act);
        let text = &run.acts[act].text;
        let answer = extract::extract(text);
        let judge = link::Judge::new(run, &evidence, act, text, &answer);
        let (mut claims, rankings): (Vec<Claim>, Vec<_>) =
            answer.claims.iter().map(|raw| judge.claim(raw)).unzip();
        judge.exchanged(&mut claims, &rankings);
        derive::derive(&judge, &mut claims);
        report.claims.extend(claims);
    }
    report.count();
    report
}

/// A claim beside the other candidates for its place: what the weights are fitted on.
pub struct Weighed {
    pub bytes: (usize, usize),
    pub candidates: Vec<Candidate>,
    /// The rules that speak against it.
    pub against: Vec<&'static str>,
}

/// How each claim of a run's answers that has a value looks.
pub fn weigh(run: &Run) -> Vec<Weighed> {
    let evidence = Evidence::of(run);
    let mut found = Vec::new();
    for act in answers(run) {
        let text = &run.acts[act].text;
        let answer = extract::extract(text);
        let judge = link::Judge::new(run, &evidence, act, text, &answer);
        for raw in &answer.claims {
            let statement = &answer.statements[raw.statement];
            let about = judge.about(raw, statement);
            let candidates = judge.candidates(raw, statement, &about);
            let (bytes, against) = ((raw.range.start, raw.range.end), judge.against(raw, statement));
            found.push(Weighed { bytes, candidates, against });
        }
    }
    found
}

/// The acts that answer: the last words of each turn.
pub(crate) fn answers(run: &Run) -> Vec<usize> {
    let mut found = Vec::new();
    let mut last = None;
    for (at, act) in run.acts.iter().enumerate() {
        match act.kind {
            ActKind::Said if !act.text.trim().is_empty() => last = Some(at),
            ActKind::Told => found.extend(last.take()),
            _ => {}
        }
    }
    found.extend(last);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_model::{Act, Status};
    use proptest::prelude::*;

    const EVENTS: &str = "- id_: '6'\n  description: Weekly sync on updates.\n  end_time: 2024-05-15 11:00:00\n  start_time: 2024-05-15 10:00:00\n  title: Team Sync\n\
        - id_: '9'\n  description: Catch up over food.\n  end_time: 2024-05-15 13:30:00\n  start_time: 2024-05-15 12:30:00\n  title: Lunch with Sarah\n\
        - id_: '24'\n  description: Meeting the clients.\n  end_time: 2024-05-15 16:30:00\n  start_time: 2024-05-15 15:00:00\n  title: Introductory meeting\n";
    const BILLS: &str =
        "- amount: 100.0\n  subject: Pizza party\n- amount: 250.5\n  subject: New year gift\n";

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
        let run =
            asked("When is the sync?", EVENTS, "Team Sync is on May 15th, 2024 from 10:00 AM to 11:00 AM.");
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
    fn a_word_in_the_company_of_others_is_contradicted_by_the_one_that_was_read_there() {
        check(&asked("?", EVENTS, "1. **Lunch with Sync**"), &[("Sync", Contradicted)]);
        check(&asked("?", EVENTS, "You have a Team Sarah."), &[("Team Sarah", Contradicted)]);
        check(&asked("?", EVENTS, "You have a Team Sync."), &[("Team Sync", Supported)]);
        let run = asked("?", "It is in Meeting Room 2, on floor 9.", "It is in Meeting Room 9.");
        assert_eq!(statuses(&run).last().unwrap().1, Contradicted);
        // words that were never read side by side with anything else tell nothing
        check(&asked("?", EVENTS, "The Sarah appointment is fine."), &[("Sarah", Supported)]);
    }

    #[test]
    fn a_name_of_several_words_is_held_against_the_one_that_was_read() {
        let read = "- subject: TechServices Password Reset Request\n  body: Reset it at Tech Services Support.\n- subject: 'Re: Hiking Trip'\n  body: Trip on Saturday\n";
        let of = |answer: &str| statuses(&asked("?", read, answer));
        let wrong = of("1. TechServices Password Trip Request (from a friend)");
        assert!(wrong.iter().any(|(_, s)| *s == Contradicted), "{wrong:?}");
        let wrong = of("1. TechServices Password You Request (from a friend)");
        assert!(wrong.iter().any(|(_, s)| *s == Contradicted), "{wrong:?}");
        let right = of("1. TechServices Password Reset Request (from a friend)");
        assert!(right.iter().all(|(_, s)| *s == Supported), "{right:?}");
        let apart = of("It is from TechServices Support.");
        assert!(apart.iter().all(|(_, s)| *s == NotCheckable), "{apart:?}");
    }

    #[test]
    fn a_value_of_another_kind_among_the_same_words_is_wrong() {
        let read = "- 1 cup butter, softened\n- 3 cups flour\n- code 003\n";
        let wrong = statuses(&asked("?", read, "You need 003 cup butter, softened."));
        assert_eq!(wrong, [("003".into(), Contradicted)]);
    }

    #[test]
    fn values_that_are_said_together_were_read_together() {
        let of = |answer: &str| statuses(&asked("?", EVENTS, answer));
        let both =
            |a: ClaimStatus, b: ClaimStatus| move |s: &[(String, ClaimStatus)]| (s[0].1, s[1].1) == (a, b);
        assert!(both(Supported, Supported)(&of("From 12:30 to 13:30.")));
        assert!(of("From 12:30 to 16:30.").iter().any(|(_, s)| *s == Contradicted));
        let day = "- at: 2024-06-10 13:00:00\n- at: 2024-06-11 16:00:00\n";
        let of = |answer: &str| statuses(&asked("?", day, answer));
        assert!(both(Supported, Supported)(&of("It is at 2024-06-10 13:00.")));
        assert!(of("It is at 2024-06-10 16:00.").iter().any(|(_, s)| *s == Contradicted));
        let list = "- title: Sync\n  participants:\n  - ann@example.com\n  - bob@example.com\n";
        let of = |answer: &str| statuses(&asked("?", list, answer));
        assert!(of("With:\n- ann@example.com\n- bob@example.com").iter().all(|(_, s)| *s == Supported));
        assert!(of("With:\n- ann@example.com\n- ann@example.com").iter().any(|(_, s)| *s == Contradicted));
    }

    #[test]
    fn an_address_after_from_is_the_senders() {
        let mail = "- sender: ann@example.com\n  recipients:\n  - bob@example.com\n  subject: Rent\n";
        check(&asked("?", mail, "It is from ann@example.com."), &[("ann@example.com", Supported)]);
        check(&asked("?", mail, "It is from bob@example.com."), &[("bob@example.com", Contradicted)]);
    }

    #[test]
    fn what_was_worked_out_names_its_operands() {
        let run = asked("Sum?", BILLS, "In total you spent $350.50 on two things.");
        check(&run, &[("$350.50", Derived), ("two", Derived)]);
        let Why::Computed { operation, operands } = &super::check(&run).claims[0].why else { panic!() };
        assert_eq!(
            (*operation, operands.iter().map(|o| o.text.as_str()).collect::<Vec<_>>()),
            (Operation::Sum, vec!["100.0", "250.5"])
        );
        check(&asked("Count?", EVENTS, "You have three appointments."), &[("three", Derived)]);
        check(&asked("Count?", EVENTS, "You have five appointments."), &[("five", Unsupported)]);
        check(
            &asked("When?", EVENTS, "It is on Wednesday, May 15, 2024."),
            &[("Wednesday", Derived), ("May 15, 2024", Supported)],
        );
        check(
            &asked("When?", EVENTS, "It is on Friday, May 15, 2024."),
            &[("Friday", Contradicted), ("May 15, 2024", Supported)],
        );
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
    fn a_deed_is_held_against_the_calls() {
        let mut run = asked("Send it", "None", "I have sent the money.");
        run.acts[1].name = "send_money".into();
        check(&run, &[("sent", Supported)]);
        run.acts[1].status = Status::Failed;
        check(&run, &[("sent", Contradicted)]);
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
        let run =
            Run { acts: vec![act(ActKind::Said, "assistant", "It costs $5 in Paris.")], ..Run::default() };
        check(&run, &[("$5", NotCheckable), ("Paris", NotCheckable)]);
    }

    #[test]
    fn ten_thousand_identical_results_are_read_once() {
        let mut acts: Vec<Act> = (0..10_000).map(|_| act(ActKind::Tool, "get_items", BILLS)).collect();
        acts.push(act(ActKind::Said, "assistant", "The pizza party was 100."));
        assert_eq!(statuses(&Run { acts, ..Run::default() }), [("100".to_owned(), Supported)]);
    }

    const FILES: &str =
        "- name: notes.txt\n  size: 120\n- name: plan.docx\n  size: 3183\n- name: list.txt\n  size: 77\n";

    #[test]
    fn what_is_called_the_largest_has_to_be() {
        let of = |answer: &str| statuses(&asked("Which is the largest file?", FILES, answer));
        assert_eq!(of("The largest file is plan.docx."), [("plan.docx".into(), Supported)]);
        assert_eq!(of("The largest file is notes.txt."), [("notes.txt".into(), Contradicted)]);
        assert_eq!(of("The smallest file is plan.docx."), [("plan.docx".into(), Contradicted)]);
        // two of them are a comparison
        let both = of("The largest file is plan.docx, before notes.txt.");
        assert!(both.iter().all(|(_, status)| *status == Supported), "{both:?}");
    }

    #[test]
    fn a_value_among_words_that_were_read_with_another_is_wrong() {
        let read = "- body: Meet me at the island trailhead at 8 AM on Saturday.\n  sender: mark@x.org\n- body: Shop closes at 9 PM.\n  sender: shop@x.org\n";
        let of = |answer: &str| statuses(&asked("What does he write?", read, answer));
        let wrong = of("He wrote: meet me at the island trailhead at 9 PM on Saturday.");
        assert!(wrong.contains(&("9 PM".into(), Contradicted)), "{wrong:?}");
        let right = of("He wrote: meet me at the island trailhead at 8 AM on Saturday.");
        assert!(right.contains(&("8 AM".into(), Supported)), "{right:?}");
    }

    #[test]
    fn a_name_has_its_own_address() {
        let read = "participants: maria.garcia@x.org, emma.johnson@x.org; Maria Garcia and Emma Johnson come";
        let of = |answer: &str| statuses(&asked("Who comes?", read, answer));
        let wrong = of("It is Maria Garcia (emma.johnson@x.org) who comes.");
        assert!(wrong.contains(&("emma.johnson@x.org".into(), Contradicted)), "{wrong:?}");
        let right = of("It is Maria Garcia (maria.garcia@x.org) who comes.");
        assert!(right.iter().all(|(_, status)| *status == Supported), "{right:?}");
    }

    #[test]
    fn what_was_done_is_what_the_call_was_given() {
        let mut run = asked(
            "Pay the bill.",
            "- amount: 98.70\n  to: GB29NWBK60161331926819\n- amount: 50.25\n  to: US122000000121212121212\n",
            "I have sent 50.25 to the account.",
        );
        let mut pay = act(ActKind::Tool, "send_money", "done");
        pay.args = serde_json::json!({ "amount": 98.7, "recipient": "GB29NWBK60161331926819" });
        run.acts.insert(2, pay);
        assert!(statuses(&run).contains(&("50.25".into(), Contradicted)), "{:?}", statuses(&run));
        run.acts[3].text = "I have sent 98.70 to the account.".into();
        assert!(statuses(&run).contains(&("98.70".into(), Supported)), "{:?}", statuses(&run));
    }

    #[test]
    fn the_same_twice_in_one_breath_is_doubted() {
        let read = "- user: Dora\n- user: Eve\n";
        let of = |answer: &str| statuses(&asked("?", read, answer));
        assert!(of("The members are Dora and Dora.").iter().all(|(_, s)| *s == Unsupported));
        assert!(of("The members are Dora and Eve.").iter().all(|(_, s)| *s == Supported));
        assert!(of("It is for Dora. I know Dora well.").iter().all(|(_, s)| *s == Supported));
    }

    #[test]
    fn whom_something_was_sent_to_is_whom_the_call_was_given() {
        let mut run = asked("Tell Bob.", "- user: Alice\n- user: Bob\n", "I sent a direct message to Alice.");
        let mut send = act(ActKind::Tool, "send_direct_message", "None");
        send.args = serde_json::json!({ "recipient": "Bob", "body": "Alice is ill." });
        run.acts.insert(2, send);
        assert!(statuses(&run).contains(&("Alice".into(), Contradicted)), "{:?}", statuses(&run));
        run.acts[3].text = "I sent a direct message to Bob.".into();
        assert!(statuses(&run).contains(&("Bob".into(), Supported)), "{:?}", statuses(&run));
        run.acts[3].text = "I have not sent a direct message to Alice.".into();
        assert!(!statuses(&run).contains(&("Alice".into(), Contradicted)), "{:?}", statuses(&run));
    }

    #[test]
    fn who_wrote_is_who_sent_the_message() {
        let read = "- body: I read an interesting article about jobs.\n  sender: Bob\n- body: Yesterday I had a great lunch in the restaurant near the office.\n  sender: Eve\n";
        let of = |answer: &str| statuses(&asked("Who wrote about a restaurant?", read, answer));
        let wrong = of("I found a message from Bob about a great lunch in a restaurant near the office.");
        assert!(wrong.contains(&("Bob".into(), Contradicted)), "{wrong:?}");
        let right = of("I found a message from Eve about a great lunch in a restaurant near the office.");
        assert!(right.contains(&("Eve".into(), Supported)), "{right:?}");
    }

    #[test]
    fn a_value_is_held_against_the_line_and_the_key_of_its_subject() {
        let rows = "content: 'name,email,rating\n  Olivia Smith,olivia@x.org,4,Very happy.\n  Mia Anderson,mia@x.org,2,Expected more.\n'\n";
        let of = |answer: &str| statuses(&asked("What did they rate?", rows, answer));
        assert!(of("1. Olivia Smith: 2\n2. Mia Anderson: 2").contains(&("2".into(), Contradicted)));
        assert!(of("1. Olivia Smith: 4\n2. Mia Anderson: 2").iter().all(|(_, s)| *s == Supported));
        let of = |answer: &str| statuses(&asked("How large?", FILES, answer));
        assert!(of("The file notes.txt has a size of 77.").contains(&("77".into(), Contradicted)));
        assert!(of("The file notes.txt has a size of 120.").contains(&("120".into(), Supported)));
    }

    #[test]
    fn a_quantity_is_contradicted_by_no_id_and_no_room() {
        let read = "id: '24'\nlocation: Meeting Room 2\ntitle: Introductory meeting\nstatus: confirmed\n";
        let of = |answer: &str| statuses(&asked("?", read, answer));
        let found = of("The Introductory meeting in Meeting Room 2 takes 90 minutes.");
        assert!(found.contains(&("90 minutes".into(), Unsupported)), "{found:?}");
    }

    #[test]
    fn an_end_is_no_start() {
        let of = |answer: &str| statuses(&asked("When is the sync?", EVENTS, answer));
        assert!(of("Team Sync is at 11:00.").contains(&("11:00".into(), Contradicted)));
        assert!(of("Team Sync ends at 11:00.").contains(&("11:00".into(), Supported)));
        assert!(of("Team Sync is at 10:00.").contains(&("10:00".into(), Supported)));
    }

    #[test]
    fn words_in_another_form_are_the_same_words() {
        let read = "- subject: Your Facebook security code\n  body: The code is 463820.\n- subject: Hiking Trip\n  body: Bring snacks to the Hiking Trip.\n";
        let of = |answer: &str| statuses(&asked("What is my Facebook security code?", read, answer));
        let wrong = of("I found mails about Hiking security codes.");
        assert!(wrong.contains(&("Hiking".into(), Contradicted)), "{wrong:?}");
        let right = of("I found mails about Facebook security codes.");
        assert!(right.contains(&("Facebook".into(), Supported)), "{right:?}");
    }

    #[test]
    fn an_address_with_another_persons_name_is_not_its() {
        let read = "location: Central Park\nparticipants: sarah.connor@x.org\nnote: Sarah comes to the Park.";
        let of = |answer: &str| statuses(&asked("Who comes?", read, answer));
        let wrong = of("It is with Park (sarah.connor@x.org).");
        assert!(wrong.contains(&("Park".into(), Contradicted)), "{wrong:?}");
        let right = of("It is with Sarah (sarah.connor@x.org).");
        assert!(right.iter().all(|(_, status)| *status == Supported), "{right:?}");
    }

    #[test]
    fn two_values_in_each_others_place_are_both_doubted() {
        let read = "- amount: 200.0\n  date: 2022-02-12\n  subject: New year gift\n- amount: 50.0\n  date: 2022-03-01\n  subject: Music subscription\n- amount: 10.0\n  date: 2022-03-07\n  subject: Sushi dinner\n";
        let of = |answer: &str| super::check(&asked("What did I pay?", read, answer));
        let wrong =
            of("- You paid $50 for the new year gift.\n- You paid $200 for the music subscription.\n");
        assert_eq!(wrong.claims.iter().filter(|c| c.status.flagged()).count(), 2, "{wrong:#?}");
        let right =
            of("- You paid $200 for the new year gift.\n- You paid $50 for the music subscription.\n");
        assert!(right.claims.iter().all(|c| !c.status.flagged()), "{right:#?}");
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

    #[test]
    fn a_count_an_id_a_year_and_a_size_have_their_forms() {
        let read = "- id: '7'\n  amount: 40.0\n  count: 12\n  date: 2021-03-04\n- id: '8'\n  amount: 12.0\n  code: '012'\n";
        let of = |answer: &str| statuses(&asked("How many?", read, answer));
        assert!(of("I went through these 40.0 transfers.").contains(&("40.0".into(), Unsupported)));
        assert!(of("The transfer (ID: 40.0) is there.").contains(&("40.0".into(), Contradicted)));
        assert!(
            of("The transfers are from early 40.0, which is long ago.")
                .contains(&("40.0".into(), Unsupported))
        );
        assert!(
            of("The transfers are from early 2021, which is long ago.").contains(&("2021".into(), Supported))
        );
        assert!(of("It has a size of 012 bytes.").iter().any(|(text, s)| text == "012" && s.flagged()));
    }

    #[test]
    fn a_time_in_brackets_is_the_same_time() {
        let of = |answer: &str| statuses(&asked("When?", EVENTS, answer));
        let wrong = of("Team Sync ends at 11:00 (4:30 PM).");
        assert!(wrong.iter().all(|(text, s)| !text.contains(':') || *s == Contradicted), "{wrong:?}");
        let right = of("Team Sync ends at 11:00 (11:00 AM).");
        assert!(right.iter().all(|(_, s)| *s == Supported), "{right:?}");
    }

    #[test]
    fn things_are_counted_as_they_were_read() {
        let read = "Bread: 3 cups rye flour, 2 spoons honey, 1 spoon salt.";
        let of = |answer: &str| statuses(&asked("What do I need?", read, answer));
        assert!(of("- 2 cups rye flour").contains(&("2".into(), Contradicted)));
        assert!(of("- 3 cups rye flour").contains(&("3".into(), Supported)));
    }

    #[test]
    fn a_label_that_is_a_title_has_the_value_of_its_record() {
        let of = |answer: &str| statuses(&asked("What did I pay?", BILLS, answer));
        assert!(of("- Pizza party: $250.50").contains(&("$250.50".into(), Contradicted)));
        assert!(of("- Pizza party: $100").contains(&("$100".into(), Supported)));
        // a sum is of more than one record
        assert!(!of("- Pizza party and gift, total: $350.50").contains(&("$350.50".into(), Contradicted)));
    }

    #[test]
    fn the_id_of_what_was_made_is_the_one_that_came_back() {
        let mut run = asked("Add it", "- id_: '9'\n  title: Old\n", "It has been added with the ID '9'.");
        let mut make = act(ActKind::Tool, "create_event", "id_: '31'\ntitle: New\n");
        make.args = serde_json::json!({ "title": "New" });
        run.acts.insert(2, make);
        assert!(statuses(&run).contains(&("9".into(), Contradicted)), "{:?}", statuses(&run));
        run.acts[3].text = "It has been added with the ID '31'.".into();
        assert!(statuses(&run).contains(&("31".into(), Supported)), "{:?}", statuses(&run));
    }

    #[test]
    fn what_grows_adds_up() {
        let read = "- rent: 800.0\n- new rent: 950.0\n- raise: 150.0\n- fee: 70.0\n";
        let of = |answer: &str| statuses(&asked("Raise it", read, answer));
        let wrong = of("I increased it by 70.0, from 800.0 to 950.0.");
        assert!(wrong.iter().all(|(_, s)| *s == Contradicted), "{wrong:?}");
        let right = of("I increased it by 150.0, from 800.0 to 950.0.");
        assert!(right.iter().all(|(_, s)| *s == Supported), "{right:?}");
    }

    #[test]
    fn a_message_is_sent_to_somebody() {
        let read = "- sender: Nora\n  body: Lunch at the Harbour Grill was great, says Nora.\n- sender: Omar\n  body: The Harbour Grill is in Lisbon.\n";
        let of = |answer: &str| statuses(&asked("tell them", read, answer));
        assert!(of("We wrote a message to Lisbon today.").contains(&("Lisbon".into(), Unsupported)));
        assert!(of("We wrote a message to Nora today.").contains(&("Nora".into(), Supported)));
        // part of a longer name is no name by itself
        assert!(of("They all went to Grill today.").contains(&("Grill".into(), Unsupported)));
        assert!(of("They all went to Lisbon today.").contains(&("Lisbon".into(), Supported)));
    }

    #[test]
    fn the_users_own_address_has_the_users_name() {
        let read = "participants:\n- ann.lee@x.org\n- bo.berg@x.org\ntitle: Sync\n";
        let mut run = asked("Who comes?", read, "- bo.berg@x.org (you)\n- ann.lee@x.org");
        run.acts.insert(0, act(ActKind::Instructed, "system", "The user's name is Ann Lee."));
        assert!(statuses(&run).contains(&("bo.berg@x.org".into(), Contradicted)), "{:?}", statuses(&run));
        run.acts[3].text = "- ann.lee@x.org (you)\n- bo.berg@x.org".into();
        assert!(statuses(&run).iter().all(|(_, s)| *s == Supported), "{:?}", statuses(&run));
    }

    #[test]
    fn whoever_was_greeted_is_greeted() {
        let read = "- body: 'Dear Ines, the Tax Office has a letter for you.'\n";
        let of = |answer: &str| statuses(&asked("Read it", read, answer));
        assert!(
            of("It says:\n\nDear Office, the rest is below.")
                .iter()
                .any(|(t, s)| t == "Office" && s.flagged())
        );
        assert!(of("It says:\n\nDear Ines, the rest is below.").contains(&("Ines".into(), Supported)));
    }

    #[test]
    fn each_question_has_its_own_values() {
        let asks = "Is the sauna open on 2024-03-02? How many guests arrive on 2024-03-09?";
        let read = "- date: 2024-03-02\n  note: closed\n- date: 2024-03-09\n  note: 4\n";
        let of = |answer: &str| statuses(&asked(asks, read, answer));
        let wrong = of("The sauna is open on 2024-03-09.");
        assert!(wrong.contains(&("2024-03-09".into(), Contradicted)), "{wrong:?}");
        let right = of("The sauna is not open on 2024-03-02.");
        assert!(right.contains(&("2024-03-02".into(), Supported)), "{right:?}");
    }

    #[test]
    fn what_is_said_in_one_breath_was_read_in_one_record() {
        let read = "- city: Porto\n  day: 2024-04-01\n  hotel: Atlantica\n  price: 81.0\n- city: Braga\n  day: 2024-04-03\n  hotel: Minho\n  price: 64.0\n";
        let of = |answer: &str| statuses(&asked("Where do I stay?", read, answer));
        let wrong = of("On 2024-04-01 you stay in Porto at the Atlantica for 64.0.");
        assert!(wrong.contains(&("64.0".into(), Contradicted)), "{wrong:?}");
        let right = of("On 2024-04-01 you stay in Porto at the Atlantica for 81.0.");
        assert!(right.iter().all(|(_, s)| *s == Supported), "{right:?}");
    }

    #[test]
    fn a_name_without_its_first_name_is_not_its_owners() {
        let read = "participants: rosa.diaz@x.org\nplace: Harbour Grill\n";
        let of = |answer: &str| statuses(&asked("Who comes?", read, answer));
        assert!(of("It is a lunch with Grill Diaz.").iter().any(|(_, s)| *s == Contradicted));
        assert!(of("It is a lunch with Rosa Diaz.").iter().all(|(_, s)| !s.flagged()));
    }

    #[test]
    fn what_is_somebodys_is_called_so() {
        let ask = "Nora runs www.nora-shop.example and Omar has a diary. Write to Nora and Omar.";
        let read = "- sender: Nora\n  body: See www.nora-shop.example please.\n- sender: Omar\n  body: I keep www.omar-diary.example myself.\n";
        let of = |answer: &str| statuses(&asked(ask, read, answer));
        assert!(
            of("I looked at Omar's shop.").iter().any(|(t, s)| t.starts_with("Omar") && *s == Contradicted)
        );
        assert!(of("I looked at Nora's shop.").iter().all(|(_, s)| !s.flagged()));
        let wrong = of("There was a letter to Omar with praise for her shop.");
        assert!(wrong.contains(&("Omar".into(), Contradicted)), "{wrong:?}");
        assert!(of("There was a letter to Nora with praise for her shop.").iter().all(|(_, s)| !s.flagged()));
        // whoever is named last is meant
        assert!(of("A letter to Omar praised Nora for her shop.").iter().all(|(_, s)| *s != Contradicted));
    }

    #[test]
    fn a_full_name_has_the_address_that_is_made_of_it() {
        let read = "participants:\n- rosa.diaz@x.org\n- guests.list@x.org\n";
        let of = |answer: &str| statuses(&asked("Who comes?", read, answer));
        let wrong = of("- Rosa Diaz: guests.list@x.org");
        assert!(wrong.contains(&("guests.list@x.org".into(), Contradicted)), "{wrong:?}");
        assert!(of("- Rosa Diaz: rosa.diaz@x.org").contains(&("rosa.diaz@x.org".into(), Supported)));
        assert!(of("- Main Contact: rosa.diaz@x.org").contains(&("rosa.diaz@x.org".into(), Supported)));
    }

    #[test]
    fn one_thing_has_one_total() {
        let read = "- subject: lamp\n  amount: 70.0\n- subject: chair\n  amount: 90.0\n";
        let of = |one: &str, two: &str| {
            statuses(&asked(
                "What did I spend?",
                read,
                &format!("Furniture: {one} total\n\nIn total you spent:\n- {two} on furniture\n"),
            ))
        };
        let wrong = of("$90", "$70");
        assert!(
            wrong.iter().filter(|(t, _)| t.starts_with('$')).all(|(_, s)| *s == Unsupported),
            "{wrong:?}"
        );
        let right = of("$90", "$90");
        assert!(right.iter().all(|(_, s)| !s.flagged()), "{right:?}");
    }

    #[test]
    fn a_count_is_no_part_of_a_sum_of_money() {
        let read = "- subject: lamp\n  amount: 70.0\n- subject: chair\n  amount: 35.0\n";
        let of = |answer: &str| statuses(&asked("What did I spend on 12 things?", read, answer));
        let wrong = of("Over 12 things and a lamp for $70.0 this is in total $82.");
        assert!(wrong.iter().any(|(t, s)| t == "$82" && s.flagged()), "{wrong:?}");
        let right = of("Over 12 things, a lamp for $70.0 and a chair for $35.0, this is in total $105.");
        assert!(right.iter().any(|(t, s)| t == "$105" && !s.flagged()), "{right:?}");
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
}
