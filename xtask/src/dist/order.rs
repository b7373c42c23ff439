//! `cargo xtask order`: finds out which functions a run enters, and writes the list that [`super::link`] puts them in
//! order by, then goes on as `dist` does. It is for whoever has changed what a run does; a list that has grown stale costs
//! time and breaks nothing.

use super::names::{self, Function};
use crate::command::{self, CommandError};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is run, beginning with what is to start soonest.
const RUNS: &[&[&str]] = &[
    &["run", "--", "true"],
    &["run", "--durable", "--", "true"],
    &["run", "--", "sh", "-c", "echo changed > file; cat file"],
];

const HEAD: &str = "\
# The functions that a run enters, in the order in which it first does: `cargo xtask dist` puts them next to each other.
# Written by `cargo xtask order`; a name that no build has any more is harmless.
";

pub(crate) fn list(root: &Path) -> PathBuf {
    root.join("xtask/order.txt")
}

pub(crate) fn main() -> crate::Outcome {
    let root = crate::workspace::root();
    let mut cargo = command::cargo();
    let tracer = ["build", "--locked", "--package", "cofferdam-sys", "--example", "entered"];
    super::succeed(cargo.current_dir(&root).args(tracer))?;
    let tracer = crate::workspace::metadata(&root)?.target_directory.join("debug/examples/entered");
    let built = super::ship(&root, Some(&tracer))?;
    println!("{}\n{}", list(&root).display(), built.display());
    Ok(true)
}

/// Writes the list anew, by what this program enters.
pub(crate) fn take(
    list: &Path,
    program: &Path,
    functions: &[Function],
    tracer: &Path,
) -> Result<(), Box<dyn std::error::Error>> {
    let scratch = tempfile::tempdir()?;
    let (addresses, out) = (scratch.path().join("addresses"), scratch.path().join("entered"));
    let (work, home) = (scratch.path().join("work"), scratch.path().join("home"));
    std::fs::create_dir(&work)?;
    std::fs::write(&addresses, functions.iter().map(|f| format!("{:x}\n", f.address)).collect::<String>())?;
    let mut entered = Vec::new();
    for words in RUNS {
        let run = |program: &mut Command| -> Result<(), CommandError> {
            let run = program.args(*words).current_dir(&work).env("COFFERDAM_HOME", &home);
            command::stdout(run.env_remove(super::link::LIST)).map(drop)
        };
        // The first of them makes a key and directories, which is not what is to be quick.
        run(&mut Command::new(program))?;
        run(Command::new(tracer).arg(&addresses).arg(&out).arg(program))?;
        for line in std::fs::read_to_string(&out)?.lines() {
            entered.push(u64::from_str_radix(line, 16)?);
        }
    }
    let names = in_order(functions, &entered);
    std::fs::write(list, format!("{HEAD}{}\n", names.join("\n")))?;
    Ok(())
}

/// The lasting names of what was entered, each once.
fn in_order(functions: &[Function], entered: &[u64]) -> Vec<String> {
    let mut at: BTreeMap<u64, String> = BTreeMap::new();
    for function in functions {
        let name = names::lasting(&function.symbol);
        // Of several names for one function any will do, if it is the same one next time.
        at.entry(function.address)
            .and_modify(|known| *known = name.clone().min(known.clone()))
            .or_insert(name);
    }
    let mut seen = HashSet::new();
    entered.iter().filter_map(|address| at.get(address)).filter(|name| seen.insert(*name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_entered_is_named_once_in_its_order() {
        let function = |address, symbol: &str| Function { address, symbol: symbol.into() };
        let functions =
            [function(1, "_RNvCs12_1a1f"), function(2, "z"), function(2, "alias"), function(3, "idle")];
        assert_eq!(in_order(&functions, &[2, 1, 2, 99]), ["alias", "a::f"]);
    }

    #[test]
    fn the_list_that_is_there_names_functions() {
        let list = std::fs::read_to_string(list(&crate::workspace::root())).unwrap();
        assert!(list.starts_with(HEAD));
        let main = |name: &str| name.ends_with("main") && name.starts_with("cofferdam::");
        assert!(list.lines().any(main), "no main of ours in it");
    }
}
