//! The results of a run: a table for people, the targets, and a record to keep.
//!
//! A record holds raw samples, the machine and the targets; everything else is derived when it is
//! shown. It names no host and no path.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::machine::Machine;
use crate::measure::{Cost, Failure, Latency, Meter, Series, median};

/// A promise: the speed of one contender over the slowest of some others is at least this. Speed is
/// payload bytes per second.
pub struct Target {
    pub name: &'static str,
    pub of: ContenderName,
    pub slower_of: &'static [ContenderName],
    pub at_least: f64,
}

/// Case and contender.
pub type ContenderName = (&'static str, &'static str);

/// A whole run. The file in `record/` is this, as JSON.
#[derive(Serialize, Deserialize)]
pub struct Record {
    /// UTC, year-month-day.
    pub date: String,
    pub module: String,
    pub quick: bool,
    pub rounds: usize,
    pub machine: Machine,
    /// Cores that other processes kept busy meanwhile, on average.
    pub cores_of_others: Option<f64>,
    pub cases: Vec<CaseRecord>,
    pub targets: Vec<TargetRecord>,
}

#[derive(Serialize, Deserialize)]
pub struct CaseRecord {
    pub name: String,
    /// The names of the two sides whose CPU time is shown.
    #[serde(default = "usual_sides")]
    pub sides: [String; 2],
    /// The time that a changed word took from the first CPU to the second just before the case. On
    /// a virtual machine it varies, because its CPUs move.
    #[serde(default)]
    pub coherence_ns: Option<u64>,
    pub contenders: Vec<ContenderRecord>,
}

fn usual_sides() -> [String; 2] {
    ["writers", "reader"].map(str::to_owned)
}

/// The samples of one contender, one entry a round, in order.
#[derive(Serialize, Deserialize)]
pub struct ContenderRecord {
    pub name: String,
    /// Why there are no samples.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub absent: Option<String>,
    /// Operations and payload bytes of one round.
    pub ops: u64,
    pub bytes: u64,
    /// Bytes after compression, if the contender knows them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wire: Option<u64>,
    pub wall_ns: Vec<u64>,
    /// User plus system time of the writers together, and of the reader; or of clients and servers.
    pub cpu_writers_ns: Vec<u64>,
    pub cpu_reader_ns: Vec<u64>,
    /// Times of single operations, if the contender measured any.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub latency_ns: Vec<Latency>,
    /// The share of the messages that arrived, if some were lost.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub arrived: Vec<f64>,
}

#[derive(Serialize, Deserialize)]
pub struct TargetRecord {
    pub name: String,
    /// The median over the rounds; `None` if a contender was absent.
    pub value: Option<f64>,
    pub at_least: f64,
}

impl Record {
    /// The record of a run that has just ended; `meter` was started with it.
    pub fn new(
        module: &str,
        quick: bool,
        rounds: usize,
        meter: &Meter,
        cases: Vec<CaseRecord>,
        targets: &[Target],
    ) -> Record {
        Record {
            date: today(),
            module: module.to_owned(),
            quick,
            rounds,
            machine: Machine::this(),
            cores_of_others: meter.cores_of_others(),
            targets: targets.iter().filter_map(|target| target.weigh(&cases)).collect(),
            cases,
        }
    }

    /// When and how it was measured, in one line.
    pub fn circumstances(&self) -> String {
        let kind = if self.quick { "quick run" } else { "full run" };
        let others = self.cores_of_others.map_or("unknown".to_owned(), |cores| format!("{cores:.2}"));
        let Self { date, rounds, .. } = self;
        let way_ns = || self.cases.iter().filter_map(|case| case.coherence_ns);
        let way = way_ns().min().zip(way_ns().max());
        let way = way.map_or(String::new(), |(least, most)| {
            format!("; from one CPU to the other {least} to {most} ns, case by case")
        });
        format!("{date}, {kind}, medians of {rounds} rounds, cores busy with other work: {others}{way}")
    }

    /// Writes the record below `folder`, under its make of CPU, date and module, and returns its
    /// path.
    pub fn save(&self, folder: &Path) -> Result<PathBuf, Failure> {
        let folder = folder.join(self.machine.folder());
        fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{}-{}.json", self.date, self.module));
        fs::write(&path, self.text()?)?;
        Ok(path)
    }

    /// The record as it is kept: JSON with a line for each contender, so that a change of one can
    /// be read as a difference.
    fn text(&self) -> Result<String, Failure> {
        let mut text = String::new();
        write_lines(&serde_json::to_value(self)?, 0, &mut text);
        Ok(text + "\n")
    }

    pub fn load(path: &Path) -> Result<Record, Failure> {
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }
}

/// Writes the contents of `value` on lines of their own, down to the contenders; a contender, and a
/// value of plain values only, takes one line.
fn write_lines(value: &Value, depth: usize, text: &mut String) {
    const CONTENDER: usize = 4;
    let is_nested = |inside: &Value| inside.is_object() || inside.is_array();
    let (open, close, inside): (_, _, Vec<(String, &Value)>) = match value {
        Value::Object(map) if depth < CONTENDER && map.values().any(is_nested) => (
            '{',
            '}',
            map.iter().map(|(key, inside)| (format!("{}:", Value::from(&**key)), inside)).collect(),
        ),
        Value::Array(list) if depth < CONTENDER && list.iter().any(is_nested) => {
            ('[', ']', list.iter().map(|inside| (String::new(), inside)).collect())
        }
        _ => return text.push_str(&value.to_string()),
    };
    text.push(open);
    for (number, (key, inside)) in inside.into_iter().enumerate() {
        text.push_str(if number == 0 { "\n" } else { ",\n" });
        text.push_str(&key);
        write_lines(inside, depth + 1, text);
    }
    text.push('\n');
    text.push(close);
}

impl Target {
    /// Compares the contenders in each round and takes the median. `None` if a case was not run at
    /// all.
    fn weigh(&self, cases: &[CaseRecord]) -> Option<TargetRecord> {
        let find = |(case, contender): ContenderName| {
            cases
                .iter()
                .find(|found| found.name == case)?
                .contenders
                .iter()
                .find(|found| found.name == contender)
        };
        let speeds = find(self.of)?.speeds();
        let others: Vec<Vec<f64>> =
            self.slower_of.iter().map(|&name| Some(find(name)?.speeds())).collect::<Option<_>>()?;
        let ratios = speeds.iter().enumerate().map_while(|(round, speed)| {
            let slowest = others.iter().map(|other| other.get(round).copied());
            let slowest = slowest.reduce(|one, two| Some(one?.min(two?)))??;
            Some(speed / slowest)
        });
        Some(TargetRecord { name: self.name.to_owned(), value: median(ratios), at_least: self.at_least })
    }
}

impl TargetRecord {
    /// Whether the target was measured and missed.
    pub fn is_short(&self) -> bool {
        self.value.is_some_and(|value| value < self.at_least)
    }
}

/// `ratio NAME VALUE target TARGET ok|short`; a target with an absent peer has no value and is
/// neither.
impl fmt::Display for TargetRecord {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, at_least } = self;
        match value {
            Some(value) => {
                let verdict = if self.is_short() { "short" } else { "ok" };
                write!(out, "ratio {name} {value:.3} target {at_least} {verdict}")
            }
            None => write!(out, "ratio {name} none target {at_least} absent"),
        }
    }
}

impl CaseRecord {
    pub fn new(name: &str, sides: [&str; 2], coherence_ns: Option<u64>, series: Vec<Series>) -> CaseRecord {
        let contenders = series.into_iter().map(ContenderRecord::from).collect();
        CaseRecord { name: name.to_owned(), sides: sides.map(str::to_owned), coherence_ns, contenders }
    }

    /// Whether single operations were timed.
    pub fn has_latencies(&self) -> bool {
        self.contenders.iter().any(|contender| !contender.latency_ns.is_empty())
    }
}

impl From<Series> for ContenderRecord {
    fn from(series: Series) -> ContenderRecord {
        let first = series.samples.first();
        let ns = |time: fn(&Cost) -> Duration| {
            series.samples.iter().map(|sample| time(&sample.cost).as_nanos() as u64).collect()
        };
        ContenderRecord {
            name: series.name.to_owned(),
            ops: first.map_or(0, |sample| sample.ops),
            bytes: first.map_or(0, |sample| sample.bytes),
            wire: first.and_then(|sample| sample.wire),
            wall_ns: ns(|cost| cost.wall),
            cpu_writers_ns: ns(|cost| cost.cpu_there),
            cpu_reader_ns: ns(|cost| cost.cpu_here),
            latency_ns: series.samples.iter().filter_map(|sample| sample.cost.latency).collect(),
            arrived: series.samples.iter().filter_map(|sample| sample.cost.arrived).collect(),
            absent: series.absent,
        }
    }
}

impl ContenderRecord {
    /// Whether this is pipework and not a peer, by the contender's name.
    pub fn is_ours(&self) -> bool {
        self.name.starts_with("pipework")
    }

    /// Payload bytes per second, one value a round.
    pub fn speeds(&self) -> Vec<f64> {
        self.wall_ns.iter().map(|&ns| self.bytes as f64 / ns as f64 * 1e9).collect()
    }

    /// Nanoseconds per operation, the median of some times.
    pub fn ns_per_op(&self, times: &[u64]) -> f64 {
        median(times.iter().map(|&ns| ns as f64 / self.ops as f64)).unwrap_or(f64::NAN)
    }
}

/// One block a case, as wide as a wide terminal.
impl fmt::Display for CaseRecord {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [there, here] = &self.sides;
        write!(
            out,
            "{:<24} {:>9} {:>11} {:>8} {:>10} {there:>9} {here:>9} {:>7}",
            self.name, "ns/op", "op/s", "MB/s", "CPU ns/op", "spread"
        )?;
        if self.has_latencies() {
            writeln!(out, " {:>8} {:>8} {:>8}", "p50 ns", "p99", "p99.9")?;
        } else {
            let is_lossy = self.contenders.iter().any(|contender| !contender.arrived.is_empty());
            writeln!(out, " {:>7}", if is_lossy { "arrived" } else { "zstd" })?;
        }
        self.contenders.iter().try_for_each(|contender| writeln!(out, "{contender}"))
    }
}

impl fmt::Display for ContenderRecord {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.absent {
            return write!(out, "  {:<22} {why}", self.name);
        }
        let (wall, writers, reader) = (
            self.ns_per_op(&self.wall_ns),
            self.ns_per_op(&self.cpu_writers_ns),
            self.ns_per_op(&self.cpu_reader_ns),
        );
        let speed = median(self.speeds()).unwrap_or(f64::NAN) / 1e6;
        let (low, high) = (self.wall_ns.iter().min(), self.wall_ns.iter().max());
        let spread = low.zip(high).map_or(f64::NAN, |(&low, &high)| (high as f64 / low as f64 - 1.0) * 100.0);
        write!(
            out,
            "  {:<22} {wall:>9.0} {:>11.0} {speed:>8.1} {:>10.0} {writers:>9.0} {reader:>9.0} {spread:>6.0}%",
            self.name,
            1e9 / wall,
            writers + reader,
        )?;
        if let Some(wire) = self.wire {
            write!(out, " {:>5.2}x", self.bytes as f64 / wire as f64)?;
        }
        if let Some(arrived) = median(self.arrived.iter().copied()) {
            write!(out, " {:>6.1}%", 100.0 * arrived)?;
        }
        let within = |of: fn(&Latency) -> u64| median(self.latency_ns.iter().map(|one| of(one) as f64));
        for ns in [within(|one| one.p50), within(|one| one.p99), within(|one| one.p999)].into_iter().flatten()
        {
            write!(out, " {ns:>8.0}")?;
        }
        Ok(())
    }
}

fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock stands after 1970");
    date_of(since.as_secs() / 86_400)
}

/// The date of a day counted from 1970-01-01: Howard Hinnant's `civil_from_days`, for days that are
/// not negative, <https://howardhinnant.github.io/date_algorithms.html>. Its years begin in March,
/// so that a leap day is a last day.
fn date_of(days: u64) -> String {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(name: &str, wall_ns: &[u64]) -> ContenderRecord {
        ContenderRecord {
            name: name.to_owned(),
            absent: None,
            ops: 10,
            bytes: 1000,
            wire: None,
            wall_ns: wall_ns.to_vec(),
            cpu_writers_ns: vec![50; wall_ns.len()],
            cpu_reader_ns: vec![20; wall_ns.len()],
            latency_ns: Vec::new(),
            arrived: Vec::new(),
        }
    }

    fn weigh(ours: &[u64], one: &[u64], two: &[u64]) -> TargetRecord {
        let contenders = vec![contender("ours", ours), contender("one", one), contender("two", two)];
        let cases =
            [CaseRecord { name: "case".to_owned(), sides: usual_sides(), coherence_ns: None, contenders }];
        let slower_of = &[("case", "one"), ("case", "two")];
        Target { name: "module/target", of: ("case", "ours"), slower_of, at_least: 0.7 }
            .weigh(&cases)
            .unwrap()
    }

    #[test]
    fn target_is_the_median_of_the_rounds_against_the_slower_peer() {
        let target = weigh(&[100, 200, 100], &[50, 50, 50], &[80, 150, 60]);
        assert_eq!(target.to_string(), "ratio module/target 0.750 target 0.7 ok");
        // A peer that took part in the first round only is compared in that one.
        assert_eq!(
            weigh(&[100, 1, 1], &[60], &[50, 9, 9]).to_string(),
            "ratio module/target 0.600 target 0.7 short"
        );
        assert_eq!(weigh(&[100], &[], &[50]).to_string(), "ratio module/target none target 0.7 absent");
    }

    #[test]
    fn target_is_left_out_if_its_case_was_not_run() {
        let target = Target { name: "b", of: ("case", "ours"), slower_of: &[("other", "x")], at_least: 1.0 };
        let contenders = vec![contender("ours", &[1])];
        let case =
            CaseRecord { name: "case".to_owned(), sides: usual_sides(), coherence_ns: None, contenders };
        assert!(target.weigh(&[case]).is_none());
    }

    #[test]
    fn contender_is_shown_per_operation() {
        let shown = contender("ours", &[100, 300, 200]).to_string();
        let words: Vec<&str> = shown.split_whitespace().collect();
        assert_eq!(words, ["ours", "20", "50000000", "5000.0", "7", "5", "2", "200%"]);
    }

    #[test]
    fn latencies_are_medians_and_have_columns_if_measured() {
        let latency = |p50| Latency { p50, p99: 2 * p50, p999: 3 * p50 };
        let timed = ContenderRecord {
            latency_ns: vec![latency(30), latency(10), latency(20)],
            ..contender("timed", &[1])
        };
        let sides = ["clients", "servers"].map(str::to_owned);
        let case = CaseRecord {
            name: "case".to_owned(),
            sides,
            coherence_ns: None,
            contenders: vec![timed, contender("untimed", &[1])],
        };
        let shown = case.to_string();
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0][6..], ["clients", "servers", "spread", "p50", "ns", "p99", "p99.9"]);
        assert_eq!(lines[1][8..], ["20", "40", "60"]);
        assert_eq!(lines[2].len(), 8);
    }

    #[test]
    fn share_that_arrived_has_a_column_if_messages_were_lost() {
        let lossy = ContenderRecord { arrived: vec![0.2, 0.5, 0.375], ..contender("lossy", &[1]) };
        let sides = ["publisher", "receivers"].map(str::to_owned);
        let contenders = vec![lossy, contender("whole", &[1])];
        let case = CaseRecord { name: "case".to_owned(), sides, coherence_ns: None, contenders };
        let shown = case.to_string();
        let last = |line: &str| line.split_whitespace().last().map(str::to_owned);
        let last: Vec<_> = shown.lines().map(|line| last(line).unwrap()).collect();
        assert_eq!(last, ["arrived", "37.5%", "0%"]);
    }

    #[test]
    fn every_stored_record_has_a_line_for_each_contender() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/record"));
        let makes = fs::read_dir(folder).unwrap().map(|make| make.unwrap().path());
        let records = makes.flat_map(|make| fs::read_dir(make).unwrap().map(|record| record.unwrap().path()));
        let mut count = 0;
        for path in records {
            let record = Record::load(&path).unwrap();
            let contenders: usize = record.cases.iter().map(|case| case.contenders.len()).sum();
            let text = fs::read_to_string(&path).unwrap();
            assert!(text == record.text().unwrap(), "{} is not as it would be saved now", path.display());
            assert_eq!(text.matches("\"wall_ns\":").count(), contenders);
            assert_eq!(text.lines().filter(|line| line.contains("\"wall_ns\":")).count(), contenders);
            count += 1;
        }
        assert!(count >= 10, "the records were found");
    }

    #[test]
    fn date_of_a_day_is_right() {
        for (days, date) in
            [(0, "1970-01-01"), (11_016, "2000-02-29"), (11_017, "2000-03-01"), (20_088, "2024-12-31")]
        {
            assert_eq!(date_of(days), date);
        }
    }
}
