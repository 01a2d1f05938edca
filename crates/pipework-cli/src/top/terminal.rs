//! A terminal that is taken for a screen, and given back as it was.
//!
//! However the program ends, short of SIGKILL: when the screen is dropped, and before a panic says
//! its message.

use crate::streams::{self, Stream};
use crate::sys::{self, Signals};
use pipework::Deadline;
use ratatui::Frame;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::mem::ManuallyDrop;
use std::panic;
use std::sync::Once;
use std::time::Duration;

/// How long the terminal has, at the end, to take what gives it back.
const PATIENCE: Duration = Duration::from_secs(1);

/// A terminal whose screen and keys are ours.
pub(super) struct Screen {
    /// Not dropped: its drop complains on standard error, with a panic if that has gone as well.
    terminal: ManuallyDrop<ratatui::Terminal<CrosstermBackend<Stream>>>,
}

impl Screen {
    /// Takes the terminal that is standard output.
    pub(super) fn take() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |panic| {
                give_back();
                before(panic);
            }));
        });
        let terminal = ratatui::Terminal::new(CrosstermBackend::new(stdout()?))?;
        let mut screen = Self { terminal: ManuallyDrop::new(terminal) };
        screen.enter()?;
        Ok(screen)
    }

    fn enter(&mut self) -> io::Result<()> {
        enable_raw_mode()?;
        let mut stdout = stdout()?;
        execute!(stdout, EnterAlternateScreen, Hide)?;
        // Clears, and draws everything again. `clear` would ask the terminal where its cursor is,
        // and wait for an answer.
        let size = self.terminal.size()?;
        self.terminal.resize(size.into())
    }

    /// Draws the differences to the screen's content; in another size, all of it. The caller has
    /// waited until the terminal takes data.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame)) -> io::Result<()> {
        self.terminal.draw(draw).map(drop)
    }

    /// Stops, as Ctrl-Z does without us, and takes the terminal again when it goes on.
    pub(super) fn stop(&mut self, signals: &Signals) -> io::Result<()> {
        give_back();
        signals.stop_group()?;
        self.enter()
    }

    /// The next key that was pressed, or that the size has changed, if any has.
    pub(super) fn next_event() -> io::Result<Option<Event>> {
        if event::poll(Duration::ZERO)? { event::read().map(Some) } else { Ok(None) }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn stdout() -> io::Result<Stream> {
    streams::stdout().map_err(|failure| io::Error::other(failure.to_string()))
}

/// If anything fails here, nothing can be done about it. It does not wait for a terminal that takes
/// nothing.
fn give_back() {
    let _ = disable_raw_mode();
    if let Ok(mut stdout) = stdout()
        && is_writable(stdout, PATIENCE)
    {
        let _ = execute!(stdout, LeaveAlternateScreen, Show);
    }
}

fn is_writable(stdout: Stream, patience: Duration) -> bool {
    let mut fds = [PollFd::new(&stdout, PollFlags::OUT)];
    sys::wait_for(&mut fds, Deadline::after(patience)).is_ok() && !fds[0].revents().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use std::fs::File;
    use std::io::Read;
    use std::process::Command;

    #[test]
    #[ignore = "panics; the test below runs it in a terminal of its own"]
    fn panics_on_a_screen() {
        let _screen = Screen::take().expect("it is a terminal");
        panic!("with the screen taken");
    }

    #[test]
    fn panic_is_printed_after_the_terminal_is_restored() {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, vec![]).unwrap().into_string().unwrap();
        let slave = || File::options().read(true).write(true).open(&name).unwrap();
        let (before, name) = (slave(), "top::terminal::tests::panics_on_a_screen");
        let modes = rustix::termios::tcgetattr(&before).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "--nocapture", name]);
        let mut child = command.stdin(slave()).stdout(slave()).stderr(slave()).spawn().unwrap();
        assert!(!child.wait().unwrap().success());
        let after = rustix::termios::tcgetattr(&before).unwrap();
        assert_eq!((after.local_modes, after.output_modes), (modes.local_modes, modes.output_modes));
        drop((before, command));
        let (mut seen, mut master) = (vec![], File::from(master));
        // An error at the end, when the other side has been closed.
        let _ = master.read_to_end(&mut seen);
        let seen = String::from_utf8_lossy(&seen);
        let at = |text: &str| seen.find(text).unwrap_or_else(|| panic!("no {text:?} in {seen:?}"));
        assert!(at("\u{1b}[?1049h") < at("\u{1b}[?1049l"));
        assert!(at("\u{1b}[?1049l") < at("with the screen taken"), "{seen}");
        assert!(at("\u{1b}[?25l") < at("\u{1b}[?25h"));
    }
}
