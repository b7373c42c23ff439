//! The state directory used by many at once, and the index whatever becomes of it.

#[cfg(test)]
mod catalog;
#[cfg(test)]
mod together;
