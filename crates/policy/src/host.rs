//! Host names: one spelling for each, patterns over them, and an index from a name to what concerns it.
//! A name that has no certain spelling is an error, never a guess.

use core::net::{Ipv4Addr, Ipv6Addr};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    #[error("`{0}` is not a host name: write a name as api.example.com, or *.example.com for those below it")]
    Name(String),
    #[error("`{0}`: `*` stands alone or as the first label, as in *.example.com")]
    Wildcard(String),
    #[error("`{0}` is a URL: write the host alone, and its path in `paths`")]
    Url(String),
    #[error("`{0}` carries a port: write it in `port`")]
    Port(String),
}

/// The one spelling of a host: lower case, ASCII, no final dot, no brackets. Borrows where it already is.
pub fn canonical(host: &str) -> Result<Cow<'_, str>, HostError> {
    let bad = || HostError::Name(host.chars().take(80).collect());
    if is_plain(host) {
        return Ok(Cow::Borrowed(host));
    }
    let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Ok(address) = inner.unwrap_or(host).parse::<Ipv6Addr>() {
        return Ok(Cow::Owned(address.to_string()));
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    let name = idna::domain_to_ascii(name).map_err(|_| bad())?;
    if is_plain(&name) { Ok(Cow::Owned(name)) } else { Err(bad()) }
}

/// Already in its one spelling: what nearly every request has.
fn is_plain(host: &str) -> bool {
    let mut label = 0;
    for byte in host.bytes() {
        match byte {
            b'.' if label == 0 => return false,
            b'.' => label = 0,
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => label += 1,
            _ => return false,
        }
        if label > 63 {
            return false;
        }
    }
    label > 0 && host.len() <= 253
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    Any,
    Exact(Box<str>),
    /// `*.example.com`: names below, at any depth, and not the name itself.
    Below(Box<str>),
}

impl HostPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, HostError> {
        let shown = || text.chars().take(80).collect::<String>();
        if text == "*" {
            return Ok(Self::Any);
        }
        if text.contains("://") || text.contains('/') {
            return Err(HostError::Url(shown()));
        }
        let (below, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        if name.contains('*') {
            return Err(HostError::Wildcard(shown()));
        }
        if name
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.contains(':') && port.parse::<u16>().is_ok())
        {
            return Err(HostError::Port(shown()));
        }
        let name = canonical(name).map_err(|_| HostError::Name(shown()))?.into_owned().into_boxed_str();
        if below && (name.parse::<Ipv4Addr>().is_ok() || name.contains(':')) {
            return Err(HostError::Wildcard(shown()));
        }
        Ok(if below { Self::Below(name) } else { Self::Exact(name) })
    }

    /// The host in its one spelling.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(name) => **name == *host,
            Self::Below(name) => host.strip_suffix(&**name).is_some_and(|front| front.ends_with('.')),
        }
    }

    /// Whether whatever `other` matches is matched by this.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (_, Self::Any) | (Self::Exact(_), Self::Below(_)) => false,
            (_, Self::Exact(name)) => self.matches(name),
            (Self::Below(a), Self::Below(b)) => a == b || self.matches(b),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Exact(name) => f.write_str(name),
            Self::Below(name) => write!(f, "*.{name}"),
        }
    }
}

/// A list of patterns, any of which may match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hosts(pub(crate) Vec<HostPattern>);

impl Hosts {
    /// The host in its one spelling.
    pub fn matches(&self, host: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(host))
    }

    /// The same for a host as it came; one without a certain spelling matches nothing but `*`.
    pub fn matches_raw(&self, host: &str) -> bool {
        match canonical(host) {
            Ok(host) => self.matches(&host),
            Err(_) => self.0.contains(&HostPattern::Any),
        }
    }

    pub(crate) fn covers(&self, other: &Self) -> bool {
        other.0.iter().all(|b| self.0.iter().any(|a| a.covers(b)))
    }
}

/// From a host to the numbers filed under it: a look-up for the name and one for each name above it.
#[derive(Debug, Default)]
pub(crate) struct HostIndex {
    any: Vec<u32>,
    exact: HashMap<Box<str>, Vec<u32>>,
    below: HashMap<Box<str>, Vec<u32>>,
}

impl HostIndex {
    /// Files a number once under each list that leads to it.
    pub(crate) fn add(&mut self, hosts: &Hosts, number: u32) {
        if hosts.0.contains(&HostPattern::Any) {
            self.any.push(number);
            return;
        }
        for pattern in &hosts.0 {
            let list = match pattern {
                HostPattern::Any => &mut self.any,
                HostPattern::Exact(name) => self.exact.entry(name.clone()).or_default(),
                HostPattern::Below(name) => self.below.entry(name.clone()).or_default(),
            };
            if list.last() != Some(&number) {
                list.push(number);
            }
        }
    }

    /// Calls for each number that could concern the host; the same one may come twice.
    pub(crate) fn each(&self, host: &str, mut visit: impl FnMut(u32)) {
        let mut all = |list: Option<&Vec<u32>>| list.into_iter().flatten().for_each(|number| visit(*number));
        all(Some(&self.any));
        all(self.exact.get(host));
        if !self.below.is_empty() {
            for (at, _) in host.match_indices('.') {
                all(self.below.get(&host[at + 1..]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_one_spelling() {
        let check = |host: &str, expected: &str| assert_eq!(canonical(host).unwrap(), expected, "{host}");
        check("api.example.com", "api.example.com");
        check("API.Example.COM.", "api.example.com");
        check("bücher.example", "xn--bcher-kva.example");
        check("BÜCHER.example.", "xn--bcher-kva.example");
        check("[::1]", "::1");
        check("0:0:0:0:0:0:0:1", "::1");
        check("ｅxample.com", "example.com");
        for bad in
            ["", ".", "..", "a..b", "a b", "a/b", "a@b", "a\0b", ".a", "-\u{0}", "a%2eb", "a:b", "[::1"]
        {
            assert!(canonical(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn patterns_match_whole_labels() {
        let check = |pattern: &str, host: &str, expected: bool| {
            assert_eq!(HostPattern::parse(pattern).unwrap().matches(host), expected, "{pattern} {host}");
        };
        check("*.example.com", "a.example.com", true);
        check("*.example.com", "a.b.example.com", true);
        check("*.example.com", "example.com", false);
        check("*.example.com", "badexample.com", false);
        check("Example.COM.", "example.com", true);
        check("example.com", "example.com.evil.org", false);
        check("*", "anything", true);
        for bad in ["", "a*.b", "*x.com", "a.*.b", "https://x", "x/y", "x:443", "*.1.2.3.4", "**"] {
            assert!(HostPattern::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_index_finds_what_the_patterns_match() {
        let patterns = ["*", "a.com", "*.a.com", "*.com", "b.org"];
        let hosts: Vec<_> = patterns.iter().map(|p| Hosts(vec![HostPattern::parse(p).unwrap()])).collect();
        let mut index = HostIndex::default();
        hosts.iter().zip(0..).for_each(|(hosts, number)| index.add(hosts, number));
        for host in ["a.com", "x.a.com", "y.x.a.com", "com", "b.org", "c.b.org"] {
            let mut found = Vec::new();
            index.each(host, |number| found.push(number));
            found.sort_unstable();
            let expected: Vec<u32> = (0..5).filter(|n| hosts[*n as usize].matches(host)).collect();
            assert_eq!(found, expected, "{host}");
        }
    }
}
