//! A terminal for a command: a pseudo-terminal, and the contents of its screen.

use crate::{Folder, shell};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<vt100::Parser>>,
    pub(crate) child: Child,
}

impl Terminal {
    /// Runs a script on a new controlling terminal with these rows and columns.
    pub(crate) fn run(folder: &Folder, (rows, cols): (u16, u16), script: &str) -> Self {
        let (keyboard, child) = start(folder, (rows, cols), script);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(cells(rows), cells(cols), 0)));
        let (seen, mut output) = (Arc::clone(&screen), keyboard.try_clone().unwrap());
        thread::spawn(move || {
            let mut block = [0; 4096];
            // The read fails once the last process has closed the terminal.
            while let Ok(len @ 1..) = output.read(&mut block) {
                seen.lock().unwrap().process(&block[..len]);
            }
        });
        Self { keyboard, screen, child }
    }

    /// The text on the screen now, line by line.
    pub(crate) fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Whether a program uses the alternate screen.
    pub(crate) fn is_taken(&self) -> bool {
        self.screen.lock().unwrap().screen().alternate_screen()
    }

    pub(crate) fn has_cursor(&self) -> bool {
        !self.screen.lock().unwrap().screen().hide_cursor()
    }

    /// Waits until `holds` returns true.
    pub(crate) fn wait(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !holds(self) {
            assert!(begin.elapsed() < Duration::from_secs(60), "waited too long: {what}\n{}", self.text());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until the screen shows `text`.
    pub(crate) fn wait_for(&self, text: &str) {
        self.wait(text, |terminal| terminal.text().contains(text));
    }

    /// The screen as an SVG: each character, and a rectangle for each cell that is not black.
    pub(crate) fn picture(&self) -> String {
        const WIDTH: usize = 9;
        const HEIGHT: usize = 20;
        let parser = self.screen.lock().unwrap();
        let (rows, cols) = parser.screen().size();
        let (rows, cols) = (rows.get(), cols.get());
        let (width, height) = (usize::from(cols) * WIDTH + 20, usize::from(rows) * HEIGHT + 20);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\">\n\
             <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#16181d\"/>\n\
             <g font-family=\"monospace\" font-size=\"15\" xml:space=\"preserve\">\n"
        );
        for (row, col) in (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col))) {
            let Some(cell) = parser.screen().cell(row, col) else { continue };
            let (x, y) = (10 + usize::from(col) * WIDTH, 10 + usize::from(row) * HEIGHT);
            let colour = match cell.fgcolor() {
                vt100::Color::Idx(1) => "#ff6b6b",
                vt100::Color::Idx(8) => "#8a919e",
                _ => "#d8dee9",
            };
            let (ink, paper) = if cell.inverse() { ("#16181d", Some(colour)) } else { (colour, None) };
            if let Some(paper) = paper {
                writeln!(
                    svg,
                    "<rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"{paper}\"/>"
                )
                .unwrap();
            }
            let text = cell.contents().replace('&', "&amp;").replace('<', "&lt;");
            if !text.trim().is_empty() {
                let weight = if cell.bold() { " font-weight=\"bold\"" } else { "" };
                writeln!(svg, "<text x=\"{x}\" y=\"{}\" fill=\"{ink}\"{weight}>{text}</text>", y + 15)
                    .unwrap();
            }
        }
        svg + "</g>\n</svg>\n"
    }

    pub(crate) fn press(&self, keys: &str) {
        (&self.keyboard).write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn resize(&self, rows: u16, cols: u16) {
        self.screen.lock().unwrap().screen_mut().set_size(cells(rows), cells(cols));
        tcsetwinsize(&self.keyboard, size(rows, cols)).unwrap();
    }

    /// Waits for the script to end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

/// Runs a script on a terminal of its own; returns the terminal's other side.
pub(crate) fn start(folder: &Folder, (rows, cols): (u16, u16), script: &str) -> (File, Child) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, vec![]).unwrap().into_string().unwrap();
    let slave = File::options().read(true).write(true).open(name).unwrap();
    let keyboard = File::from(master);
    tcsetwinsize(&keyboard, size(rows, cols)).unwrap();
    let script = format!("exec setsid --ctty --wait sh -c '{}'", script.replace('\'', "'\\''"));
    let mut command = shell(folder, &script);
    command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
    let child = command.env("TERM", "xterm-256color").spawn().unwrap();
    // `command` holds descriptors of the terminal until it is dropped.
    drop(command);
    (keyboard, child)
}

fn cells(number: u16) -> NonZero<u16> {
    NonZero::new(number).unwrap()
}

fn size(rows: u16, cols: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 }
}
