//! Services that agents use, as data: where their keys go, in which place of a request, and how they begin.

use crate::{Place, Plain};

#[derive(Debug, Clone, Copy)]
pub struct Preset {
    pub name: &'static str,
    /// The variable that the service's own clients read.
    pub env: &'static str,
    pub hosts: &'static [&'static str],
    /// As [`Place`] reads them.
    places: &'static [&'static str],
    /// How a key begins; empty where keys have no common form.
    pub begins: &'static [&'static str],
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PresetError {
    #[error("there is no preset `{name}`: use one of {known}, or --for and --as")]
    Unknown { name: String, known: String },
}

pub const PRESETS: &[Preset] = &[
    Preset {
        name: "anthropic",
        env: "ANTHROPIC_API_KEY",
        hosts: &["api.anthropic.com"],
        places: &["header:x-api-key", "bearer"],
        begins: &["sk-ant-"],
    },
    Preset {
        name: "aws",
        env: "AWS_SECRET_ACCESS_KEY",
        hosts: &["*.amazonaws.com", "*.amazonaws.com.cn", "*.api.aws"],
        places: &["sigv4", "sigv4a"],
        begins: &[],
    },
    Preset {
        name: "azure-storage",
        env: "AZURE_STORAGE_KEY",
        hosts: &["*.blob.core.windows.net", "*.queue.core.windows.net", "*.file.core.windows.net"],
        places: &["azure-shared-key"],
        begins: &[],
    },
    Preset {
        name: "cohere",
        env: "CO_API_KEY",
        hosts: &["api.cohere.com", "api.cohere.ai"],
        places: &["bearer"],
        begins: &[],
    },
    Preset {
        name: "deepseek",
        env: "DEEPSEEK_API_KEY",
        hosts: &["api.deepseek.com"],
        places: &["bearer"],
        begins: &["sk-"],
    },
    Preset {
        name: "gemini",
        env: "GEMINI_API_KEY",
        hosts: &["generativelanguage.googleapis.com"],
        places: &["header:x-goog-api-key", "query:key", "bearer"],
        begins: &["AIza"],
    },
    Preset {
        name: "github",
        env: "GITHUB_TOKEN",
        hosts: &[
            "api.github.com",
            "github.com",
            "uploads.github.com",
            "raw.githubusercontent.com",
            "codeload.github.com",
            "ghcr.io",
            "npm.pkg.github.com",
        ],
        places: &["bearer", "basic"],
        begins: &["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"],
    },
    Preset {
        name: "github-app",
        env: "GITHUB_TOKEN",
        hosts: &["api.github.com", "github.com", "uploads.github.com", "ghcr.io"],
        places: &["github-app", "bearer", "basic"],
        begins: &[],
    },
    Preset {
        name: "gitlab",
        env: "GITLAB_TOKEN",
        hosts: &["gitlab.com", "registry.gitlab.com"],
        places: &["header:private-token", "bearer", "basic"],
        begins: &["glpat-", "glptt-", "gldt-"],
    },
    Preset {
        name: "google",
        env: "GOOGLE_API_KEY",
        hosts: &["*.googleapis.com"],
        places: &["header:x-goog-api-key", "query:key", "bearer"],
        begins: &["AIza", "ya29."],
    },
    Preset {
        name: "google-service-account",
        env: "GOOGLE_OAUTH_ACCESS_TOKEN",
        hosts: &["*.googleapis.com"],
        places: &["jwt", "bearer"],
        begins: &[],
    },
    Preset {
        name: "groq",
        env: "GROQ_API_KEY",
        hosts: &["api.groq.com"],
        places: &["bearer"],
        begins: &["gsk_"],
    },
    Preset {
        name: "huggingface",
        env: "HF_TOKEN",
        hosts: &["huggingface.co", "*.huggingface.co", "*.hf.co"],
        places: &["bearer", "basic"],
        begins: &["hf_"],
    },
    Preset {
        name: "linear",
        env: "LINEAR_API_KEY",
        hosts: &["api.linear.app"],
        places: &["header:authorization"],
        begins: &["lin_api_"],
    },
    Preset {
        name: "mistral",
        env: "MISTRAL_API_KEY",
        hosts: &["api.mistral.ai"],
        places: &["bearer"],
        begins: &[],
    },
    Preset {
        name: "notion",
        env: "NOTION_TOKEN",
        hosts: &["api.notion.com"],
        places: &["bearer"],
        begins: &["ntn_", "secret_"],
    },
    Preset {
        name: "npm",
        env: "NPM_TOKEN",
        hosts: &["registry.npmjs.org"],
        places: &["bearer", "basic"],
        begins: &["npm_"],
    },
    Preset {
        name: "openai",
        env: "OPENAI_API_KEY",
        hosts: &["api.openai.com"],
        places: &["bearer"],
        begins: &["sk-"],
    },
    Preset {
        name: "openrouter",
        env: "OPENROUTER_API_KEY",
        hosts: &["openrouter.ai"],
        places: &["bearer"],
        begins: &["sk-or-"],
    },
    Preset {
        name: "pypi",
        env: "TWINE_PASSWORD",
        hosts: &["upload.pypi.org"],
        places: &["basic"],
        begins: &["pypi-"],
    },
    Preset {
        name: "sendgrid",
        env: "SENDGRID_API_KEY",
        hosts: &["api.sendgrid.com"],
        places: &["bearer"],
        begins: &["SG."],
    },
    Preset {
        name: "slack",
        env: "SLACK_BOT_TOKEN",
        hosts: &["slack.com", "files.slack.com"],
        places: &["bearer", "body:token"],
        begins: &["xoxb-", "xoxp-", "xapp-", "xoxe."],
    },
    Preset {
        name: "stripe",
        env: "STRIPE_API_KEY",
        hosts: &["api.stripe.com", "files.stripe.com"],
        places: &["bearer", "basic"],
        begins: &["sk_live_", "sk_test_", "rk_live_", "rk_test_"],
    },
    Preset {
        name: "tavily",
        env: "TAVILY_API_KEY",
        hosts: &["api.tavily.com"],
        places: &["bearer", "body:api_key"],
        begins: &["tvly-"],
    },
    Preset { name: "xai", env: "XAI_API_KEY", hosts: &["api.x.ai"], places: &["bearer"], begins: &["xai-"] },
];

impl Preset {
    pub fn find(name: &str) -> Result<&'static Self, PresetError> {
        let unknown = || PresetError::Unknown {
            name: name.chars().take(40).collect(),
            known: PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", "),
        };
        PRESETS.iter().find(|preset| preset.name == name).ok_or_else(unknown)
    }

    pub fn places(&self) -> Vec<Place> {
        // Every line of the table is read by a test.
        self.places.iter().filter_map(|place| place.parse().ok()).collect()
    }

    /// Whether a value looks like a key of this service.
    pub fn fits(&self, value: &Plain) -> bool {
        self.begins.is_empty() || self.begins.iter().any(|start| value.reveal().starts_with(start.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Credential;

    #[test]
    fn every_line_is_a_credential() {
        for preset in PRESETS {
            let credential = Credential {
                name: preset.name.into(),
                env: preset.env.into(),
                hosts: preset.hosts.iter().map(|host| (*host).into()).collect(),
                places: preset.places(),
                ..Credential::default()
            };
            assert_eq!(preset.places().len(), preset.places.len(), "{}", preset.name);
            assert_eq!(credential.clone().checked(), Ok(credential), "{}", preset.name);
        }
        let names: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
        assert!(names.is_sorted() && names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }

    #[test]
    fn presets_are_found_by_name() {
        assert_eq!(Preset::find("stripe").unwrap().hosts[0], "api.stripe.com");
        let error = Preset::find("strip").unwrap_err().to_string();
        assert!(error.contains("github") && error.contains("--for"), "{error}");
    }

    #[test]
    fn a_key_of_another_service_does_not_fit() {
        let [ours, theirs] = ["sk_live_0123456789", "ghp_0123456789"].map(|text| Plain::new(text.into()));
        let stripe = Preset::find("stripe").unwrap();
        assert!(stripe.fits(&ours) && !stripe.fits(&theirs));
        assert!(Preset::find("mistral").unwrap().fits(&theirs));
    }
}
