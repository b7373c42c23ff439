//! JUnit XML: a test case for each session. Most viewers know no warning, so a session for review is a skipped one
//! with its reason in it (as text: the schema that viewers hold it against has no attribute for that); it is never a passed one.

use cofferdam_compare::{Outcome, Reason};
use cofferdam_gate::{GateResult, SessionVerdict};
use std::io::{self, Write};

pub fn junit(result: &GateResult, out: &mut impl Write) -> io::Result<()> {
    let counts = &result.counts;
    let seconds = seconds(result.run.ended_us.saturating_sub(result.run.started_us));
    let name = escaped(&result.suite.name);
    let (tests, failures, skipped) = (counts.sessions, counts.fail, counts.review);
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    let numbers = format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"0\"");
    writeln!(out, "<testsuites name=\"cofferdam\" {numbers} time=\"{seconds}\">")?;
    writeln!(out, "  <testsuite name=\"{name}\" {numbers} skipped=\"{skipped}\" time=\"{seconds}\">")?;
    writeln!(out, "    <properties>")?;
    writeln!(out, "      <property name=\"outcome\" value=\"{}\"/>", result.outcome)?;
    if let Some(commit) = &result.agent.commit {
        writeln!(out, "      <property name=\"commit\" value=\"{}\"/>", escaped(commit))?;
    }
    writeln!(out, "    </properties>")?;
    result.sessions.iter().try_for_each(|session| case(out, &result.suite.name, &session))?;
    out.write_all(b"  </testsuite>\n</testsuites>\n")
}

fn case(out: &mut impl Write, suite: &str, session: &SessionVerdict) -> io::Result<()> {
    let wall = session.attempts.iter().map(|attempt| attempt.wall_us).sum();
    let (id, class, seconds) = (escaped(&session.id), escaped(suite), seconds(wall));
    write!(out, "    <testcase name=\"{id}\" classname=\"{class}\" time=\"{seconds}\"")?;
    let first = session.reasons.first().map_or("", |reason| reason.text.as_str());
    let message = escaped(first);
    match session.outcome {
        Outcome::Pass => return out.write_all(b"/>\n"),
        Outcome::Review => {
            writeln!(out, ">\n      <skipped>review: {message}</skipped>")?;
            writeln!(out, "      <system-out>{}</system-out>", escaped(&text(session)))?;
        }
        Outcome::Fail => {
            let kind = escaped(session.reasons.first().map_or("fail", |reason| reason.code.as_str()));
            let text = escaped(&text(session));
            writeln!(out, ">\n      <failure message=\"{message}\" type=\"{kind}\">{text}</failure>")?;
        }
    }
    out.write_all(b"    </testcase>\n")
}

fn text(session: &SessionVerdict) -> String {
    let line = |reason: &Reason| format!("{}: {} ({})\n", reason.outcome, reason.text, reason.code);
    let reasons: String = session.reasons.iter().map(line).collect();
    format!("{reasons}see it again: {}\n", session.reproduce.join(" "))
}

fn seconds(us: u64) -> String {
    format!("{:.3}", us as f64 / 1e6)
}

/// For an attribute or for text. What XML cannot hold at all is shown as such.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_wrote_stays_text() {
        assert_eq!(
            escaped("</failure> & \"x\"\u{1b}[0m\n"),
            "&lt;/failure&gt; &amp; &quot;x&quot;\u{fffd}[0m\n"
        );
    }
}
