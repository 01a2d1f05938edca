//! Keeps the library in memory when a worker thread ends, because its own threads run on.

fn main() {
    napi_build::setup();
}
