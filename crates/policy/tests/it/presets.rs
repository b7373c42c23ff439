//! The policies that are shipped as a beginning: nothing to remark, and all they say of themselves holds.

use crate::policy;
use std::fs;
use std::path::Path;

#[test]
fn every_preset_holds() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/policies");
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let policy = policy(&fs::read_to_string(&path).unwrap());
        assert_eq!(policy.check(), [], "{}", path.display());
        assert!(policy.test().len() >= 4, "{}: too few examples", path.display());
        policy.require_no_operator_tables().unwrap();
        names.push(path.file_stem().unwrap().to_string_lossy().into_owned());
    }
    names.sort();
    let shipped = "anthropic deepseek flows gemini github groq huggingface mistral npm openai openrouter postgres slack ssh stripe xai";
    assert_eq!(names.join(" "), shipped);
}

/// Every piece of TOML in the documentation is a policy, or it says so.
#[test]
fn the_documentation_holds() {
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policy.md")).unwrap();
    let mut count = 0;
    for block in text.split("```toml\n").skip(1) {
        let block = block.split("```").next().unwrap();
        let policy = policy(block);
        assert!(policy.test().iter().all(|tried| tried.passed()), "{block}");
        count += 1;
    }
    assert!(count >= 8, "{count}");
}
