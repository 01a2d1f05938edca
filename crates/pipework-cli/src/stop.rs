//! Signals to stop: the first one asks, a second one insists.

use crate::failure::{Failure, at};
use crate::sys::{Arrived, STOPS, Signals};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A second signal that comes sooner than this after the first is the same one over two ways, as
/// timeout(1) sends it to a process and to its group.
const PATIENCE: Duration = Duration::from_secs(1);

/// The signals to stop that have come.
pub(crate) struct Stop {
    pub(crate) signals: Arc<Signals>,
    /// The first one, and when it came.
    first: Option<(i32, Instant)>,
    has_insisted: bool,
}

/// A signal that has been heard.
pub(crate) enum Heard {
    /// The first signal to stop.
    Asks(Arrived),
    /// Another one, `PATIENCE` later or more.
    Insists,
    /// A signal that does not stop.
    Other,
}

impl Stop {
    /// Takes SIGINT, SIGTERM, SIGHUP and SIGQUIT, and `others`; see [`Signals::take`].
    pub(crate) fn take(others: &[i32]) -> Result<Self, Failure> {
        let signals = Signals::take(&[&STOPS, others].concat()).map_err(at("signals"))?;
        Ok(Self { signals: Arc::new(signals), first: None, has_insisted: false })
    }

    /// The next signal that has come and means something, if any.
    pub(crate) fn next(&mut self) -> Result<Option<Heard>, Failure> {
        while let Some(arrived) = self.signals.next().map_err(at("signals"))? {
            if !STOPS.contains(&arrived.number) {
                return Ok(Some(Heard::Other));
            }
            match self.first {
                None => {
                    self.first = Some((arrived.number, Instant::now()));
                    return Ok(Some(Heard::Asks(arrived)));
                }
                Some((_, since)) if since.elapsed() >= PATIENCE => {
                    self.has_insisted = true;
                    return Ok(Some(Heard::Insists));
                }
                Some(_) => {}
            }
        }
        Ok(None)
    }

    /// The first signal to stop.
    pub(crate) fn first(&self) -> Option<i32> {
        self.first.map(|(number, _)| number)
    }

    /// When it came.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.first.map(|(_, since)| since)
    }

    pub(crate) fn has_insisted(&self) -> bool {
        self.has_insisted
    }
}
