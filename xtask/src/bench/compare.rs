//! How fast the comparison is, and beside it `agentevals` on the same pairs, which says whether two trajectories match.

use crate::{command, workspace};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The peer, pinned.
const PEER: &str = "agentevals==0.0.9";

#[derive(clap::Args)]
pub(crate) struct Compare {
    /// Install agentevals first, into a directory of the target directory
    #[arg(long)]
    install_peers: bool,
}

pub(crate) fn main(args: &Compare) -> crate::Outcome {
    let root = workspace::root();
    let target = workspace::metadata(&root)?.target_directory.join("eval");
    std::fs::create_dir_all(&target)?;
    let (pairs, venv) = (target.join("pairs.json"), target.join("venv"));
    let mut cargo = command::cargo();
    cargo
        .current_dir(root.join("bench/eval"))
        .args(["run", "--release", "--quiet", "--target-dir"])
        .arg(&target);
    let measured = command::stdout(cargo.args(["--", "speed"]).arg(&pairs))?;
    print!("{measured}");
    if args.install_peers {
        install(&venv)?;
    }
    let python = venv.join("bin/python");
    if python.is_file() {
        let mut peer = Command::new(python);
        let seconds = command::stdout(peer.arg(root.join("bench/eval/peer.py")).arg(&pairs))?;
        println!("{PEER} on the 500 pairs, s: {}", seconds.trim());
        for (mode, ratio) in ratios(&measured, &seconds) {
            println!("{PEER} {mode} to our differ, which says what differs: {ratio:.0} × (goal ≥ 50)");
        }
    } else {
        println!("agentevals is not installed: give --install-peers to measure it too");
    }
    Ok(true)
}

/// The row of the table that has what the peer does, and more.
const SAME: &str = "500 sessions of 5 calls, differ alone, s";

/// How many times as long the peer takes, by its mode.
fn ratios(measured: &str, seconds: &str) -> Vec<(String, f64)> {
    let ours =
        measured.lines().find_map(|line| line.split(SAME).nth(1)?.split('|').nth(1)?.trim().parse().ok());
    let theirs: BTreeMap<String, f64> = serde_json::from_str(seconds).unwrap_or_default();
    ours.map(|ours: f64| theirs.into_iter().map(|(mode, s)| (mode, s / ours)).collect()).unwrap_or_default()
}

fn install(venv: &Path) -> Result<(), command::CommandError> {
    command::stdout(Command::new("python3").args(["-m", "venv"]).arg(venv))?;
    let mut pip = Command::new(venv.join("bin/pip"));
    command::stdout(pip.args(["install", "--quiet", "--only-binary", ":all:", PEER]))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_is_told_as_a_multiple_of_ours() {
        let table = format!("| what | value |\n| {SAME} | 0.0200 | 0.0190 – 0.0210 | 9 | |\n");
        let found = ratios(&table, "{\"strict\": 2.0, \"unordered\": 1.0}");
        assert_eq!(found, [("strict".to_owned(), 100.0), ("unordered".to_owned(), 50.0)]);
        assert_eq!(ratios("", "{}"), []);
    }
}
