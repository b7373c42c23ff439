//! What belongs where a value stands: the record, the title, the deed and the words around it.

use super::*;

const FILES: &str =
    "- name: notes.txt\n  size: 120\n- name: plan.docx\n  size: 3183\n- name: list.txt\n  size: 77\n";

#[test]
fn a_value_of_another_kind_among_the_same_words_is_wrong() {
    let read = "- 1 cup butter, softened\n- 3 cups flour\n- code 003\n";
    let wrong = statuses(&asked("?", read, "You need 003 cup butter, softened."));
    assert_eq!(wrong, [("003".into(), Contradicted)]);
}

#[test]
fn values_that_are_said_together_were_read_together() {
    let of = |answer: &str| statuses(&asked("?", EVENTS, answer));
    let both = |a: ClaimStatus, b: ClaimStatus| move |s: &[(String, ClaimStatus)]| (s[0].1, s[1].1) == (a, b);
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
fn a_deed_is_held_against_the_calls() {
    let mut run = asked("Send it", "None", "I have sent the money.");
    run.acts[1].name = "send_money".into();
    check(&run, &[("sent", Supported)]);
    run.acts[1].status = Status::Failed;
    check(&run, &[("sent", Contradicted)]);
}

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
fn an_end_is_no_start() {
    let of = |answer: &str| statuses(&asked("When is the sync?", EVENTS, answer));
    assert!(of("Team Sync is at 11:00.").contains(&("11:00".into(), Contradicted)));
    assert!(of("Team Sync ends at 11:00.").contains(&("11:00".into(), Supported)));
    assert!(of("Team Sync is at 10:00.").contains(&("10:00".into(), Supported)));
}

#[test]
fn two_values_in_each_others_place_are_both_doubted() {
    let read = "- amount: 200.0\n  date: 2022-02-12\n  subject: New year gift\n- amount: 50.0\n  date: 2022-03-01\n  subject: Music subscription\n- amount: 10.0\n  date: 2022-03-07\n  subject: Sushi dinner\n";
    let of = |answer: &str| super::super::check(&asked("What did I pay?", read, answer));
    let wrong = of("- You paid $50 for the new year gift.\n- You paid $200 for the music subscription.\n");
    assert_eq!(wrong.claims.iter().filter(|c| c.status.flagged()).count(), 2, "{wrong:#?}");
    let right = of("- You paid $200 for the new year gift.\n- You paid $50 for the music subscription.\n");
    assert!(right.claims.iter().all(|c| !c.status.flagged()), "{right:#?}");
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
fn what_was_changed_is_what_the_id_of_the_call_names() {
    let read = "- id_: '13'\n  filename: plans-for-the-summer.docx\n- id_: '14'\n  filename: notes.txt\n";
    let mut run = asked("Add it", read, "I added two lines to the \"notes.txt\" file.");
    let mut add = act(ActKind::Tool, "append_to_file", "ok");
    add.args = serde_json::json!({ "file_id": "13", "content": "two lines" });
    run.acts.insert(2, add);
    assert!(statuses(&run).contains(&("notes.txt".into(), Contradicted)), "{:?}", statuses(&run));
    run.acts[3].text = "I added two lines to the \"plans-for-the-summer.docx\" file.".into();
    assert!(statuses(&run).iter().all(|(_, s)| !s.flagged()), "{:?}", statuses(&run));
    // what something was taken from is not what it was added to
    run.acts[3].text = "I added two lines from the \"notes.txt\" file.".into();
    assert!(statuses(&run).iter().all(|(_, s)| !s.flagged()), "{:?}", statuses(&run));
}

#[test]
fn fields_in_a_row_are_of_one_thing() {
    let of = |answer: &str| statuses(&asked("What is on?", EVENTS, answer));
    let wrong = of("1. Title: Team Sync\n2. Description: Weekly sync on updates.\n3. Time: 15:00\n");
    assert!(wrong.contains(&("15:00".into(), Contradicted)), "{wrong:?}");
    let right = of("1. Title: Team Sync\n2. Description: Weekly sync on updates.\n3. Time: 10:00\n");
    assert!(right.iter().all(|(_, s)| !s.flagged()), "{right:?}");
}

#[test]
fn which_end_of_a_stretch_is_meant_may_be_told_behind_it() {
    let of = |answer: &str| statuses(&asked("When am I free?", EVENTS, answer));
    let right = of("You are free from 11:00, when your Team Sync ends.");
    assert!(right.contains(&("11:00".into(), Supported)), "{right:?}");
    let wrong = of("You are free from 10:00 (end of Team Sync).");
    assert!(wrong.contains(&("10:00".into(), Contradicted)), "{wrong:?}");
}

#[test]
fn a_name_stands_for_no_weekday() {
    let read = "- sender: Mark\n  body: Let us meet on Saturday, May 18th, says Mark.\n";
    let of = |answer: &str| statuses(&asked("When?", read, answer));
    assert!(of("The trip is planned for Mark, May 18th.").contains(&("Mark".into(), Unsupported)));
    assert!(of("The trip is planned by Mark, May 18th.").contains(&("Mark".into(), Supported)));
}

#[test]
fn of_two_values_that_changed_places_neither_is_believed() {
    let mixed = asked(
        "What is on?",
        EVENTS,
        "1. **Team Sync**\n   - Start Time: 12:30\n2. **Lunch with Sarah**\n   - Start Time: 10:00\n",
    );
    let found = statuses(&mixed);
    for time in ["12:30", "10:00"] {
        assert!(found.iter().any(|(text, s)| text == time && s.flagged()), "{time}: {found:?}");
    }
    let right = asked(
        "What is on?",
        EVENTS,
        "1. **Team Sync**\n   - Start Time: 10:00\n2. **Lunch with Sarah**\n   - Start Time: 12:30\n",
    );
    assert!(statuses(&right).iter().all(|(_, s)| !s.flagged()));
}

#[test]
fn a_month_that_was_read_says_no_day_of_it() {
    let of = |answer: &str| statuses(&asked("What did I pay in March 2022?", BILLS, answer));
    assert_eq!(of("You paid on March 8, 2022.")[0].1, Unsupported);
    assert_eq!(of("You paid in March 2022.")[0].1, QuotedFromUser);
}

#[test]
fn more_caution_flags_no_more() {
    let text = "1. **Team Sync**\n   - Time: 12:30\n2. **Lunch with Sarah**\n   - Time: 15:00, with Sarah\n";
    let run = asked("What is on?", EVENTS, text);
    let flagged = |caution: f32| {
        let claims = check_with(&run, caution).claims;
        claims.iter().filter(|c| c.status.flagged()).count()
    };
    assert!(flagged(f32::INFINITY) <= flagged(1.0) && flagged(1.0) <= flagged(0.25));
    assert_eq!(check_with(&run, 1.0), super::super::check(&run));
}

#[test]
fn what_belongs_in_a_wrong_place_is_doubted_where_it_is_said() {
    // so cautious that no weighing of values speaks
    let of = |answer: &str| {
        let claims = check_with(&asked("What is on?", EVENTS, answer), f32::INFINITY).claims;
        claims.into_iter().map(|c| (c.text, c.status)).collect::<Vec<_>>()
    };
    let mixed = of("Team Sync starts at 12:30.\n\nThe other one is at 10:00.\n");
    assert!(mixed.contains(&("12:30".into(), Contradicted)), "{mixed:?}");
    assert!(mixed.contains(&("10:00".into(), Unsupported)), "{mixed:?}");
    assert_eq!(of("The other one is at 10:00.\n"), [("10:00".into(), Supported)]);
}
