//! Which sandboxes a list shows, and which page of them.

use super::wire::Problem;
use crate::route;
use axum::Json;
use axum::response::{IntoResponse, Response};
use cofferdam_api::e2b::{Listed, State};
use http::{HeaderValue, Uri};
use percent_encoding::percent_decode_str;
use serde::Serialize;

pub(super) const PAGE: usize = 100;
const MOST: usize = 1000;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    metadata: Vec<(String, String)>,
    states: Vec<State>,
    started_after_us: Option<u64>,
    template: Option<String>,
    pub(super) ascending: bool,
    limit: Option<usize>,
    /// The last one of the page before.
    after: Option<String>,
}

impl Filter {
    pub(super) fn read(uri: &Uri) -> Result<Self, Problem> {
        let mut filter = Self::default();
        for (name, value) in route::query(uri) {
            match name.as_str() {
                "metadata" => filter.metadata = metadata(&value),
                "state" => filter.states.extend(states(&value)?),
                "startedAfter" => filter.started_after_us = Some(moment(&value)?),
                "template" | "templateID" => filter.template = Some(value),
                "order" => filter.ascending = order(&value)?,
                "limit" => filter.limit = Some(limit(&value)?),
                "nextToken" if !value.is_empty() => filter.after = Some(value),
                // Newer SDKs may ask for more.
                _ => {}
            }
        }
        Ok(filter)
    }

    /// What can be told without looking at its session.
    pub(super) fn fits(&self, record: &crate::sandbox::Record) -> bool {
        let has = |(name, value): &(String, String)| record.metadata.get(name) == Some(value);
        self.metadata.iter().all(has)
            && self.started_after_us.is_none_or(|after| record.started_us >= after)
            && self.template.as_ref().is_none_or(|template| *template == record.template)
    }

    pub(super) fn fits_state(&self, state: State) -> bool {
        self.states.is_empty() || self.states.contains(&state)
    }

    /// One page, and the name of the next if there is one. The list is in its order already.
    pub(super) fn page(&self, mut all: Vec<Listed>) -> (Vec<Listed>, Option<String>) {
        if let Some(after) = &self.after {
            // Ids sort by time: one that is gone since still has its place.
            all.retain(|one| if self.ascending { one.sandbox_id > *after } else { one.sandbox_id < *after });
        }
        let limit = self.limit.unwrap_or(PAGE);
        let more = all.len() > limit;
        all.truncate(limit);
        let next = all.last().filter(|_| more).map(|last| last.sandbox_id.clone());
        (all, next)
    }
}

/// A page, and where the next one begins.
pub(super) fn paged<T: Serialize>(page: Vec<T>, next: Option<String>) -> Response {
    let mut response = Json(page).into_response();
    if let Some(next) = next.and_then(|next| HeaderValue::try_from(next).ok()) {
        response.headers_mut().insert("x-next-token", next);
    }
    response
}

/// A query within the query: its names and values were escaped before it was.
fn metadata(value: &str) -> Vec<(String, String)> {
    let decode = |text: &str| {
        let once = percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
        percent_decode_str(&once).decode_utf8_lossy().into_owned()
    };
    let pairs = value.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decode(name), decode(value))).collect()
}

fn states(value: &str) -> Result<Vec<State>, Problem> {
    let state = |text: &str| match text {
        "running" => Ok(State::Running),
        "paused" => Ok(State::Paused),
        _ => Err(Problem::bad("`state`: there are `running` and `paused`")),
    };
    value.split(',').filter(|text| !text.is_empty()).map(state).collect()
}

fn moment(value: &str) -> Result<u64, Problem> {
    // A `+` of the offset may have been read as a blank.
    let when: jiff::Timestamp = value
        .replace(' ', "+")
        .parse()
        .map_err(|_| Problem::bad("`startedAfter`: a time as 2026-01-31T12:00:00Z is needed"))?;
    Ok(u64::try_from(when.as_microsecond()).unwrap_or(0))
}

fn order(value: &str) -> Result<bool, Problem> {
    match value {
        "asc" => Ok(true),
        "desc" => Ok(false),
        _ => Err(Problem::bad("`order`: there are `asc` and `desc`")),
    }
}

pub(super) fn limit(value: &str) -> Result<usize, Problem> {
    let limit = value.parse().ok().filter(|limit| (1..=MOST).contains(limit));
    limit.ok_or_else(|| Problem::bad(format!("`limit`: a number from 1 to {MOST} is needed")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_escaped_twice() {
        let uri: Uri =
            "/v2/sandboxes?metadata=a%252520b%3Dc%252526d&state=running,paused&order=asc&limit=2&x=y"
                .parse()
                .unwrap();
        let filter = Filter::read(&uri).unwrap();
        assert_eq!(filter.metadata, [("a b".to_owned(), "c&d".to_owned())]);
        assert_eq!((filter.states.len(), filter.ascending, filter.limit), (2, true, Some(2)));
        for bad in ["state=x", "order=x", "limit=0", "limit=x", "startedAfter=yesterday"] {
            assert!(Filter::read(&format!("/v2/sandboxes?{bad}").parse().unwrap()).is_err(), "{bad}");
        }
    }
}
