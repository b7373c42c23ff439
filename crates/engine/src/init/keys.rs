//! Where the keys of services are: variables that are set, and files that name them. Of a file only names are kept;
//! its text, which holds values, is wiped. No value is returned, stored or told.

use super::{Around, services};
use cofferdam_vault::Preset;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

const MAX_FILE: u64 = 1 << 20;
const ENV_FILES: &[&str] = &[".env", ".env.local", ".envrc"];

/// A key of a service, by name.
#[derive(Debug, Clone)]
pub struct Key {
    pub service: &'static Preset,
    /// The variable that the agent reads.
    pub variable: String,
    pub found: Found,
    /// The source of its value, as `secret add --from` takes it; none where a person has to give it.
    pub from: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Variable,
    /// A file of the work dir.
    Project(PathBuf),
    /// A file of the user's.
    Home(PathBuf),
    /// The agent needs it, and it was not seen.
    Nowhere,
}

impl Key {
    pub(super) fn wanted(service: &'static Preset) -> Self {
        Self { service, variable: service.env.to_owned(), found: Found::Nowhere, from: None }
    }

    /// The command that puts it into the vault.
    pub fn line(&self) -> String {
        let name = self.service.name;
        let from = self.from.as_deref().map(|from| format!(" --from {}", shell(from))).unwrap_or_default();
        let env = self.env().map(|env| format!(" --env {env}")).unwrap_or_default();
        format!("cofferdam secret add {name}{from} --preset {name}{env}")
    }

    /// The variable where `secret add` would not choose it by itself.
    pub fn env(&self) -> Option<&str> {
        let source = self.from.as_deref().and_then(|from| from.strip_prefix("env:"));
        (self.variable != source.unwrap_or(self.service.env)).then_some(self.variable.as_str())
    }
}

/// As a shell reads it back.
fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// All keys that can be seen, the nearest place of each service first.
pub(super) fn find(around: &Around<'_>) -> Vec<Key> {
    let mut keys: Vec<Key> = services::variables()
        .filter(|name| (around.is_set)(name))
        .filter_map(|name| Some((name, services::of_variable(name)?)))
        .map(|(name, service)| Key {
            service,
            variable: name.to_owned(),
            found: Found::Variable,
            from: Some(format!("env:{name}")),
        })
        .collect();
    for name in ENV_FILES {
        keys.extend(in_env_file(&around.dir.join(name), Path::new(name), Found::Project(name.into())));
    }
    keys.extend(in_aider(&around.dir.join(".aider.conf.yml"), Path::new(".aider.conf.yml"), Found::Project));
    if let Some(home) = around.home {
        keys.extend(of_home(home, around));
    }
    keys
}

fn of_home(home: &Path, around: &Around<'_>) -> Vec<Key> {
    let key = |service: &str, path: &Path, from: Option<String>| {
        let service = services::find(service)?;
        let found = Found::Home(path.to_owned());
        Some(Key { service, variable: service.env.to_owned(), found, from })
    };
    let mut keys = Vec::new();
    let gemini = home.join(".gemini/.env");
    keys.extend(in_env_file(&gemini, &gemini, Found::Home(gemini.clone())));
    let aider = home.join(".aider.conf.yml");
    keys.extend(in_aider(&aider, &aider, Found::Home));
    let codex = home.join(".codex/auth.json");
    if text(&codex)
        .is_some_and(|text| text.contains("\"OPENAI_API_KEY\": \"") || text.contains("\"OPENAI_API_KEY\":\""))
    {
        keys.extend(key("openai", &codex, None));
    }
    let gh = home.join(".config/gh/hosts.yml");
    if gh.is_file() && around.program("gh").is_some() {
        keys.extend(key("github", &gh, Some("cmd:gh auth token".into())));
    }
    let npmrc = home.join(".npmrc");
    let token = "//registry.npmjs.org/:_authToken=";
    if text(&npmrc)
        .is_some_and(|text| text.lines().any(|line| line.starts_with(token) && !line.contains("${")))
    {
        let from = plain_path(&npmrc)
            .map(|file| format!("cmd:sed -n s/^..registry.npmjs.org.:_authToken=//p {file}"));
        keys.extend(key("npm", &npmrc, from));
    }
    let hub = home.join(".cache/huggingface/token");
    if hub.is_file() {
        keys.extend(key("huggingface", &hub, Some(format!("file:{}", hub.display()))));
    }
    keys
}

/// Lines of `NAME=value`, for names of keys.
fn in_env_file(path: &Path, called: &Path, found: Found) -> Vec<Key> {
    let Some(text) = text(path) else { return Vec::new() };
    let assigned = text.lines().filter_map(assignment);
    let key = |line: Assignment<'_>| {
        let service = services::of_variable(line.name)?;
        let (variable, from) = (line.name.to_owned(), line.source(called));
        Some(Key { service, variable, found: found.clone(), from })
    };
    assigned.filter_map(key).collect()
}

/// `openai-api-key: …`
fn in_aider(path: &Path, called: &Path, found: impl Fn(PathBuf) -> Found) -> Vec<Key> {
    let Some(text) = text(path) else { return Vec::new() };
    let key = |service: &str| {
        let field = format!("{service}-api-key: ");
        let value = text.lines().find_map(|line| line.strip_prefix(&field))?.trim();
        let simple = !value.is_empty() && !value.contains(['"', '\'', '#', ' ']);
        let file = plain_path(called).filter(|_| simple);
        let service = services::find(service)?;
        Some(Key {
            service,
            variable: service.env.to_owned(),
            found: found(called.to_owned()),
            from: file.map(|file| format!("cmd:sed -n s/^{}-api-key:.//p {file}", service.name)),
        })
    };
    ["anthropic", "openai"].into_iter().filter_map(key).collect()
}

/// A variable that a line of a file sets, without its value.
#[derive(Debug, PartialEq, Eq)]
struct Assignment<'a> {
    name: &'a str,
    export: bool,
    form: Form,
}

#[derive(Debug, PartialEq, Eq)]
enum Form {
    Bare,
    Quoted,
    /// With a comment, an escape or a reference: only who knows the file can say what the value is.
    Odd,
}

fn assignment(line: &str) -> Option<Assignment<'_>> {
    let (export, rest) = match line.strip_prefix("export ") {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (name, value) = rest.split_once('=')?;
    let is_name = |name: &str| {
        let mut bytes = name.bytes();
        let first = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        first && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    if !is_name(name) || value.trim().is_empty() || matches!(value, "\"\"" | "''") {
        return None;
    }
    let within = ['"', '\''].into_iter().find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote));
    let odd = |text: &str| text.contains(['"', '\'', '\\', '$', '#', '`', ' ', '\t']);
    let form = match within {
        Some(within) if !odd(within) => Form::Quoted,
        None if !odd(value) => Form::Bare,
        _ => Form::Odd,
    };
    Some(Assignment { name, export, form })
}

impl Assignment<'_> {
    /// Reads the value where it stands, when it is wanted: `add` and `rotate` do.
    fn source(&self, file: &Path) -> Option<String> {
        let file = plain_path(file)?;
        let start = format!("^{}{}=", if self.export { "export." } else { "" }, self.name);
        match self.form {
            Form::Bare => Some(format!("cmd:sed -n s/{start}//p {file}")),
            // All but the first and the last character.
            Form::Quoted => Some(format!("cmd:sed -nE s/{start}.(.*).$/\\\\1/p {file}")),
            Form::Odd => None,
        }
    }
}

/// A path that is one word however it is read.
fn plain_path(path: &Path) -> Option<&str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    path.to_str().filter(|path| path.chars().all(plain) && !path.starts_with('-'))
}

/// The text of a regular file of a usual size.
fn text(path: &Path) -> Option<Zeroizing<String>> {
    // Looked at before it is opened: opening a pipe would wait for its other end.
    let size = path.metadata().ok().filter(|meta| meta.is_file())?.len();
    let mut text = Zeroizing::new(String::with_capacity(size.min(MAX_FILE) as usize + 1));
    File::open(path).ok()?.take(MAX_FILE).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    fn check(line: &str, expected: Option<(&str, bool, Form)>) {
        let expected = expected.map(|(name, export, form)| Assignment { name, export, form });
        assert_eq!(assignment(line), expected, "{line}");
    }

    #[test]
    fn lines_that_name_a_variable() {
        check("A_KEY=abc", Some(("A_KEY", false, Form::Bare)));
        check("export A_KEY=abc", Some(("A_KEY", true, Form::Bare)));
        check("A_KEY=\"abc\"", Some(("A_KEY", false, Form::Quoted)));
        check("A_KEY='abc'", Some(("A_KEY", false, Form::Quoted)));
        check("A_KEY=abc # for tests", Some(("A_KEY", false, Form::Odd)));
        check("A_KEY=${OTHER}", Some(("A_KEY", false, Form::Odd)));
        check("A_KEY=\"a b\"", Some(("A_KEY", false, Form::Odd)));
        for none in ["", "# A=b", "A_KEY=", "A_KEY=\"\"", "A_KEY=  ", "a b=c", "=x", "1A=x", "export", "A"] {
            check(none, None);
        }
    }

    /// What `secret add` would read: the source's own words, run as it runs them.
    fn read(key: &Key, dir: &Path) -> String {
        let words = key.from.as_deref().unwrap().strip_prefix("cmd:").unwrap();
        // None of them is quoted; a back-slash stands for itself.
        let words: Vec<String> = words.split(' ').map(|word| word.replace("\\\\", "\\")).collect();
        let output = Command::new(&words[0]).args(&words[1..]).current_dir(dir).output().unwrap();
        assert!(output.status.success(), "{words:?}");
        String::from_utf8(output.stdout).unwrap().trim_end_matches('\n').to_owned()
    }

    #[test]
    fn a_source_reads_the_value_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let text = "# keys\nOPENAI_API_KEY=sk-one=/+\nexport STRIPE_KEY=\"sk_two\"\nHF_TOKEN='hf three'\nOTHER=x\nNOT_OPENAI_API_KEY=no\n";
        std::fs::write(dir.path().join(".env"), text).unwrap();
        let keys = in_env_file(&dir.path().join(".env"), Path::new(".env"), Found::Project(".env".into()));
        let names: Vec<&str> = keys.iter().map(|key| key.variable.as_str()).collect();
        assert_eq!(names, ["OPENAI_API_KEY", "STRIPE_KEY", "HF_TOKEN"]);
        assert_eq!(read(&keys[0], dir.path()), "sk-one=/+");
        assert_eq!(read(&keys[1], dir.path()), "sk_two");
        assert_eq!(keys[2].from, None);
        assert_eq!(keys[2].line(), "cofferdam secret add huggingface --preset huggingface");
        assert_eq!(
            keys[1].line(),
            r"cofferdam secret add stripe --from 'cmd:sed -nE s/^export.STRIPE_KEY=.(.*).$/\\1/p .env' --preset stripe --env STRIPE_KEY"
        );
        assert!(!format!("{keys:?}").contains("sk_two"));
    }

    #[test]
    fn files_that_are_no_files_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(".env")).unwrap();
        assert!(text(&dir.path().join(".env")).is_none());
        let pipe = dir.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(text(&pipe).is_none());
        std::fs::write(dir.path().join("bytes"), [0xff, b'=', 0xfe]).unwrap();
        assert!(text(&dir.path().join("bytes")).is_none());
    }

    proptest! {
        #[test]
        fn any_line_gives_a_plain_source_or_none(line in "(export )?[A-Z_]{0,9}[= ]?[ -~]{0,20}") {
            if let Some(found) = assignment(&line) {
                prop_assert!(found.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
                if let Some(source) = found.source(Path::new(".env")) {
                    prop_assert!(!source.contains(['\'', '"', ';', '|', '&', '`', '\n']));
                }
            }
        }
    }
}
