//! A host with a port, as requests name it. It refuses what two readers could take for two hosts.

use thiserror::Error;

#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum BadHost {
    #[error("the host is empty: name one")]
    Empty,
    #[error("`{0}` has a bracket that does not close: write [ADDRESS]:PORT")]
    Shape(String),
    #[error("`{0}` has no port between 1 and 65535: give one or none")]
    Port(String),
    #[error("`{0}` names a user before the host: send credentials in a header")]
    User(String),
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`. The host is as it came, v6 without its brackets.
pub(crate) fn split_port(authority: &str) -> Result<(&str, Option<u16>), BadHost> {
    if authority.contains('@') {
        return Err(BadHost::User(authority.chars().take(80).collect()));
    }
    let bad_port = || BadHost::Port(authority.chars().take(80).collect());
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) =
                rest.split_once(']').ok_or_else(|| BadHost::Shape(authority.chars().take(80).collect()))?;
            match rest {
                "" => (host, None),
                _ => (host, Some(rest.strip_prefix(':').ok_or_else(bad_port)?)),
            }
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err(BadHost::Empty);
    }
    let port = match port {
        None => None,
        Some(text) if !text.is_empty() && text.len() <= 5 && text.bytes().all(|b| b.is_ascii_digit()) => {
            Some(text.parse::<u16>().ok().filter(|port| *port != 0).ok_or_else(bad_port)?)
        }
        Some(_) => return Err(bad_port()),
    };
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ports_and_brackets() {
        let check = |text: &str, expected| assert_eq!(split_port(text).ok(), expected, "{text:?}");
        check("a", Some(("a", None)));
        check("a:1", Some(("a", Some(1))));
        check("[::1]", Some(("::1", None)));
        check("[::1]:443", Some(("::1", Some(443))));
        check("a:", None);
        check("a:0", None);
        check("a:+1", None);
        check("a:65536", None);
        check("a:1:2", None);
        check("u@a", None);
        check("[::1", None);
        check("[::1]1", None);
    }

    proptest! {
        #[test]
        fn what_is_split_was_there(text in "[a\\[\\]:@0-9.]{0,20}") {
            if let Ok((host, port)) = split_port(&text) {
                prop_assert!(!host.is_empty() && !host.contains('@') && text.contains(host));
                prop_assert!(port != Some(0));
            }
        }
    }
}
