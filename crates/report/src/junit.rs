//! JUnit XML: a test case for each session. Most viewers know no warning, so a session for review is a skipped one
//! with its reason in it (as text: the schema that viewers hold it against has no attribute for that); it is never a passed one.

use cofferdam_compare::{Outcome, Reason};
use cofferdam_gate::{GateResult, SessionVerdict};
use std::fmt::Write as _;

pub fn junit(result: &GateResult) -> String {
    let counts = &result.counts;
    let seconds = seconds(result.run.ended_us.saturating_sub(result.run.started_us));
    let name = escaped(&result.suite.name);
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let numbers = format!(
        "tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" time=\"{seconds}\"",
        counts.sessions, counts.fail, counts.review
    );
    let without_skipped = numbers.replacen(&format!(" skipped=\"{}\"", counts.review), "", 1);
    let _ = writeln!(out, "<testsuites name=\"cofferdam\" {without_skipped}>");
    let _ = writeln!(out, "  <testsuite name=\"{name}\" {numbers}>");
    let _ = writeln!(out, "    <properties>");
    let _ = writeln!(out, "      <property name=\"outcome\" value=\"{}\"/>", result.outcome);
    if let Some(commit) = &result.agent.commit {
        let _ = writeln!(out, "      <property name=\"commit\" value=\"{}\"/>", escaped(commit));
    }
    let _ = writeln!(out, "    </properties>");
    result.sessions.iter().for_each(|session| case(&mut out, &result.suite.name, session));
    out.push_str("  </testsuite>\n</testsuites>\n");
    out
}

fn case(out: &mut String, suite: &str, session: &SessionVerdict) {
    let wall = session.attempts.iter().map(|attempt| attempt.wall_us).sum();
    let (id, class, seconds) = (escaped(&session.id), escaped(suite), seconds(wall));
    let _ = write!(out, "    <testcase name=\"{id}\" classname=\"{class}\" time=\"{seconds}\"");
    let first = session.reasons.first().map_or("", |reason| reason.text.as_str());
    let message = escaped(first);
    match session.outcome {
        Outcome::Pass => out.push_str("/>\n"),
        Outcome::Review => {
            let _ = writeln!(out, ">\n      <skipped>review: {message}</skipped>");
            let _ = writeln!(out, "      <system-out>{}</system-out>", escaped(&text(session)));
            out.push_str("    </testcase>\n");
        }
        Outcome::Fail => {
            let kind = escaped(session.reasons.first().map_or("fail", |reason| reason.code.as_str()));
            let text = escaped(&text(session));
            let _ = writeln!(out, ">\n      <failure message=\"{message}\" type=\"{kind}\">{text}</failure>");
            out.push_str("    </testcase>\n");
        }
    }
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
