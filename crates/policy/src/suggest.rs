//! The rule that would allow what was denied, as TOML to paste: no wider than this one action.

use crate::action::{Action, Http, Sql, Ssh};
use crate::decision::Decision;
use crate::facts::Facts;
use crate::path::scrutinise;
use crate::policy::Policy;
use crate::request::Target;
use crate::rule::Effect;
use crate::sql::SqlKind;
use std::fmt::Write;

impl Policy {
    /// None where it is allowed, where a rule denies or cannot be judged (no allow rule beats that), or where
    /// what is asked cannot be written down with certainty.
    pub fn suggest(&self, action: &Action<'_>, decision: &Decision) -> Option<String> {
        if decision.effect != Effect::Deny || decision.rule.is_some() || decision.problem.is_some() {
            return None;
        }
        let action = &match action {
            Action::Sql(sql) => {
                let at = self.decide_sql(sql).1;
                Action::Sql(Sql { acts: sql.acts.get(at..=at).unwrap_or_default(), ..*sql })
            }
            other => *other,
        };
        let facts = Facts::new(action);
        let (name, body) = subject(action, &facts)?;
        let id = self.free_id(&format!("allow-{}", slug(&name)));
        let head =
            format!("[[rule]]\nid = \"{id}\"\nreason = \"say why it is needed\"\neffect = \"allow\"\n");
        Some(format!("{head}{body}"))
    }

    fn free_id(&self, wanted: &str) -> String {
        let taken = |id: &str| {
            let mut rules = self.layers.iter().flat_map(|layer| &layer.document.rules);
            rules.any(|rule| rule.name.id == id)
        };
        if !taken(wanted) {
            return wanted.to_owned();
        }
        let numbered = (2..).map(|number: u32| format!("{wanted}-{number}"));
        numbered.into_iter().find(|id| !taken(id)).unwrap_or_else(|| wanted.to_owned())
    }
}

/// What to call it, and the fields.
fn subject(action: &Action<'_>, facts: &Facts<'_>) -> Option<(String, String)> {
    match action {
        Action::Http(http) => {
            let host = facts.host().ok()?;
            if !is_method(http) {
                return None;
            }
            let body = page(facts.target.as_ref()?, host, Some(http.method))?;
            Some((format!("{host}-{}", http.method), body))
        }
        Action::Tool(tool) => Some((tool.name.to_owned(), line("tool", &literal(tool.name)?))),
        Action::Step(step) => Some((step.name.to_owned(), line("step", &literal(step.name)?))),
        Action::Exec(exec) => {
            let words: Option<Vec<_>> = exec.argv.iter().map(|word| word_literal(word)).collect();
            let name = exec.argv.first()?.rsplit('/').next()?;
            Some((name.to_owned(), line("exec", &words?.join(" "))))
        }
        Action::File(file) => {
            let path = literal(file.path)?;
            let access = quoted(file.access.name());
            let body = format!("file = {{ path = {}, access = {access} }}\n", quoted(&path));
            Some((format!("{}-{}", file.access.name(), file.path), body))
        }
        Action::Flow(_) | Action::Baseline(_) => None,
        Action::Sql(sql) => statement(sql, facts.host().ok()?),
        Action::Ssh(ssh) => command(ssh, facts.host().ok()?),
        Action::Browser(browser) => {
            let mut body = line("browser", &literal(browser.name)?);
            if let Some(target) = &facts.target {
                body.push_str(&page(target, facts.host().ok()?, None)?);
            }
            Some((browser.name.to_owned(), body))
        }
    }
}

fn statement(sql: &Sql<'_>, host: &str) -> Option<(String, String)> {
    let act = sql.acts.first()?;
    let kind = match act.kind {
        SqlKind::Connect | SqlKind::Control => SqlKind::Read,
        // Which kind of writing is meant is not known here.
        SqlKind::Writable => return None,
        kind => kind,
    };
    let mut body = line("sql", kind.name());
    body.push_str(&line("host", host));
    if sql.port != 5432 {
        let _ = writeln!(body, "port = {}", sql.port);
    }
    body.push_str(&line("database", &literal(sql.database)?));
    let objects = match kind {
        SqlKind::Call => Some("functions"),
        kind if kind.has_table() && !act.object.is_empty() => Some("tables"),
        _ => None,
    };
    if let Some(key) = objects {
        let _ = writeln!(body, "{key} = [{}]", quoted(&literal(&act.object)?));
    }
    Some((format!("{}-{}-{}", sql.database, kind.name(), act.object), body))
}

fn command(ssh: &Ssh<'_>, host: &str) -> Option<(String, String)> {
    let kind = ssh.command.kind().name();
    let mut body = line("ssh", kind);
    body.push_str(&line("host", host));
    if ssh.port != 22 {
        let _ = writeln!(body, "port = {}", ssh.port);
    }
    if !ssh.user.is_empty() {
        body.push_str(&line("user", &literal(ssh.user)?));
    }
    match ssh.command.repo() {
        Some(repo) => body.push_str(&line("repo", &literal(repo)?)),
        None => body.push_str(&line("command", &ssh.command.to_string())),
    }
    Some((format!("{host}-{kind}"), body))
}

fn page(target: &Target<'_>, host: &str, method: Option<&str>) -> Option<String> {
    let mut body = line("host", host);
    if !matches!((target.scheme, target.port), ("https", 443) | ("http", 80)) {
        let _ = writeln!(body, "port = {}", target.port);
    }
    if let Some(method) = method {
        let _ = writeln!(body, "methods = [{}]", quoted(method));
    }
    // Judged in every reading, a doubtful path has no one pattern.
    if !scrutinise(target.path).ok()?.is_certain() {
        return None;
    }
    let _ = writeln!(body, "paths = [{}]", quoted(&target.path.replace('*', "%2A")));
    Some(body)
}

fn is_method(http: &Http<'_>) -> bool {
    !http.method.is_empty() && http.method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-')
}

/// A `*` would mean more than itself.
fn literal(text: &str) -> Option<String> {
    (!text.contains('*') && !text.is_empty()).then(|| text.to_owned())
}

fn word_literal(word: &str) -> Option<String> {
    literal(word).filter(|word| !word.contains(char::is_whitespace))
}

fn line(key: &str, value: &str) -> String {
    format!("{key} = {}\n", quoted(value))
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn slug(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let text: String = text.chars().map(plain).take(60).collect();
    let words: Vec<&str> = text.split('-').filter(|word| !word.is_empty()).collect();
    words.join("-")
}
