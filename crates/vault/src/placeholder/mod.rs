//! What stands inside for a credential: a text that looks like the real value to clients which check its shape,
//! tells nothing of it but that shape, and is unique to the session.
//!
//! Chance comes as a seed: the same seed, session and name give the same placeholder, so that a supervisor that
//! was restarted knows its own again.

mod formats;
mod shape;

use crate::Plain;
use cofferdam_model::SessionId;
use cofferdam_seal::{ByteStream, KEY_LEN};
use shape::Shape;
use zeroize::Zeroizing;

/// What cannot be guessed of a placeholder, where its shape allows it.
pub(crate) const ENOUGH_BITS: u32 = 96;
/// With less a shape is not imitated.
const FEWEST_BITS: u32 = 64;
/// Shorter values are not imitated.
const SHORTEST_IMITATED: usize = 16;
/// A text that stands for a value which is not imitated: 142 bits.
const STAND_IN: usize = 24;
const ATTEMPTS: u64 = 64;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceholderError {
    #[error(
        "found no placeholder for `{0}` that differs from every value of this session: use fewer secrets at once"
    )]
    NoneFree(String),
}

/// How well a value can be imitated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Likeness {
    pub(crate) bits: u32,
    /// Same length and shape as the real one; else longer, and plain letters and digits.
    pub(crate) imitates: bool,
}

/// Makes the placeholders of one session.
pub(crate) struct Mint {
    seed: Zeroizing<[u8; KEY_LEN]>,
    session: SessionId,
    made: Vec<String>,
}

impl Mint {
    /// The seed is 32 random bytes of the caller's.
    pub(crate) fn new(seed: Zeroizing<[u8; KEY_LEN]>, session: SessionId) -> Self {
        Self { seed, session, made: Vec::new() }
    }

    /// A placeholder for the real value of `name`. It neither contains nor is part of any of `values` or of
    /// another placeholder of this session.
    pub(crate) fn placeholder(
        &mut self,
        name: &str,
        real: &Plain,
        values: &[&Plain],
    ) -> Result<String, PlaceholderError> {
        let (shape, _) = imitation(real);
        for attempt in 0..ATTEMPTS {
            let label: [&[u8]; 4] =
                [b"placeholder", self.session.as_str().as_bytes(), name.as_bytes(), &attempt.to_be_bytes()];
            let text = shape.draw(&mut ByteStream::new(&self.seed, &label));
            let clear = |other: &[u8]| !within(other, text.as_bytes()) && !within(text.as_bytes(), other);
            let values = values.iter().map(|value| value.reveal()).chain([real.reveal()]);
            if self.made.iter().all(|made| clear(made.as_bytes())) && values.into_iter().all(clear) {
                self.made.push(text.clone());
                return Ok(text);
            }
        }
        Err(PlaceholderError::NoneFree(name.to_owned()))
    }
}

/// How well the value's placeholder can look like it.
pub(crate) fn likeness(real: &Plain) -> Likeness {
    imitation(real).1
}

fn imitation(real: &Plain) -> (Shape, Likeness) {
    let shape = Shape::of(real.reveal());
    let bits = shape.bits();
    if real.reveal().len() >= SHORTEST_IMITATED && bits >= FEWEST_BITS {
        return (shape, Likeness { bits, imitates: true });
    }
    let shape = Shape::stand_in(STAND_IN);
    let bits = shape.bits();
    (shape, Likeness { bits, imitates: false })
}

fn within(needle: &[u8], text: &[u8]) -> bool {
    !needle.is_empty()
        && needle.len() <= text.len()
        && text.windows(needle.len()).any(|window| window == needle)
}

#[cfg(test)]
mod tests;
