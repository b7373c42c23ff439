//! Names, addresses and whose things are.

use super::*;

#[test]
fn an_address_after_from_is_the_senders() {
    let mail = "- sender: ann@example.com\n  recipients:\n  - bob@example.com\n  subject: Rent\n";
    check(&asked("?", mail, "It is from ann@example.com."), &[("ann@example.com", Supported)]);
    check(&asked("?", mail, "It is from bob@example.com."), &[("bob@example.com", Contradicted)]);
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
fn an_address_with_another_persons_name_is_not_its() {
    let read = "location: Central Park\nparticipants: sarah.connor@x.org\nnote: Sarah comes to the Park.";
    let of = |answer: &str| statuses(&asked("Who comes?", read, answer));
    let wrong = of("It is with Park (sarah.connor@x.org).");
    assert!(wrong.contains(&("Park".into(), Contradicted)), "{wrong:?}");
    let right = of("It is with Sarah (sarah.connor@x.org).");
    assert!(right.iter().all(|(_, status)| *status == Supported), "{right:?}");
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
        of("It says:\n\nDear Office, the rest is below.").iter().any(|(t, s)| t == "Office" && s.flagged())
    );
    assert!(of("It says:\n\nDear Ines, the rest is below.").contains(&("Ines".into(), Supported)));
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
    assert!(of("I looked at Omar's shop.").iter().any(|(t, s)| t.starts_with("Omar") && *s == Contradicted));
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
fn words_in_another_form_are_the_same_words() {
    let read = "- subject: Your Facebook security code\n  body: The code is 463820.\n- subject: Hiking Trip\n  body: Bring snacks to the Hiking Trip.\n";
    let of = |answer: &str| statuses(&asked("What is my Facebook security code?", read, answer));
    let wrong = of("I found mails about Hiking security codes.");
    assert!(wrong.contains(&("Hiking".into(), Contradicted)), "{wrong:?}");
    let right = of("I found mails about Facebook security codes.");
    assert!(right.contains(&("Facebook".into(), Supported)), "{right:?}");
}

#[test]
fn somebody_with_this_last_name_has_another_first_name() {
    let read = "first_name: Rosa\nlast_name: Diaz\nstreet: Harbour Street\ncity: New York\n";
    let of = |answer: &str| statuses(&asked("Who am I?", read, answer));
    let wrong = of("Your name is still York Diaz.");
    assert!(wrong.contains(&("York Diaz".into(), Contradicted)), "{wrong:?}");
    assert!(of("Your name is still Rosa Diaz.").iter().all(|(_, s)| !s.flagged()));
}

#[test]
fn a_title_before_a_colon_is_held_against_the_one_that_was_read() {
    let read = "plan: 'Skills Exchange Day, and a Harbour Success Story for all'\n";
    let of = |answer: &str| statuses(&asked("What is planned?", read, answer));
    let wrong = of("1. Skills Success Day: a day on which all learn.");
    assert!(wrong.contains(&("Skills Success Day".into(), Contradicted)), "{wrong:?}");
    let right = of("1. Skills Exchange Day: a day on which all learn.");
    assert!(right.contains(&("Skills Exchange Day".into(), Supported)), "{right:?}");
    let own = of("1. Next Possible Steps: a day on which all learn.");
    assert!(own.iter().all(|(_, s)| !s.flagged()), "{own:?}");
}

#[test]
fn words_that_were_read_without_capitals_are_no_name() {
    let read = "policy: 'You may change cabin without a fee. You may upgrade the cabin class.'\nuser: Fred\nnote: user Fred came\n";
    for answer in ["## Change Cabin Class\nDone.", "- Removed Fred\n", "I'll look at Fred's list."] {
        let found = statuses(&asked("What can I do?", read, answer));
        assert!(found.iter().all(|(_, s)| !s.flagged()), "{answer}: {found:?}");
    }
}

#[test]
fn a_noun_with_a_capital_is_nobody_unless_something_is_called_so() {
    let read = "- sender: security@mail.example\n  subject: Mail Security Team\n  body: Your security code is 463820. Mark asked for it.\n";
    let of = |answer: &str| statuses(&asked("What is the security code?", read, answer));
    let wrong = of("The code was asked for by Security today.");
    assert!(wrong.contains(&("Security".into(), Unsupported)), "{wrong:?}");
    assert!(of("The code was asked for by Mark today.").iter().all(|(_, s)| !s.flagged()));
    // a field that holds nothing else is what something is called
    let titled = format!("{read}- title: Security\n");
    let right = statuses(&asked("?", &titled, "The meeting called Security is today."));
    assert!(right.contains(&("Security".into(), Supported)), "{right:?}");
    // and so is what was read with the same word beside it
    let read =
        "- title: Lunch with Rosa\n  body: Catch up over lunch with a friend.\n  owner: rosa.diaz@x.org\n";
    let right = statuses(&asked("?", read, "Then you have Lunch with Rosa."));
    assert!(right.iter().all(|(_, s)| !s.flagged()), "{right:?}");
}

#[test]
fn who_stands_in_the_place_of_another_is_doubted_where_that_one_stands() {
    let mixed = "1. **Lunch with Sync**\n2. Somebody has to ask Sarah.\n";
    check(&asked("?", EVENTS, mixed), &[("Sync", Contradicted), ("Sarah", Unsupported)]);
    let right = statuses(&asked("?", EVENTS, "1. **Lunch with Sarah**\n2. Somebody has to ask Sarah.\n"));
    assert!(right.iter().all(|(_, s)| !s.flagged()), "{right:?}");
}
