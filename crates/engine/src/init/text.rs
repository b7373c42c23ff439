//! The two files that are written: a session's description and its policy.

use super::keys::Key;
use super::services;
use cofferdam_vault::Preset;
use std::path::Path;

/// What a session's description is made of.
pub(super) struct Session<'a> {
    pub(super) about: &'a str,
    pub(super) command: &'a [String],
    pub(super) memory: &'a str,
    pub(super) keys: &'a [Key],
    pub(super) out: &'a Path,
    pub(super) policy: &'a Path,
}

impl Session<'_> {
    pub(super) fn text(&self) -> String {
        let Self { about, memory, .. } = self;
        let file = name(self.out);
        let secrets: Vec<&str> = self.keys.iter().map(|key| key.service.name).collect();
        // Who can change the rules of the next session has no rules in this one.
        let hide: Vec<String> =
            [self.out, self.policy].into_iter().map(|path| path.display().to_string()).collect();
        format!(
            "# A session of {about} in a sandbox: cofferdam run --spec {file}
# Every key is optional but `command`; `cofferdam run --help` lists the flags that override them.
command = {command}

# What may leave, and what waits for a person. Without a policy nothing leaves.
policy = {policy}

# Credentials of the vault, by name (`cofferdam secret ls`). Inside, their variables hold placeholders.
secrets = {secrets}

# What becomes of file changes in the work dir: keep, discard, ask.
changes = \"ask\"

# Paths of the work dir to hide, beyond the usual places of credentials (.env, .ssh, .aws, …).
# These two are here so that no session can change the rules of the next one.
hide = {hide}

# Controls without which it must not run; names as in `cofferdam trace show --full`.
require = [\"seccomp\", \"no-new-privileges\", \"network\"]

# Without control groups (most plain users) limits are held per process instead of refused.
accept = [\"rlimits\"]

[limits]
memory = \"{memory}\"
pids = 1024
timeout = \"4h\"

# Variables of yours that the agent may see are named here or by --env NAME. No credentials: see `secrets`.
[env]
",
            command = array(self.command),
            policy = quoted(&name(self.policy)),
            secrets = array(&secrets),
            hide = array(&hide),
        )
    }
}

pub(super) fn policy(about: &str, file: &Path, services: &[&'static Preset]) -> String {
    let name = name(file);
    let mut text = format!(
        "# What may leave a session of {about}. Deny beats review beats allow; what no rule names is denied.
#
#   cofferdam policy test {name}         runs the examples below
#   cofferdam policy explain {name} 'GET https://host/path'   says which rule decides, or which to add
[defaults]
contact = \"ask the owner of this policy to widen it\"

[[example]]
request = \"GET https://example.org/\"
expect = \"deny\"
"
    );
    for service in services {
        text += "\n";
        text += &services::policy(service);
    }
    text
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn array(words: &[impl AsRef<str>]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word.as_ref())).collect();
    format!("[{}]", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_model::SessionSpec;
    use cofferdam_policy::Policy;
    use cofferdam_vault::PRESETS;

    #[test]
    fn the_session_is_a_valid_spec_whatever_it_is_called() {
        let command = ["python3".to_owned(), "my \"agent\".py".to_owned()];
        let spec = Session {
            about: "a test",
            command: &command,
            memory: "2G",
            keys: &[],
            out: Path::new("sub/a \"b\".toml"),
            policy: Path::new("sub/p.toml"),
        };
        let spec: SessionSpec = toml::from_str(&spec.text()).unwrap();
        assert_eq!(spec.command, command);
        assert_eq!(spec.policy.as_deref(), Some(Path::new("p.toml")));
        assert_eq!(spec.hide[1], Path::new("sub/p.toml"));
        assert_eq!(spec.check(), Ok(()));
    }

    /// All in one file, and each alone: no remark, and every example holds.
    #[test]
    fn every_policy_that_can_be_composed_holds() {
        let all: Vec<&'static Preset> = PRESETS.iter().collect();
        let each = all.chunks(1).map(<[_]>::to_vec);
        // `google` is all of Google's names, those of the others among them; keys that sign or are exchanged for tokens
        // are another way to a service that has one already.
        let plain = |preset: &Preset| preset.places().iter().all(|place| !place.signs() && !place.mints());
        let together =
            all.iter().copied().filter(|preset| preset.name != "google" && plain(preset)).collect();
        for services in each.chain([Vec::new(), together]) {
            let text = policy("a test", Path::new("policy.toml"), &services);
            let policy = Policy::parse(&text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
            assert_eq!(policy.check(), [], "{text}");
            let tried = policy.test();
            assert!(!tried.is_empty() && tried.iter().all(|tried| tried.passed()), "{tried:?}");
            assert_eq!(text.matches("[defaults]").count(), 1);
        }
    }
}
