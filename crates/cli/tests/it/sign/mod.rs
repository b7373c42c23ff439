//! Requests that carry signatures, made by clients of the services' own with placeholders, at stores that check them.
//! The inside never has a key; a wrong value in the vault, or no proxy between, and the same client is refused.

mod aws;
mod azure;
mod pieces;
mod tokens;

use crate::BINARY;
use cofferdam_testkit::{Call, Mode, Site, Stores, is_root};
use std::fs;
use std::path::PathBuf;

const RULES: &str = r#"
[[rule]]
id = "stores"
reason = "what the agent works with"
effect = "allow"
host = ["*.amazonaws.com", "*.corp.example", "*.googleapis.com", "*.windows.net", "api.github.com"]
"#;

/// A session to be, with a policy that leads to the stores.
struct Stage<'s> {
    site: &'s Site,
    stores: &'static Stores,
}

fn staged(test: impl Fn(&Stage<'_>)) {
    let Some(stores) = Stores::shared() else { return };
    let site = Site::new(if is_root() { Mode::Root } else { Mode::Single }, BINARY);
    let stage = Stage { site: &site, stores };
    fs::write(stage.policy(), format!("{}{RULES}", stores.upstreams())).unwrap();
    test(&stage);
}

impl<'s> Stage<'s> {
    fn policy(&self) -> PathBuf {
        self.site.root().join("agent.toml")
    }

    /// Puts keys of AWS into the vault, as `aws`.
    fn add_aws(&self, id: &str, secret: &str, flags: &[&str]) {
        let file = format!("[default]\naws_access_key_id = {id}\naws_secret_access_key = {secret}\n");
        let add = ["secret", "add", "aws", "--preset", "aws"];
        self.site.call(&add).with(flags).input(file).exits(0);
    }

    /// The keys that the stores know.
    fn add_right_aws(&self, flags: &[&str]) {
        self.add_aws(self.stores.key("aws_id"), self.stores.key("aws_secret"), flags);
    }

    fn run(&self, secrets: &[&str], command: &[&str]) -> Call<'s> {
        let (policy, packages) = (self.policy(), self.stores.packages().display());
        let mount = format!("{packages}:{packages}:ro");
        let (python, node) = (format!("PYTHONPATH={packages}"), format!("NODE_PATH={packages}/node_modules"));
        let flags =
            ["--policy", policy.to_str().unwrap(), "--mount", &mount, "--env", &python, "--env", &node];
        let mut call = self.site.run(command).with(&flags).with(&["--env", "AWS_DEFAULT_REGION=eu-west-1"]);
        for secret in secrets {
            call = call.with(&["--secret", secret]);
        }
        call
    }

    fn python(&self, program: &str) -> Call<'s> {
        self.run(&["aws"], &["python3", "-c", program])
    }

    /// Fails if a value is anywhere in what the session left: state, traces, work dir.
    #[track_caller]
    fn nothing_holds(&self, values: &[&str]) {
        for value in values {
            let found = crate::egress::found_in(self.site.root(), value);
            assert!(found.is_empty(), "{found:#?}");
        }
    }
}
