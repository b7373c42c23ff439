//! Traces on a real file system: written, killed, filled up, damaged, forged, packed and read back.

#[cfg(test)]
mod archive;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod forgery;
#[cfg(test)]
mod full_disk;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod sample;
#[cfg(test)]
mod story;
#[cfg(test)]
mod writing;
