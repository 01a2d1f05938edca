//! How the shared library is linked.

fn main() {
    let part = |name| std::env::var(format!("CARGO_PKG_VERSION_{name}")).expect("cargo says it");
    let (major, minor) = (part("MAJOR"), part("MINOR"));
    // While the version is 0.x, each x may change what is there.
    let compatible = if major == "0" { format!("0.{minor}") } else { major };
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpipework.so.{compatible}");
    // The handlers of forks and of SIGBUS, and the threads that wait for event loops, are there for
    // as long as the process: a `dlclose` must not take away what they run.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
