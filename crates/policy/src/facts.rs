//! What is known of one action while it is judged: computed once, and only when a rule asks.

use crate::action::{Action, Http};
use crate::host::canonical;
use crate::json;
use crate::path::{Doubts, scrutinise};
use crate::problem::Problem;
use crate::request::Target;
use crate::sql::SqlKind;
use serde_json::Value as Json;
use std::borrow::Cow;
use std::cell::OnceCell;

pub(crate) struct Facts<'a> {
    pub(crate) action: Action<'a>,
    /// Where a request goes, or the page of a browser action; none where there is none.
    pub(crate) target: Option<Target<'a>>,
    host: Result<Cow<'a, str>, Problem>,
    doubts: OnceCell<Result<Doubts, Problem>>,
    body: OnceCell<Result<Json, Problem>>,
}

impl<'a> Facts<'a> {
    pub(crate) fn new(action: &Action<'a>) -> Self {
        let target = match action {
            Action::Http(http) => Some(Target::of(http)),
            Action::Browser(browser) => browser.url.and_then(|url| Target::parse(url).ok()),
            _ => None,
        };
        let host = match (&target, action) {
            (Some(target), _) => canonical(target.host).map_err(|_| Problem::Host),
            (None, Action::Sql(sql)) => canonical(sql.host).map_err(|_| Problem::Host),
            (None, Action::Ssh(ssh)) => canonical(ssh.host).map_err(|_| Problem::Host),
            (None, _) => Ok(Cow::Borrowed("")),
        };
        Self { action: *action, target, host, doubts: OnceCell::new(), body: OnceCell::new() }
    }

    /// Whether it does nothing by itself: a session that begins, a transaction.
    pub(crate) fn is_way(&self) -> bool {
        let Action::Sql(sql) = &self.action else { return false };
        let way = |kind| matches!(kind, SqlKind::Connect | SqlKind::Control | SqlKind::Writable);
        sql.acts.first().is_some_and(|act| way(act.kind))
    }

    /// The host in its one spelling.
    pub(crate) fn host(&self) -> Result<&str, Problem> {
        self.host.as_deref().map_err(Clone::clone)
    }

    pub(crate) fn doubts(&self) -> Result<Doubts, Problem> {
        let path = self.target.as_ref().map_or("/", |target| target.path);
        self.doubts.get_or_init(|| scrutinise(path).map_err(Problem::Path)).clone()
    }

    fn http(&self) -> Option<&Http<'a>> {
        match &self.action {
            Action::Http(http) => Some(http),
            _ => None,
        }
    }

    /// The length of the body, as far as it is known.
    pub(crate) fn length(&self) -> Option<u64> {
        let http = self.http()?;
        http.body.map(|body| body.len() as u64).or(http.length)
    }

    /// The content of the body; null where there is none.
    pub(crate) fn body(&self) -> Result<&Json, Problem> {
        let read = || {
            let http = self.http().ok_or(Problem::BodyUnseen)?;
            match (http.body, http.length) {
                (Some(body), _) => json::read(body, http.content_type),
                (None, Some(0)) => Ok(Json::Null),
                (None, Some(length)) if length > json::MAX_BODY as u64 => Err(Problem::BodyTooLong),
                (None, _) => Err(Problem::BodyUnseen),
            }
        };
        self.body.get_or_init(read).as_ref().map_err(Clone::clone)
    }
}
