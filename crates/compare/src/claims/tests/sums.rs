//! Numbers that were counted or worked out, and the forms that a place asks for.

use super::*;

#[test]
fn what_was_worked_out_names_its_operands() {
    let run = asked("Sum?", BILLS, "In total you spent $350.50 on two things.");
    check(&run, &[("$350.50", Derived), ("two", Derived)]);
    let Why::Computed { operation, operands } = &super::super::check(&run).claims[0].why else { panic!() };
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
fn the_same_twice_in_one_breath_is_doubted() {
    let read = "- user: Dora\n- user: Eve\n";
    let of = |answer: &str| statuses(&asked("?", read, answer));
    assert!(of("The members are Dora and Dora.").iter().all(|(_, s)| *s == Unsupported));
    assert!(of("The members are Dora and Eve.").iter().all(|(_, s)| *s == Supported));
    assert!(of("It is for Dora. I know Dora well.").iter().all(|(_, s)| *s == Supported));
}

#[test]
fn a_count_an_id_a_year_and_a_size_have_their_forms() {
    let read = "- id: '7'\n  amount: 40.0\n  count: 12\n  date: 2021-03-04\n- id: '8'\n  amount: 12.0\n  code: '012'\n";
    let of = |answer: &str| statuses(&asked("How many?", read, answer));
    assert!(of("I went through these 40.0 transfers.").contains(&("40.0".into(), Unsupported)));
    assert!(of("The transfer (ID: 40.0) is there.").contains(&("40.0".into(), Contradicted)));
    assert!(
        of("The transfers are from early 40.0, which is long ago.").contains(&("40.0".into(), Unsupported))
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
fn what_grows_adds_up() {
    let read = "- rent: 800.0\n- new rent: 950.0\n- raise: 150.0\n- fee: 70.0\n";
    let of = |answer: &str| statuses(&asked("Raise it", read, answer));
    let wrong = of("I increased it by 70.0, from 800.0 to 950.0.");
    assert!(wrong.iter().all(|(_, s)| *s == Contradicted), "{wrong:?}");
    let right = of("I increased it by 150.0, from 800.0 to 950.0.");
    assert!(right.iter().all(|(_, s)| *s == Supported), "{right:?}");
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
    assert!(wrong.iter().filter(|(t, _)| t.starts_with('$')).all(|(_, s)| *s == Unsupported), "{wrong:?}");
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

#[test]
fn a_quantity_is_contradicted_by_no_id_and_no_room() {
    let read = "id: '24'\nlocation: Meeting Room 2\ntitle: Introductory meeting\nstatus: confirmed\n";
    let of = |answer: &str| statuses(&asked("?", read, answer));
    let found = of("The Introductory meeting in Meeting Room 2 takes 90 minutes.");
    assert!(found.contains(&("90 minutes".into(), Unsupported)), "{found:?}");
}

#[test]
fn an_equation_comes_out_or_is_doubted() {
    let read = "- amount: 50.0\n- amount: 1000.0\n- amount: 70.0\n";
    let of = |answer: &str| super::super::check(&asked("What did I spend?", read, answer));
    let wrong = of("Together: 70.0 + 1000.0 = 1050.0");
    assert!(
        wrong.claims.iter().filter(|c| c.value.is_some()).all(|c| c.status == Contradicted),
        "{wrong:#?}"
    );
    let reason = &wrong.reasons()[0];
    assert_eq!(
        reason.text,
        "the answer says `70.0` where a number with which `70.0 + 1000.0 = 1050.0` comes out belongs: look which of them is wrong"
    );
    // the claim, and the equation that it is part of
    assert_eq!(reason.places.len(), 2);
    assert!(of("Together: 50.0 + 1000.0 = 1050.0").claims.iter().all(|c| !c.status.flagged()));
    assert!(of("Together: 1000.0 - 50.0 = 950.0").claims.iter().all(|c| !c.status.flagged()));
    assert!(of("Each: 1000.0 / 50.0 = 20").claims.iter().all(|c| !c.status.flagged()));
}

#[test]
fn hours_and_minutes_are_one_stretch_of_time() {
    let of = |answer: &str| statuses(&asked("How long?", EVENTS, answer));
    let right = of("Between 11:00 and 12:30 you have 1 hour and 30 minutes.");
    assert!(right.contains(&("1 hour and 30 minutes".into(), Derived)), "{right:?}");
    let wrong = of("Between 11:00 and 12:30 you have 1 hour and 45 minutes.");
    assert!(wrong.iter().any(|(t, s)| t == "1 hour and 45 minutes" && s.flagged()), "{wrong:?}");
}

#[test]
fn an_item_below_a_total_is_no_total() {
    let read =
        "- subject: lamp\n  amount: 70.0\n- subject: chair\n  amount: 90.0\n- subject: rug\n  amount: 20.0\n";
    let of = |answer: &str| statuses(&asked("What did I spend?", read, answer));
    let wrong = of("Here is the total of each:\n- lamp: 50.0\n- chair: 90.0\n");
    assert!(wrong.contains(&("50.0".into(), Contradicted)), "{wrong:?}");
    let right = of("The lamp and the chair are 160.0 in total.");
    assert!(right.contains(&("160.0".into(), Derived)), "{right:?}");
}

#[test]
fn how_many_there_are_is_no_difference_of_two_prices() {
    let read = "- amount: 70.0\n- amount: 58.0\n";
    let of = |answer: &str| statuses(&asked("How many?", read, answer));
    let wrong = of("In total there are 12 transfers, of 70.0 and of 58.0.");
    assert!(wrong.iter().any(|(t, s)| t == "12" && s.flagged()), "{wrong:?}");
    assert!(of("In total there are two transfers.").contains(&("two".into(), Derived)));
}

#[test]
fn what_was_paid_is_no_id() {
    let read = "- id: 3\n  amount: 81.0\n  subject: Lamp 4 you\n- id: 4\n  amount: 64.0\n  subject: Rug\n";
    let of = |answer: &str| statuses(&asked("What did I pay?", read, answer));
    assert!(of("For the rug you paid 3 in March.").iter().any(|(t, s)| t == "3" && s.flagged()));
    assert!(of("For the rug you paid 64 in March.").contains(&("64".into(), Supported)));
    assert!(of("The transfer with the id 3 is of March.").contains(&("3".into(), Supported)));
}

#[test]
fn a_number_of_things_is_no_price() {
    let read = "flight: HAT001\nprice: 83\nseats: window\nstatus: available\n";
    let of = |answer: &str| statuses(&asked("Which flights?", read, answer));
    let found = of("The flight HAT001 has two seats, window and aisle, available.");
    assert!(found.iter().all(|(t, s)| t != "two" || *s != Contradicted), "{found:?}");
}

#[test]
fn a_form_that_does_not_fit_shows_what_it_was_read_as() {
    let read = "- amount: 40.0\n  date: 2021-03-04\n";
    let report = super::super::check(&asked("How many?", read, "I went through these 40.0 transfers."));
    let reason = report.reasons().remove(0);
    assert_eq!(
        reason.text,
        "the answer says `40.0` where a whole number belongs: it was read in `amount: 40.0` (act 1)"
    );
    assert_eq!(reason.places[1].bytes, Some((2, 14)));
}
