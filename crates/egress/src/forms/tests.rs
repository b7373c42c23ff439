use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use proptest::prelude::*;

fn text(kind: Kind, value: &str) -> String {
    String::from_utf8(encode(kind, value.as_bytes()).unwrap().to_vec()).unwrap()
}

#[test]
fn each_kind_writes_what_its_encoder_writes() {
    let check = |kind, value, expected: &str| assert_eq!(text(kind, value), expected);
    check(Kind::Raw, "p@ss/w\"d", "p@ss/w\"d");
    check(Kind::Percent { keep: Keep::Unreserved, upper: true }, "p@ss/w d~", "p%40ss%2Fw%20d~");
    check(Kind::Percent { keep: Keep::Path, upper: false }, "p@ss/w+d", "p%40ss/w%2bd");
    check(Kind::Percent { keep: Keep::Form, upper: true }, "p@s w~d*", "p%40s+w%7Ed*");
    check(Kind::Percent { keep: Keep::Script, upper: true }, "p!(x)&", "p!(x)%26");
    check(Kind::Percent { keep: Keep::Nothing, upper: true }, "kJ", "%6B%4A");
    check(Kind::Hex { upper: false }, "kJ", "6b4a");
    check(Kind::Json { slash: true }, "a/\"\\\n\u{1}é", r#"a\/\"\\\n\u0001\u00e9"#);
    check(Kind::Json { slash: false }, "a/\"é", r#"a/\"é"#);
    check(Kind::JsonAll { upper: true }, "kJ\u{1F511}", r"\u006B\u004A\uD83D\uDD11");
    check(Kind::Html { decimal: true }, "a&<>\"'", "a&amp;&lt;&gt;&#34;&#39;");
    check(Kind::Html { decimal: false }, "\"'", "&quot;&#x27;");
    check(Kind::Utf16 { big: false }, "kJ", "k\0J\0");
    check(Kind::Utf16 { big: true }, "kJ", "\0k\0J");
}

#[test]
fn a_token_has_few_forms() {
    let kinds: Vec<_> =
        forms(b"sk_live_4eC39HqLyjWDarjtT1zdp7dc", b"sk_live_x").iter().map(|f| f.kind).collect();
    assert!(kinds.len() <= 16, "{kinds:?}");
    assert!(forms(b"a&b\"c'd/e+f\xc3\xa9 ", b"x").len() > kinds.len());
}

#[test]
fn bytes_that_are_no_text_have_no_text_forms() {
    assert!(encode(Kind::JsonAll { upper: false }, b"\xff\xfe").is_none());
    assert!(encode(Kind::Hex { upper: false }, b"\xff\xfe").is_some());
}

fn values() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[A-Za-z0-9_]{8,60}".prop_map(String::into_bytes),
        "[ -~]{8,40}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 8..40)
    ]
}

proptest! {
    #[test]
    fn a_cover_is_as_long_as_what_it_covers(value in values(), placeholder in "[A-Za-z0-9_-]{8,60}") {
        for form in forms(&value, placeholder.as_bytes()) {
            prop_assert_eq!(form.text.len(), form.cover.len(), "{:?}", form.kind);
        }
    }

    /// Whatever stands around a value, its base64 holds one of its forms.
    #[test]
    fn base64_is_found_at_every_alignment(
        value in values(), before in prop::collection::vec(any::<u8>(), 0..7), after in prop::collection::vec(any::<u8>(), 0..7),
    ) {
        let forms = forms(&value, b"placeholder");
        let whole = [before, value, after].concat();
        for encoded in [STANDARD.encode(&whole), URL_SAFE.encode(&whole), STANDARD.encode(&whole).replace('/', "\\/")] {
            let found = forms.iter().any(|f| encoded.as_bytes().windows(f.text.len()).any(|w| w == f.text.as_slice()));
            prop_assert!(found, "{}", encoded);
        }
    }
}
