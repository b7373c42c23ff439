//! Why an action is allowed, held or denied: every rule that could concern it, with the part that decided.

use crate::action::{Action, Sql};
use crate::decision::Decision;
use crate::facts::Facts;
use crate::flow::{Deviation, FlowMatch, Known, Origin};
use crate::json::decoded_path;
use crate::judge::Fit;
use crate::policy::Policy;
use crate::rule::{Effect, HttpMatch, PageMatch, Rule, SqlMatch, SshMatch, Subject};
use serde::Serialize;
use std::fmt::Display;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    pub decision: Decision,
    /// Rules about the same host (or tool, exec…), in the order of the files.
    pub candidates: Vec<Candidate>,
    /// How many other rules there are.
    pub others: usize,
    /// The rule that would allow it; none where it is allowed, or where no rule could.
    pub suggestion: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candidate {
    pub id: String,
    pub effect: Effect,
    pub reason: String,
    pub line: usize,
    pub layer: usize,
    /// Whether all of it matched.
    pub matched: bool,
    /// Whether it is the one that decided.
    pub fired: bool,
    /// Its parts up to the first that did not match.
    pub parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Part {
    pub field: &'static str,
    pub matched: bool,
    /// What the rule wants, and where it did not get it, what there was.
    pub detail: String,
}

impl Policy {
    pub fn explain(&self, action: &Action<'_>) -> Explanation {
        // Of a statement that does several things, the one that decides is explained.
        let acts = |sql: &Sql<'_>| self.decide_sql(sql).1;
        let action = &match action {
            Action::Sql(sql) => {
                let at = acts(sql);
                Action::Sql(Sql { acts: sql.acts.get(at..=at).unwrap_or_default(), ..*sql })
            }
            other => *other,
        };
        let facts = Facts::new(action);
        let decision = self.decide(action);
        let mut candidates = Vec::new();
        let mut others = 0;
        for (number, layer) in self.layers.iter().enumerate() {
            for rule in &layer.document.rules {
                match candidate(rule, &facts, number, &decision) {
                    Some(candidate) => candidates.push(candidate),
                    None => others += 1,
                }
            }
        }
        let suggestion = self.suggest(action, &decision);
        Explanation { decision, candidates, others, suggestion }
    }
}

fn candidate(rule: &Rule, facts: &Facts<'_>, layer: usize, decision: &Decision) -> Option<Candidate> {
    let mut parts: Vec<Part> = Vec::new();
    rule.parts(facts, &mut |field, fit| {
        let detail = match &fit {
            Fit::Yes => wanted(rule, field),
            Fit::No => {
                let found =
                    found(field, facts).map_or_else(String::new, |found| format!(", and it is {found}"));
                format!("wants {}{found}", wanted(rule, field))
            }
            Fit::Unknown(problem) => problem.to_string(),
        };
        // A map shows its entries one by one; one line is enough for it.
        parts.retain(|part| part.field != field);
        parts.push(Part { field, matched: fit == Fit::Yes, detail });
        fit == Fit::Yes
    });
    let first = parts.first()?;
    if !first.matched
        && matches!(first.field, "kind" | "host" | "tool" | "step" | "browser" | "exec" | "baseline")
    {
        return None;
    }
    let name = &rule.name;
    Some(Candidate {
        id: name.id.clone(),
        effect: name.effect,
        reason: name.reason.clone(),
        line: name.line,
        layer,
        matched: parts.iter().all(|part| part.matched),
        fired: decision.layer == layer && decision.rule_id() == Some(&name.id),
        parts,
    })
}

fn list(items: &[impl Display]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The field as the rule has it.
fn wanted(rule: &Rule, field: &str) -> String {
    match (&rule.subject, field) {
        (_, "when") => {
            rule.condition.as_ref().map_or_else(String::new, |condition| condition.text.to_string())
        }
        (_, "schema") => "what its schema says".to_owned(),
        (Subject::Http(http), _) => wanted_http(http, field),
        (Subject::Tool { names, .. }, "tool") | (Subject::Step { names, .. }, "step") => list(names),
        (Subject::Exec { commands }, _) => list(commands),
        (Subject::File { paths, .. }, "path") => list(paths),
        (Subject::File { access, .. }, _) => access.iter().map(|a| a.name()).collect::<Vec<_>>().join(", "),
        (Subject::Browser { actions, .. }, "browser") => list(actions),
        (Subject::Browser { page: Some(page), .. }, _) if field != "args" => wanted_page(page, field),
        (Subject::Flow(flow), _) => wanted_flow(flow, field),
        (Subject::Sql(sql), _) => wanted_sql(sql, field),
        (Subject::Ssh(ssh), _) => wanted_ssh(ssh, field),
        (Subject::Baseline(baseline), _) => {
            let one = |(finds, tools): &(Deviation, Vec<_>)| format!("{} {}", finds.name(), list(tools));
            baseline.finds.iter().map(one).collect::<Vec<_>>().join("; ")
        }
        (Subject::Tool { args, .. } | Subject::Step { args, .. } | Subject::Browser { args, .. }, _) => {
            args.iter().map(|field| field.path.join(".")).collect::<Vec<_>>().join(", ")
        }
    }
}

fn wanted_http(http: &HttpMatch, field: &str) -> String {
    match field {
        "methods" => http.methods.as_ref().map_or_else(String::new, |methods| list(&methods.names())),
        "sni" => http.sni.as_ref().map_or_else(String::new, |sni| list(&sni.0)),
        "headers" => list(&http.headers.iter().map(|header| &header.name).collect::<Vec<_>>()),
        "content_types" => http.content_types.as_deref().map_or_else(String::new, list),
        "max_body" => http.max_body.map_or_else(String::new, |most| format!("at most {most} bytes")),
        "body" => http.body.iter().map(|field| field.path.join(".")).collect::<Vec<_>>().join(", "),
        "program" => http.programs.as_deref().map_or_else(String::new, list),
        _ => wanted_page(&http.page, field),
    }
}

fn wanted_sql(sql: &SqlMatch, field: &str) -> String {
    let texts =
        |patterns: &Option<Vec<crate::glob::Pattern>>| patterns.as_deref().map_or_else(String::new, list);
    match field {
        "host" => list(&sql.hosts.0),
        "port" => sql.ports.as_deref().map_or_else(String::new, list),
        "database" => texts(&sql.databases),
        "user" => texts(&sql.users),
        "program" => sql.programs.as_deref().map_or_else(String::new, list),
        "tables" => texts(&sql.tables),
        "functions" => texts(&sql.functions),
        "statement" => "a statement of its templates".to_owned(),
        _ => match &sql.kinds {
            Some(kinds) => kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", "),
            None => "*".to_owned(),
        },
    }
}

fn wanted_ssh(ssh: &SshMatch, field: &str) -> String {
    match field {
        "host" => list(&ssh.hosts.0),
        "port" => ssh.ports.as_deref().map_or_else(String::new, list),
        "user" => ssh.users.as_deref().map_or_else(String::new, list),
        "program" => ssh.programs.as_deref().map_or_else(String::new, list),
        "repo" => ssh.repos.as_deref().map_or_else(String::new, list),
        "command" => ssh.commands.as_deref().map_or_else(|| "a declared command".to_owned(), list),
        _ => match &ssh.kinds {
            Some(kinds) => kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", "),
            None => "*".to_owned(),
        },
    }
}

fn wanted_flow(flow: &FlowMatch, field: &str) -> String {
    let joined = |names: Vec<&str>| names.join(", ");
    match field {
        "from" => joined(flow.from.iter().map(|from| from.name()).collect()),
        "to" => joined(flow.to.iter().map(|to| to.name()).collect()),
        "values" => joined(flow.values.iter().flatten().map(|kind| kind.name()).collect()),
        "tool" => flow.tools.as_deref().map_or_else(String::new, list),
        "arg" => flow.args.as_deref().map_or_else(String::new, list),
        "texts" => "a value that stands alone".to_owned(),
        _ => match flow.known {
            Known::Never => "whatever the baselines did".to_owned(),
            Known::Read => "a value that no baseline read or used".to_owned(),
            Known::Called => "a value that no baseline used in a call".to_owned(),
            Known::Used => "a value that no baseline used in this argument".to_owned(),
        },
    }
}

fn wanted_page(page: &PageMatch, field: &str) -> String {
    match field {
        "host" => list(&page.hosts.0),
        "scheme" => page.schemes.as_deref().map_or_else(String::new, list),
        "port" => page.ports.as_deref().map_or_else(String::new, list),
        "paths" => page.paths.as_deref().map_or_else(String::new, list),
        _ => list(&page.query.iter().map(|wanted| &wanted.name).collect::<Vec<_>>()),
    }
}

/// What the action has there; none for what may be secret or is too much to show.
fn found(field: &str, facts: &Facts<'_>) -> Option<String> {
    let target = facts.target.as_ref();
    match (field, &facts.action) {
        ("scheme", _) => target.map(|target| target.scheme.to_owned()),
        ("port", _) => target.map(|target| target.port.to_string()),
        ("paths", _) => target.and_then(|target| decoded_path(target.path)),
        ("methods", Action::Http(http)) => Some(http.method.to_owned()),
        ("sni", Action::Http(http)) => Some(http.sni.unwrap_or("without one").to_owned()),
        ("content_types", Action::Http(http)) => Some(http.content_type.unwrap_or("without one").to_owned()),
        ("program", Action::Http(http)) => Some(http.program.unwrap_or("not known").to_owned()),
        ("max_body", _) => facts.length().map(|length| format!("{length} bytes")),
        ("path", Action::File(file)) => Some(file.path.to_owned()),
        ("access", Action::File(file)) => Some(file.access.name().to_owned()),
        ("from", Action::Flow(flow)) => Some(match flow.from {
            Origin::Told => "told".to_owned(),
            Origin::Own => "own".to_owned(),
            Origin::Returned("") => "untrusted".to_owned(),
            Origin::Returned(tool) => format!("what {tool} returned"),
            Origin::Made => "model".to_owned(),
        }),
        ("to", Action::Flow(flow)) => Some(flow.to.name().to_owned()),
        ("values", Action::Flow(flow)) => Some(flow.kind.name().to_owned()),
        ("tool", Action::Flow(flow)) => Some(flow.tool.to_owned()),
        ("arg", Action::Flow(flow)) => Some(flow.arg.to_owned()),
        ("known", Action::Flow(flow)) if !flow.filled => Some("in an argument they leave alone".to_owned()),
        ("known", Action::Flow(flow)) => Some(flow.known.name().to_owned()),
        ("sql" | "tables" | "functions", Action::Sql(sql)) => sql.acts.first().map(ToString::to_string),
        ("database", Action::Sql(sql)) => Some(sql.database.to_owned()),
        ("user", Action::Sql(sql)) => Some(sql.user.to_owned()),
        ("ssh", Action::Ssh(ssh)) => Some(ssh.command.kind().name().to_owned()),
        ("repo", Action::Ssh(ssh)) => ssh.command.repo().map(str::to_owned),
        ("command", Action::Ssh(ssh)) => Some(ssh.command.to_string()),
        ("user", Action::Ssh(ssh)) => Some(ssh.user.to_owned()),
        ("when", _) => Some("false".to_owned()),
        _ => None,
    }
}
