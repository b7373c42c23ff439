//! The result in a page of Markdown, for the summary of a CI job.

use cofferdam_gate::GateResult;
use std::fmt::Write as _;

/// A CI system takes a megabyte; a person, a page.
const MOST: usize = 50;

pub fn markdown(result: &GateResult) -> String {
    let mut text = format!("# Gate: {}\n\n", result.outcome);
    for why in &result.why {
        let _ = writeln!(text, "- {}", escaped(why));
    }
    let counts = &result.counts;
    let _ = writeln!(
        text,
        "\n| sessions | pass | review | fail | flaky |\n|---|---|---|---|---|\n| {} | {} | {} | {} | {} |",
        counts.sessions, counts.pass, counts.review, counts.fail, counts.flaky
    );
    for session in result.sessions.to_look_at().take(MOST) {
        let _ = writeln!(text, "\n## {}: {}\n", escaped(&session.id), session.outcome);
        if session.attempts.len() > 1 {
            let _ = writeln!(text, "- passed {} of {} times", session.passed(), session.attempts.len());
        }
        for reason in session.reasons.iter().take(5) {
            let _ = writeln!(text, "- {} ({})", escaped(&reason.text), reason.code);
        }
        let _ = writeln!(text, "\n    {}", session.reproduce.join(" "));
    }
    let more = result.sessions.count_to_look_at().saturating_sub(MOST);
    if more > 0 {
        let _ = writeln!(text, "\n… and {more} more: see report.html.");
    }
    text
}

/// Texts come from an agent: they must not become markup.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '<' | '>' | '#' | '|' | '!' | '~' | '@' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => out.push(' '),
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
        assert_eq!(escaped("<img> [x](y)\n# `z`"), "\\<img\\> \\[x\\](y) \\# \\`z\\`");
    }
}
