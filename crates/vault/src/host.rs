//! Names of hosts that a credential may be sent to. One spelling decides everything, so a name is brought to its
//! canonical form here or refused; what a name resolves to is judged where connections are made.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    #[error("a host name is empty: give one such as `api.example.com`")]
    Empty,
    #[error("`{0}` is a URL: give the host name alone, `--for {1}`")]
    Url(String, String),
    #[error("`{0}` names a port: give the host name alone, ports are the policy's to allow")]
    Port(String),
    #[error("`{0}` is not a host name: give one such as `api.example.com`, or `*.example.com`")]
    NotAName(String),
    #[error("`{0}`: a `*` stands for whole names below a domain, as in `*.example.com`")]
    Wildcard(String),
    #[error("`{0}` would send the secret to hosts of strangers: name the hosts one by one")]
    TooWide(String),
    #[error("`{0}` is no plain address: write an address as four decimal numbers, or better a name")]
    Notation(String),
    #[error("`{0}` is an address of cloud metadata or of this link: no credential goes there")]
    Metadata(String),
}

/// Below these everyone can have a name. Not the whole public suffix list: those that agents meet.
const SHARED: &[&str] = &[
    "ac.uk",
    "amazonaws.com",
    "appspot.com",
    "azurewebsites.net",
    "blogspot.com",
    "cloudapp.net",
    "cloudfront.net",
    "co.in",
    "co.jp",
    "co.kr",
    "co.nz",
    "co.uk",
    "co.za",
    "com.au",
    "com.br",
    "com.cn",
    "com.mx",
    "com.tr",
    "deno.dev",
    "firebaseapp.com",
    "fly.dev",
    "github.io",
    "githubusercontent.com",
    "gitlab.io",
    "gov.uk",
    "herokuapp.com",
    "hf.space",
    "loca.lt",
    "net.au",
    "netlify.app",
    "ngrok-free.app",
    "ngrok.app",
    "ngrok.io",
    "on.aws",
    "onrender.com",
    "org.au",
    "org.uk",
    "pages.dev",
    "r2.dev",
    "railway.app",
    "replit.app",
    "run.app",
    "s3.amazonaws.com",
    "surge.sh",
    "trycloudflare.com",
    "vercel.app",
    "web.app",
    "windows.net",
    "workers.dev",
];

/// Metadata services that lie outside of the link-local ranges.
const METADATA_V4: &[Ipv4Addr] =
    &[Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(192, 0, 0, 192)];

/// Of one provider, whose services all lie below: what only signs may be used for any of them, since it is not sent.
const PROVIDERS: &[&str] = &["amazonaws.com", "windows.net"];

/// The canonical form: lower case, ASCII, no dot at the end. `signs`: the secret itself goes to none of them.
pub(crate) fn canonical(text: &str, signs: bool) -> Result<String, HostError> {
    let shown = || text.chars().take(80).collect::<String>();
    if text.is_empty() {
        return Err(HostError::Empty);
    }
    if let Some((_, rest)) = text.split_once("://") {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        return Err(HostError::Url(shown(), host.chars().take(80).collect()));
    }
    if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return literal(address);
    }
    if text.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())) {
        return Err(HostError::Port(shown()));
    }
    let (wild, name) = text.strip_prefix("*.").map_or((false, text), |name| (true, name));
    if name.contains('*') {
        return Err(HostError::Wildcard(shown()));
    }
    let name = idna::domain_to_ascii_strict(name.strip_suffix('.').unwrap_or(name))
        .ok()
        .filter(|name| !name.is_empty() && name.len() <= 253)
        .ok_or_else(|| HostError::NotAName(shown()))?;
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.starts_with("0x") || last.bytes().all(|b| b.is_ascii_digit()) {
        return Err(HostError::Notation(shown()));
    }
    if !wild {
        return Ok(name);
    }
    let of_provider = signs && PROVIDERS.contains(&name.as_str());
    if !name.contains('.') || (SHARED.contains(&name.as_str()) && !of_provider) {
        return Err(HostError::TooWide(shown()));
    }
    Ok(format!("*.{name}"))
}

/// The same with a port, which is `usual` where none is named: `db.internal:5432`.
pub(crate) fn with_port(text: &str, usual: u16) -> Result<String, HostError> {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']'));
    let (host, port) = match port {
        Some((host, port)) => {
            let number = port.parse::<u16>().ok().filter(|port| *port > 0);
            (host, number.ok_or_else(|| HostError::NotAName(text.chars().take(80).collect()))?)
        }
        None => (text, usual),
    };
    let host = canonical(host, false)?;
    Ok(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

fn literal(address: IpAddr) -> Result<String, HostError> {
    if is_metadata(address) {
        return Err(HostError::Metadata(address.to_string()));
    }
    Ok(address.to_string())
}

fn is_metadata(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            v4.is_link_local()
                || v4.is_unspecified()
                || v4.is_multicast()
                || v4.is_broadcast()
                || METADATA_V4.contains(&v4)
        }
        IpAddr::V6(v6) => {
            let s = v6.segments();
            let aws = s[0] == 0xfd00 && s[1] == 0x0ec2;
            let google = v6 == Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254);
            let embedded = v6.to_ipv4().is_some_and(|v4| is_metadata(v4.into()));
            aws || google
                || embedded
                || v6.is_unicast_link_local()
                || v6.is_unspecified()
                || v6.is_multicast()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: Result<&str, &str>) {
        let found = canonical(text, false);
        match (&found, expected) {
            (Ok(host), Ok(expected)) => assert_eq!(host, expected, "{text}"),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{text}: {error}"),
            _ => panic!("{text}: {found:?}"),
        }
    }

    #[test]
    fn one_spelling() {
        check("api.stripe.com", Ok("api.stripe.com"));
        check("API.Stripe.com.", Ok("api.stripe.com"));
        check("bücher.example", Ok("xn--bcher-kva.example"));
        check("*.Example.com", Ok("*.example.com"));
        check("gateway", Ok("gateway"));
        check("203.0.113.7", Ok("203.0.113.7"));
        check("[2001:db8::1]", Ok("2001:db8::1"));
    }

    #[test]
    fn what_is_no_name_is_refused_with_the_way_out() {
        check("", Err("empty"));
        check("https://api.stripe.com/v1", Err("--for api.stripe.com"));
        check("api.stripe.com:443", Err("port"));
        check("api.stripe.com/v1", Err("not a host name"));
        check("user@api.stripe.com", Err("not a host name"));
        check("a..b", Err("not a host name"));
        check("under_score.example", Err("not a host name"));
        check("api.*.com", Err("whole names below"));
        check("api*.example.com", Err("whole names below"));
        check("*", Err("whole names below"));
        check("*.*.example.com", Err("whole names below"));
    }

    #[test]
    fn a_wildcard_over_strangers_is_refused() {
        check("*.com", Err("strangers"));
        check("*.co.uk", Err("strangers"));
        check("*.github.io", Err("strangers"));
        check("mine.github.io", Ok("mine.github.io"));
        check("*.mine.github.io", Ok("*.mine.github.io"));
        check("*.amazonaws.com", Err("strangers"));
        assert_eq!(canonical("*.amazonaws.com", true), Ok("*.amazonaws.com".to_owned()));
        assert!(canonical("*.github.io", true).is_err());
    }

    #[test]
    fn addresses_of_metadata_and_odd_notations_are_refused() {
        for address in [
            "169.254.169.254",
            "100.100.100.200",
            "fd00:ec2::254",
            "::ffff:169.254.169.254",
            "fe80::1",
            "0.0.0.0",
        ] {
            check(address, Err("metadata"));
        }
        for odd in ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "0x7f000001"] {
            check(odd, Err("no plain address"));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_canonical_name_or_an_error(text in ".{0,60}") {
            if let Ok(name) = canonical(&text, false) {
                prop_assert_eq!(canonical(&name, false), Ok(name.clone()), "{}", name);
                prop_assert!(name.is_ascii());
            }
        }
    }
}
