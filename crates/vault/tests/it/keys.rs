//! The three kinds of key, and changing from one to another.

use crate::doubles::{Place, VALUE, refusal};
use cofferdam_vault::KeyKind;
use std::fs;
use std::os::unix::fs::MetadataExt;

fn filled() -> Place {
    let place = Place::new();
    *place.keys.phrase.borrow_mut() = "correct horse battery".into();
    place.add(Place::draft("a"), VALUE).unwrap();
    place
}

#[test]
fn a_vault_is_made_with_a_key_file_and_both_are_private() {
    let place = filled();
    for name in ["vault.sealed", "vault.key", "vault.lock"] {
        assert_eq!(fs::metadata(place.file(name)).unwrap().mode() & 0o7777, 0o600, "{name}");
    }
    let sealed = fs::read(place.file("vault.sealed")).unwrap();
    assert!(sealed.starts_with(b"cofferdam-vault 1\n{\"key\":{\"file\""));
}

#[test]
fn every_kind_of_key_opens_and_is_changed_for_every_other() {
    use KeyKind::{File, Keyring, Passphrase};
    let place = filled();
    let mut before = File;
    for kind in
        [Passphrase, Keyring, File, Keyring, Passphrase, File, File, Passphrase, Passphrase, Keyring, Keyring]
    {
        assert_eq!(place.vault().rekey(kind).unwrap(), Some(before), "{kind}");
        assert_eq!(place.value("a"), VALUE, "{kind}");
        place.rotate("a", None, VALUE).unwrap();
        // Nothing is left of keys that are no longer used.
        let lines = fs::read_to_string(place.file("vault.key")).unwrap_or_default();
        let in_file = lines.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(in_file, usize::from(kind == File), "{kind}");
        assert_eq!(place.keys.ring.borrow().len(), usize::from(kind == Keyring), "{kind}");
        before = kind;
    }
    assert_eq!(Place::new().vault().rekey(File).unwrap(), None);
}

#[test]
fn without_its_key_a_vault_stays_shut_and_whole() {
    let place = filled();
    let unchanged = |place: &Place, says: &str| {
        let before = fs::read(place.file("vault.sealed")).unwrap();
        assert!(refusal(place.bind(&["a"])).contains(says), "{}", refusal(place.bind(&["a"])));
        assert!(refusal(place.add(Place::draft("b"), VALUE)).contains(says));
        assert!(refusal(place.vault().rekey(KeyKind::File)).contains(says));
        assert_eq!(fs::read(place.file("vault.sealed")).unwrap(), before);
    };
    fs::rename(place.file("vault.key"), place.file("away")).unwrap();
    unchanged(&place, "restore that file");
    fs::write(place.file("vault.key"), "nonsense").unwrap();
    fs::set_permissions(place.file("vault.key"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .unwrap();
    unchanged(&place, "not a key file");
    fs::rename(place.file("away"), place.file("vault.key")).unwrap();

    place.vault().rekey(KeyKind::Keyring).unwrap();
    let ring = std::mem::take(&mut *place.keys.ring.borrow_mut());
    unchanged(&place, "keyctl padd");
    *place.keys.ring.borrow_mut() = ring;

    place.vault().rekey(KeyKind::Passphrase).unwrap();
    *place.keys.phrase.borrow_mut() = "incorrect horse".into();
    unchanged(&place, "this passphrase");
    *place.keys.phrase.borrow_mut() = "correct horse battery".into();
    assert_eq!(place.value("a"), VALUE);
}

#[test]
fn a_weak_passphrase_is_refused_and_the_old_key_stays() {
    let place = filled();
    *place.keys.phrase.borrow_mut() = "short".into();
    assert!(refusal(place.vault().rekey(KeyKind::Passphrase)).contains("at least 12"));
    assert_eq!(place.value("a"), VALUE);
}
