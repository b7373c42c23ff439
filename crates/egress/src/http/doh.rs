//! DNS inside of HTTPS, told by its shape, so that an allowed host cannot be used to ask for names that our
//! own DNS does not answer.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{self, HeaderName};
use http::request::Parts;

/// Public resolvers; whoever needs one of these hosts for something else has no way to show it.
const RESOLVERS: &[&str] = &[
    "cloudflare-dns.com",
    "dns.adguard-dns.com",
    "dns.alidns.com",
    "dns.google",
    "dns.google.com",
    "dns.nextdns.io",
    "dns.quad9.net",
    "dns0.eu",
    "doh.cleanbrowsing.org",
    "doh.dns.sb",
    "doh.opendns.com",
    "doh.pub",
    "freedns.controld.com",
    "one.one.one.one",
];

/// Why this request is a question to a resolver, if it is one.
pub(crate) fn find(host: &str, head: &Parts) -> Option<&'static str> {
    let is_below = |name: &str| host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
    if RESOLVERS.iter().any(|name| host == *name || is_below(name)) {
        return Some("the host is a public resolver");
    }
    if [header::CONTENT_TYPE, header::ACCEPT].iter().any(|name| has_dns_type(head, name)) {
        return Some("the content type is that of DNS messages");
    }
    let path = head.uri.path().trim_end_matches('/');
    if path.ends_with("/dns-query") {
        return Some("the path is that of DNS queries");
    }
    let query = head.uri.query()?;
    if parameters(query).any(|(name, value)| name == "dns" && is_dns_message(value)) {
        return Some("the query holds a DNS message");
    }
    let has = |wanted| parameters(query).any(|(name, _)| name == wanted);
    (path.ends_with("/resolve") && has("name") && has("type")).then_some("the query asks for a DNS record")
}

fn has_dns_type(head: &Parts, name: &HeaderName) -> bool {
    head.headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        let value = value.to_ascii_lowercase();
        value.contains("application/dns-") || value.contains("application/oblivious-dns")
    })
}

fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').map(|part| part.split_once('=').unwrap_or((part, "")))
}

/// A message has a header of twelve bytes, asks one thing, and answers none.
fn is_dns_message(value: &str) -> bool {
    let bytes = URL_SAFE_NO_PAD.decode(value.trim_end_matches('=')).unwrap_or_default();
    matches!(bytes[..], [_, _, flags, _, 0, 1, 0, 0, ..] if flags & 0x80 == 0) && bytes.len() > 12
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(host: &str, uri: &str, fields: &[(&str, &str)], expected: bool) {
        let mut request = http::Request::builder().uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        assert_eq!(find(host, &head).is_some(), expected, "{host} {uri} {fields:?}");
    }

    #[test]
    fn b1_questions_to_resolvers_are_known_by_their_shape() {
        let plain = "a.example";
        check(plain, "/x", &[("content-type", "application/dns-message")], true);
        check(plain, "/x", &[("accept", "text/html, Application/DNS-JSON")], true);
        check(plain, "/dns-query?x=1", &[], true);
        check(plain, "/u/dns-query/", &[], true);
        check(plain, "/x?dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA2NvbQAAAQAB", &[], true);
        check(plain, "/resolve?name=a.example&type=A", &[], true);
        check("dns.google", "/x", &[], true);
        check("abc.cloudflare-dns.com", "/x", &[], true);
        check(plain, "/x?dns=yes", &[], false);
        check(plain, "/resolve?name=a", &[], false);
        check(plain, "/dns-query-docs", &[("accept", "application/json")], false);
        check("notdns.google", "/x", &[], false);
    }
}
