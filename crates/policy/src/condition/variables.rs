//! The facts of an action as CEL values: only those that the condition asks for, borrowed where they can be.

use super::{Names, Needs};
use crate::action::{Action, Http};
use crate::facts::Facts;
use crate::json;
use crate::path::PathProblem;
use crate::problem::Problem;
use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt,
};
use cel::common::value::Val;
use serde_json::Value as Json;
use std::collections::HashMap;

type Value<'v> = Box<dyn Val + 'v>;
type Fields<'v> = HashMap<CelMapKey<'v>, Value<'v>>;

pub(super) struct Variables<'v> {
    pub(super) values: Vec<(&'static str, Value<'v>)>,
    /// How much text there is for a step to look at.
    pub(super) bytes: usize,
}

pub(super) fn gather<'v>(needs: &Needs, facts: &'v Facts<'_>) -> Result<Variables<'v>, Problem> {
    let mut bytes = 0;
    let values = match &facts.action {
        Action::Http(http) => {
            bytes += http.body.map_or(0, <[u8]>::len) + http.path.len() + http.query.map_or(0, str::len);
            vec![("request", request(needs, http, facts)?)]
        }
        Action::Tool(tool) => vec![("tool", text(tool.name)), ("args", arguments(tool.args, &mut bytes))],
        Action::Step(step) => vec![("step", text(step.name)), ("args", arguments(step.args, &mut bytes))],
        Action::Browser(browser) => {
            let mut fields = Fields::new();
            fields.insert("action".into(), text(browser.name));
            browser.url.map(|url| fields.insert("url".into(), text(url)));
            vec![("browser", record(fields)), ("args", arguments(browser.args, &mut bytes))]
        }
        Action::Exec(exec) => {
            bytes += exec.argv.iter().map(|word| word.len()).sum::<usize>();
            let mut fields = Fields::new();
            let words: Vec<Value<'v>> = exec.argv.iter().map(|word| text(word)).collect();
            fields.insert("argv".into(), Box::new(CelList::from(words)));
            exec.argv.first().map(|program| fields.insert("program".into(), text(program)));
            exec.cwd.map(|cwd| fields.insert("cwd".into(), text(cwd)));
            vec![("exec", record(fields))]
        }
        Action::Flow(flow) => {
            bytes += flow.value.len() + flow.tool.len() + flow.arg.len();
            let fields = [
                ("arg", flow.arg),
                ("kind", flow.kind.name()),
                ("known", flow.known.name()),
                ("to", flow.to.name()),
                ("tool", flow.tool),
                ("value", flow.value),
            ];
            vec![("flow", record(fields.map(|(name, found)| (name.into(), text(found))).into()))]
        }
        Action::Sql(sql) => {
            let act = sql.acts.first();
            bytes += sql.database.len() + sql.user.len() + act.map_or(0, |act| act.object.len());
            let mut fields = Fields::new();
            fields.insert("host".into(), text(facts.host()?));
            fields.insert("port".into(), Box::new(CelInt::from(i64::from(sql.port))));
            fields.insert("database".into(), text(sql.database));
            fields.insert("user".into(), text(sql.user));
            act.map(|act| fields.insert("kind".into(), text(act.kind.name())));
            act.map(|act| fields.insert("object".into(), text(&act.object)));
            sql.program.map(|program| fields.insert("program".into(), text(program)));
            vec![("sql", record(fields))]
        }
        Action::Ssh(ssh) => {
            let command = ssh.command.to_string();
            bytes += command.len() + ssh.user.len();
            let mut fields = Fields::new();
            fields.insert("host".into(), text(facts.host()?));
            fields.insert("port".into(), Box::new(CelInt::from(i64::from(ssh.port))));
            fields.insert("user".into(), text(ssh.user));
            fields.insert("kind".into(), text(ssh.command.kind().name()));
            fields.insert("command".into(), owned(command));
            fields.insert("repo".into(), text(ssh.command.repo().unwrap_or_default()));
            ssh.program.map(|program| fields.insert("program".into(), text(program)));
            vec![("ssh", record(fields))]
        }
        Action::Baseline(found) => {
            let fields = [("finds", found.finds.name()), ("tool", found.tool)];
            vec![("baseline", record(fields.map(|(name, found)| (name.into(), text(found))).into()))]
        }
        Action::File(file) => {
            let mut fields = Fields::new();
            fields.insert("path".into(), text(file.path));
            fields.insert("access".into(), text(file.access.name()));
            vec![("file", record(fields))]
        }
    };
    Ok(Variables { values, bytes })
}

fn request<'v>(needs: &Needs, http: &'v Http<'_>, facts: &'v Facts<'_>) -> Result<Value<'v>, Problem> {
    let mut fields = Fields::new();
    let mut add = |name: &'static str, value: Value<'v>| {
        fields.insert(name.into(), value);
    };
    add("method", text(http.method));
    add("scheme", text(http.scheme));
    add("host", text(facts.host()?));
    add("port", Box::new(CelInt::from(i64::from(http.port))));
    let optional = [("sni", http.sni), ("content_type", http.content_type), ("program", http.program)];
    for (name, found) in optional {
        if let Some(found) = found {
            add(name, text(found));
        }
    }
    if needs.has("path") {
        if !facts.doubts()?.is_certain() {
            return Err(PathProblem::Doubtful.into());
        }
        add("path", owned(json::decoded_path(http.path).ok_or(Problem::Query)?));
    }
    if needs.has("query") {
        add("query", query(&needs.query, http)?);
    }
    if needs.has("headers") {
        add("headers", headers(&needs.headers, http)?);
    }
    if needs.has("size") {
        let size = facts.length().ok_or(Problem::LengthUnknown)?;
        add("size", Box::new(CelInt::from(i64::try_from(size).unwrap_or(i64::MAX))));
    }
    if needs.has("body") {
        add("body", value(facts.body()?));
    }
    Ok(record(fields))
}

/// A parameter that is asked for and stands twice is a problem; one that is not is left out.
fn query<'v>(names: &Names, http: &Http<'_>) -> Result<Value<'v>, Problem> {
    let mut found: HashMap<String, String> = HashMap::new();
    let query = http.query.unwrap_or_default();
    if query.contains(';') {
        return Err(Problem::Semicolon);
    }
    for (name, value) in json::pairs(query, &['&']) {
        let name = json::decoded(name).ok_or(Problem::Query)?;
        if !asked(names, &name) {
            continue;
        }
        let value = json::decoded(value).ok_or(Problem::Query)?;
        if found.insert(name.clone(), value).is_some() {
            return Err(Problem::RepeatedParameter(name.chars().take(40).collect()));
        }
    }
    Ok(texts(found))
}

fn headers<'v>(names: &Names, http: &Http<'_>) -> Result<Value<'v>, Problem> {
    let mut found: HashMap<String, String> = HashMap::new();
    let mut repeated = None;
    http.headers.each(&mut |name, value| {
        let name = name.to_ascii_lowercase();
        if !asked(names, &name) {
            return;
        }
        let value = std::str::from_utf8(value).map(str::to_owned);
        match value {
            Ok(value) if !found.contains_key(&name) => drop(found.insert(name, value)),
            _ => repeated = Some(name),
        }
    });
    match repeated {
        Some(name) => Err(Problem::RepeatedHeader(name.chars().take(40).collect())),
        None => Ok(texts(found)),
    }
}

fn asked(names: &Names, name: &str) -> bool {
    match names {
        Names::All => true,
        Names::Some(names) => names.iter().any(|asked| asked == name),
    }
}

fn texts<'v>(found: HashMap<String, String>) -> Value<'v> {
    record(found.into_iter().map(|(name, value)| (CelMapKey::from(name), owned(value))).collect())
}

fn arguments<'v>(args: &'v Json, bytes: &mut usize) -> Value<'v> {
    *bytes += weight(args);
    value(args)
}

fn weight(json: &Json) -> usize {
    match json {
        Json::String(text) => text.len(),
        Json::Array(items) => items.iter().map(weight).sum(),
        Json::Object(fields) => fields.iter().map(|(name, value)| name.len() + weight(value)).sum(),
        _ => 1,
    }
}

fn text<'v>(text: &'v str) -> Value<'v> {
    Box::new(CelString::from(text))
}

fn owned<'v>(text: String) -> Value<'v> {
    Box::new(CelString::from(text))
}

fn record<'v>(fields: Fields<'v>) -> Value<'v> {
    Box::new(CelMap::from(fields))
}

pub(super) fn value(json: &Json) -> Value<'_> {
    match json {
        Json::Null => Box::new(CelNull),
        Json::Bool(flag) => Box::new(CelBool::from(*flag)),
        Json::String(string) => text(string),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Box::new(CelInt::from(number)),
            (_, Some(number)) => Box::new(CelUInt::from(number)),
            _ => Box::new(CelDouble::from(number.as_f64().unwrap_or(f64::NAN))),
        },
        Json::Array(items) => Box::new(CelList::from(items.iter().map(value).collect::<Vec<_>>())),
        Json::Object(fields) => record(
            fields.iter().map(|(name, field)| (CelMapKey::from(name.as_str()), value(field))).collect(),
        ),
    }
}
