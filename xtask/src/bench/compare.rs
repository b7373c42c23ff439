//! How fast the comparison is, and beside it `agentevals` on the same pairs, which says whether two trajectories match.

use crate::{command, workspace};
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
    let measured = command::status(cargo.args(["--", "speed"]).arg(&pairs))?;
    if args.install_peers {
        install(&venv)?;
    }
    let python = venv.join("bin/python");
    if python.is_file() {
        let mut peer = Command::new(python);
        let seconds = command::stdout(peer.arg(root.join("bench/eval/peer.py")).arg(&pairs))?;
        println!("{PEER} on the 500 pairs, s: {}", seconds.trim());
    } else {
        println!("agentevals is not installed: give --install-peers to measure it too");
    }
    Ok(measured.success())
}

fn install(venv: &Path) -> Result<(), command::CommandError> {
    command::stdout(Command::new("python3").args(["-m", "venv"]).arg(venv))?;
    let mut pip = Command::new(venv.join("bin/pip"));
    command::stdout(pip.args(["install", "--quiet", "--only-binary", ":all:", PEER]))?;
    Ok(())
}
