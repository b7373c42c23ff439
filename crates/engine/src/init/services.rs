//! Services that agents use, as data: which variable holds a key, which package speaks to one, what a first policy
//! allows. Where a key goes in a request is the vault's to know.

use cofferdam_vault::{PRESETS, Preset};

/// Policies to begin with, the same files that people can read in the repository.
const POLICIES: &[(&str, &str)] = &[
    ("anthropic", include_str!("../../../../examples/policies/anthropic.toml")),
    ("deepseek", include_str!("../../../../examples/policies/deepseek.toml")),
    ("gemini", include_str!("../../../../examples/policies/gemini.toml")),
    ("github", include_str!("../../../../examples/policies/github.toml")),
    ("groq", include_str!("../../../../examples/policies/groq.toml")),
    ("huggingface", include_str!("../../../../examples/policies/huggingface.toml")),
    ("mistral", include_str!("../../../../examples/policies/mistral.toml")),
    ("npm", include_str!("../../../../examples/policies/npm.toml")),
    ("openai", include_str!("../../../../examples/policies/openai.toml")),
    ("openrouter", include_str!("../../../../examples/policies/openrouter.toml")),
    ("slack", include_str!("../../../../examples/policies/slack.toml")),
    ("stripe", include_str!("../../../../examples/policies/stripe.toml")),
    ("xai", include_str!("../../../../examples/policies/xai.toml")),
];

/// Where a model thinks: an agent that takes any of them gets those whose key is here.
pub(super) const MODELS: &[&str] =
    &["anthropic", "cohere", "deepseek", "gemini", "groq", "mistral", "openai", "openrouter", "xai"];

/// Other names that clients and people use for the variable of a preset.
const ALIASES: &[(&str, &str)] = &[
    ("CLAUDE_CODE_OAUTH_TOKEN", "anthropic"),
    ("COHERE_API_KEY", "cohere"),
    ("GH_TOKEN", "github"),
    // The preset `google` reaches all of Google; a key that an agent has is for the models.
    ("GOOGLE_API_KEY", "gemini"),
    ("HUGGINGFACE_TOKEN", "huggingface"),
    ("HUGGING_FACE_HUB_TOKEN", "huggingface"),
    ("NODE_AUTH_TOKEN", "npm"),
    ("NOTION_API_KEY", "notion"),
    ("SLACK_TOKEN", "slack"),
    ("STRIPE_KEY", "stripe"),
    ("STRIPE_SECRET_KEY", "stripe"),
];

/// Their requests carry signatures, for which no preset of one key will do.
pub(super) const SIGNED: &[&str] =
    &["AWS_SECRET_ACCESS_KEY", "AZURE_CLIENT_SECRET", "GOOGLE_APPLICATION_CREDENTIALS"];

/// Packages of Python (by distribution and by module) and Node, and the service that each speaks to.
const PACKAGES: &[(&str, &str)] = &[
    ("@ai-sdk/anthropic", "anthropic"),
    ("@ai-sdk/google", "gemini"),
    ("@ai-sdk/openai", "openai"),
    ("@anthropic-ai/claude-agent-sdk", "anthropic"),
    ("@anthropic-ai/sdk", "anthropic"),
    ("@google/genai", "gemini"),
    ("@google/generative-ai", "gemini"),
    ("@huggingface/inference", "huggingface"),
    ("@linear/sdk", "linear"),
    ("@mistralai/mistralai", "mistral"),
    ("@notionhq/client", "notion"),
    ("@octokit/core", "github"),
    ("@octokit/rest", "github"),
    ("@sendgrid/mail", "sendgrid"),
    ("@slack/bolt", "slack"),
    ("@slack/web-api", "slack"),
    ("anthropic", "anthropic"),
    ("claude-agent-sdk", "anthropic"),
    ("cohere", "cohere"),
    ("cohere-ai", "cohere"),
    ("github", "github"),
    ("google-genai", "gemini"),
    ("google-generativeai", "gemini"),
    ("groq", "groq"),
    ("groq-sdk", "groq"),
    ("huggingface-hub", "huggingface"),
    ("langchain-anthropic", "anthropic"),
    ("langchain-google-genai", "gemini"),
    ("langchain-openai", "openai"),
    ("mistralai", "mistral"),
    ("notion-client", "notion"),
    ("octokit", "github"),
    ("openai", "openai"),
    ("openai-agents", "openai"),
    ("pygithub", "github"),
    ("sendgrid", "sendgrid"),
    ("slack-bolt", "slack"),
    ("slack-sdk", "slack"),
    ("stripe", "stripe"),
    ("tavily-python", "tavily"),
];

/// Those whose key is one value in one variable; the others are set up by hand.
fn plain() -> impl Iterator<Item = &'static Preset> {
    PRESETS.iter().filter(|preset| preset.places().iter().all(|place| !place.signs() && !place.mints()))
}

/// The service that a variable is the key of.
pub(super) fn of_variable(name: &str) -> Option<&'static Preset> {
    let by_alias = ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, service)| *service);
    match by_alias {
        Some(service) => find(service),
        None => plain().find(|preset| preset.env == name),
    }
}

/// Every variable that is looked for: a service's own name before the others.
pub(super) fn variables() -> impl Iterator<Item = &'static str> {
    let own = plain().map(|preset| preset.env);
    own.chain(ALIASES.iter().map(|(name, _)| *name))
}

pub(super) fn of_package(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase().replace(['_', '.'], "-");
    PACKAGES.iter().find(|(package, _)| *package == name).map(|(_, service)| *service)
}

pub(super) fn find(service: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == service)
}

/// The policy of a service: the shipped one, else one that reads and asks a person for the rest.
pub(super) fn policy(preset: &Preset) -> String {
    match POLICIES.iter().find(|(service, _)| *service == preset.name) {
        Some((_, text)) => without_defaults(text),
        None => cautious(preset),
    }
}

/// Several policies become one file, which has one table of defaults.
fn without_defaults(text: &str) -> String {
    let mut inside = false;
    let kept = text.lines().filter(|line| {
        match line.trim_start() {
            "[defaults]" => inside = true,
            other if other.starts_with('[') => inside = false,
            _ => {}
        }
        !inside
    });
    kept.fold(String::new(), |text, line| {
        // The comment that opens the file stands right above its first rule then.
        let gap =
            if line.starts_with("[[") && !text.ends_with("\n\n") && !text.is_empty() { "\n" } else { "" };
        text + gap + line + "\n"
    })
}

fn cautious(preset: &Preset) -> String {
    let Preset { name, hosts, .. } = preset;
    let example = hosts.first().copied().unwrap_or_default().replace('*', "www");
    let listed: Vec<String> = hosts.iter().map(|host| format!("\"{host}\"")).collect();
    let listed = listed.join(", ");
    format!(
        "# {name}: no more is known than its hosts. Narrow the first rule with `paths`.

[[rule]]
id = \"{name}-read\"
reason = \"reading, as far as the key can see\"
effect = \"allow\"
host = [{listed}]
methods = [\"GET\", \"HEAD\"]

[[rule]]
id = \"{name}-write\"
reason = \"a person looks at what may change something\"
effect = \"review\"
host = [{listed}]
methods = [\"POST\", \"PUT\", \"PATCH\", \"DELETE\"]

[[example]]
request = \"GET https://{example}/\"
expect = \"allow\"
rule = \"{name}-read\"

[[example]]
request = \"POST https://{example}/\"
expect = \"review\"
rule = \"{name}-write\"
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_names_a_service_that_the_vault_knows() {
        let named = POLICIES.iter().chain(ALIASES).chain(PACKAGES);
        let services = named.clone().zip(0..).map(
            |((first, second), at)| {
                if at < POLICIES.len() { *first } else { *second }
            },
        );
        for service in services.chain(MODELS.iter().copied()) {
            assert!(find(service).is_some(), "{service}");
        }
        for (table, what) in [(POLICIES, "policies"), (ALIASES, "aliases"), (PACKAGES, "packages")] {
            assert!(table.is_sorted_by_key(|(name, _)| *name), "{what}");
        }
    }

    #[test]
    fn variables_and_packages_lead_to_services() {
        let variable = |name| of_variable(name).map(|preset| preset.name);
        assert_eq!(variable("GH_TOKEN"), Some("github"));
        assert_eq!(variable("OPENAI_API_KEY"), Some("openai"));
        assert_eq!(variable("GOOGLE_API_KEY"), Some("gemini"));
        assert_eq!(variable("HOME"), None);
        for name in ["slack_sdk", "slack-sdk", "Slack.SDK"] {
            assert_eq!(of_package(name), Some("slack"), "{name}");
        }
        assert_eq!(of_package("requests"), None);
    }
}
