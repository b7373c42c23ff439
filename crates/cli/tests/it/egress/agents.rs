//! Agents as they are published, unmodified: each has a placeholder for its key, speaks to a model that checks the real
//! one, and does a small task in the work dir.

use super::{Stage, staged};
use std::fs;

const CLAUDE: &str =
    r#"node "$PACKAGES/@anthropic-ai/claude-code/cli-wrapper.cjs" -p "$TASK" --allowedTools Bash"#;
/// Over HTTPS: it would try a WebSocket first, and wait a while before it gives up.
const CODEX: &str = r#"node "$PACKAGES/@openai/codex/bin/codex.js" exec --model gpt-5 --skip-git-repo-check \
    --sandbox danger-full-access -c model_provider=plain \
    -c 'model_providers.plain={name="plain", base_url="https://api.openai.com/v1", wire_api="responses", env_key="CODEX_API_KEY", supports_websockets=false}' \
    "$TASK" < /dev/null"#;

/// Runs it with a task whose outcome is a file and a number on the screen.
fn check(stage: &Stage<'_>, agent: &str, variable: &str, host: &str) {
    let modules = stage.server.packages().join("node_modules");
    let script = format!(
        "export PACKAGES='{}' {variable}=\"$KEY\"\n\
         TASK='Please run `echo $((40 + 2)) > answer.txt` and tell me how it went.'\n\
         {agent}",
        modules.display()
    );
    let done = stage.sh(&script).exits(0);
    assert_eq!(done.out().trim_end().lines().last(), Some("pong"), "{}", done.err());
    assert_eq!(fs::read_to_string(stage.site.work().join("answer.txt")).unwrap(), "42\n");
    assert!(stage.used(host).len() >= 2, "a question, and one with the tool's result");
    fs::remove_file(stage.site.work().join("answer.txt")).unwrap();
}

#[test]
fn claude_code_works_with_a_placeholder() {
    staged(|stage| check(stage, CLAUDE, "ANTHROPIC_API_KEY", "api.anthropic.com"));
}

#[test]
fn codex_works_with_a_placeholder() {
    staged(|stage| check(stage, CODEX, "CODEX_API_KEY", "api.openai.com"));
}
