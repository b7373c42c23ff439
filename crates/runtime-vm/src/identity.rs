//! What no two machines may have in common.

use cofferdam_inside::Mark;
use cofferdam_inside::wire::{Clock, Identity};
use cofferdam_runtime::RuntimeError;
use std::time::{SystemTime, UNIX_EPOCH};

fn draw(bytes: &mut [u8]) -> Result<(), RuntimeError> {
    let drawn = rustix::rand::getrandom(bytes, rustix::rand::GetRandomFlags::empty());
    drawn.map(drop).map_err(|errno| RuntimeError::io("draw random bytes")(errno.into()))
}

/// For who has no clock.
pub(crate) const EPOCH: Clock = Clock { seconds: 0, nanos: 0 };

pub(crate) fn clock() -> Clock {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Clock { seconds: now.as_secs().cast_signed(), nanos: now.subsec_nanos() }
}

/// Drawn anew for every copy, so that none is ever another's.
pub(crate) fn new() -> Result<Identity, RuntimeError> {
    let mut seed = vec![0u8; 64];
    draw(&mut seed)?;
    let mut number = [0u8; 16];
    draw(&mut number)?;
    let machine: String = number.iter().map(|byte| format!("{byte:02x}")).collect();
    let host = format!("cofferdam-{}", machine.get(..8).unwrap_or_default());
    Ok(Identity { clock: clock(), seed, machine, host })
}

pub(crate) fn mark() -> Result<Mark, RuntimeError> {
    let mut bytes = [0; 32];
    draw(&mut bytes)?;
    Ok(Mark(bytes))
}
