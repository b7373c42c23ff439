//! `cofferdam eval`: a value, or why there is none.

use crate::site;
use serde_json::Value;

const SCHEMA: &str =
    r#"{ "type": "object", "required": ["n"], "properties": { "n": { "type": "integer" } } }"#;

#[test]
fn an_expression_has_a_value() {
    let site = site();
    let schema = site.write("schema.json", SCHEMA);
    let eval = |expression: &str| site.call(&["eval", expression, "--schema", schema.to_str().unwrap()]);
    assert_eq!(eval("input.n * 2").input(r#"{"n": 21}"#).exits(0).out(), "42\n");
    assert_eq!(
        eval("{'big': input.n > 5}").input(r#"{"n": 21}"#).with(&[]).exits(0).out(),
        "{\"big\":true}\n"
    );
    let input = site.write("input.json", r#"{"n": 1}"#);
    let flags =
        ["eval", "input.n == 1", "--schema", schema.to_str().unwrap(), "--input", input.to_str().unwrap()];
    assert_eq!(site.call(&flags).exits(0).out(), "true\n");
}

#[test]
fn what_is_wrong_is_told_apart() {
    let site = site();
    let schema = site.write("schema.json", SCHEMA);
    let schema = schema.to_str().unwrap();
    let check = |args: &[&str], input: &str, code: i32, expected: &str| {
        let done = site.call(args).input(input).exits(code);
        assert!(done.out().is_empty() && done.err().contains(expected), "{args:?}: {}", done.err());
    };
    // Of the input: 1. Of the command line and its files: 2.
    check(&["eval", "input.n", "--schema", schema], r#"{"n": "x"}"#, 1, "/n");
    check(&["eval", "input.m", "--schema", schema], r#"{"n": 1}"#, 1, "`m`, which is not there");
    check(&["eval", "input.n", "--schema", schema], "no JSON", 1, "line 1");
    check(&["eval", "inptu.n", "--schema", schema], r#"{"n": 1}"#, 2, "did you mean `input`?");
    check(&["eval", "input.n", "--schema", "nonesuch.json"], r#"{"n": 1}"#, 2, "nonesuch.json");
    check(&["eval", "input.n", "--schema", schema, "--input", "nonesuch"], "", 2, "nonesuch");
    check(&["eval", "input.n"], "", 2, "--schema");
    let bad = site.write("bad.json", "{ \"type\": 7 }");
    check(&["eval", "1", "--schema", bad.to_str().unwrap()], "{}", 2, "no schema");
    let done = site.call(&["eval", "input.n", "--schema", schema, "--json"]).input("[]").exits(1);
    let told: Value = serde_json::from_str(done.err().trim()).unwrap();
    assert_eq!((told["error"]["kind"].as_str(), told["exit"].as_i64()), (Some("input"), Some(1)));
}
