//! Sandboxes made for real by the library: with one control left out, and with one step that fails.

#[cfg(test)]
mod enforcement;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod inside;
#[cfg(test)]
mod layer;
#[cfg(test)]
mod layer_aside;
#[cfg(test)]
mod layer_faults;
#[cfg(test)]
mod layer_place;
#[cfg(test)]
mod layer_stack;
#[cfg(test)]
mod network;
#[cfg(test)]
mod place;
