//! Faults made on purpose, for `make sanitize` to find: a sanitizer that is silent here would be
//! silent everywhere.
//!
//! Ignored otherwise, for without a sanitizer they may do anything.

use std::ptr::NonNull;
use std::thread;

struct Shared(NonNull<u64>);

// SAFETY: there is none; that is the point.
unsafe impl Send for Shared {}

#[test]
#[ignore = "a fault, for make sanitize"]
fn thread_is_awake() {
    let mut number = 0;
    let shared = Shared(NonNull::from(&mut number));
    let racer = thread::spawn(move || {
        let shared = shared;
        // SAFETY: none, it races with the other thread.
        (0..1000).for_each(|_| unsafe { shared.0.write_volatile(1) });
    });
    // SAFETY: none, as above.
    (0..1000).for_each(|_| unsafe { NonNull::from(&mut number).write_volatile(2) });
    racer.join().unwrap();
}

#[test]
#[ignore = "a fault, for make sanitize"]
fn address_is_awake() {
    let number = Box::new(1u64);
    let place = NonNull::from(&*number);
    drop(number);
    // SAFETY: none, the memory was given back.
    let read = unsafe { place.read_volatile() };
    println!("{read}");
}
