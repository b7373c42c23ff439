//! `[[rewrite]]`: what is changed in a request after it was allowed and before it is signed.

use crate::action::Http;
use crate::glob::PathPattern;
use crate::host::{Hosts, canonical};
use crate::path::{Segments, scrutinise};
use crate::rule::Methods;
use serde_json::Value as Json;

#[derive(Debug, PartialEq)]
pub struct Rewrite {
    pub id: String,
    pub(crate) hosts: Hosts,
    pub(crate) methods: Option<Methods>,
    pub(crate) paths: Option<Vec<PathPattern>>,
    /// Header fields; names are lower case.
    pub headers: Change<String>,
    /// Parameters of the query.
    pub query: Change<String>,
    /// Fields of a JSON body, by path: `metadata.user`.
    pub json: Change<Json>,
    pub line: usize,
}

/// Names to set and to remove.
#[derive(Debug, Clone, PartialEq)]
pub struct Change<T> {
    pub set: Vec<(String, T)>,
    pub remove: Vec<String>,
}

impl<T> Default for Change<T> {
    fn default() -> Self {
        Self { set: Vec::new(), remove: Vec::new() }
    }
}

impl<T> Change<T> {
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.remove.is_empty()
    }
}

impl Rewrite {
    /// Whether it applies: in any way that the path can be read, so that it is not slipped past.
    pub fn matches(&self, http: &Http<'_>) -> bool {
        let Ok(host) = canonical(http.host) else { return false };
        let path = |paths: &Vec<PathPattern>| {
            scrutinise(http.path).is_ok_and(|doubts| {
                let fits = |reading| paths.iter().any(|path| path.matches(Segments::new(http.path, reading)));
                doubts.readings().any(fits)
            })
        };
        self.hosts.matches(&host)
            && self.methods.as_ref().is_none_or(|methods| methods.matches(http.method, true))
            && self.paths.as_ref().is_none_or(path)
    }
}
