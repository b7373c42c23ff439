//! Requests that leave a sandbox, made by programs that nobody here wrote, to servers on this machine that check the
//! real credential. The inside has a placeholder; what it may not do is refused, explained and recorded.

mod agents;
mod beyond;
mod clients;
mod frames;
mod leaks;
mod live;
mod local;
mod models;
mod packages;
mod python;
mod refusals;
mod streams;

pub(crate) use leaks::found_in;

use crate::BINARY;
use cofferdam_testkit::{Call, Mode, Server, Site, is_root};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// Where the credential may go; the servers answer for one host more, which it may not go to.
const FOR: &[&str] = &[
    "api.anthropic.com",
    "api.corp.example",
    "api.openai.com",
    "api.stripe.com",
    "generativelanguage.googleapis.com",
    "git.corp.example",
    "models.corp.example",
    "npm.corp.example",
    "plain.corp.example",
    "pypi.corp.example",
    "rpc.corp.example",
    "sockets.corp.example",
];

/// Allows all hosts that there are servers for.
pub(crate) const ALL: &str = r#"
[[rule]]
id = "services"
reason = "what the agent works with"
effect = "allow"
host = ["*.corp.example", "api.anthropic.com", "api.openai.com", "api.stripe.com", "generativelanguage.googleapis.com"]
"#;

/// Takes the proxy variables away, so that the client speaks to addresses.
const DIRECT: &str =
    "env -u http_proxy -u HTTP_PROXY -u https_proxy -u HTTPS_PROXY -u all_proxy -u ALL_PROXY";

/// A session to be: a policy, a credential of its own, and the servers that know it.
pub(crate) struct Stage<'s> {
    pub(crate) site: &'s Site,
    pub(crate) server: &'static Server,
    /// What the credential really is. No two stages have the same.
    pub(crate) real: String,
}

/// As root and as a plain user; not at all where the servers are missing, which was said then.
fn staged(test: impl Fn(&Stage<'_>)) {
    let modes: &[Mode] = if is_root() { &[Mode::Root, Mode::Single] } else { &[Mode::Single] };
    for &mode in modes {
        eprintln!("mode {mode:?}");
        on_stage(mode, &test);
    }
}

/// Where the kind of user makes no difference.
pub(crate) fn staged_once(test: impl Fn(&Stage<'_>)) {
    on_stage(if is_root() { Mode::Root } else { Mode::Single }, &test);
}

fn on_stage(mode: Mode, test: &impl Fn(&Stage<'_>)) {
    let Some(server) = Server::shared() else { return };
    let site = Site::new(mode, BINARY);
    test(&Stage::new(&site, server));
}

/// A value that looks like a key, and was never seen before.
fn fresh_value() -> String {
    let random = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap();
    format!("sk_live_{}", random.trim().replace('-', ""))
}

impl<'s> Stage<'s> {
    fn new(site: &'s Site, server: &'static Server) -> Self {
        let stage = Self { site, server, real: fresh_value() };
        stage.add("key", &stage.real);
        stage.policy(ALL);
        stage
    }

    /// Puts a credential into the vault that the servers know.
    fn add(&self, name: &str, value: &str) {
        self.server.admit(value);
        let places = ["--as", "bearer", "basic", "header:x-api-key", "header:x-goog-api-key", "--for"];
        self.site.call(&["secret", "add", name]).with(&places).with(FOR).input(value).exits(0);
    }

    pub(crate) fn policy_file(&self) -> PathBuf {
        self.site.root().join("agent.toml")
    }

    /// Writes the policy of the sessions to come, or of one that is told to read it again.
    pub(crate) fn policy(&self, rules: &str) -> PathBuf {
        let contact = "[defaults]\ncontact = \"ask #agents\"\n\n";
        fs::write(self.policy_file(), format!("{contact}{}{rules}", self.server.upstreams())).unwrap();
        self.policy_file()
    }

    /// `cofferdam run` of this with the policy and the credential, which is in `$KEY`.
    pub(crate) fn run(&self, command: &[&str]) -> Call<'s> {
        let (policy, packages) = (self.policy_file(), self.server.packages().display());
        let mount = format!("{packages}:{packages}:ro");
        let path = format!("PYTHONPATH={packages}");
        let flags =
            ["--policy", policy.to_str().unwrap(), "--secret", "key", "--mount", &mount, "--env", &path];
        self.site.run(command).with(&flags)
    }

    pub(crate) fn sh(&self, script: &str) -> Call<'s> {
        self.run(&["sh", "-c", script])
    }

    pub(crate) fn python(&self, program: &str) -> Call<'s> {
        self.run(&["python3", "-c", program])
    }

    /// What the servers saw of this session at one host. Fails unless all of it came with the real credential, is on
    /// record with the credential's name, and nothing on record tells its value.
    #[track_caller]
    fn used(&self, host: &str) -> Vec<Value> {
        let seen: Vec<Value> =
            self.server.seen_with(&self.real).into_iter().filter(|seen| seen["host"] == host).collect();
        assert!(!seen.is_empty(), "`{host}` was never asked with the real credential");
        let of_host = |kind: &str| -> Vec<Value> {
            self.site.bodies(kind).into_iter().filter(|body| body["host"] == host).collect()
        };
        let decided = of_host("egress.decided");
        let with = decided.iter().filter(|body| {
            body["effect"] == "allow"
                && body["rule"] == "services"
                && body["credentials"] == serde_json::json!(["key"])
        });
        assert_eq!(with.count(), seen.len(), "{decided:#?}");
        let used = of_host("credential.used");
        assert_eq!(used.iter().filter(|body| body["name"] == "key").count(), seen.len(), "{used:#?}");
        let id = self.site.traces().pop().unwrap();
        let trace = fs::read_to_string(self.site.events_file(&id)).unwrap();
        assert!(!trace.contains(&self.real), "the trace tells the value");
        seen
    }

    /// Refusals on record, by their cause.
    fn refused(&self, cause: &str) -> Vec<Value> {
        self.site.bodies("egress.refused").into_iter().filter(|body| body["cause"] == cause).collect()
    }
}
