//! `[[rule]]`.

use super::fields::{
    choice, each, file_paths, header_name, hosts, id, json_fields, methods, named_texts, paths, patterns,
    ports, unknown_word, words,
};
use super::flow;
use crate::action::Access;
use crate::condition::Condition;
use crate::contract::Contract;
use crate::glob::{PathPattern, Pattern};
use crate::mistake::Mistake;
use crate::read::{Notes, Table};
use crate::rule::{Effect, HttpMatch, PageMatch, RepoPattern, Rule, RuleName, SqlMatch, SshMatch, Subject};
use crate::sql::{self, SqlKind};
use crate::ssh::{SshCommand, SshKind};
use std::sync::Arc;

pub(super) const KEYS: &[&str] = &[
    "id",
    "reason",
    "effect",
    "host",
    "tool",
    "exec",
    "file",
    "browser",
    "step",
    "flow",
    "baseline",
    "sql",
    "ssh",
    "scheme",
    "port",
    "sni",
    "methods",
    "paths",
    "headers",
    "query",
    "content_types",
    "max_body",
    "body",
    "program",
    "args",
    "schema",
    "database",
    "user",
    "tables",
    "functions",
    "statement",
    "repo",
    "command",
    "when",
];
const ALWAYS: &[&str] = &["id", "reason", "effect", "when"];
const HTTP: &[&str] = &[
    "host",
    "scheme",
    "port",
    "sni",
    "methods",
    "paths",
    "headers",
    "query",
    "content_types",
    "max_body",
    "body",
    "program",
    "schema",
];
const SQL: &[&str] =
    &["sql", "host", "port", "database", "user", "tables", "functions", "statement", "program"];
const SSH: &[&str] = &["ssh", "host", "port", "user", "repo", "command", "program"];
const PAGE: &[&str] = &["browser", "host", "scheme", "port", "paths", "query", "args"];
/// Subjects first: what a rule is about decides what else it may say.
const SUBJECTS: [(&str, &[&str]); 10] = [
    ("tool", &["tool", "args", "schema"]),
    ("exec", &["exec"]),
    ("file", &["file"]),
    ("browser", PAGE),
    ("step", &["step", "args"]),
    ("flow", &["flow"]),
    ("baseline", &["baseline"]),
    ("sql", SQL),
    ("ssh", SSH),
    ("host", HTTP),
];

pub(super) fn read(table: &Table<'_, '_>, trusted: &Arc<[Pattern]>, notes: &mut Notes<'_>) -> Option<Rule> {
    let before = notes.errors.len();
    let id = id(table, notes);
    let reason = words(table, "reason", notes);
    if !table.has("reason") {
        table.missing("reason", "it is told to whoever is refused and to whoever reads the record", notes);
    }
    let effect = choice(table, "effect", Effect::NAMES, Effect::named, notes);
    if !table.has("effect") {
        table.missing("effect", "write \"allow\", \"deny\" or \"review\"", notes);
    }
    let kind = kind(table, notes)?;
    let subject = match kind {
        "flow" => flow::flow(table, trusted, notes).map(Subject::Flow),
        "baseline" => flow::baseline(table, notes).map(Subject::Baseline),
        _ => subject(table, kind, notes),
    };
    if matches!(kind, "flow" | "baseline") && effect == Some(Effect::Allow) {
        let spot = table.spot_of("effect", notes);
        notes.wrong(spot, table.field("effect"), Mistake::OnlyForbids(shown(kind)));
    }
    let contract = contract(table, effect, notes);
    let condition =
        words(table, "when", notes).and_then(|text| match Condition::compile(&text.value, kind) {
            Ok(condition) => Some(condition),
            Err(error) => {
                notes.wrong(text.spot, table.field("when"), error);
                None
            }
        });
    if notes.errors.len() > before {
        return None;
    }
    let name = RuleName { id: id?, reason: reason?.value, effect: effect?, line: table.spot.line };
    Some(Rule { name: Arc::new(name), spot: table.spot, subject: subject?, condition, contract })
}

/// `schema`: what the body or the arguments must keep to.
fn contract(table: &Table<'_, '_>, effect: Option<Effect>, notes: &mut Notes<'_>) -> Option<Contract> {
    let written = table.json("schema")?;
    let spot = table.spot_of("schema", notes);
    if effect.is_some_and(|effect| effect != Effect::Allow) {
        notes.wrong(spot, table.field("schema"), Mistake::SchemaEffect);
        return None;
    }
    match Contract::new(&written) {
        Ok(contract) => Some(contract),
        Err(why) => {
            notes.wrong(spot, table.field("schema"), Mistake::Schema(why));
            None
        }
    }
}

/// What the rule is about; keys that mean nothing there are noted.
fn kind(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Option<&'static str> {
    let mut present = SUBJECTS.iter().filter(|(subject, _)| table.has(subject));
    let Some((kind, fits)) = present.next() else {
        notes.wrong(table.spot, "rule", Mistake::NoSubject);
        return None;
    };
    if let Some((second, _)) = present.find(|(second, _)| !fits.contains(second)) {
        let spot = table.spot_of(second, notes);
        notes.wrong(spot, table.field(second), Mistake::TwoSubjects { first: kind, second });
        return None;
    }
    let is_foreign = |key: &&&str| table.has(key) && !ALWAYS.contains(key) && !fits.contains(key);
    for key in KEYS.iter().filter(is_foreign) {
        let spot = table.spot_of(key, notes);
        notes.wrong(spot, table.field(key), Mistake::Foreign { kind: shown(kind), fits });
    }
    Some(kind)
}

fn shown(kind: &str) -> &'static str {
    match kind {
        "tool" => "a tool",
        "exec" => "an exec",
        "file" => "a file",
        "browser" => "a browser",
        "step" => "a step",
        "flow" => "a flow",
        "baseline" => "baselines",
        "sql" => "an sql",
        "ssh" => "an ssh",
        _ => "a host",
    }
}

fn subject(table: &Table<'_, '_>, kind: &str, notes: &mut Notes<'_>) -> Option<Subject> {
    let args = |notes: &mut Notes<'_>| json_fields(table, "args", notes);
    Some(match kind {
        "tool" => Subject::Tool { names: patterns(table, "tool", notes)?, args: args(notes) },
        "step" => Subject::Step { names: patterns(table, "step", notes)?, args: args(notes) },
        "exec" => Subject::Exec { commands: each(table, "exec", notes, PathPattern::parse_words)? },
        "file" => file(table, notes)?,
        "browser" => Subject::Browser {
            actions: patterns(table, "browser", notes)?,
            args: args(notes),
            page: if table.has("host") { Some(page(table, notes)?) } else { None },
        },
        "sql" => Subject::Sql(sql(table, notes)?),
        "ssh" => Subject::Ssh(ssh(table, notes)?),
        _ => Subject::Http(http(table, notes)?),
    })
}

fn file(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Option<Subject> {
    let file = table.table("file", &["path", "access"], notes)?;
    if !file.has("path") {
        file.missing("path", "write the paths, as in path = \"/work/**\"", notes);
    }
    let paths = file_paths(&file, "path", notes);
    let mut access = Vec::new();
    for word in file.strings("access", notes).unwrap_or_default() {
        match Access::named(&word.value) {
            Some(one) => access.push(one),
            None => notes.wrong(word.spot, file.field("access"), unknown_word(&word.value, Access::NAMES)),
        }
    }
    if !file.has("access") {
        file.missing("access", "write \"read\", \"write\", \"delete\" or a list of them", notes);
    }
    Some(Subject::File { paths: paths?, access })
}

fn page(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Option<PageMatch> {
    let schemes = each(table, "scheme", notes, |word| match word {
        "http" | "https" => Ok(word.to_owned()),
        _ => Err(unknown_word(word, &["http", "https"])),
    });
    Some(PageMatch {
        ports: ports(table, notes),
        paths: paths(table, notes),
        query: named_texts(table, "query", notes, |name| Ok(name.to_owned())),
        schemes,
        hosts: hosts(table, "host", notes)?,
    })
}

fn sql(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Option<SqlMatch> {
    let kinds = each(table, "sql", notes, |word| match word {
        "*" => Ok(None),
        word => SqlKind::named(word).map(Some).ok_or_else(|| unknown_word(word, SqlKind::NAMES)),
    })?;
    if !table.has("host") {
        table.missing("host", "write the databases' hosts, as in host = \"db.internal\"", notes);
    }
    let statements = each(table, "statement", notes, |text| {
        let mut script = sql::read(text).map_err(|error| Mistake::Statement(error.to_string()))?;
        match (script.statements.pop(), script.statements.is_empty()) {
            (Some(one), true) => Ok(one.shape),
            _ => Err(Mistake::Statement("write one statement in each text".to_owned())),
        }
    });
    Some(SqlMatch {
        // `*` is all of them, whatever stands beside it.
        kinds: kinds.into_iter().collect(),
        ports: ports(table, notes),
        databases: patterns(table, "database", notes),
        users: patterns(table, "user", notes),
        tables: patterns(table, "tables", notes),
        functions: patterns(table, "functions", notes),
        statements,
        programs: file_paths(table, "program", notes),
        hosts: hosts(table, "host", notes)?,
    })
}

fn ssh(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Option<SshMatch> {
    let kinds = each(table, "ssh", notes, |word| match word {
        "*" => Ok(None),
        word => SshKind::named(word).map(Some).ok_or_else(|| unknown_word(word, SshKind::NAMES)),
    })?;
    if !table.has("host") {
        table.missing("host", "write the hosts, as in host = \"github.com\"", notes);
    }
    let allows = table.string("effect", notes).is_some_and(|effect| effect.value == "allow");
    if allows && kinds.contains(&Some(SshKind::Exec)) && !table.has("command") {
        let why = "what is allowed beside git is declared word by word, as in command = \"uptime\"";
        table.missing("command", why, notes);
    }
    let commands = each(table, "command", notes, |text| match SshCommand::read(text.as_bytes()) {
        Ok(command @ SshCommand::Exec { .. }) => Ok(command),
        Ok(git) => Err(Mistake::Command(format!(
            "`{git}` is one of git's own; write ssh = \"{}\" and the repositories in repo",
            git.kind().name()
        ))),
        Err(error) => Err(Mistake::Command(error.to_string())),
    });
    Some(SshMatch {
        // `*` is all of them, whatever stands beside it.
        kinds: kinds.into_iter().collect(),
        ports: ports(table, notes),
        users: patterns(table, "user", notes),
        repos: each(table, "repo", notes, RepoPattern::parse),
        commands,
        programs: file_paths(table, "program", notes),
        hosts: hosts(table, "host", notes)?,
    })
}

fn http(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Option<HttpMatch> {
    Some(HttpMatch {
        sni: hosts(table, "sni", notes),
        methods: methods(table, notes),
        headers: named_texts(table, "headers", notes, header_name),
        content_types: each(table, "content_types", notes, Pattern::parse_lower),
        max_body: table.size("max_body", notes),
        body: json_fields(table, "body", notes),
        programs: file_paths(table, "program", notes),
        page: page(table, notes)?,
    })
}
