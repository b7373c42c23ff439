//! `cargo xtask dist`: the binary as it is shipped. It is static, so that it runs on any Linux of its
//! architecture and starts without a dynamic loader. It has a fixed address: moving itself to another one would
//! touch half a megabyte of tables, a good millisecond of the few that a sandbox takes to start. Stack, heap and
//! mappings are placed at random all the same, and what runs inside is never in this process.

pub(crate) mod link;
mod names;
pub(crate) mod order;

use crate::command::{self, CommandError};
use std::hash::{DefaultHasher, Hash, Hasher};
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
    ship(root, None)
}

/// The same, after the list of what is to lie next to each other was written anew with this tracer, if there is one.
fn ship(root: &Path, tracer: Option<&Path>) -> Result<PathBuf, Box<dyn std::error::Error>> {
    let target = crate::workspace::metadata(root)?.target_directory;
    let (dist, triple) = (target.join("dist"), format!("{}-unknown-linux-gnu", std::env::consts::ARCH));
    std::fs::create_dir_all(&dist)?;
    let told = dist.join(".linked");
    let _ = std::fs::remove_file(&told);
    make(root, &triple, tracer, &told)?;
    // Not there where nothing had to be linked.
    if let Ok(told) = std::fs::read_to_string(&told) {
        eprintln!("{told}");
    }
    let place = dist.join("cofferdam");
    // Renamed into place: one that is running cannot be written to.
    std::fs::copy(target.join(&triple).join("release/cofferdam"), dist.join(".cofferdam.new"))?;
    std::fs::rename(dist.join(".cofferdam.new"), &place)?;
    Ok(place)
}

fn make(
    root: &Path,
    triple: &str,
    tracer: Option<&Path>,
    told: &Path,
) -> Result<(), Box<dyn std::error::Error>> {
    let list = order::list(root);
    let mut cargo = command::cargo();
    cargo
        .current_dir(root)
        .args(["rustc", "--release", "--locked", "--package", "cofferdam-cli", "--bin", "cofferdam"])
        // Only the program itself: the address is decided where it is linked.
        .args(["--target", triple, "--", "-C", "relocation-model=static"])
        // Linked by us, who need the names before they are stripped.
        .args(["-C", "strip=none", "-C"])
        .arg(format!("linker={}", std::env::current_exe()?.display()))
        // cargo knows nothing of the list, and is to link again where another one is meant.
        .args(["-C", &format!("metadata={:x}", digest(&std::fs::read(&list)?, tracer))])
        // With an explicit target these are not given to build scripts and macros, which cannot be static. In names
        // of this kind every instance of a generic function can be told from the others.
        .env("RUSTFLAGS", "-C target-feature=+crt-static -C symbol-mangling-version=v0")
        .env(link::LIST, list)
        .env(link::TOLD, told)
        .envs(tracer.map(|place| (link::TRACER, place)));
    succeed(&mut cargo)?;
    Ok(())
}

fn digest(list: &[u8], tracer: Option<&Path>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (list, tracer).hash(&mut hasher);
    hasher.finish()
}
