//! A policy may come from a tenant: no text makes reading it fail otherwise than by telling its mistakes.

use cofferdam_policy::{Policy, Request};
use proptest::prelude::*;

fn try_all(text: &str) {
    if let Ok(policy) = Policy::parse(text) {
        let _ = policy.check();
        for request in
            ["GET https://a.com/x?y=1", "tool x {}", "exec a b", "file read /x", "step s", "browser c"]
        {
            Request::parse(request).unwrap().with(|action| drop(policy.explain(action)));
        }
    }
}

/// Something like a policy: right words in wrong places.
fn nearly() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        "\\[\\[(rule|example|on|budget|rewrite|upstream|guard.allow)\\]\\]",
        "\\[(defaults|tls|guard)\\]",
        "(id|reason|effect|host|tool|exec|step|browser|when|request|expect|rule|connect) = \"[a-z*./: ]{0,12}\"",
        "(paths|methods|host|port|narrow|class|pass_through) = \\[(\"[a-zA-Z/*%.]{0,6}\"|[0-9]{1,6})?\\]",
        "(headers|query|body|args|file|after|do|json) = \\{ [a-z]{1,5} = (\"[a-z/]{0,4}\"|[0-9]|\\{\\}) \\}",
        "when = '(request.(body|query).[a-c]|args.x|1|true) (==|<|&&|in) (1|\"x\"|\\[1\\]|request.path)'",
        ".{0,20}",
    ];
    prop::collection::vec(line, 0..12).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_text_is_read(text in ".{0,200}") {
        try_all(&text);
    }

    #[test]
    fn any_nearly_right_text_is_read(text in nearly()) {
        try_all(&text);
    }

    #[test]
    fn any_condition_is_read(when in "[ a-z0-9.()\\[\\]'\"?:!=<>&|+*/%{},-]{0,60}") {
        let when = toml::Value::String(when);
        try_all(&format!("[[rule]]\nid = \"r\"\nreason = \"x\"\neffect = \"allow\"\nhost = \"*\"\nwhen = {when}\n"));
    }

    #[test]
    fn mistakes_have_places_in_the_file(text in nearly()) {
        if let Err(errors) = Policy::parse(&text) {
            let lines = text.split('\n').count();
            prop_assert!(!errors.0.is_empty());
            for error in errors.0 {
                prop_assert!((1..=lines).contains(&error.spot.line) && error.spot.column >= 1, "{error}");
            }
        }
    }
}

#[test]
fn deep_and_long_files_end() {
    try_all(&"[".repeat(100_000));
    try_all(&format!("a = {}", "[".repeat(10_000)));
    try_all(&format!("a{} = 1", ".a".repeat(10_000)));
    try_all(&"[[rule]]\n".repeat(20_000));
}
