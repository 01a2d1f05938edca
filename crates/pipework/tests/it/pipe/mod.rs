//! Room `pipe`: a byte pipe between threads and tasks of one process.

mod end;
mod contract;
mod streams;
mod wakers;
mod descriptors;
mod costs;

use std::time::Duration;

use end::Kind;

/// Long enough for an end to fall asleep. Where it does not, the test says less, and the same.
const MOMENT: Duration = Duration::from_millis(4);

/// All that a reader and a writer can be, and who comes first.
fn combinations() -> impl Iterator<Item = (Kind, Kind, bool)> {
    let all = Kind::ALL;
    all.iter().flat_map(move |a| all.iter().flat_map(move |b| [(*a, *b, false), (*a, *b, true)]))
}
