//! Adding, listing, replacing, revoking, removing and binding.

use crate::doubles::{Place, VALUE, refusal};
use cofferdam_vault::{Draft, Remark};
use std::fs;

#[test]
fn a_secret_is_added_listed_replaced_and_removed() {
    let place = Place::new();
    assert_eq!(place.vault().list().unwrap(), []);
    assert!(
        !place.file("vault.sealed").exists() && !place.file("vault.lock").exists(),
        "looking makes nothing"
    );
    let kept = place.add(Place::draft("stripe"), VALUE).unwrap();
    assert_eq!((kept.entry.env.as_str(), kept.entry.generation, kept.remarks.len()), ("STRIPE", 1, 0));
    place.add(Place::draft("another"), "0123456789abcdef0123").unwrap();
    let listed = place.vault().list().unwrap();
    assert_eq!(listed.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), ["another", "stripe"]);
    assert_eq!(listed[1], kept.entry);
    assert_eq!(place.value("stripe"), VALUE);

    assert!(refusal(place.add(Place::draft("stripe"), VALUE)).contains("secret rotate stripe"));
    let rotated = place.rotate("stripe", None, "sk_live_another0value0here000000").unwrap();
    assert_eq!((rotated.entry.generation, rotated.entry.added, rotated.entry.changed), (2, 1_000, 2_000));
    assert_ne!(rotated.entry.fingerprint, kept.entry.fingerprint);
    assert_eq!(place.value("stripe"), "sk_live_another0value0here000000");
    let back = place.rotate("stripe", Some("-"), VALUE).unwrap();
    assert_eq!(back.entry.fingerprint, kept.entry.fingerprint, "the same value has the same fingerprint");
    assert_eq!(place.rotate("stripe", None, VALUE).unwrap().remarks, [Remark::Same]);

    assert_eq!(place.vault().remove("stripe").unwrap().name, "stripe");
    assert!(refusal(place.vault().remove("stripe")).contains("no secret `stripe`"));
    assert!(refusal(place.rotate("stripe", None, VALUE)).contains("no secret `stripe`"));
    assert_eq!(place.value("another"), "0123456789abcdef0123");
}

#[test]
fn a_revoked_secret_is_wiped_refused_and_comes_back_with_another_value_only() {
    let place = Place::new();
    place.add(Place::draft("a"), VALUE).unwrap();
    let revoked = place.vault().revoke("a", 5_000).unwrap();
    assert_eq!((revoked.revoked, revoked.generation), (Some(5_000), 2));
    assert_eq!(place.vault().revoke("a", 6_000).unwrap(), revoked, "once is enough");
    assert!(refusal(place.bind(&["a"])).contains("`a` was revoked"));
    assert!(refusal(place.rotate("a", None, VALUE)).contains("that was revoked"));
    place.rotate("a", None, "sk_live_another0value0here000000").unwrap();
    assert_eq!(place.vault().list().unwrap()[0].revoked, None);
    assert_eq!(place.bind(&["a"]).unwrap()[0].generation, 3);
}

#[test]
fn a_live_secret_is_read_for_every_session_and_not_stored() {
    let mut place = Place::new();
    let file = place.file("source");
    fs::write(&file, "the-first-value-in-the-file\n").unwrap();
    let live = |from: String| Draft { from: Some(from), live: true, ..Place::draft("live") };
    let kept = place.add(live(format!("file:{}", file.display())), "").unwrap();
    assert!(kept.entry.live && kept.entry.fingerprint.is_none());
    assert_eq!(place.value("live"), "the-first-value-in-the-file");
    fs::write(&file, "the-second-value-in-the-file\n").unwrap();
    assert_eq!(place.value("live"), "the-second-value-in-the-file");
    fs::remove_file(&file).unwrap();
    assert!(refusal(place.bind(&["live"])).contains("source"), "a source that is gone refuses the session");

    place.env.insert("KEY", "a-value-of-a-variable".into());
    place.rotate("live", Some("env:KEY"), "").unwrap();
    assert_eq!(place.value("live"), "a-value-of-a-variable");
    assert!(refusal(place.rotate("live", Some("-"), VALUE)).contains("--live"));
    assert!(
        refusal(place.add(Draft { from: Some("env:NOPE".into()), live: true, ..Place::draft("b") }, ""))
            .contains("NOPE")
    );
}

#[test]
fn binding_takes_each_once_and_no_variable_twice() {
    let place = Place::new();
    place.add(Place::draft("a"), VALUE).unwrap();
    place.add(Place::draft("b"), "sk_live_another0value0here000000").unwrap();
    place.add(Draft { env: Some("A".into()), ..Place::draft("c") }, "0123456789abcdef0123").unwrap();
    let bound = place.bind(&["b", "a", "b"]).unwrap();
    assert_eq!(bound.iter().map(|bound| bound.credential.name.as_str()).collect::<Vec<_>>(), ["b", "a"]);
    assert!(bound.iter().all(|bound| bound.placeholder.starts_with("sk_live_")));
    assert_eq!(place.bind(&["b"]).unwrap()[0].placeholder, bound[0].placeholder, "the seed decides");
    let error = refusal(place.bind(&["a", "c"]));
    assert!(error.contains("`a` and `c`") && error.contains("`A`"), "{error}");
    assert!(refusal(place.bind(&["a", "nope"])).contains("`nope`"));
    assert!(refusal(Place::new().bind(&["a"])).contains("no secret `a`"));
}

#[test]
fn a_mistake_makes_no_vault() {
    let place = Place::new();
    assert!(refusal(place.add(Place::draft("../x"), VALUE)).contains("../x"));
    assert!(refusal(place.add(Place::draft("a"), "short")).contains("5 bytes"));
    assert!(refusal(place.vault().revoke("a", 1)).contains("no secret `a`"));
    assert_eq!(fs::read_dir(place.dir.path()).unwrap().count(), 0);
}
