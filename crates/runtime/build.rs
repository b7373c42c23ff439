//! Builds the guest as a small static program and leaves it where `include_bytes!` finds it.
//!
//! It has its own target directory and profile: the guest runs inside images that share no library with the
//! host, so it must be static, and a static C runtime cannot be had for the build that also makes proc macros.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let workspace = here.join("../..").canonicalize()?;
    for watched in [
        "crates/guest/src",
        "crates/guest/Cargo.toml",
        "crates/guest/build.rs",
        "crates/sys/src",
        "crates/sys/Cargo.toml",
        "Cargo.lock",
    ] {
        println!("cargo::rerun-if-changed={}", workspace.join(watched).display());
    }
    println!("cargo::rerun-if-env-changed=COFFERDAM_GUEST_PROGRAM");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let guest = out.join("cofferdam-guest");
    println!("cargo::metadata=program={}", guest.display());
    // Where this is built for a program that goes into a machine, the guest has been built before.
    if let Ok(built) = env::var("COFFERDAM_GUEST_PROGRAM") {
        std::fs::copy(built, guest)?;
        return Ok(());
    }
    let target = match env::var("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => "x86_64-unknown-linux-gnu",
        "aarch64" => "aarch64-unknown-linux-gnu",
        other => {
            return Err(format!("no guest for {other}: Cofferdam runs on x86_64 and aarch64 Linux").into());
        }
    };
    let built = build_guest(&workspace, &out.join("guest-target"), target)?;
    std::fs::copy(&built, guest)?;
    Ok(())
}

fn build_guest(workspace: &Path, target_dir: &Path, target: &str) -> Result<PathBuf, Box<dyn Error>> {
    let mut cargo = Command::new(env::var("CARGO")?);
    cargo
        .current_dir(workspace)
        .args(["build", "--quiet", "--locked", "--package", "cofferdam-guest", "--bin", "cofferdam-guest"])
        .args(["--profile", "guest", "--target", target, "--target-dir"])
        .arg(target_dir)
        .env("RUSTFLAGS", "-C target-feature=+crt-static -C relocation-model=static");
    // What the outer cargo says about its own build (wrappers, encoded flags, a shared directory) is not ours.
    for inherited in
        ["CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET", "RUSTC_WORKSPACE_WRAPPER"]
    {
        cargo.env_remove(inherited);
    }
    let status = cargo.status()?;
    if !status.success() {
        return Err("the guest did not build; its messages are above".into());
    }
    Ok(target_dir.join(target).join("guest/cofferdam-guest"))
}
