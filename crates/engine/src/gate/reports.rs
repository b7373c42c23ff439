//! The reports of a result, a file for each reader.

use super::detail::Lookup;
use super::each::{at_once, each};
use super::plan::Rules;
use super::written::{replace, replace_with};
use super::{GateError, GateResult, SessionVerdict, Verdict};
use cofferdam_report::{Page, Session, Sources, junit, metrics, sarif};
use std::path::Path;

pub(super) fn write(out: &Path, result: &GateResult, lookup: &Lookup<'_>) -> Result<(), GateError> {
    replace_with(&out.join("junit.xml"), |mut file| junit(result, &mut file))?;
    let policy = lookup.rules.map(Rules::described).unwrap_or_default();
    let sources = Sources { policy: &policy, session: &|id| (lookup.case)(id).map(|case| case.line) };
    replace_with(&out.join("results.sarif"), |mut file| sarif(result, &sources, &mut file))?;
    let numbers = metrics(result);
    let json = serde_json::to_vec_pretty(&numbers).unwrap_or_default();
    replace(&out.join("metrics.json"), &json)?;
    replace(&out.join("metrics.prom"), numbers.prometheus().as_bytes())?;
    page(&out.join("report.html"), result, lookup)
}

/// Session by session, the gravest first; whoever passed is shown by its verdict alone.
fn page(path: &Path, result: &GateResult, lookup: &Lookup<'_>) -> Result<(), GateError> {
    let wanted = |verdict: &SessionVerdict| verdict.outcome != Verdict::Pass || verdict.is_flaky();
    replace_with(path, |file| {
        let mut page = Page::begin(file, result)?;
        // A few at a time: as many as there are would be as much memory as the suite is long.
        let mut sessions = result.sessions.gravest_first();
        loop {
            let some: Vec<SessionVerdict> = sessions.by_ref().take(4 * at_once()).collect();
            if some.is_empty() {
                break;
            }
            let details = each(&some, |verdict| if wanted(verdict) { lookup.find(verdict) } else { None });
            for (verdict, detail) in some.iter().zip(details) {
                page.session(&Session {
                    verdict,
                    comparison: detail.as_ref().map(|detail| &detail.comparison),
                    base: detail.as_ref().and_then(|detail| detail.base.as_ref()),
                    new: detail.as_ref().map(|detail| &detail.new),
                })?;
            }
        }
        page.end(result).map(drop)
    })
}
