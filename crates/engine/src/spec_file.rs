//! Reads a session spec from a file, TOML or JSON, and says which line is wrong.

use crate::error::EngineError;
use crate::toml_file;
use cofferdam_model::SessionSpec;
use std::path::Path;

pub fn load(path: &Path) -> Result<SessionSpec, EngineError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| EngineError::Unreadable { path: path.to_owned(), source })?;
    // What a file names, it names from where it lies.
    let located = |spec: SessionSpec| {
        let beside = path.parent().unwrap_or(Path::new(""));
        let there = |path: &Option<std::path::PathBuf>| path.as_ref().map(|path| beside.join(path));
        SessionSpec { policy: there(&spec.policy), tools: there(&spec.tools), ..spec }
    };
    if path.extension().is_some_and(|extension| extension == "json") {
        return serde_json::from_str(&text).map(located).map_err(|error| {
            let message = toml_file::meant(&plain(&error.to_string()));
            let line: usize =
                text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
            let field = toml_file::field(&text, line + error.column().saturating_sub(1), ':');
            toml_file::mistake(path, error.line(), toml_file::named(field, message))
        });
    }
    toml_file::parse(path, &text).map(located)
}

/// serde_json repeats the place at the end of its message.
fn plain(message: &str) -> String {
    message.rsplit_once(" at line ").map_or(message, |(front, _)| front).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, text: &str, expected: &str) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn the_line_and_the_field_are_named() {
        check(
            "s.toml",
            "command = [\"true\"]\n\n[limits]\nmemry = \"1G\"\n",
            "s.toml:4: unknown field `memry`",
        );
        check(
            "s.toml",
            "command = [\"true\"]\nisolation = \"vm\"\n",
            "s.toml:2: `isolation`: `vm` is not an isolation tier",
        );
        check("s.toml", "command = [\n", "s.toml:");
        check("s.json", "{\n\"command\": 7\n}", "s.json:2: `command`: invalid type");
        check("s.toml", "[limits]\nmemory = \"lots\"\n", "s.toml:2: `memory`: `lots` is not a size");
    }

    #[test]
    fn a_good_file_loads() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.toml");
        std::fs::write(&path, "command = [\"make\"]\nchanges = \"discard\"\n[limits]\nmemory = \"1G\"\ncpu = 1.5\ntimeout = \"90s\"\n").unwrap();
        let spec = load(&path).unwrap();
        assert_eq!(spec.limits.cpu.unwrap().milli, 1500);
        assert_eq!(spec.command, ["make"]);
    }
}
