//! The real guest at the end of a socket, without a sandbox around it.

#[cfg(test)]
mod beginnings;
#[cfg(test)]
mod commands;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod tasks;
#[cfg(test)]
mod terminal;
