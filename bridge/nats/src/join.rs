//! Both directions of one channel, in one program: it knows which calls it has brought in, and does
//! not send them out again.

use crate::attach::{only, take_out};
use crate::bridge::{Bridge, Stop};
use crate::channel::Failure;
use crate::expose::bring_in;
use std::rc::Rc;

/// Exposes the channel of `bridge` and attaches to it.
///
/// # Errors
///
/// As [`expose`](crate::expose()) and [`attach`](crate::attach()).
pub async fn join(bridge: Rc<Bridge>, mut stop: Stop) -> Result<(), Failure> {
    let Some(_lock) = only(&bridge, &mut stop).await? else { return Ok(()) };
    tokio::try_join!(bring_in(Rc::clone(&bridge), stop.clone()), take_out(bridge, stop, false))?;
    Ok(())
}
