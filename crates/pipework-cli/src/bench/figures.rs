//! The results of a contender, and their format.

use super::cases::Sample;
use std::time::Duration;

/// The results of a contender, for one call, message or block.
pub(super) struct Figures {
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    /// How much longer the slowest round took than the fastest: 0.1 is a tenth.
    pub(super) spread: f64,
}

impl Figures {
    pub(super) fn of(samples: &[Sample]) -> Self {
        let each = |time: fn(&Sample) -> Duration| -> Vec<f64> {
            let mut all: Vec<f64> =
                samples.iter().map(|sample| time(sample).as_secs_f64() / sample.count as f64).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let (times, cpu) = (each(|sample| sample.elapsed), each(|sample| sample.cpu));
        let spread = times[times.len() - 1] / times[0].max(f64::MIN_POSITIVE) - 1.0;
        Self { seconds: times[times.len() / 2], cpu_seconds: cpu[cpu.len() / 2], spread }
    }
}

/// A time in the unit that suits it.
pub(super) fn time(seconds: f64) -> String {
    let (value, unit) = if seconds < 1e-6 { (seconds * 1e9, "ns") } else { (seconds * 1e6, "us") };
    let places = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.places$} {unit}")
}

/// So many times as fast.
pub(super) fn times(ratio: f64) -> String {
    let places = if ratio < 10.0 { 2 } else { 0 };
    format!("x {ratio:.places$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_medians_of_the_rounds() {
        let sample = |millis, cpu| Sample {
            count: 1000,
            elapsed: Duration::from_millis(millis),
            cpu: Duration::from_millis(cpu),
        };
        let figures = Figures::of(&[sample(30, 1), sample(10, 3), sample(11, 2)]);
        assert_eq!((time(figures.seconds), time(figures.cpu_seconds)), ("11.0 us".into(), "2.00 us".into()));
        assert!((figures.spread - 2.0).abs() < 1e-9);
    }

    #[test]
    fn time_and_times_use_few_digits() {
        let shown = [0.5e-9, 99.96e-9, 0.5e-6, 1e-6, 12.34e-6, 1234e-6].map(time);
        assert_eq!(shown, ["0.50 ns", "100.0 ns", "500 ns", "1.00 us", "12.3 us", "1234 us"]);
        assert_eq!([0.5, 9.99, 154.2].map(times), ["x 0.50", "x 9.99", "x 154"]);
    }
}
