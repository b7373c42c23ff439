//! What tools may reach, as the rules of a policy. It says nothing of anything but requests: what else there is to
//! decide is for the session's own policy, so all of it is allowed here.

use super::file::Manifest;
use crate::error::EngineError;
use crate::policy;
use cofferdam_policy::Policy;
use std::path::Path;
use std::sync::Arc;

/// All that is no request.
const REST: &str = r#"
[[rule]]
id = "tools-rest-tools"
reason = "the registry of tools does not decide on calls"
effect = "allow"
tool = "*"

[[rule]]
id = "tools-rest-commands"
reason = "the registry of tools does not decide on commands"
effect = "allow"
exec = "**"

[[rule]]
id = "tools-rest-files"
reason = "the registry of tools does not decide on files one by one"
effect = "allow"
file = { path = "/**", access = ["read", "write", "delete"] }

[[rule]]
id = "tools-rest-browser"
reason = "the registry of tools does not decide on browsers"
effect = "allow"
browser = ["*"]

[[rule]]
id = "tools-rest-steps"
reason = "the registry of tools does not decide on steps"
effect = "allow"
step = "*"
"#;

/// Nothing where no tool may reach anything.
pub(super) fn policy(tools: &[&Manifest], path: &Path) -> Result<Option<(Arc<Policy>, String)>, EngineError> {
    let reaching: Vec<_> = tools.iter().filter(|tool| !tool.hosts.is_empty()).collect();
    if reaching.is_empty() {
        return Ok(None);
    }
    let mut text = String::from("# Made from a registry of tools.\n");
    for tool in reaching {
        let quoted = |words: &[String]| toml::Value::from(words.to_vec()).to_string();
        let name = tool.name.get_ref();
        let word = |text: &str| toml::Value::from(text).to_string();
        text.push_str("\n[[rule]]\n");
        text.push_str(&format!("id = {}\n", word(&format!("tool-{}", name.replace(' ', "-")))));
        text.push_str(&format!("reason = {}\n", word(&format!("{name}: {}", tool.reason))));
        text.push_str(&format!("effect = \"allow\"\nhost = {}\n", quoted(&tool.hosts)));
        if !tool.methods.is_empty() {
            text.push_str(&format!("methods = {}\n", quoted(&tool.methods)));
        }
        if !tool.callers.is_empty() {
            text.push_str(&format!("program = {}\n", quoted(&tool.callers)));
        }
    }
    text.push_str(REST);
    Ok(Some((Arc::new(policy::parse(&text, path)?), text)))
}
