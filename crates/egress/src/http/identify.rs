//! Whom a request is for. The name in the TLS hello, the name in the request and the destination of the
//! connection must be one; where they are not, nothing is sent and nobody is asked.

use crate::address;
use crate::front::framing::{Malformed, REFUSED};
use crate::host::split_port;
use crate::rescue::Failure;
use cofferdam_policy::canonical;
use http::request::Parts;
use http::uri::{PathAndQuery, Uri};
use http::{HeaderMap, HeaderValue, Method, Version, header};
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    pub(crate) const fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// Where a request goes. The host is canonical.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) scheme: Scheme,
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
}

impl Target {
    /// `host`, or `host:port` where the port is not the scheme's own.
    pub(crate) fn authority(&self) -> String {
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        if self.port == self.scheme.port() {
            format!("{open}{}{close}", self.host)
        } else {
            format!("{open}{}{close}:{}", self.host, self.port)
        }
    }
}

/// A host as a client wrote it, in its canonical form; an address only in its one plain notation.
pub(crate) fn host_of(text: &str) -> Result<Arc<str>, Failure> {
    match address::host_literal(text) {
        Ok(Some(ip)) => Ok(ip.to_string().into()),
        Ok(None) => Ok(canonical(text)?.into()),
        Err(why) => Err(Failure::Address { host: text.chars().take(80).collect(), why }),
    }
}

/// Finds the target and takes the authority out of the head, so that the target is the only place it stands.
pub(crate) fn identify(bound: Option<&Target>, head: &mut Parts) -> Result<Target, Failure> {
    method_is_plain(&head.method, head.uri.path())?;
    let target = match bound {
        Some(bound) if repeats(bound, head) => bound.clone(),
        Some(bound) => within(bound, names(head)?, &head.uri)?,
        None => free(names(head)?, &head.uri)?,
    };
    let path = match head.uri.path_and_query() {
        Some(path) => path.clone(),
        None => PathAndQuery::from_static("/"),
    };
    head.uri = Uri::from(path);
    head.headers.remove(header::HOST);
    Ok(target)
}

fn method_is_plain(method: &Method, path: &str) -> Result<(), Failure> {
    match method.as_str() {
        REFUSED => Err(match Malformed::from_code(path.trim_start_matches('/')) {
            Some(why) => Failure::Malformed(why),
            None => Failure::Malformed(Malformed::Method),
        }),
        // These have the far end tell back what it got, credentials and all; or ask for a tunnel in a tunnel.
        "TRACE" | "TRACK" | "CONNECT" => Err(Failure::Method(method.clone())),
        _ => Ok(()),
    }
}

/// Whether the request names its connection's destination letter for letter, as nearly all do: the canonical name
/// is its own canonical form, so nothing is left to be read.
fn repeats(bound: &Target, head: &Parts) -> bool {
    let field = host_field(&head.headers).ok().flatten().and_then(|text| split_port(text).ok());
    let is_bound = |(host, port): (&str, Option<u16>)| {
        *host == *bound.host && port.is_none_or(|port| port == bound.port)
    };
    head.uri.authority().is_none() && head.uri.scheme().is_none() && field.is_some_and(is_bound)
}

/// The host and port the request itself names.
struct Named {
    host: Arc<str>,
    port: Option<u16>,
}

fn names(head: &Parts) -> Result<Option<Named>, Failure> {
    let read = |text: &str| -> Result<Named, Failure> {
        let (host, port) = split_port(text)?;
        Ok(Named { host: host_of(host)?, port })
    };
    let in_target = head.uri.authority().map(|authority| read(authority.as_str())).transpose()?;
    let in_field = host_field(&head.headers)?.map(read).transpose()?;
    match (in_target, in_field) {
        (Some(target), Some(field)) => {
            let default = head.uri.scheme_str().map(|s| if s == "https" { 443 } else { 80 });
            let port = |named: &Named| named.port.or(default);
            if target.host != field.host || port(&target) != port(&field) {
                return Err(Failure::TwoNames { one: target.host, other: field.host });
            }
            Ok(Some(target))
        }
        (one, other) => Ok(one.or(other)),
    }
}

fn host_field(headers: &HeaderMap) -> Result<Option<&str>, Failure> {
    let mut fields = headers.get_all(header::HOST).iter();
    let first = fields.next();
    if fields.next().is_some() {
        return Err(Failure::Malformed(Malformed::Host));
    }
    first.map(|value| value.to_str().map_err(|_| Failure::Malformed(Malformed::Host))).transpose()
}

/// On a connection whose destination is known, the request may only repeat it.
fn within(bound: &Target, named: Option<Named>, uri: &Uri) -> Result<Target, Failure> {
    if uri.scheme_str().is_some_and(|scheme| scheme != bound.scheme.name()) {
        return Err(Failure::Scheme(uri.scheme_str().unwrap_or_default().to_owned()));
    }
    if let Some(named) = named
        && (named.host != bound.host || named.port.is_some_and(|port| port != bound.port))
    {
        let asked = Target { scheme: bound.scheme, host: named.host, port: named.port.unwrap_or(bound.port) };
        return Err(Failure::Misdirected { asked: asked.authority(), bound: bound.authority() });
    }
    Ok(bound.clone())
}

/// To a proxy, each request names its destination itself.
fn free(named: Option<Named>, uri: &Uri) -> Result<Target, Failure> {
    match (uri.scheme_str(), named) {
        (Some("http"), Some(named)) => {
            Ok(Target { scheme: Scheme::Http, host: named.host, port: named.port.unwrap_or(80) })
        }
        (Some(scheme), _) => Err(Failure::Scheme(scheme.chars().take(20).collect())),
        (None, _) => Err(Failure::NotAbsolute),
    }
}

/// Puts the authority back to where the version that is spoken upstream wants it.
pub(crate) fn address_to(target: &Target, head: &mut Parts, h2: bool) -> Result<(), Failure> {
    let bad = || Failure::Malformed(Malformed::Target);
    let authority = target.authority();
    let mut parts = std::mem::take(&mut head.uri).into_parts();
    if h2 {
        parts.scheme = Some(match target.scheme {
            Scheme::Http => http::uri::Scheme::HTTP,
            Scheme::Https => http::uri::Scheme::HTTPS,
        });
        parts.authority = Some(authority.try_into().map_err(|_| bad())?);
        head.headers.remove(header::HOST);
        head.version = Version::HTTP_2;
    } else {
        (parts.scheme, parts.authority) = (None, None);
        head.headers.insert(header::HOST, HeaderValue::from_str(&authority).map_err(|_| bad())?);
        head.version = Version::HTTP_11;
    }
    head.uri = Uri::from_parts(parts).map_err(|_| bad())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn head(method: &str, uri: &str, hosts: &[&str]) -> Parts {
        let mut request = Request::builder().method(method).uri(uri);
        for host in hosts {
            request = request.header("host", *host);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn check(bound: Option<&str>, uri: &str, hosts: &[&str], expected: Option<&str>) {
        let bound = bound.map(|host| Target { scheme: Scheme::Https, host: host.into(), port: 443 });
        let mut head = head("GET", uri, hosts);
        let found = identify(bound.as_ref(), &mut head).ok();
        let found = found.map(|t| format!("{}://{}{}", t.scheme.name(), t.authority(), head.uri));
        assert_eq!(found.as_deref(), expected, "{bound:?} {uri} {hosts:?}");
    }

    #[test]
    fn a2_a5_a14_all_names_are_one_or_it_is_refused() {
        let bound = Some("a.example");
        check(bound, "/x?y", &["a.example"], Some("https://a.example/x?y"));
        check(bound, "/", &["A.Example.:443"], Some("https://a.example/"));
        check(bound, "/", &[], Some("https://a.example/"));
        check(bound, "https://a.example/z", &["a.example:443"], Some("https://a.example/z"));
        check(bound, "https://a.example/z", &[], Some("https://a.example/z"));
        check(bound, "/", &["b.example"], None);
        check(bound, "/", &["a.example:8443"], None);
        check(bound, "/", &["a.example", "a.example"], None);
        check(bound, "/", &["a.example,b.example"], None);
        check(bound, "/", &["u@a.example"], None);
        check(bound, "http://a.example/", &["a.example"], None);
        check(bound, "https://b.example/", &["a.example"], None);
        check(bound, "https://a.example/", &["b.example"], None);
    }

    #[test]
    fn a5_a6_a_proxy_request_names_its_host_once() {
        check(None, "http://a.example/x", &["a.example"], Some("http://a.example/x"));
        check(None, "http://a.example:80/x", &["a.example"], Some("http://a.example/x"));
        check(None, "http://a.example:8080/x", &["a.example:8080"], Some("http://a.example:8080/x"));
        check(None, "http://a.example:8080/x", &["a.example"], None);
        check(None, "http://a.example/x", &["b.example"], None);
        check(None, "http://u:p@a.example/x", &["a.example"], None);
        check(None, "https://a.example/x", &["a.example"], None);
        check(None, "ftp://a.example/x", &["a.example"], None);
        check(None, "/x", &["a.example"], None);
        for host in ["2130706433", "0177.0.0.1", "0x7f.1", "127.1"] {
            check(None, &format!("http://{host}/"), &[host], None);
        }
        check(None, "http://[2001:db8::1]/", &["[2001:DB8:0::1]"], Some("http://[2001:db8::1]/"));
    }

    #[test]
    fn d3_b4_methods_that_tell_back_or_tunnel_are_refused() {
        let bound = Target { scheme: Scheme::Https, host: "a.example".into(), port: 443 };
        for method in ["TRACE", "TRACK", REFUSED] {
            assert!(identify(Some(&bound), &mut head(method, "/", &["a.example"])).is_err());
        }
        assert!(identify(Some(&bound), &mut head("CONNECT", "b.example:443", &[])).is_err());
        assert!(identify(Some(&bound), &mut head("PURGE", "/", &["a.example"])).is_ok());
    }

    #[test]
    fn the_authority_stands_where_the_version_wants_it() {
        let target = Target { scheme: Scheme::Https, host: "a.example".into(), port: 8443 };
        let mut parts = head("GET", "/x?y", &["other"]);
        address_to(&target, &mut parts, true).unwrap();
        assert_eq!((parts.uri.to_string().as_str(), parts.headers.len()), ("https://a.example:8443/x?y", 0));
        let mut parts = head("GET", "/x?y", &[]);
        address_to(&target, &mut parts, false).unwrap();
        assert_eq!(
            (parts.uri.to_string().as_str(), &parts.headers["host"]),
            ("/x?y", &"a.example:8443".parse().unwrap())
        );
    }
}
