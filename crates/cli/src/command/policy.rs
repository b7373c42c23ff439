//! `cofferdam policy`: check, explain, test.

use crate::args::{Explain, Policy as Args, PolicyCommand};
use crate::output::{Failure, Output, Paint};
use crate::story::wrap;
use cofferdam_engine::policy::{self, Effect, Explanation, Finding, Kind, Policy, Request, Severity, Tried};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Examples that fail and mistakes: the file was read, and it is not right.
const WRONG: u8 = 1;
const WIDTH: usize = 80;

pub(crate) fn run(args: Args, output: &Output) -> Result<u8, Failure> {
    match args.command {
        PolicyCommand::Check { file } => check(&file, output),
        PolicyCommand::Explain(explain) => self::explain(&explain, output),
        PolicyCommand::Test { file } => test(&file, output),
    }
}

fn check(file: &Path, output: &Output) -> Result<u8, Failure> {
    let (findings, rules, examples) = match Policy::parse(&policy::read(file)?) {
        Ok(policy) => (policy.check(), policy.rules().count(), policy.test().len()),
        Err(errors) => (errors.0.iter().map(invalid).collect(), 0, 0),
    };
    let is_error = |finding: &&Finding| finding.severity == Severity::Error;
    let errors = findings.iter().filter(is_error).count();
    if output.json {
        let told = json!({ "file": file, "ok": errors == 0, "rules": rules, "examples": examples, "findings": findings });
        output.value(&told)?;
    } else if !output.quiet {
        let mut text: String = findings.iter().map(|finding| finding_line(file, finding, output)).collect();
        let warnings = findings.len() - errors;
        text += &match (errors, warnings) {
            (0, 0) => {
                let word = output.paint(Paint::Good, "fine");
                format!("{word}: {}, {}\n", count(rules, "rule"), count(examples, "example"))
            }
            _ => format!("{}, {}\n", count(errors, "error"), count(warnings, "warning")),
        };
        output.data(&text)?;
    }
    Ok(if errors == 0 { 0 } else { WRONG })
}

fn invalid(error: &policy::PolicyError) -> Finding {
    Finding {
        severity: Severity::Error,
        kind: Kind::Invalid,
        line: error.spot.line,
        column: error.spot.column,
        rule: None,
        message: error.message(),
    }
}

fn finding_line(file: &Path, finding: &Finding, output: &Output) -> String {
    let (paint, word) = match finding.severity {
        Severity::Error => (Paint::Bad, "error"),
        Severity::Warning => (Paint::Care, "warning"),
    };
    let word = output.paint(paint, word);
    let place = format!("{}:{}:{}", file.display(), finding.line, finding.column);
    format!("{}\n", wrap(&format!("{place}: {word}: {}", finding.message), 2, WIDTH))
}

fn count(number: usize, word: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {word}{plural}")
}

fn explain(args: &Explain, output: &Output) -> Result<u8, Failure> {
    let policy = policy::load(&args.file)?;
    let request = request(args)?;
    let told = request.with(|action| policy.explain(action));
    match output.json {
        true => output.value(&explanation_json(&told))?,
        false => output.data(&explanation(&told, output))?,
    }
    Ok(0)
}

fn request(args: &Explain) -> Result<Request, Failure> {
    let usage = |error: policy::RequestError| Failure::Usage(error.to_string());
    let mut request = Request::parse(&args.request.join(" ")).map_err(usage)?;
    for header in &args.header {
        request.add_header(header).map_err(usage)?;
    }
    request.body = match &args.body {
        Some(text) => Some(match text.strip_prefix('@') {
            Some(file) => {
                fs::read(file).map_err(|error| Failure::Usage(format!("cannot read {file}: {error}")))?
            }
            None => text.clone().into_bytes(),
        }),
        None => None,
    };
    request.program.clone_from(&args.program);
    Ok(request)
}

fn explanation(told: &Explanation, output: &Output) -> String {
    let paint = match told.decision.effect {
        Effect::Allow => Paint::Good,
        Effect::Deny => Paint::Bad,
        Effect::Review => Paint::Care,
    };
    let decision = wrap(&told.decision.to_string(), 2, WIDTH);
    let (verb, rest) = decision.split_at(decision.find([' ', ':']).unwrap_or(decision.len()));
    let mut text = format!("{}{rest}\n", output.paint(paint, verb));
    for rule in &told.candidates {
        let mark = match (rule.fired, rule.matched) {
            (true, true) => "  decides",
            (true, false) => "  could not be judged",
            (false, true) => "  matches too",
            (false, false) => "",
        };
        text += &format!(
            "\n{} {} (line {}){mark}\n",
            output.paint(Paint::Bold, &rule.id),
            rule.effect,
            rule.line
        );
        for part in &rule.parts {
            let sign = if part.matched { "+" } else { "-" };
            text += &format!("  {sign} {:<13} {}\n", part.field, wrap(&part.detail, 18, WIDTH));
        }
    }
    text += &match told.others {
        0 => String::new(),
        others => format!("\n{} about something else\n", count(others, "rule")),
    };
    text + &way_out(told)
}

/// For a denial: the rule to add, or why none would help.
fn way_out(told: &Explanation) -> String {
    match (&told.suggestion, told.decision.effect, told.decision.rule_id()) {
        (Some(rule), ..) => format!("\nthis rule would allow it:\n\n{rule}"),
        (None, Effect::Deny, Some(rule)) if told.decision.problem.is_some() => {
            format!("\nno rule beats what cannot be judged: change the request or `{rule}`\n")
        }
        (None, Effect::Deny, Some(rule)) => format!("\nno rule beats a denial: change `{rule}`\n"),
        (None, Effect::Deny, None) => "\nno rule can allow it as it is written\n".to_owned(),
        _ => String::new(),
    }
}

fn explanation_json(told: &Explanation) -> Value {
    let decision = &told.decision;
    json!({
        "effect": decision.effect,
        "rule": decision.rule_id(),
        "reason": decision.reason(),
        "problem": decision.problem.as_ref().map(ToString::to_string),
        "message": decision.to_string(),
        "candidates": told.candidates,
        "others": told.others,
        "suggestion": told.suggestion,
    })
}

fn test(file: &Path, output: &Output) -> Result<u8, Failure> {
    let tried = policy::load(file)?.test();
    let failed = tried.iter().filter(|tried| !tried.passed()).count();
    if output.json {
        let examples: Vec<_> = tried.iter().map(example_json).collect();
        output.value(&json!({ "file": file, "ok": failed == 0, "examples": examples }))?;
    } else if !output.quiet {
        let mut text: String = tried.iter().map(|tried| example_line(tried, output)).collect();
        text += &format!("{}, {failed} failed\n", count(tried.len(), "example"));
        output.data(&text)?;
    }
    Ok(if failed == 0 { 0 } else { WRONG })
}

fn example_line(tried: &Tried, output: &Output) -> String {
    let word = match tried.passed() {
        true => output.paint(Paint::Good, "ok  "),
        false => output.paint(Paint::Bad, "FAIL"),
    };
    let what = format!("line {}: {}: {tried}", tried.line, tried.request);
    format!("{word}  {}\n", wrap(&what, 6, WIDTH))
}

fn example_json(tried: &Tried) -> Value {
    json!({
        "line": tried.line,
        "request": tried.request,
        "expect": tried.expect,
        "expect_rule": tried.expect_rule,
        "effect": tried.decision.effect,
        "rule": tried.decision.rule_id(),
        "message": tried.decision.to_string(),
        "passed": tried.passed(),
    })
}
