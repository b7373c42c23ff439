//! Decides how the guest's program is linked. A static build, which is the one that is shipped, brings its own
//! start and no C runtime; any other build is an ordinary program, which is what the tests run.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(freestanding)");
    let has = |name: &str, part: &str| {
        std::env::var(name).is_ok_and(|value| value.split([',', '\u{1f}']).any(|item| item == part))
    };
    if !has("CARGO_CFG_TARGET_FEATURE", "crt-static") || !has("CARGO_CFG_TARGET_ARCH", "x86_64") {
        return;
    }
    // The flag and its value are one item or two.
    let fixed = has("CARGO_ENCODED_RUSTFLAGS", "relocation-model=static")
        || has("CARGO_ENCODED_RUSTFLAGS", "-Crelocation-model=static");
    if !fixed {
        println!(
            "cargo::error=the guest does not relocate itself: add `-C relocation-model=static` to RUSTFLAGS"
        );
    }
    println!("cargo::rustc-cfg=freestanding");
    println!("cargo::rustc-link-arg-bin=cofferdam-guest=-nostartfiles");
}
