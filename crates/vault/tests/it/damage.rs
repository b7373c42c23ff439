//! What is not a sound vault of this user's is refused, and left as it is.

use crate::doubles::{Place, VALUE, refusal};
use proptest::prelude::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};

fn filled() -> Place {
    let place = Place::new();
    place.add(Place::draft("a"), VALUE).unwrap();
    place
}

/// Every way in is shut, and the file is what it was.
#[track_caller]
fn check(place: &Place, says: &str) {
    let read = || fs::read(place.file("vault.sealed")).ok();
    let before = read();
    for error in [
        refusal(place.vault().list()),
        refusal(place.bind(&["a"])),
        refusal(place.add(Place::draft("b"), VALUE)),
        refusal(place.rotate("a", None, VALUE)),
        refusal(place.vault().revoke("a", 1)),
    ] {
        assert!(error.contains(says), "{error}");
    }
    assert_eq!(read(), before);
}

fn overwrite(place: &Place, bytes: &[u8]) {
    fs::write(place.file("vault.sealed"), bytes).unwrap();
}

#[test]
fn a_changed_cut_or_foreign_file_is_refused() {
    let place = filled();
    let sound = fs::read(place.file("vault.sealed")).unwrap();
    overwrite(&place, b"");
    check(&place, "is not a vault");
    overwrite(&place, b"#!/bin/sh\necho hello\n");
    check(&place, "is not a vault");
    overwrite(&place, &sound[..sound.len() - 1]);
    check(&place, "does not open with its key");
    overwrite(&place, &[&sound[..], b"x"].concat());
    check(&place, "does not open with its key");
    // The readable part is authenticated too: one more space is another file.
    let header = String::from_utf8_lossy(&sound).find("\"salt\"").unwrap();
    overwrite(&place, &[&sound[..header], b" ", &sound[header..]].concat());
    check(&place, "does not open with its key");
    overwrite(&place, b"cofferdam-vault 9\n{}\n");
    check(&place, "format `9`");
    overwrite(&place, &sound);
    assert_eq!(place.value("a"), VALUE);
}

#[test]
fn a_file_that_others_can_read_or_prepared_is_refused() {
    let place = filled();
    for name in ["vault.sealed", "vault.key"] {
        for mode in [0o640, 0o604, 0o620, 0o666] {
            fs::set_permissions(place.file(name), Permissions::from_mode(mode)).unwrap();
            check(&place, "others may read or replace");
        }
        fs::set_permissions(place.file(name), Permissions::from_mode(0o600)).unwrap();
        if rustix::process::geteuid().is_root() {
            chown(place.file(name), Some(65_534), None).unwrap();
            check(&place, "owner 65534");
            chown(place.file(name), Some(0), None).unwrap();
        }
    }
    fs::rename(place.file("vault.sealed"), place.file("elsewhere")).unwrap();
    symlink(place.file("elsewhere"), place.file("vault.sealed")).unwrap();
    check(&place, "vault.sealed");
    fs::remove_file(place.file("vault.sealed")).unwrap();
    fs::create_dir(place.file("vault.sealed")).unwrap();
    check(&place, "not a plain file");
}

#[test]
fn what_a_killed_writer_left_is_no_obstacle() {
    let place = filled();
    fs::write(place.file("vault.sealed.new"), "half of a file").unwrap();
    fs::write(place.file("vault.key.new"), "half of a key").unwrap();
    place.rotate("a", None, "sk_live_another0value0here000000").unwrap();
    assert_eq!(place.value("a"), "sk_live_another0value0here000000");
    assert!(!place.file("vault.sealed.new").exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_in_its_place_are_taken_for_a_vault(at in 0usize..600, flip in 1u8.., bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let place = filled();
        let mut sealed = fs::read(place.file("vault.sealed")).unwrap();
        let length = sealed.len();
        sealed[at % length] ^= flip;
        for damaged in [sealed, bytes] {
            overwrite(&place, &damaged);
            prop_assert!(place.vault().list().is_err());
        }
    }
}
