//! The third part of the demonstration, and the main job of a team: record how an agent works, change it, be stopped
//! with the reason, fix it, pass. The world that it was recorded with is gone by then.

use super::coffer::{Running, copy};
use super::{DemoError, Seen, Stage};
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A change as it happens: two lines that look like kindness.
const BEFORE: &str = "    body = arguments if method == \"POST\" else None\n";
const CHANGE: &str =
    "    if name == \"refund\":\n        arguments[\"amount\"] += 50  # customers should be happy\n";
const FILES: &[&str] =
    &["agent.py", "policy.toml", "suite.toml", "inputs/refund-small.txt", "inputs/refund-large.txt"];

pub(super) fn show(
    stage: &Stage,
    cofferdam: &Path,
    example: &Path,
    kept: &Path,
    seen: &mut Seen,
) -> Result<(), DemoError> {
    println!("\n== a team that ships an agent: six support tickets are recorded, then the agent is changed");
    let desk = stage.dir.join("desk");
    FILES.iter().try_for_each(|file| copy(&example.join(file), &desk.join(file)))?;
    // The one that can be reached inside, whatever else the developer has.
    let python = format!("\"{}\"", stage.python.display());
    edit(&desk.join("suite.toml"), |text| text.replace("\"python3\"", &python))?;
    let ask = |words: &[&str]| stage.show(stage.plain(cofferdam).args(words).current_dir(&desk));
    {
        let (_world, port) = world(stage, &example.join("world.py"))?;
        edit(&desk.join("policy.toml"), |text| text.replace(":8787", &format!(":{port}")))?;
        let recorded = ask(&["record", "suite.toml"])?.status.success();
        seen.push(("six sessions are recorded, each in its own sandbox", recorded));
    }
    println!("\n(the model and the shop are switched off: from here on the recording answers)");
    seen.push(("the same agent passes its gate", code(&ask(&["gate", "suite.toml"])?) == Some(0)));

    println!("\n$ edit agent.py\n+{}", CHANGE.trim_end().replace('\n', "\n+"));
    let agent = desk.join("agent.py");
    edit(&agent, |text| text.replace(BEFORE, &format!("{CHANGE}{BEFORE}")))?;
    let stopped = ask(&["gate", "suite.toml"])?;
    seen.push(("a change that gives money away is stopped", code(&stopped) == Some(1)));
    keep(&desk.join("gate-out"), &kept.join("stopped"))?;
    let told = String::from_utf8_lossy(&stopped.stdout).into_owned();
    let named =
        told.contains("refund-small") && told.contains("--only refund-small") && !told.contains("stock\n");
    seen.push(("the session, the reason and the line that shows it again are named", named));

    println!("\n$ git checkout agent.py");
    edit(&agent, |text| text.replace(CHANGE, ""))?;
    seen.push(("the fix passes", code(&ask(&["gate", "suite.toml"])?) == Some(0)));
    seen.push(("the result is signed, and sound", ask(&["verify", "gate-out"])?.status.success()));
    keep(&desk.join("gate-out"), &kept.join("passed"))
}

/// The files of a result, in place of those of an earlier demonstration: what there is to look at outlives it.
fn keep(result: &Path, to: &Path) -> Result<(), DemoError> {
    let failed = |source| DemoError::Stage { path: to.to_owned(), source };
    match std::fs::remove_dir_all(to) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    for entry in std::fs::read_dir(result).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_file() {
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn edit(path: &Path, change: impl Fn(&str) -> String) -> Result<(), DemoError> {
    let failed = |source| DemoError::Stage { path: path.to_owned(), source };
    let text = std::fs::read_to_string(path).map_err(failed)?;
    std::fs::write(path, change(&text)).map_err(failed)
}

fn world(stage: &Stage, program: &Path) -> Result<(Running, u16), DemoError> {
    let mut command = Command::new(&stage.python);
    command.arg(program).arg("0").stdout(Stdio::piped());
    let mut child = Running::start(&mut command)?;
    let mut line = String::new();
    if let Some(out) = child.stdout() {
        BufReader::new(out).read_line(&mut line).map_err(DemoError::Service)?;
    }
    let port = line.trim().parse().map_err(|_| DemoError::NoPort(line.trim().to_owned()))?;
    Ok((child, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_change_is_one_of_the_example_agent() {
        let agent = crate::workspace::root().join("examples/support-agent/agent.py");
        let text = std::fs::read_to_string(agent).unwrap();
        assert!(text.contains(BEFORE) && !text.contains(CHANGE));
    }
}
