//! Fields that concern one connection and not the message: they stop here, in both directions. Nothing is
//! added in their place; an upstream does not learn that there is a proxy.

use http::HeaderMap;
use http::header::{self, HeaderName, HeaderValue};

const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// The protocol a client asks to change to, if it does so properly.
pub(crate) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let asked = tokens(headers, &header::CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"));
    asked.then(|| headers.get(header::UPGRADE).cloned()).flatten()
}

fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers.get_all(name).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(',')).map(str::trim)
}

/// Takes out what must not travel on.
pub(crate) fn strip(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        let named: Vec<HeaderName> =
            tokens(headers, &header::CONNECTION).filter_map(|token| token.parse().ok()).collect();
        // Naming a field of routing or framing here would take it away behind the backs of those who judged it.
        for name in named.iter().filter(|name| !KEPT.contains(name)) {
            headers.remove(name);
        }
        headers.remove(header::CONNECTION);
    }
    // Trailers are the one thing of this field that concerns the far end; gRPC insists on it.
    let wants_trailers = tokens(headers, &header::TE).any(|token| token.eq_ignore_ascii_case("trailers"));
    for name in [
        KEEP_ALIVE,
        PROXY_CONNECTION,
        HTTP2_SETTINGS,
        header::PROXY_AUTHORIZATION,
        header::PROXY_AUTHENTICATE,
        header::TE,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ] {
        headers.remove(name);
    }
    if wants_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

const KEPT: &[HeaderName] =
    &[header::HOST, header::CONTENT_LENGTH, header::CONTENT_TYPE, header::AUTHORIZATION];

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&str, &str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn what_concerns_one_connection_stops_here() {
        let mut map = headers(&[
            ("connection", "close, x-hop, authorization"),
            ("x-hop", "1"),
            ("x-end", "2"),
            ("authorization", "Bearer x"),
            ("proxy-authorization", "Basic x"),
            ("keep-alive", "5"),
            ("te", "gzip, trailers"),
            ("upgrade", "h2c"),
        ]);
        assert_eq!(upgrade(&map), None);
        strip(&mut map);
        let mut names: Vec<_> = map.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "te", "x-end"]);
        assert_eq!(map["te"], "trailers");
    }

    #[test]
    fn an_upgrade_is_asked_for_in_two_fields() {
        let map = headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
        assert_eq!(upgrade(&map).unwrap(), "websocket");
    }
}
