//! The screen: its contents, and its keys.

use super::terminal::Screen;
use super::text::{self, BROADCAST_MEMBERS, BROADCASTS, CHANNELS, MEMBERS, PIPES, Sort};
use super::watch::{Found, Watch};
use crate::failure::{Failure, at};
use crate::processes;
use crate::streams;
use crate::sys::{self, Signals};
use crate::table::{self, Align};
use pipework::Deadline;
use ratatui::Frame;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::time::Instant;

/// The person's choices.
struct View {
    sort: Sort,
    is_reversed: bool,
    /// The row, channels first.
    selected: usize,
}

/// The command of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Quit,
    Stop,
    Sort(Sort),
    Up,
    Down,
    Redraw,
}

/// Shows the figures until a key or a signal ends it, or the terminal has gone.
pub(super) fn interact(watch: Watch, sort: Sort, signals: &Signals) -> Result<u8, Failure> {
    match show(watch, sort, signals) {
        // The error of reading or writing if the terminal has gone. Then no user is there to read
        // it.
        Err(error) if error.raw_os_error() != Some(libc::EIO) => Err(at("the terminal")(error)),
        _ => Ok(0),
    }
}

fn show(mut watch: Watch, sort: Sort, signals: &Signals) -> io::Result<()> {
    let keys = streams::keys()?;
    let mut view = View { sort, is_reversed: false, selected: 0 };
    let mut screen = Screen::take()?;
    let stdout = streams::stdout().map_err(|failure| io::Error::other(failure.to_string()))?;
    let mut is_new = true;
    loop {
        let mut is_stopped = false;
        let deadline = Deadline::after(watch.due().saturating_duration_since(Instant::now()));
        let mut fds = vec![PollFd::new(&keys, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        if is_new {
            // A terminal that takes nothing must not keep signals from being heard.
            fds.push(PollFd::new(&stdout, PollFlags::OUT));
        }
        sys::wait_for(&mut fds, deadline)?;
        let is_drawable = fds.get(2).is_some_and(|fd| !fd.revents().is_empty());
        let is_gone = fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR);
        while let Some(signal) = signals.next()? {
            match signal.number {
                libc::SIGTSTP => is_stopped = true,
                libc::SIGWINCH => is_new = true,
                _ => return Ok(()),
            }
        }
        if is_gone {
            return Ok(());
        }
        while let Some(event) = Screen::next_event()? {
            match Wish::of(&event) {
                None => continue,
                Some(Wish::Quit) => return Ok(()),
                Some(Wish::Stop) => is_stopped = true,
                Some(Wish::Redraw) => {}
                Some(Wish::Up) => view.selected = view.selected.saturating_sub(1),
                Some(Wish::Down) => view.selected += 1,
                Some(Wish::Sort(sort)) => {
                    view.is_reversed = view.sort == sort && !view.is_reversed;
                    view.sort = sort;
                }
            }
            is_new = true;
        }
        if is_stopped {
            screen.stop(signals)?;
            is_new = true;
        }
        is_new |= watch.look(Instant::now());
        if is_drawable {
            is_new = false;
            view.arrange(&mut watch.found);
            screen.draw(|frame| view.draw(frame, &watch))?;
        }
    }
}

impl Wish {
    fn of(event: &Event) -> Option<Self> {
        let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else {
            return matches!(event, Event::Resize(..)).then_some(Self::Redraw);
        };
        let has_control = modifiers.contains(KeyModifiers::CONTROL);
        Some(match code {
            KeyCode::Char('c' | '\\') if has_control => Self::Quit,
            KeyCode::Char('z') if has_control => Self::Stop,
            KeyCode::Char('l') if has_control => Self::Redraw,
            _ if has_control => return None,
            KeyCode::Char('q') => Self::Quit,
            KeyCode::Char('n') => Self::Sort(Sort::Name),
            KeyCode::Char('r') => Self::Sort(Sort::Rate),
            KeyCode::Char('w') => Self::Sort(Sort::Waiting),
            KeyCode::Char('a') => Self::Sort(Sort::Age),
            KeyCode::Up | KeyCode::Char('k') => Self::Up,
            KeyCode::Down | KeyCode::Char('j') => Self::Down,
            _ => return None,
        })
    }
}

impl View {
    fn arrange(&mut self, found: &mut Found) {
        self.sort.channels(&mut found.channels, self.is_reversed);
        self.sort.broadcasts(&mut found.broadcasts, self.is_reversed);
        self.sort.pipes(&mut found.pipes, self.is_reversed);
        let rows = found.channels.len() + found.broadcasts.len() + found.pipes.len();
        self.selected = self.selected.min(rows.saturating_sub(1));
    }

    fn draw(&self, frame: &mut Frame, watch: &Watch) {
        let found = &watch.found;
        // A table has a heading; if there are many rows, all tables together get half.
        let rows = |len: usize| if len == 0 { 0 } else { len as u16 + 1 };
        let wanted = [found.channels.len(), found.broadcasts.len(), found.pipes.len()].map(rows);
        let [channels, broadcasts, pipes] = shares(wanted, (frame.area().height / 2).max(4));
        let parts = [
            Constraint::Length(1),
            Constraint::Length(channels),
            Constraint::Length(u16::from(channels > 0 && broadcasts > 0)),
            Constraint::Length(broadcasts),
            Constraint::Length(u16::from(channels + broadcasts > 0 && pipes > 0)),
            Constraint::Length(pipes),
            Constraint::Length(1),
            Constraint::Min(0),
            Constraint::Length(1),
        ];
        let [title, above, _, middle, _, below, _, details, keys] =
            Layout::vertical(parts).areas(frame.area());
        self.draw_title(frame, title, watch);
        let in_broadcasts = self.selected.checked_sub(found.channels.len());
        let in_pipes = in_broadcasts.and_then(|row| row.checked_sub(found.broadcasts.len()));
        let cells: Vec<_> =
            found.channels.iter().map(|figures| text::channel(figures, watch.resolution())).collect();
        let is_bad = |n: usize| {
            let figures = &found.channels[n];
            figures.fault.is_some() || figures.damaged > 0 || figures.dead() > 0
        };
        rows_in(frame, above, CHANNELS, &cells, in_broadcasts.is_none().then_some(self.selected), is_bad);
        let cells: Vec<_> = found.broadcasts.iter().map(text::broadcast).collect();
        let is_bad = |n: usize| {
            let figures = &found.broadcasts[n];
            figures.fault.is_some() || figures.is_held_up() || figures.dead() > 0
        };
        let selected = in_broadcasts.filter(|_| in_pipes.is_none());
        rows_in(frame, middle, BROADCASTS, &cells, selected, is_bad);
        let cells: Vec<_> = found.pipes.iter().map(text::pipe).collect();
        rows_in(frame, below, PIPES, &cells, in_pipes, |n| found.pipes[n].fault.is_some());
        self.draw_details(frame, details, found);
        let marks = [("n", Sort::Name), ("r", Sort::Rate), ("w", Sort::Waiting), ("a", Sort::Age)];
        let words = marks.map(|(key, sort)| {
            let name = format!("{sort:?}").to_lowercase();
            if sort == self.sort { format!("[{key} {name}]") } else { format!(" {key} {name} ") }
        });
        let text = format!("q quit   sort:{}   up/down select", words.join(""));
        frame.render_widget(Paragraph::new(text).style(Style::new().fg(Color::DarkGray)), keys);
    }

    fn draw_title(&self, frame: &mut Frame, area: Rect, watch: &Watch) {
        let found = &watch.found;
        let left = format!(
            "pipework top   {}, {}{}   every {} s",
            table::count(found.channels.len(), "channel"),
            match found.broadcasts.len() {
                0 => String::new(),
                some => table::count(some, "broadcast") + ", ",
            },
            table::count(found.pipes.len(), "pipe"),
            watch.interval().as_secs_f64(),
        );
        let style = Style::new().add_modifier(Modifier::REVERSED);
        frame.render_widget(Paragraph::new(left).style(style), area);
        let right =
            Paragraph::new(concat!("pipework ", env!("CARGO_PKG_VERSION"))).alignment(Alignment::Right);
        let width = area.width.min(16);
        if area.width > 64 {
            let place = Rect { x: area.right() - width, width, ..area };
            frame.render_widget(right.style(style), place);
        }
    }

    /// The users of the selected row.
    fn draw_details(&self, frame: &mut Frame, area: Rect, found: &Found) {
        let [head, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
        if let Some(figures) = found.channels.get(self.selected) {
            frame.render_widget(Paragraph::new(text::counters(figures)), head);
            let rows: Vec<_> = figures.members.iter().map(text::member).collect();
            return rows_in(frame, rest, MEMBERS, &rows, None, |n| !figures.members[n].member.is_alive);
        }
        let row = self.selected.saturating_sub(found.channels.len());
        if let Some(figures) = found.broadcasts.get(row) {
            frame.render_widget(Paragraph::new(text::broadcast_counters(figures)), head);
            let rows: Vec<_> = figures.members.iter().map(text::broadcast_member).collect();
            let is_dead = |n: usize| !figures.members[n].member.is_alive;
            return rows_in(frame, rest, BROADCAST_MEMBERS, &rows, None, is_dead);
        }
        if let Some(pipe) = found.pipes.get(row.saturating_sub(found.broadcasts.len())) {
            let lines = pipe.uses.iter().map(|found| {
                let way = match (found.reads, found.writes) {
                    (true, true) => "reads and writes",
                    (true, false) => "reads",
                    (false, true) => "writes",
                    (false, false) => "waits",
                };
                let command = processes::command(found.id).unwrap_or_default();
                Line::from(format!(
                    "{:>8} fd {:<4} {way:<17} {}",
                    found.id,
                    found.number,
                    table::plain(&command)
                ))
            });
            let text: Text = lines.collect();
            return frame.render_widget(Paragraph::new(text), area);
        }
        let text = "No channel and no FIFO of yours in the usual places; name one, or a process.";
        frame.render_widget(Paragraph::new(text), head);
    }
}

/// How many lines each table gets of `space`: as many as it wants, or its part and what others leave.
fn shares(wanted: [u16; 3], space: u16) -> [u16; 3] {
    let tables = wanted.iter().filter(|wanted| **wanted > 0).count().max(1) as u16;
    let mut given = wanted.map(|wanted| wanted.min(space / tables));
    let mut left = space - given.iter().sum::<u16>();
    for (given, wanted) in given.iter_mut().zip(wanted) {
        let more = left.min(wanted - *given);
        (*given, left) = (*given + more, left - more);
    }
    given
}

/// Characters of the last column for which others are left out.
const LEAST: u16 = 12;

/// A table whose last column takes the rest of the width. If that would be too little, columns
/// before it are left out, from the right.
fn rows_in<const N: usize>(
    frame: &mut Frame,
    area: Rect,
    columns: [(&str, Align); N],
    rows: &[[String; N]],
    selected: Option<usize>,
    is_bad: impl Fn(usize) -> bool,
) {
    if area.is_empty() {
        return;
    }
    let widths: [u16; N] = std::array::from_fn(|n| {
        let widest = rows.iter().map(|row| row[n].chars().count()).chain([columns[n].0.len()]).max();
        widest.unwrap_or(0) as u16
    });
    let taken = |shown: usize| widths[..shown].iter().map(|width| width + 2).sum::<u16>();
    let fits = |shown: &usize| taken(*shown) + widths[N - 1].min(LEAST) <= area.width;
    let shown = (0..N).rev().find(fits).unwrap_or(0);
    let is_shown = |n: usize| n < shown || n + 1 == N;
    let constraints = (0..N).filter(|&n| is_shown(n)).map(|n| match n + 1 < N {
        true => Constraint::Length(widths[n]),
        false => Constraint::Min(1),
    });
    let cell = |n: usize, text: String| {
        let alignment = if columns[n].1 == Align::Right { Alignment::Right } else { Alignment::Left };
        Cell::from(Text::from(text).alignment(alignment))
    };
    let line = |cells: [String; N]| {
        let shown = cells.into_iter().enumerate().filter(|(n, _)| is_shown(*n));
        Row::new(shown.map(|(n, text)| cell(n, text)).collect::<Vec<_>>())
    };
    let heading = line(columns.map(|(name, _)| name.into())).style(Style::new().add_modifier(Modifier::BOLD));
    let lines = rows.iter().enumerate().map(|(n, cells)| {
        let row = line(cells.clone());
        if is_bad(n) { row.style(Style::new().fg(Color::Red)) } else { row }
    });
    let table = Table::new(lines, constraints)
        .header(heading)
        .column_spacing(2)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_stateful_widget(table, area, &mut TableState::default().with_selected(selected));
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::backend::TestBackend;

    #[test]
    fn drawing_fits_on_a_screen_of_any_size() {
        let mut watch =
            Watch::new(&[std::process::id().to_string().into()], std::time::Duration::from_secs(1)).unwrap();
        let (_reader, _writer) = std::io::pipe().unwrap();
        for (width, height) in [(1, 1), (3, 2), (20, 5), (80, 24), (300, 100), (80, 1), (1, 24)] {
            let mut view = View { sort: Sort::Rate, is_reversed: true, selected: 7 };
            view.arrange(&mut watch.found);
            let mut terminal = ratatui::Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| view.draw(frame, &watch)).unwrap();
        }
    }

    #[test]
    fn shares_are_fair() {
        assert_eq!(shares([3, 0, 2], 12), [3, 0, 2]);
        assert_eq!(shares([20, 0, 5], 12), [7, 0, 5]);
        assert_eq!(shares([5, 0, 20], 12), [5, 0, 7]);
        assert_eq!(shares([20, 0, 20], 5), [3, 0, 2]);
        assert_eq!(shares([9, 9, 9], 12), [4, 4, 4]);
        assert_eq!(shares([9, 2, 9], 12), [6, 2, 4]);
        assert_eq!(shares([0, 9, 0], 4), [0, 4, 0]);
    }

    #[test]
    fn wish_of_maps_keys() {
        let key = |code, modifiers| Wish::of(&Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::NONE), Some(Wish::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Wish::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(key(KeyCode::Char('z'), KeyModifiers::CONTROL), Some(Wish::Stop));
        assert_eq!(key(KeyCode::Char('w'), KeyModifiers::CONTROL), None);
        assert_eq!(key(KeyCode::Down, KeyModifiers::NONE), Some(Wish::Down));
        assert_eq!(Wish::of(&Event::Resize(1, 2)), Some(Wish::Redraw));
    }
}
