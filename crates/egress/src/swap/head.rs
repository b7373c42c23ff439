//! A request's head: every part of it looked at, the declared ones swapped, all or nothing.

use super::state::State;
use super::value::{Secret, Swapping, joined, layers};
use super::{At, Destination, Refusal, Used, Why};
use cofferdam_vault::Place;
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, HeaderName, HeaderValue, IF_RANGE, RANGE, SEC_WEBSOCKET_EXTENSIONS,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Uri, request};

pub(super) fn swap(state: &State, to: &Destination<'_>, head: &mut request::Parts) -> Result<Used, Refusal> {
    let watched = state.entries.iter().find(|entry| entry.goes_to(to.host));
    if let (Some(entry), true) = (watched, [Method::TRACE.as_str(), "TRACK"].contains(&head.method.as_str()))
    {
        return Err(entry.refuse(&At::Method, Why::Echo(head.method.clone())));
    }
    state.bare(head.method.as_str().as_bytes(), to, &At::Method)?;
    let mut here = state.entries.iter().filter(|entry| entry.goes_to(to.host));
    let used = Used {
        watched: watched.is_some(),
        bodiless: head.method == Method::HEAD,
        sealed: watched.is_some() && here.all(|entry| entry.credential.signs()),
        ..Used::default()
    };
    let mut swapping = Swapping { state, to, used };
    // Nothing of the head changes before all of it was found right: who reads a refused head reads no secret.
    let uri = swapping.uri(&head.uri)?;
    let headers = swapping.headers(&head.headers)?;
    for (name, value) in headers {
        head.headers.insert(name, value);
    }
    if let Some(uri) = uri {
        head.uri = uri;
    }
    if swapping.used.watched {
        ask_for_the_readable(&mut head.headers, swapping.used.sealed);
    }
    Ok(swapping.used)
}

/// What comes back has to be read: uncompressed if the other side obliges, and whole, because a secret of which
/// each response shows a part cannot be covered.
///
/// Where no secret is sent (`sealed`), parts of files may be asked for.
fn ask_for_the_readable(headers: &mut HeaderMap, sealed: bool) {
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if sealed {
        return;
    }
    headers.remove("grpc-accept-encoding");
    for name in [RANGE, IF_RANGE, SEC_WEBSOCKET_EXTENSIONS] {
        headers.remove(name);
    }
}

impl Swapping<'_> {
    fn uri(&mut self, uri: &Uri) -> Result<Option<Uri>, Refusal> {
        self.state.bare_name(self.to.host, self.to, At::Host)?;
        if let Some(authority) = uri.authority() {
            self.state.bare_name(authority.as_str(), self.to, At::Host)?;
        }
        for layer in layers(uri.path().as_bytes()) {
            self.state.bare(&layer, self.to, &At::Path)?;
        }
        let Some(query) = uri.query() else { return Ok(None) };
        let is_query =
            |place: &Place, name: &str| matches!(place, Place::Query(declared) if declared == name);
        let Some(query) = self.pairs(query.as_bytes(), At::Query, is_query)? else { return Ok(None) };
        let target = joined(&[uri.path().as_bytes(), b"?", &query]);
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = PathAndQuery::try_from(target.as_slice()).ok();
        let whole = parts.path_and_query.is_some().then(|| Uri::from_parts(parts).ok()).flatten();
        whole.map(Some).ok_or_else(|| self.unsendable(At::Path))
    }

    fn headers(&mut self, headers: &HeaderMap) -> Result<Vec<(HeaderName, HeaderValue)>, Refusal> {
        let mut swapped = Vec::new();
        for (name, value) in headers {
            self.state.bare_name(name.as_str(), self.to, At::HeaderName)?;
            let Some((_, mark, entry)) = self.state.find(value.as_bytes(), 0) else { continue };
            let at = At::Header(name.as_str().to_owned());
            let text = self.header(name, value.as_bytes(), &at)?;
            // What was found has to be gone: a scheme that reads the value otherwise may have left it.
            let Some(text) = text.filter(|text| !self.state.shows_placeholder(text)) else {
                return Err(self.state.misplaced(mark, entry, self.to, &at));
            };
            if headers.get_all(name).iter().count() > 1 {
                return Err(entry.refuse(&at, Why::Repeated));
            }
            let mut value = HeaderValue::from_bytes(&text).map_err(|_| entry.refuse(&at, Why::Unsendable))?;
            // Kept out of HPACK's tables, and out of what prints headers.
            value.set_sensitive(true);
            swapped.push((name.clone(), value));
        }
        Ok(swapped)
    }

    fn header(&mut self, name: &HeaderName, value: &[u8], at: &At) -> Result<Option<Secret>, Refusal> {
        let declared = |place: &Place| matches!(place, Place::Header(header) if header == name.as_str());
        if *name == AUTHORIZATION {
            let (scheme, rest) = split_scheme(value);
            let credentials = rest.trim_ascii();
            let lead = value.get(..value.len() - rest.len()).unwrap_or_default();
            if scheme.eq_ignore_ascii_case(b"basic") && self.declares(|place| *place == Place::Basic) {
                let token = self.basic(credentials, at)?;
                return Ok(token.map(|token| joined(&[lead, &token])));
            }
            let bearer = [&b"bearer"[..], b"token"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
            if let (true, Some(entry)) = (bearer, self.state.whose(credentials)) {
                let wanted = |place: &Place| *place == Place::Bearer || declared(place);
                entry.permits(self.to, at, wanted)?;
                self.used.add(&entry.name, entry.generation);
                return Ok(Some(joined(&[lead, entry.plain.reveal()])));
            }
        }
        self.value(value, at, &declared)
    }

    /// Whether any credential of this destination has such a place.
    fn declares(&self, place: impl Fn(&Place) -> bool) -> bool {
        let here = self.state.entries.iter().filter(|entry| entry.goes_to(self.to.host));
        here.flat_map(|entry| &entry.credential.places).any(place)
    }

    fn unsendable(&self, at: At) -> Refusal {
        let culprit = self.used.credentials.last().map_or("", |used| &used.name);
        Refusal::of(culprit, at, Why::Unsendable)
    }
}

/// `Bearer xyz` into its scheme and what follows the spaces.
fn split_scheme(value: &[u8]) -> (&[u8], &[u8]) {
    let space = value.iter().position(|&b| b == b' ').unwrap_or(value.len());
    let (scheme, rest) = value.split_at(space);
    (scheme, rest.trim_ascii_start())
}
