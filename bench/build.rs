//! Hands the compiler's version to the program, because a record names the compiler that built what
//! it measured.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = std::env::var_os("RUSTC").expect("cargo sets RUSTC");
    let said = Command::new(rustc).arg("--version").output().expect("the compiler tells its version");
    println!("cargo::rustc-env=BENCH_RUSTC={}", String::from_utf8_lossy(&said.stdout).trim());
}
