//! The vault as the engine uses it: a file in a directory, sources, and a double for the keyring and the person.

#[cfg(test)]
mod damage;
#[cfg(test)]
mod doubles;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod kv;
#[cfg(test)]
mod secrets;
