//! `[[tool]]`: requests that are calls of a tool. A model knows the tool, not the request, so rules about it do too.

use crate::action::Http;
use crate::glob::PathPattern;
use crate::host::{Hosts, canonical};
use crate::path::{Segments, scrutinise};
use crate::rule::Methods;

#[derive(Debug, PartialEq)]
pub struct DeclaredTool {
    pub name: String,
    pub(crate) hosts: Hosts,
    pub(crate) methods: Option<Methods>,
    pub(crate) paths: Option<Vec<PathPattern>>,
    pub line: usize,
}

impl DeclaredTool {
    /// Whether a request calls it: in any way that the path can be read, so that it is not slipped past.
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
