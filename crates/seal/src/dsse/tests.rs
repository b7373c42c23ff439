use super::*;
use crate::SigningKey;
use proptest::prelude::*;

const TYPE: &str = "application/vnd.in-toto+json";

/// Made with openssl for these tests and used nowhere else.
const P256: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgpUrttVvdehu0oM78
7ZAeZobM534zA9N/ydnS3uu5uoShRANCAASrI/+PemCU8bCOsiKeU0r/tMJ4KN7Y
wqjIbT6VGJ3ON30nXudij4d58S3r5veNztAvyENdvfp9BRmGpau62x6U
-----END PRIVATE KEY-----
";
const P256_PUBLIC: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEqyP/j3pglPGwjrIinlNK/7TCeCje
2MKoyG0+lRidzjd9J17nYo+HefEt6+b3jc7QL8hDXb36fQUZhqWrutselA==
-----END PUBLIC KEY-----
";

fn ed25519(seed: u8) -> Signer {
    Signer::Ed25519(SigningKey::from_seed(&[seed; 32]).unwrap())
}

fn p256() -> Signer {
    Signer::from_pem(P256, &Nonces::new()).unwrap()
}

fn signed(signers: &[&Signer]) -> Envelope {
    Envelope::sign(TYPE, b"{\"a\":1}".to_vec(), signers, &Nonces::new()).unwrap()
}

#[test]
fn the_signed_bytes_are_those_of_the_specification() {
    let bytes = pre_authentication("http://example.com/HelloWorld", b"hello world");
    assert_eq!(bytes, b"DSSEv1 29 http://example.com/HelloWorld 11 hello world");
}

#[test]
fn keys_of_both_kinds_sign_and_are_read_back() {
    for signer in [ed25519(1), p256()] {
        let public = signer.public();
        assert_eq!(Verifier::from_pem(&public.to_pem()), Ok(public));
        let envelope = Envelope::parse(signed(&[&signer]).to_json().as_bytes()).unwrap();
        let (payload, signers) = envelope.open(TYPE, &[public]).unwrap();
        assert_eq!((payload, signers), (&b"{\"a\":1}"[..], vec![public.id()]));
    }
    assert_eq!(p256().public().to_pem(), P256_PUBLIC);
}

#[test]
fn what_is_wrong_is_named() {
    let (ours, theirs) = (ed25519(1), ed25519(2));
    let keys = [ours.public()];
    let check = |envelope: &Envelope, expected: EnvelopeError| {
        assert_eq!(envelope.open(TYPE, &keys).unwrap_err(), expected);
    };
    let good = signed(&[&ours]);
    let stranger = signed(&[&theirs]);
    check(&stranger, EnvelopeError::UnknownSigner(vec![theirs.id().to_string()]));
    check(&Envelope { signatures: vec![], ..good.clone() }, EnvelopeError::Unsigned);
    check(&Envelope { payload: b"{\"a\":2}".to_vec(), ..good.clone() }, EnvelopeError::Wrong(ours.id()));
    let wanted = TYPE.to_owned();
    check(
        &Envelope { payload_type: "text/plain".into(), ..good.clone() },
        EnvelopeError::Type { found: "text/plain".into(), wanted },
    );
    let posing = Signature { keyid: ours.id().to_string(), ..stranger.signatures[0].clone() };
    let both = vec![good.signatures[0].clone(), posing];
    check(&Envelope { signatures: both, ..good.clone() }, EnvelopeError::Wrong(ours.id()));
    // Without a hint the right key is found all the same, and a wrong signature is nobody's.
    let unnamed = |signature: &Signature| Signature { keyid: String::new(), ..signature.clone() };
    let signatures = vec![unnamed(&good.signatures[0])];
    assert!(Envelope { signatures, ..good.clone() }.open(TYPE, &keys).is_ok());
    let signatures = vec![unnamed(&stranger.signatures[0])];
    check(&Envelope { signatures, ..good.clone() }, EnvelopeError::UnknownSigner(vec![String::new()]));
}

#[test]
fn two_signers_of_whom_one_is_known() {
    let (ours, theirs) = (p256(), ed25519(2));
    let envelope = signed(&[&ours, &theirs]);
    assert_eq!(envelope.open(TYPE, &[ours.public()]).unwrap().1, [ours.id()]);
    let mut both = vec![ours.id(), theirs.id()];
    both.sort_unstable();
    assert_eq!(envelope.open(TYPE, &[theirs.public(), ours.public()]).unwrap().1, both);
}

#[test]
fn no_flipped_bit_changes_what_is_believed() {
    for signer in [ed25519(1), p256()] {
        let text = signed(&[&signer]).to_json().into_bytes();
        let keys = [signer.public()];
        let mut refused = 0;
        for at in 0..text.len() * 8 {
            let mut other = text.clone();
            other[at / 8] ^= 1 << (at % 8);
            let opened = Envelope::parse(&other).and_then(|envelope| {
                envelope.open(TYPE, &keys).map(|(payload, who)| (payload.to_vec(), who))
            });
            match opened {
                // White space, or the hint of the signer dropped: the signed bytes are as they were.
                Ok(found) => assert_eq!(found, (b"{\"a\":1}".to_vec(), vec![signer.id()])),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > text.len() * 8 - 16, "{refused} of {}", text.len() * 8);
    }
}

#[test]
fn a_key_of_another_kind_is_refused_in_words() {
    let check = |text: &str, part: &str| {
        let error = Signer::from_pem(text, &Nonces::new()).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains(part), "{error}");
    };
    check("", "not a PEM file");
    check(P256_PUBLIC, "holds `PUBLIC KEY`");
    check(
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        "neither an Ed25519 nor a P-256 key",
    );
    assert!(Verifier::from_pem(P256).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_an_envelope_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in ".*") {
        let _ = Envelope::parse(&bytes);
        let body = serde_json::json!({ "payload": text, "payloadType": TYPE, "signatures": [{ "sig": text }] });
        if let Ok(envelope) = Envelope::parse(body.to_string().as_bytes()) {
            prop_assert!(envelope.open(TYPE, &[p256().public()]).is_err());
        }
    }

    #[test]
    fn an_envelope_reads_back(payload in proptest::collection::vec(any::<u8>(), 0..200)) {
        let envelope = Envelope::sign("x/y", payload.clone(), &[&ed25519(3)], &Nonces::new()).unwrap();
        prop_assert_eq!(Envelope::parse(envelope.to_json().as_bytes()).unwrap(), envelope);
    }
}
