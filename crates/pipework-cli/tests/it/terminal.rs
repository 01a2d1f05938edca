//! A terminal for a command: a pseudo-terminal, and what would be seen on its screen.

use crate::{Folder, shell};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
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
    /// Runs a script whose controlling terminal it is, with these rows and columns.
    pub(crate) fn run(folder: &Folder, (rows, cols): (u16, u16), script: &str) -> Self {
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
        // The command holds descriptors of the terminal until it is dropped.
        drop(command);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(cells(rows), cells(cols), 0)));
        let (seen, mut output) = (Arc::clone(&screen), keyboard.try_clone().unwrap());
        thread::spawn(move || {
            let mut block = [0; 4096];
            // An error where the last process has closed it.
            while let Ok(len @ 1..) = output.read(&mut block) {
                seen.lock().unwrap().process(&block[..len]);
            }
        });
        Self { keyboard, screen, child }
    }

    /// What is seen now, line by line.
    pub(crate) fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Whether a program has taken the screen for itself.
    pub(crate) fn is_taken(&self) -> bool {
        self.screen.lock().unwrap().screen().alternate_screen()
    }

    pub(crate) fn has_cursor(&self) -> bool {
        !self.screen.lock().unwrap().screen().hide_cursor()
    }

    /// Waits until something holds.
    pub(crate) fn wait(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !holds(self) {
            assert!(begin.elapsed() < Duration::from_secs(60), "in vain: {what}\n{}", self.text());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until a text is seen.
    pub(crate) fn wait_for(&self, text: &str) {
        self.wait(text, |terminal| terminal.text().contains(text));
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

fn cells(number: u16) -> NonZero<u16> {
    NonZero::new(number).unwrap()
}

fn size(rows: u16, cols: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 }
}
