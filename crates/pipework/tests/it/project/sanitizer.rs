//! Deliberate faults, for `make sanitize` to find: a sanitizer that reports nothing here would
//! report nothing anywhere.
//!
//! Ignored otherwise, because without a sanitizer their effect is undefined.

use std::ptr::NonNull;
use std::thread;

struct Shared(NonNull<u64>);

// SAFETY: none, deliberately.
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
