//! Hands the compiler's version and the profile to the program, because a record names what built
//! what it measured.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = std::env::var_os("RUSTC").expect("cargo sets RUSTC");
    let said = Command::new(rustc).arg("--version").output().expect("the compiler tells its version");
    println!("cargo::rustc-env=BENCH_RUSTC={}", String::from_utf8_lossy(&said.stdout).trim());
    // It is `.../target/PROFILE/build/...`; cargo tells no other name than that of the parent
    // profile.
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let mut folders = out.rsplit('/').skip_while(|folder| *folder != "build").skip(1);
    println!("cargo::rustc-env=BENCH_PROFILE={}", folders.next().unwrap_or_default());
}
