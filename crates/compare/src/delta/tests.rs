//! Examples of differences, and the properties that hold for all of them.

use super::sketch::run;
use super::*;
use proptest::prelude::*;

fn between(base: &Run, new: &Run) -> Diff {
    diff(base, new, &Effects::default(), &Options::default())
}

fn shown(change: &Change) -> String {
    let at = |at: Option<usize>| at.map_or("-".to_owned(), |at| at.to_string());
    let what = match &change.what {
        What::Added { .. } => "added".to_owned(),
        What::Duplicated { of, .. } => format!("duplicated {of}"),
        What::Removed => "removed".to_owned(),
        What::Moved => "moved".to_owned(),
        What::Argument(edit) => format!("argument {}", edit.path()),
        What::Status { from, to } => format!("status {from:?} {to:?}"),
        What::Text { .. } => "text".to_owned(),
        What::Name { .. } => "name".to_owned(),
        What::Effect { .. } => "effect".to_owned(),
        What::Decided { .. } => "decided".to_owned(),
        What::Within { .. } => "within".to_owned(),
    };
    format!("{}>{} {what}", at(change.base), at(change.new))
}

fn check(base: &str, new: &str, expected: &[&str]) {
    let found = between(&run(base), &run(new));
    assert_eq!(found.changes.iter().map(shown).collect::<Vec<_>>(), expected, "{base} / {new}");
}

#[test]
fn each_kind_of_change_is_told_where_it_is() {
    check("get_a send_b", "get_a send_b", &[]);
    check("get_a get_c", "get_a send_b get_c", &["->1 added"]);
    check("get_a send_b get_c", "get_a get_c", &["1>- removed"]);
    check("get_a send_b", "get_a send_b send_b", &["->2 duplicated 1"]);
    check("get_a(1) send_b(2)", "get_a(1) send_b(3)", &["1>1 argument /p0"]);
    check("get_a send_b", "get_a send_b!", &["1>1 status Ok Failed"]);
    check("get_a get_b get_c", "get_b get_c get_a", &["0>2 moved"]);
    check("get_a send_b(1,2,3)", "send_b(1,2,4) get_a", &["1>0 moved", "1>0 argument /p2"]);
    check("get(1) list_b get(2)", "get(2) list_b get(1)", &["2>0 moved", "0>2 moved"]);
    check("\"four\"", "\"six\"", &["0>0 text"]);
}

#[test]
fn a_branch_has_its_point() {
    let found = between(&run("get_a get_b send_c get_d"), &run("get_a get_b delete_x list_y send_z"));
    assert_eq!(found.fork, Some(Fork { base: 2, new: 2, left: 2, taken: 3 }));
    assert_eq!(between(&run("get_a get_b get_c"), &run("get_a get_c")).fork, None);
    assert_eq!(between(&run("get_a send_b(1)"), &run("get_a send_b(2)")).fork, None);
    assert_eq!(between(&run("get_a get_b send_c get_d"), &run("get_a get_x send_c get_d")).fork, None);
}

fn noise(base: &str, new: &str) -> (Vec<NoiseKind>, usize) {
    let found = between(&run(base), &run(new));
    (found.noise.iter().map(|n| n.kind).collect(), found.changes.len())
}

#[test]
fn an_id_that_the_world_dealt_out_is_noise() {
    let id = NoiseKind::Id;
    assert_eq!(noise("book>ord_17a cancel(ord_17a)", "book>ord_93f cancel(ord_93f)"), (vec![id, id], 0));
    // Made up, mixed up, or renamed in two ways: a change.
    assert_eq!(noise("book>ord_17a cancel(ord_17a)", "book>ord_93f cancel(ord_94f)"), (vec![id], 1));
    assert_eq!(noise("list>r1aa,r2bb cancel(r1aa)", "list>r1aa,r2bb cancel(r2bb)"), (vec![], 1));
    let two = noise("a>k17x b>k18x use(k17x) use(k18x)", "a>m17x b>m18x use(m18x) use(m17x)");
    assert_eq!(two.0.len(), 0, "each name has two meanings, so that none is noise");
}

#[test]
fn chance_and_notation_are_noise_and_choices_are_not() {
    let uuid = ["3f2504e0-4f89-11d3-9a0c-0305e82c3301", "9b2d04e0-4f89-11d3-9a0c-0305e82c33aa"];
    assert_eq!(
        noise(&format!("pay({})", uuid[0]), &format!("pay({})", uuid[1])),
        (vec![NoiseKind::Random], 0)
    );
    assert_eq!(noise("pay(5)", "pay(5.0)"), (vec![NoiseKind::Notation], 0));
    assert_eq!(noise("pay(5)", "pay(6)"), (vec![], 1));
    assert_eq!(noise("book(2024-05-20)", "book(2024-05-21)"), (vec![], 1));
    let tolerance = Tolerance { tool: "pay".into(), path: "/p0".into(), absolute: Some(1.0), relative: None };
    let options = Options { tolerances: vec![tolerance] };
    let found = diff(&run("pay(5)"), &run("pay(6)"), &Effects::default(), &options);
    assert_eq!((found.changes.len(), found.noise[0].kind), (0, NoiseKind::Tolerated));
}

#[test]
fn ten_thousand_equal_calls_are_no_trouble() {
    let many = |n: usize| run(&"poll(1) ".repeat(n));
    let found = between(&many(2_000), &many(1_900));
    assert_eq!(found.changes.len(), 100);
    assert_eq!(apply(&found, &many(2_000)).unwrap().acts.len(), 1_900);
}

fn value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        (0..4i64).prop_map(serde_json::Value::from),
        "[a~/]{0,2}|ord_[0-9]{2}".prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(serde_json::Value::from),
            prop::collection::btree_map("[ab/~]{1,2}", inner, 0..3)
                .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

fn act() -> impl Strategy<Value = Act> {
    let kind =
        prop_oneof![Just(ActKind::Tool), Just(ActKind::Said), Just(ActKind::Egress), Just(ActKind::File)];
    let status = prop_oneof![Just(Status::Ok), Just(Status::Failed)];
    let effect = prop_oneof![Just(EffectOf::Unknown), Just(EffectOf::Reads)];
    let name = prop_oneof![Just("get_a"), Just("send_b"), Just("GET h/1"), Just("GET h/2")];
    let text = "([ab] ?){0,4}|ord_[0-9]{2}";
    let within = prop::option::of(0..3usize);
    (kind, name, value(), text, status, effect, within).prop_map(
        |(kind, name, args, text, status, effect, within)| Act {
            at: 7,
            within,
            kind,
            name: name.into(),
            args,
            text,
            status,
            effect,
            decided: None,
        },
    )
}

fn any_run() -> impl Strategy<Value = Run> {
    prop::collection::vec(act(), 0..9).prop_map(|acts| Run { id: "r".into(), acts, ..Run::default() })
}

proptest! {
    #[test]
    fn a_run_does_not_differ_from_itself(run in any_run()) {
        prop_assert!(between(&run, &run).is_empty());
    }

    #[test]
    fn a_difference_makes_the_new_run(base in any_run(), new in any_run()) {
        let found = between(&base, &new);
        prop_assert_eq!(apply(&found, &base).unwrap(), in_place(new));
    }

    #[test]
    fn a_difference_without_one_of_its_changes_makes_another_run(base in any_run(), new in any_run()) {
        let found = between(&base, &new);
        for at in 0..found.changes.len() + found.noise.len() {
            let mut less = found.clone();
            match at.checked_sub(found.changes.len()) {
                None => drop(less.changes.remove(at)),
                Some(noise) => drop(less.noise.remove(noise)),
            }
            prop_assert!(apply(&less, &base).ok() != Some(in_place(new.clone())), "{at} of {found:#?}");
        }
    }

    #[test]
    fn a_difference_survives_json(base in any_run(), new in any_run()) {
        let found = between(&base, &new);
        let text = serde_json::to_string(&found).unwrap();
        prop_assert_eq!(serde_json::from_str::<Diff>(&text).unwrap(), found);
    }

    #[test]
    fn times_and_places_in_the_source_do_not_matter(base in any_run(), new in any_run()) {
        let found = between(&base, &new);
        let mut later = found.clone();
        later.changes = between(&in_place(base), &in_place(new.clone())).changes;
        let bare = |diff: &Diff| diff.changes.iter().map(shown).collect::<Vec<_>>();
        prop_assert_eq!(bare(&found), bare(&later));
    }
}
