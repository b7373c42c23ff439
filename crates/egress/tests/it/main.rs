//! The proxy between real clients and real servers on loopback.

#[cfg(test)]
mod alerts;
#[cfg(test)]
mod attacks;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod control;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod pieces;
#[cfg(test)]
mod protocols;
#[cfg(test)]
mod resources;
#[cfg(test)]
mod tap;
#[cfg(test)]
mod upstream;
