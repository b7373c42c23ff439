//! The reports of a result, a file for each reader.

use super::detail::Lookup;
use super::each::{at_once, each};
use super::written::replace;
use super::{GateError, GateResult, SessionVerdict, Verdict};
use cofferdam_report::{Page, Session, junit, metrics, sarif};
use std::io::{BufWriter, Write};
use std::path::Path;

pub(super) fn write(out: &Path, result: &GateResult, lookup: &Lookup<'_>) -> Result<(), GateError> {
    replace(&out.join("junit.xml"), junit(result).as_bytes())?;
    replace(&out.join("results.sarif"), sarif(result).as_bytes())?;
    let numbers = metrics(result);
    let json = serde_json::to_vec_pretty(&numbers).unwrap_or_default();
    replace(&out.join("metrics.json"), &json)?;
    replace(&out.join("metrics.prom"), numbers.prometheus().as_bytes())?;
    page(&out.join("report.html"), result, lookup)
}

/// Session by session, the gravest first; whoever passed is shown by its verdict alone.
fn page(path: &Path, result: &GateResult, lookup: &Lookup<'_>) -> Result<(), GateError> {
    let failed = |source| GateError::Write { path: path.to_owned(), source };
    let dir = path.parent().unwrap_or(Path::new("."));
    let file = tempfile::NamedTempFile::new_in(dir).map_err(failed)?;
    let mut page = Page::begin(BufWriter::new(file), result).map_err(failed)?;
    let mut sessions: Vec<_> = result.sessions.iter().collect();
    sessions.sort_by_key(|session| std::cmp::Reverse(session.outcome));
    let wanted = |verdict: &SessionVerdict| verdict.outcome != Verdict::Pass || verdict.is_flaky();
    // A few at a time: as many as there are would be as much memory as the suite is long.
    for some in sessions.chunks(4 * at_once()) {
        let details = each(some, |verdict| if wanted(verdict) { lookup.find(verdict) } else { None });
        for (verdict, detail) in some.iter().zip(details) {
            let session = Session {
                verdict,
                comparison: detail.as_ref().map(|detail| &detail.comparison),
                base: detail.as_ref().and_then(|detail| detail.base.as_ref()),
                new: detail.as_ref().map(|detail| &detail.new),
            };
            page.session(&session).map_err(failed)?;
        }
    }
    let mut written = page.end(result).map_err(failed)?;
    written.flush().map_err(failed)?;
    let file = written.into_inner().map_err(|error| failed(error.into_error()))?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(mode).map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}
