//! The figures as an SVG: a group of bars for each case, as long as the lane is fast.

use super::cases::Case;
use super::figures::{Figures, time, times};
use std::fmt::Write;

const WIDTH: usize = 760;
const ROW: usize = 22;
/// Where bars begin, and how long the longest is.
const LEFT: usize = 220;
const LONGEST: f64 = 320.0;

/// Draws what was measured.
pub(super) fn draw(machine: &str, measured: &[(&Case, Vec<Figures>)]) -> String {
    let mut body = String::new();
    let mut y = 10;
    let mut line = |y: &mut usize, x: usize, class: &str, text: &str| {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        writeln!(body, "<text x=\"{x}\" y=\"{}\" class=\"{class}\">{text}</text>", *y + 15).expect(IN_MEMORY);
    };
    for text in machine.lines() {
        line(&mut y, 10, "quiet", text.trim());
        y += ROW;
    }
    let mut bars = String::new();
    for (case, figures) in measured {
        y += ROW / 2;
        line(&mut y, 10, "title", case.title);
        y += ROW;
        let fastest = figures.iter().map(|found| found.seconds).fold(f64::INFINITY, f64::min);
        for (number, (lane, found)) in case.lanes.iter().zip(figures).enumerate() {
            let width = (LONGEST * fastest / found.seconds).max(1.0);
            let class = if number == 0 { "ours" } else { "other" };
            writeln!(
                bars,
                "<rect x=\"{LEFT}\" y=\"{}\" width=\"{width:.0}\" height=\"{}\" class=\"{class}\"/>",
                y + 3,
                ROW - 6
            )
            .expect(IN_MEMORY);
            line(&mut y, 20, "text", lane.name);
            let ratio = match number {
                0 => String::new(),
                _ => format!(", {}", times(found.seconds / figures[0].seconds)),
            };
            line(&mut y, LEFT + width as usize + 8, "text", &(time(found.seconds) + &ratio));
            y += ROW;
        }
    }
    let height = y + 10;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\">\n\
         <style>text {{ font: 13px sans-serif; fill: #24292f }} .title {{ font-weight: bold }} \
         .quiet {{ fill: #57606a }} .ours {{ fill: #1f6feb }} .other {{ fill: #8c959f }}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{bars}{body}</svg>\n"
    )
}

const IN_MEMORY: &str = "a String takes all";
