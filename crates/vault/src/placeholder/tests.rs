use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use proptest::prelude::*;
use std::collections::HashSet;

fn session(n: u64) -> SessionId {
    SessionId::new(n, n)
}

fn mint(seed: u8, n: u64) -> Mint {
    Mint::new(Zeroizing::new([seed; KEY_LEN]), session(n))
}

fn plain(text: &str) -> Plain {
    Plain::new(text.as_bytes().to_vec())
}

fn forged(real: &str) -> String {
    mint(1, 1).placeholder("name", &plain(real), &[]).unwrap()
}

/// Both in the class written as a pattern: a = lower, A = upper, 9 = digit, others as they are; `x` fits all three.
fn check(real: &str, prefix: &str, bits: u32) -> String {
    let text = forged(real);
    assert!(text.starts_with(prefix), "{real} → {text}");
    assert_eq!(text.len(), real.len(), "{real} → {text}");
    assert_ne!(text, real);
    let found = likeness(&plain(real));
    assert!(found.imitates && found.bits >= bits, "{real}: {found:?}");
    text
}

#[test]
fn known_formats_are_kept() {
    check(&format!("sk_live_{}", "51H8sK2eZvKYlo2C".repeat(6)), "sk_live_", 500);
    check(&format!("sk_test_{}", "4eC39HqLyjWDarjtT1zdp7dc"), "sk_test_", 140);
    check(&format!("sk-ant-api03-{}AA", "w3-Xy_9".repeat(13)), "sk-ant-api03-", 500);
    check(&format!("AIzaSy{}", "B1c-D3e_F5g7H9i1J3k5L7m9N1o3P5q7R"), "AIza", 200);
    check("AKIAIOSFODNN7EXAMPLE", "AKIA", 80);
    check("hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", "hf_", 190);
    let pypi = check(&format!("pypi-AgEIcHlwaS5vcmc{}", "CJDk0Nz".repeat(20)), "pypi-AgEIcHlwaS5vcmc", 700);
    assert!(pypi.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)));
    let slack = check("xoxb-123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx", "xoxb-", 200);
    let parts: Vec<&str> = slack.split('-').collect();
    assert!(parts[1].len() == 12 && parts[1].bytes().all(|b| b.is_ascii_digit()), "{slack}");
    let openai =
        check(&format!("sk-proj-{}T3BlbkFJ{}", "a1B2".repeat(10), "c3D4".repeat(10)), "sk-proj-", 400);
    assert!(openai.contains("T3BlbkFJ"), "{openai}");
    let anthropic = check(&format!("sk-ant-api03-{}-AA", "x".repeat(92)), "sk-ant-api03-", 500);
    assert!(anthropic.ends_with("AA"), "{anthropic}");
}

#[test]
fn tokens_with_a_checksum_pass_the_check() {
    // A token that documentation of the format has as its example.
    assert_eq!(&shape::checksum(b"zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ"), b"0mLq17");
    let real = concat!("ghp_", "zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0mLq17");
    for prefix in ["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "npm_"] {
        let text = check(&real.replace("ghp_", prefix), prefix, 170);
        let (body, sum) = text[4..].split_at(30);
        assert_eq!(&shape::checksum(body.as_bytes()), sum.as_bytes(), "{text}");
    }
    let fine = format!("github_pat_{}_{}", "1A2b".repeat(5) + "3C", "d4E5f".repeat(11) + "g6H7");
    let text = check(&fine, "github_pat_", 400);
    assert_eq!(text.as_bytes()[33], b'_', "{text}");
    assert_eq!(&shape::checksum(&text.as_bytes()[11..text.len() - 6]), &text.as_bytes()[text.len() - 6..]);
}

#[test]
fn other_shapes_are_kept() {
    let uuid = check("123e4567-e89b-42d3-a456-426614174000", "", 110);
    assert!(
        uuid.as_bytes()[14] == b'4' && uuid.as_bytes()[19] == b'a' && uuid.matches('-').count() == 4,
        "{uuid}"
    );
    let hex = check(&"0123456789abcdef".repeat(2), "", 128);
    assert!(hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)), "{hex}");
    let secret = check("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "", 200);
    assert!(secret.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'/'), "{secret}");
    let key = STANDARD.encode([0x5a; 64]);
    let coded = check(&key, "", 512);
    assert_eq!(STANDARD.decode(&coded).unwrap().len(), 64);
    let lower = check("abcdefghijklmnopqrstuvwx", "", 96);
    assert!(lower.bytes().all(|b| b.is_ascii_lowercase()), "{lower}");
    let phrase = check("Tr0ub4dor&3 und Bücher für alle", "", 96);
    assert!(phrase.is_ascii(), "{phrase}");
}

#[test]
fn a_signed_token_stays_readable_and_tells_no_claim_but_its_end() {
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let claims = r#"{"sub":"1234567890","email":"someone@example.com","exp":1999999999}"#;
    let real = format!("{header}.{}.{}", URL_SAFE_NO_PAD.encode(claims), URL_SAFE_NO_PAD.encode([9; 32]));
    let text = check(&real, &format!("{header}."), 256);
    let parts: Vec<&str> = text.split('.').collect();
    let read: serde_json::Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap();
    assert_eq!(read["exp"], 1_999_999_999);
    assert!(read.get("sub").is_none() && read.get("email").is_none(), "{read}");
    assert_eq!(URL_SAFE_NO_PAD.decode(parts[2]).unwrap().len(), 32);
}

#[test]
fn a_value_that_cannot_be_imitated_gets_a_longer_stand_in() {
    for real in ["hunter2!", "12345678", "1234567890123456", "                "] {
        let text = forged(real);
        assert!(text.len() == STAND_IN && text.bytes().all(|b| b.is_ascii_alphanumeric()), "{real} → {text}");
        let found = likeness(&plain(real));
        assert!(!found.imitates && found.bits >= ENOUGH_BITS, "{found:?}");
    }
    // Eighty bits are what the format has.
    assert!(likeness(&plain("AKIAIOSFODNN7EXAMPLE")).bits < ENOUGH_BITS);
}

#[test]
fn placeholders_differ_by_session_name_and_seed_and_repeat_otherwise() {
    let real = plain("sk_live_4eC39HqLyjWDarjtT1zdp7dc");
    let of = |seed, session, name: &str| mint(seed, session).placeholder(name, &real, &[]).unwrap();
    assert_eq!(of(1, 1, "a"), of(1, 1, "a"));
    let all = [of(1, 1, "a"), of(1, 2, "a"), of(2, 1, "a"), of(1, 1, "b")];
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
}

#[test]
fn a_text_that_collides_is_drawn_again() {
    let real = plain("sk_live_4eC39HqLyjWDarjtT1zdp7dc");
    let first = mint(1, 1).placeholder("a", &real, &[]).unwrap();
    let part = plain(&first[4..20]);
    let second = mint(1, 1).placeholder("a", &real, &[&part]).unwrap();
    assert_ne!(first, second);
    assert!(!second.contains(&first[4..20]));
    // A shape with one text has none to give.
    let mut mint = mint(1, 1);
    mint.made.push(String::new());
    assert!(mint.placeholder("a", &real, &[]).is_ok());
    let every: Vec<String> =
        (0u8..62).map(|n| char::from(shape::BASE62[usize::from(n)]).to_string()).collect();
    let every: Vec<Plain> = every.iter().map(|text| plain(text)).collect();
    let every: Vec<&Plain> = every.iter().collect();
    assert!(
        matches!(mint.placeholder("b", &real, &every), Err(PlaceholderError::NoneFree(name)) if name == "b")
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_value_gets_a_placeholder_of_its_own(real in "[ -~]{8,80}|\\PC{8,40}", other in "[a-zA-Z0-9_-]{8,60}", seed: u8) {
        let (real, other) = (plain(&real), plain(&other));
        let values = [&real, &other];
        let mut mint = mint(seed, 7);
        let a = mint.placeholder("a", &real, &values).unwrap();
        let b = mint.placeholder("b", &other, &values).unwrap();
        for text in [&a, &b] {
            for value in values {
                prop_assert!(!within(value.reveal(), text.as_bytes()) && !within(text.as_bytes(), value.reveal()));
            }
        }
        prop_assert!(!a.contains(&b) && !b.contains(&a));
        let found = likeness(&real);
        prop_assert!(found.bits >= FEWEST_BITS);
        prop_assert!(!found.imitates || a.len() == real.reveal().len());
        prop_assert!(a.chars().all(|c| !c.is_control()));
    }

    #[test]
    fn any_bytes_have_a_shape(real in prop::collection::vec(any::<u8>(), 0..80), prefix in "(sk_live_|ghp_|AKIA|xoxb-|eyJhbGciOiJIUzI1NiJ9\\.)?") {
        let real = [prefix.as_bytes(), &real].concat();
        let shape = Shape::of(&real);
        let text = shape.draw(&mut ByteStream::new(&[1; 32], &[]));
        if let Ok(real) = std::str::from_utf8(&real) {
            prop_assert_eq!(text.len(), real.len(), "{:?}", shape);
        }
    }
}
