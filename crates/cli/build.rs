//! The program begins where a sandbox's first child is started, and goes on with the C runtime from there: see
//! `headstart` of the crate `sys`. Without this it begins as any other, and that child is made a little later.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
        println!("cargo::rustc-link-arg-bins=-Wl,--entry=cofferdam_start");
    }
}
