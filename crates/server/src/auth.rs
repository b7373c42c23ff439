//! Who asks, by the key that comes with a request.

use crate::app::State;
use crate::keys::{Key, KeyKind};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use std::sync::Arc;

/// Whose key it is; nothing for one that is not valid.
pub(crate) fn caller(app: &State, headers: &HeaderMap) -> Option<Arc<Key>> {
    app.keys.check(presented(headers)?)
}

fn presented(headers: &HeaderMap) -> Option<&str> {
    if let Some(key) = headers.get("x-api-key") {
        return key.to_str().ok();
    }
    bearer(headers)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
}

/// Takes a key of ours out of a header that also others use for theirs.
pub(crate) fn keep_back(app: &State, headers: &mut HeaderMap) {
    if bearer(headers).is_some_and(|key| app.keys.check(key).is_some()) {
        headers.remove(AUTHORIZATION);
    }
}

impl Key {
    /// Whether what belongs to this tenant is this key's to see.
    pub(crate) fn sees(&self, tenant: &str) -> bool {
        self.kind == KeyKind::Admin || self.tenant == tenant
    }
}
