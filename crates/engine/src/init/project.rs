//! What the work dir itself tells: a program in Python or Node, how it is started, and which services its packages
//! speak to. It reads a few files by name and runs nothing.

use super::services;
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::path::Path;

const MAX_FILE: u64 = 1 << 20;
const REQUIREMENTS: &[&str] = &["requirements.txt", "requirements.in", "requirements-dev.txt"];
const PYTHON: &[&str] = &["agent.py", "main.py", "app.py", "bot.py", "src/agent.py", "src/main.py"];
const NODE: &[&str] =
    &["agent.js", "agent.mjs", "main.js", "main.mjs", "index.js", "index.mjs", "src/index.js"];

/// A program of the work dir.
#[derive(Debug, Default)]
pub(super) struct Project {
    /// What it was known by.
    pub(super) evidence: String,
    /// How it is started; none where the files do not say.
    pub(super) command: Option<Vec<String>>,
    pub(super) services: Vec<&'static str>,
}

impl Project {
    /// Whether it talks to a model by itself, as agents do.
    pub(super) fn is_agent(&self) -> bool {
        self.services.iter().any(|service| services::MODELS.contains(service))
    }
}

pub(super) fn python(dir: &Path) -> Option<Project> {
    let entry = PYTHON.iter().copied().find(|file| dir.join(file).is_file());
    let manifest = text(&dir.join("pyproject.toml"));
    let listed = REQUIREMENTS.iter().copied().find(|file| dir.join(file).is_file());
    let evidence = manifest.as_ref().map(|_| "pyproject.toml").or(listed).or(entry)?.to_owned();
    let mut packages = manifest.as_deref().map(pyproject).unwrap_or_default();
    for file in REQUIREMENTS {
        let text = text(&dir.join(file)).unwrap_or_default();
        packages.extend(text.lines().map(|line| distribution(line).to_owned()));
    }
    if let Some(text) = entry.and_then(|file| text(&dir.join(file))) {
        packages.extend(text.lines().filter_map(imported));
    }
    let interpreter =
        [".venv/bin/python", "venv/bin/python"].into_iter().find(|file| dir.join(file).exists());
    let interpreter = interpreter.unwrap_or("python3");
    let command = entry.map(|file| vec![interpreter.to_owned(), file.to_owned()]);
    Some(Project { evidence, command, services: services_of(&packages) })
}

pub(super) fn node(dir: &Path) -> Option<Project> {
    let entry = NODE.iter().copied().find(|file| dir.join(file).is_file());
    let manifest = text(&dir.join("package.json")).and_then(|text| serde_json::from_str::<Value>(&text).ok());
    let evidence = manifest.as_ref().map(|_| "package.json").or(entry)?.to_owned();
    let manifest = manifest.unwrap_or_default();
    let names = |field: &str| manifest[field].as_object().into_iter().flat_map(|map| map.keys().cloned());
    let packages: Vec<String> = names("dependencies").chain(names("devDependencies")).collect();
    let command = if manifest["scripts"]["start"].is_string() {
        Some(vec!["npm".to_owned(), "start".to_owned()])
    } else {
        let main =
            manifest["main"].as_str().filter(|main| dir.join(main).is_file() && !main.starts_with('-'));
        main.or(entry).map(|file| vec!["node".to_owned(), file.to_owned()])
    };
    Some(Project { evidence, command, services: services_of(&packages) })
}

fn services_of(packages: &[String]) -> Vec<&'static str> {
    let mut services: Vec<_> = packages.iter().filter_map(|package| services::of_package(package)).collect();
    services.sort_unstable();
    services.dedup();
    services
}

/// The names of all dependencies, as the standard and as Poetry write them.
fn pyproject(text: &str) -> Vec<String> {
    let Ok(table) = text.parse::<toml::Table>() else { return Vec::new() };
    let at = |path: &[&str]| {
        let first = table.get(*path.first()?)?;
        path.iter().skip(1).try_fold(first, |value, key| value.get(key))
    };
    let mut requirements = Vec::new();
    let mut list = |value: Option<&toml::Value>| {
        let lines = value.and_then(toml::Value::as_array).into_iter().flatten();
        requirements.extend(lines.filter_map(toml::Value::as_str).map(|line| distribution(line).to_owned()));
    };
    list(at(&["project", "dependencies"]));
    for groups in [at(&["project", "optional-dependencies"]), at(&["dependency-groups"])] {
        groups.and_then(toml::Value::as_table).into_iter().flatten().for_each(|(_, group)| list(Some(group)));
    }
    let poetry = at(&["tool", "poetry", "dependencies"]).and_then(toml::Value::as_table);
    requirements.extend(poetry.into_iter().flat_map(|table| table.keys().cloned()));
    requirements
}

/// The name that a requirement begins with: `openai>=1.0 ; python_version > "3.8"`.
fn distribution(line: &str) -> &str {
    let line = line.trim_start();
    let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)));
    line.get(..end.unwrap_or(line.len())).unwrap_or_default()
}

/// `import openai`, `from google.genai import types`: the module, with the package below `google`.
fn imported(line: &str) -> Option<String> {
    let module = line.strip_prefix("import ").or_else(|| line.strip_prefix("from "))?;
    let module = module.split([' ', ',', ';']).next()?;
    let depth = if module.starts_with("google.") { 2 } else { 1 };
    Some(module.split('.').take(depth).collect::<Vec<_>>().join("."))
}

fn text(path: &Path) -> Option<String> {
    path.metadata().ok().filter(|meta| meta.is_file())?;
    let mut text = String::new();
    File::open(path).ok()?.take(MAX_FILE).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(
        read: fn(&Path) -> Option<Project>,
        files: &[(&str, &str)],
        evidence: &str,
        command: &str,
        services: &[&str],
    ) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let found = read(dir.path()).unwrap();
        assert_eq!(found.evidence, evidence);
        assert_eq!(found.command.unwrap_or_default().join(" "), command);
        assert_eq!(found.services, services);
    }

    #[test]
    fn a_python_program_and_its_services() {
        check(python, &[("agent.py", "import os\nprint(1)\n")], "agent.py", "python3 agent.py", &[]);
        check(
            python,
            &[
                (
                    "requirements.txt",
                    "openai>=1.0\nstripe==12 ; python_version > '3'\nrequests\n# anthropic\n",
                ),
                ("main.py", ""),
            ],
            "requirements.txt",
            "python3 main.py",
            &["openai", "stripe"],
        );
        let standard = "[project]\nname = \"a\"\ndependencies = [\"anthropic[bedrock]>=0.3\"]\n[project.optional-dependencies]\nx = [\"slack_sdk\"]\n";
        check(python, &[("pyproject.toml", standard)], "pyproject.toml", "", &["anthropic", "slack"]);
        let poetry = "[tool.poetry.dependencies]\npython = \"^3\"\nPyGithub = \"*\"\n";
        check(
            python,
            &[("pyproject.toml", poetry), ("app.py", "")],
            "pyproject.toml",
            "python3 app.py",
            &["github"],
        );
        check(
            python,
            &[
                ("agent.py", "from google.genai import types\nimport openai.types\nimport stripe, os\n"),
                (".venv/bin/python", ""),
            ],
            "agent.py",
            ".venv/bin/python agent.py",
            &["gemini", "openai", "stripe"],
        );
        assert!(python(tempfile::tempdir().unwrap().path()).is_none());
    }

    #[test]
    fn a_node_program_and_its_services() {
        let manifest = r#"{"dependencies": {"openai": "^4", "@slack/web-api": "7", "left-pad": "1"}, "scripts": {"start": "node a.js"}}"#;
        check(node, &[("package.json", manifest)], "package.json", "npm start", &["openai", "slack"]);
        check(
            node,
            &[("package.json", r#"{"main": "lib.js"}"#), ("lib.js", "")],
            "package.json",
            "node lib.js",
            &[],
        );
        check(
            node,
            &[("package.json", r#"{"main": "gone.js"}"#), ("index.js", "")],
            "package.json",
            "node index.js",
            &[],
        );
        check(node, &[("agent.mjs", "")], "agent.mjs", "node agent.mjs", &[]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_harm(text in "\\PC{0,200}", toml in "[\\[\\]a-z.=\" \n{},]{0,120}") {
            pyproject(&toml);
            pyproject(&text);
            text.lines().for_each(|line| { distribution(line); imported(line); });
        }
    }
}
