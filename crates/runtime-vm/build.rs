//! Builds the program that goes on inside a machine, as a static one in its own profile, and leaves it where
//! `include_bytes!` finds it: a machine emulates every instruction of it, so it is never a debug build, and it shares no
//! library with what it shows.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What it is made of.
const CRATES: [&str; 7] = ["inside", "runtime-process", "runtime", "guest", "model", "seal", "sys"];

fn main() -> Result<(), Box<dyn Error>> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let workspace = here.join("../..").canonicalize()?;
    for name in CRATES {
        for part in ["src", "Cargo.toml"] {
            println!("cargo::rerun-if-changed={}", workspace.join("crates").join(name).join(part).display());
        }
    }
    println!("cargo::rerun-if-changed={}", workspace.join("Cargo.lock").display());
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let target = match env::var("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => "x86_64-unknown-linux-gnu",
        "aarch64" => "aarch64-unknown-linux-gnu",
        other => return Err(format!("no machines for {other}: Cofferdam runs on x86_64 and aarch64").into()),
    };
    let built = build(&workspace, &out.join("inside-target"), target)?;
    std::fs::copy(&built, out.join("cofferdam-inside"))?;
    Ok(())
}

fn build(workspace: &Path, target_dir: &Path, target: &str) -> Result<PathBuf, Box<dyn Error>> {
    let mut cargo = Command::new(env::var("CARGO")?);
    cargo
        .current_dir(workspace)
        .args(["build", "--quiet", "--locked", "--package", "cofferdam-inside", "--bin", "cofferdam-inside"])
        .args(["--profile", "inside", "--target", target, "--target-dir"])
        .arg(target_dir)
        .env("RUSTFLAGS", "-C target-feature=+crt-static -C relocation-model=static")
        // The guest is there already: `runtime` tells where.
        .env("COFFERDAM_GUEST_PROGRAM", env::var("DEP_COFFERDAM_GUEST_PROGRAM")?);
    // What the outer cargo says about its own build (wrappers, encoded flags, a shared directory) is not ours.
    for inherited in
        ["CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET", "RUSTC_WORKSPACE_WRAPPER"]
    {
        cargo.env_remove(inherited);
    }
    if !cargo.status()?.success() {
        return Err("the program inside machines did not build; its messages are above".into());
    }
    Ok(target_dir.join(target).join("inside/cofferdam-inside"))
}
