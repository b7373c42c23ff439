//! A Python interpreter that a session keeps for its scripts, with what they import already imported. The guest starts
//! it when the session is opened and copies it for every `python3 SCRIPT.py …`: a copy takes its arguments, variables,
//! directory and descriptors then, and is a process as any other. It is inside, and under all that holds there.

use crate::environment::Environment;
use cofferdam_guest::wire;

/// As scripts are started by it.
pub(crate) const PROGRAM: &str = "python3";
const INTERPRETER: &str = include_str!("warm/interpreter.py");

/// All that an interpreter reads of its environment when it starts. What is a script's alone comes with the script.
fn is_read_at_start(entry: &[u8]) -> bool {
    let name = entry.split(|byte| *byte == b'=').next().unwrap_or_default();
    let exact: [&[u8]; 2] = [b"PATH", b"HOME"];
    let begins: [&[u8]; 4] = [b"PYTHON", b"PYENV_", b"LANG", b"LC_"];
    exact.contains(&name) || begins.iter().any(|begin| name.starts_with(begin))
}

/// What it does, as a policy is asked about it. No command is these words (`import` alone is no Python), so a rule that
/// allows exactly them allows nothing else.
pub(crate) fn words(modules: &[String]) -> Vec<String> {
    let begin = [PROGRAM, "-c", "import"].map(str::to_owned);
    begin.into_iter().chain(modules.iter().cloned()).collect()
}

/// What the guest is asked to keep.
pub(crate) fn request<'a>(
    modules: &'a [String],
    environment: &'a Environment,
    user: Option<wire::User>,
) -> wire::Warm<'a> {
    let program = [PROGRAM, "-c", INTERPRETER].into_iter().map(str::as_bytes);
    let entries = environment.entries.iter().map(Vec::as_slice);
    let env: Vec<&[u8]> = entries.filter(|entry| entry.contains(&b'=') && is_read_at_start(entry)).collect();
    // A shim may change them on the way: it is told what they were.
    let words = env.iter().copied().chain(modules.iter().map(String::as_bytes));
    wire::Warm { argv: program.chain(words).collect(), env: env.clone(), user }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_could_be_a_secret_is_known_before_there_is_a_script() {
        let entries =
            ["PATH=/bin", "OPENAI_API_KEY=x", "PYTHONPATH=/m", "LC_ALL=C", "PATHS=y", "TOKEN", "LANG"];
        let entries = entries.map(|entry| entry.as_bytes().to_vec()).to_vec();
        let environment = Environment { entries, names: Vec::new() };
        let modules = ["json".to_owned()];
        let asked = request(&modules, &environment, None);
        assert_eq!(asked.env, [&b"PATH=/bin"[..], b"PYTHONPATH=/m", b"LC_ALL=C"]);
        assert_eq!(asked.argv[0], b"python3");
        // What it was asked for with, told apart from modules by the sign in it.
        assert_eq!(asked.argv[3..], [&b"PATH=/bin"[..], b"PYTHONPATH=/m", b"LC_ALL=C", b"json"]);
    }
}
