//! `cargo xtask dist`: the binary as it is shipped. It is static, so that it runs on any Linux of its
//! architecture and starts without a dynamic loader. It has a fixed address: moving itself to another one would
//! touch half a megabyte of tables, a good millisecond of the few that a sandbox takes to start. Stack, heap and
//! mappings are placed at random all the same, and what runs inside is never in this process.

use crate::command::{self, CommandError};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn main() -> crate::Outcome {
    let built = build(&crate::workspace::root())?;
    println!("{}", built.display());
    Ok(true)
}

/// Builds the binary that tests use, and says where it lies.
pub(crate) fn build_plain(root: &Path) -> Result<PathBuf, Box<dyn std::error::Error>> {
    let mut cargo = command::cargo();
    cargo.current_dir(root).args(["build", "--locked", "--package", "cofferdam-cli", "--bin", "cofferdam"]);
    succeed(&mut cargo)?;
    Ok(crate::workspace::metadata(root)?.target_directory.join("debug/cofferdam"))
}

fn succeed(cargo: &mut Command) -> Result<(), CommandError> {
    let status = command::status(cargo)?;
    match status.success() {
        true => Ok(()),
        false => Err(CommandError::Failed { line: command::line(cargo), status, stderr: String::new() }),
    }
}

/// Builds it and says where it lies.
pub(crate) fn build(root: &Path) -> Result<PathBuf, Box<dyn std::error::Error>> {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut cargo = command::cargo();
    cargo
        .current_dir(root)
        .args(["rustc", "--release", "--locked", "--package", "cofferdam-cli", "--bin", "cofferdam"])
        // Only the program itself: the address is decided where it is linked.
        .args(["--target", &triple, "--", "-C", "relocation-model=static"])
        // With an explicit target these are not given to build scripts and macros, which cannot be static.
        .env("RUSTFLAGS", "-C target-feature=+crt-static");
    succeed(&mut cargo)?;
    let target = crate::workspace::metadata(root)?.target_directory;
    let (made, dist) = (target.join(&triple).join("release/cofferdam"), target.join("dist"));
    std::fs::create_dir_all(&dist)?;
    let place = dist.join("cofferdam");
    // Renamed into place: one that is running cannot be written to.
    std::fs::copy(made, dist.join(".cofferdam.new"))?;
    std::fs::rename(dist.join(".cofferdam.new"), &place)?;
    Ok(place)
}
