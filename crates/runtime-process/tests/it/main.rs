//! Sandboxes made for real by the library: with one control left out, and with one step that fails.

#[cfg(test)]
mod enforcement;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod place;
