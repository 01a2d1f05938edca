//! Draws a record as one SVG picture: a panel a case, a row a contender, the targets below.
//!
//! The picture stands alone: no script, no outside font, and its colours follow the reader's light
//! or dark setting.

use std::fmt::Write;

use crate::measure::median;
use crate::report::{CaseRecord, ContenderRecord, Record, TargetRecord};

const WIDTH: f64 = 1180.0;
const MARGIN: f64 = 30.0;
const COLUMNS: usize = 2;
const PANEL: f64 = (WIDTH - MARGIN * 3.0) / COLUMNS as f64;
const ROW: f64 = 19.0;
/// The left edge of a panel's bars, and the length of the longest; the rest of the width is for its
/// label.
const LABEL: f64 = 150.0;
const LONGEST: f64 = PANEL - LABEL - 185.0;

const STYLE: &str = "
  svg { font: 12px system-ui, sans-serif; background: #fcfcfa }
  text { fill: #222 } .title { font-size: 20px; font-weight: 600 } .case { font-weight: 600 } .small { fill: #777 }
  .ours { fill: #1f7a5c } .peer { fill: #b4bcc4 } .short { fill: #b3361b } .end { text-anchor: end }
  @media (prefers-color-scheme: dark) {
    svg { background: #17191c } text { fill: #ddd } .small { fill: #888 }
    .ours { fill: #3fae87 } .peer { fill: #58616b } .short { fill: #e2694d }
  }";

/// The picture, as the text of an SVG file.
pub fn svg(record: &Record) -> String {
    let mut body = String::new();
    text(&mut body, MARGIN, 40.0, "title", &format!("pipework {}", record.module));
    text(&mut body, MARGIN, 60.0, "small", &record.machine.to_string());
    text(&mut body, MARGIN, 77.0, "small", &record.circumstances());
    let how =
        "Payload in MB per second; behind it CPU (user + system, writers and reader together) per record.";
    text(&mut body, MARGIN, 94.0, "small", how);
    let mut y = 128.0;
    for cases in record.cases.chunks(COLUMNS) {
        let mut lowest = y;
        for (column, case) in cases.iter().enumerate() {
            let x = MARGIN + column as f64 * (PANEL + MARGIN);
            lowest = f64::max(lowest, panel(&mut body, x, y, case));
        }
        y = lowest + 22.0;
    }
    for target in &record.targets {
        promise(&mut body, y, target);
        y += ROW;
    }
    let height = y + 10.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\">\n\
         <style>{STYLE}\n</style>\n{body}</svg>\n"
    )
}

/// Draws one case with its top left corner at `x`, `y` and returns its lower edge.
fn panel(out: &mut String, x: f64, mut y: f64, case: &CaseRecord) -> f64 {
    text(out, x, y, "case", &case.name);
    let speed_of = |contender: &ContenderRecord| median(contender.speeds()).unwrap_or(0.0);
    let fastest = case.contenders.iter().map(speed_of).fold(f64::MIN_POSITIVE, f64::max);
    for contender in &case.contenders {
        y += ROW;
        text(out, x + LABEL - 8.0, y, "end", &contender.name);
        if let Some(why) = &contender.absent {
            let why: String = why.chars().take(60).collect();
            text(out, x + LABEL, y, "small", &why);
            continue;
        }
        let speed = speed_of(contender);
        // A sliver stays visible where a peer is a hundred times slower.
        let length = (speed / fastest * LONGEST).max(1.0);
        let class = if contender.is_ours() { "ours" } else { "peer" };
        let (left, top, height) = (x + LABEL, y - 11.0, ROW - 5.0);
        writeln!(
            out,
            r#"<rect class="{class}" x="{left:.1}" y="{top:.1}" width="{length:.1}" height="{height}" rx="2"/>"#
        )
        .expect("a String takes everything");
        let cpu =
            contender.ns_per_op(&contender.cpu_writers_ns) + contender.ns_per_op(&contender.cpu_reader_ns);
        let told = format!("{:.0} MB/s   {} CPU", speed / 1e6, duration(cpu));
        text(out, left + length + 6.0, y, "", &told);
    }
    y
}

/// One target of the design, as the report prints it.
fn promise(out: &mut String, y: f64, target: &TargetRecord) {
    let class = match target.value {
        None => "small",
        Some(_) if target.is_short() => "short",
        Some(_) => "",
    };
    text(out, MARGIN, y, class, &target.to_string());
}

fn text(out: &mut String, x: f64, y: f64, class: &str, what: &str) {
    let what = what.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(out, r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{what}</text>"#)
        .expect("a String takes everything");
}

/// Nanoseconds in a unit that people read.
fn duration(ns: f64) -> String {
    match ns {
        _ if ns < 1e3 => format!("{ns:.0} ns"),
        _ if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        _ => format!("{:.1} ms", ns / 1e6),
    }
}
