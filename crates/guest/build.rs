//! Decides how the guest's program is linked. A static build at a fixed address, which is the one that is shipped, brings its own
//! start and no C runtime; any other build is an ordinary program, which is what the tests run.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(freestanding)");
    let has = |name: &str, part: &str| {
        std::env::var(name).is_ok_and(|value| value.split([',', '\u{1f}']).any(|item| item == part))
    };
    // The flag and its value are one item or two.
    let fixed = has("CARGO_ENCODED_RUSTFLAGS", "relocation-model=static")
        || has("CARGO_ENCODED_RUSTFLAGS", "-Crelocation-model=static");
    // It does not relocate itself, so a static program at no fixed address is an ordinary one too.
    let freestanding =
        fixed && has("CARGO_CFG_TARGET_FEATURE", "crt-static") && has("CARGO_CFG_TARGET_ARCH", "x86_64");
    if !freestanding {
        return;
    }
    println!("cargo::rustc-cfg=freestanding");
    println!("cargo::rustc-link-arg-bin=cofferdam-guest=-nostartfiles");
}
