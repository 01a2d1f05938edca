//! Module `pipe`: a byte pipe between threads and tasks of one process.

mod end;
mod contract;
mod streams;
mod wakers;
mod descriptors;
mod costs;

use std::time::Duration;

use end::Kind;

/// Usually long enough for an end to fall asleep. If it does not, the test covers less, and still
/// passes.
const MOMENT: Duration = Duration::from_millis(4);

/// All kinds of readers and writers, and which of them comes first.
fn combinations() -> impl Iterator<Item = (Kind, Kind, bool)> {
    let all = Kind::ALL;
    all.iter().flat_map(move |a| all.iter().flat_map(move |b| [(*a, *b, false), (*a, *b, true)]))
}
