//! Names and the addresses that stand for them inside a sandbox. Each name is given an address of 198.18.0.0/15,
//! which leads nowhere else, so that a captured connection tells the name it was meant for.
//!
//! An address is never given twice in a session: what once meant one name cannot come to mean another. Nothing
//! is resolved here, and no real address is ever told to a sandbox.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, PoisonError, RwLock};

/// What a session may ask for, unless it is told otherwise: far above any real agent's.
pub const MOST_NAMES: usize = 16_384;

/// The range is meant for benchmarks of network devices, so no host has such an address (RFC 2544).
const FIRST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const LAST: Ipv4Addr = Ipv4Addr::new(198, 19, 255, 254);
const ROOM: usize = (LAST.to_bits() - FIRST.to_bits() + 1) as usize;

const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("`{name}` is no host name: {reason}")]
    Bad { name: String, reason: &'static str },
    #[error("this session has asked for {most} names and gets no more: start a new one")]
    TooMany { most: usize },
}

/// The one form of a name by which everything is decided: ASCII (IDNA), lower case, no dot at the end.
pub fn normal(name: &str) -> Result<String, NameError> {
    let bad = |reason| NameError::Bad { name: shown(name), reason };
    // Before anything is done with it: hostile names may be of any length.
    if name.len() > 4 * LONGEST_NAME {
        return Err(bad("it is longer than any name can be"));
    }
    let ascii = idna::domain_to_ascii_cow(name.as_bytes(), idna::AsciiDenyList::URL)
        .map_err(|_| bad("it has characters that a name cannot have"))?;
    let ascii = ascii.strip_suffix('.').unwrap_or(&ascii);
    if ascii.is_empty() || ascii.len() > LONGEST_NAME {
        return Err(bad("a name has 1 to 253 characters"));
    }
    for label in ascii.split('.') {
        check_label(label).map_err(bad)?;
    }
    if crate::address::host_literal(ascii) != Ok(None) {
        return Err(bad("it is an address, or read as one by some"));
    }
    Ok(ascii.to_owned())
}

fn check_label(label: &str) -> Result<(), &'static str> {
    // The underscore stands in no host name by the book, and in many that exist.
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    match label.len() {
        0 => Err("a part between dots is empty"),
        n if n > LONGEST_LABEL => Err("a part between dots has more than 63 characters"),
        _ if !label.bytes().all(allowed) => Err("it has characters that a name cannot have"),
        _ if label.starts_with('-') || label.ends_with('-') => Err("a part begins or ends with a hyphen"),
        _ => Ok(()),
    }
}

fn shown(name: &str) -> String {
    name.chars().take(80).flat_map(char::escape_default).collect()
}

/// The names of one session. Shared by its DNS and its proxy.
#[derive(Debug)]
pub struct Names {
    most: usize,
    given: RwLock<Given>,
}

/// The name at a place has the address that is as far from the first.
#[derive(Debug, Default)]
struct Given {
    places: HashMap<Arc<str>, usize>,
    names: Vec<Arc<str>>,
}

impl Default for Names {
    fn default() -> Self {
        Self::new(MOST_NAMES)
    }
}

impl Names {
    /// At most so many names, and never more than there are addresses.
    pub fn new(most: usize) -> Self {
        Self { most: most.min(ROOM), given: RwLock::default() }
    }

    /// The address that stands for a name, which is given one if it has none. Takes any way of writing the name.
    pub fn address_of(&self, name: &str) -> Result<Ipv4Addr, NameError> {
        let name = normal(name)?;
        if let Some(&place) = self.given.read().unwrap_or_else(PoisonError::into_inner).places.get(&*name) {
            return Ok(at(place));
        }
        let mut given = self.given.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been quicker.
        if let Some(&place) = given.places.get(&*name) {
            return Ok(at(place));
        }
        let place = given.names.len();
        if place >= self.most {
            return Err(NameError::TooMany { most: self.most });
        }
        let name: Arc<str> = name.into();
        given.names.push(name.clone());
        given.places.insert(name, place);
        Ok(at(place))
    }

    /// The name that an address stands for.
    pub fn name_of(&self, address: IpAddr) -> Option<Arc<str>> {
        let IpAddr::V4(address) = address.to_canonical() else { return None };
        let place = address.to_bits().checked_sub(FIRST.to_bits())? as usize;
        self.given.read().unwrap_or_else(PoisonError::into_inner).names.get(place).cloned()
    }
}

/// Places are below `ROOM`, so this stays in the range.
fn at(place: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST.to_bits() + place as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn a_name_has_one_form() {
        for (name, form) in [
            ("example.com", "example.com"),
            ("EXAMPLE.Com.", "example.com"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
            ("my_bucket.s3.amazonaws.com", "my_bucket.s3.amazonaws.com"),
            ("ｅｘａｍｐｌｅ。com", "example.com"),
            ("localhost", "localhost"),
        ] {
            assert_eq!(normal(name).as_deref(), Ok(form), "{name}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long_label = format!("{}.com", "a".repeat(64));
        let long_name = vec!["a".repeat(60); 5].join(".");
        let endless = "a.".repeat(100_000);
        for name in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a b",
            "a/b",
            "a@b",
            "a:80",
            "a\0b",
            "a\r\nb",
            "-a.com",
            "a-.com",
            "a,b",
            "127.0.0.1",
            "2130706433",
            "0x7f.1",
            "[::1]",
            "a%2eb",
            "*.com",
            "xn--a",
            &long_label,
            &long_name,
            &endless,
        ] {
            assert!(matches!(normal(name), Err(NameError::Bad { .. })), "{name:.40}");
        }
    }

    #[test]
    fn names_and_addresses_lead_to_each_other() {
        let names = Names::new(3);
        let one = names.address_of("Example.com").unwrap();
        assert_eq!(one, Ipv4Addr::new(198, 18, 0, 2));
        assert_eq!(names.address_of("example.com."), Ok(one), "the same name");
        let two = names.address_of("example.org").unwrap();
        assert_ne!(one, two);
        assert_eq!(names.name_of(one.into()).as_deref(), Some("example.com"));
        assert_eq!(names.name_of(one.to_ipv6_mapped().into()).as_deref(), Some("example.com"));
        for address in ["198.18.0.0", "198.18.0.1", "198.18.0.4", "8.8.8.8", "::1", "198.20.0.0"] {
            assert_eq!(names.name_of(address.parse().unwrap()), None, "{address}");
        }
    }

    #[test]
    fn a_session_has_so_many_names_and_no_more() {
        let names = Names::new(2);
        let first = names.address_of("a.example").unwrap();
        names.address_of("b.example").unwrap();
        assert_eq!(names.address_of("c.example"), Err(NameError::TooMany { most: 2 }));
        assert_eq!(names.address_of("a.example"), Ok(first), "those that were given stay");
        assert_eq!(Names::new(usize::MAX).most, ROOM);
    }

    #[test]
    fn the_last_address_is_still_in_the_range() {
        assert_eq!(at(ROOM - 1), LAST);
    }

    #[test]
    fn threads_that_ask_at_once_get_the_same() {
        let names = Names::default();
        let ask =
            || (0..200).map(|n| names.address_of(&format!("n{n}.example")).unwrap()).collect::<Vec<_>>();
        let all: Vec<Vec<Ipv4Addr>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(all.iter().all(|one| *one == all[0]));
        assert_eq!(all[0].iter().collect::<HashSet<_>>().len(), 200);
    }

    proptest! {
        #[test]
        fn the_form_of_a_form_is_itself(name in "\\PC{0,60}") {
            if let Ok(form) = normal(&name) {
                prop_assert!(form.is_ascii() && form.len() <= LONGEST_NAME);
                prop_assert_eq!(normal(&form), Ok(form.clone()));
            }
        }
    }
}
