//! An action as people write it, in examples and for `explain`: `GET https://host/path?x=1`, `tool NAME {…}`,
//! `exec WORDS…`, `file read /path`, `browser click https://…`, `step NAME {…}`, `flow untrusted url changes
//! TOOL.ARG`, `baseline unseen TOOL`, `sql HOST/DATABASE STATEMENT`, `ssh USER@HOST COMMAND`.

use crate::action::{Access, Action, Browser, Exec, File, Http, Sql, Ssh, Step, Tool};
use crate::flow::{Baseline, Deviation, Flow, Known, Origin, Sink, ValueKind};
use crate::mistake::nearest;
use crate::sql::{self, Act, SqlKind};
use crate::ssh::{CommandError, SshCommand};
use serde_json::Value as Json;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error(
        "`{0}` is no request: write `GET https://host/path`, `tool NAME JSON`, `exec WORDS`, `file read PATH`, `browser ACTION URL`, `step NAME`, `flow FROM KIND TO TOOL.ARG`, `baseline FINDS TOOL`, `sql HOST/DATABASE STATEMENT` or `ssh USER@HOST COMMAND`"
    )]
    Shape(String),
    #[error("`{0}` is not a URL: write it in full, as in https://api.example.com/v1")]
    Url(String),
    #[error("`{0}` is not a port: write a number from 1 to 65535")]
    Port(String),
    #[error("the URL carries a user or password; put credentials in a header")]
    UserInfo,
    #[error("what follows the name is not JSON: {0}")]
    Json(String),
    #[error("`{0}` is not an access: write read, write or delete")]
    Access(String),
    #[error("`{word}` is not one of {}", .known.join(", "))]
    Word { word: String, known: &'static [&'static str] },
    #[error("`{0}` is no database: write HOST/DATABASE, HOST:PORT/DATABASE or USER@HOST/DATABASE")]
    Database(String),
    #[error("the statement: {0}")]
    Sql(#[from] sql::SqlError),
    #[error("the command: {0}")]
    Command(#[from] CommandError),
    #[error("`{0}` is no host: write HOST, USER@HOST or USER@HOST:PORT")]
    SshHost(String),
    #[error("`{0}` is not a header: write NAME: VALUE")]
    Header(String),
}

/// Where a request goes.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) scheme: &'a str,
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
}

impl<'a> Target<'a> {
    pub(crate) fn of(http: &Http<'a>) -> Self {
        Self { scheme: http.scheme, host: http.host, port: http.port, path: http.path, query: http.query }
    }

    /// Cuts a URL without changing a byte of it: what is judged is what would be sent.
    pub(crate) fn parse(url: &'a str) -> Result<Self, RequestError> {
        let shown = || RequestError::Url(url.chars().take(80).collect());
        let (scheme, rest) = url.split_once("://").ok_or_else(shown)?;
        let default = match scheme {
            "https" | "wss" => 443,
            "http" | "ws" => 80,
            _ => return Err(shown()),
        };
        let rest = rest.split('#').next().unwrap_or(rest);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        if authority.contains('@') {
            return Err(RequestError::UserInfo);
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                let number = port.parse().ok().filter(|port| *port > 0);
                (host, number.ok_or_else(|| RequestError::Port(port.chars().take(20).collect()))?)
            }
            _ => (authority, default),
        };
        if host.is_empty() || url.contains(char::is_whitespace) {
            return Err(shown());
        }
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (rest, None),
        };
        let scheme = if default == 443 { "https" } else { "http" };
        Ok(Self { scheme, host, port, path: if path.is_empty() { "/" } else { path }, query })
    }
}

/// An action that owns its parts.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    shape: Shape,
    /// Header fields of an HTTP request.
    pub headers: Vec<(String, String)>,
    pub body: Option<Vec<u8>>,
    pub program: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
enum Shape {
    Http { method: String, url: String },
    Tool { name: String, args: Json },
    Exec { argv: Vec<String> },
    File { path: String, access: Access },
    Browser { name: String, url: Option<String>, args: Json },
    Step { name: String, args: Json },
    Flow(FlowText),
    Sql(SqlText),
    Ssh(SshText),
    Baseline { finds: Deviation, tool: String },
}

/// `[USER@]HOST[:PORT]/DATABASE STATEMENT`.
#[derive(Debug, Clone, PartialEq)]
struct SqlText {
    user: String,
    host: String,
    port: u16,
    database: String,
    acts: Vec<Act>,
    shape: Option<sql::Shape>,
}

/// `[USER@]HOST[:PORT] COMMAND`.
#[derive(Debug, Clone, PartialEq)]
struct SshText {
    user: String,
    host: String,
    port: u16,
    command: SshCommand,
}

/// `FROM KIND TO TOOL.ARG [KNOWN [VALUE]]`.
#[derive(Debug, Clone, PartialEq)]
struct FlowText {
    from: String,
    kind: ValueKind,
    to: Sink,
    tool: String,
    arg: String,
    known: Known,
    value: String,
}

impl Request {
    pub fn parse(text: &str) -> Result<Self, RequestError> {
        let text = text.trim();
        let shown = || RequestError::Shape(text.chars().take(80).collect());
        let (word, rest) = text.split_once(char::is_whitespace).ok_or_else(shown)?;
        let rest = rest.trim();
        let shape = match word {
            "tool" => named(rest).map(|(name, args)| Shape::Tool { name, args })?,
            "step" => named(rest).map(|(name, args)| Shape::Step { name, args })?,
            "exec" => Shape::Exec { argv: rest.split_whitespace().map(str::to_owned).collect() },
            "file" => file(rest).ok_or_else(shown)??,
            "browser" => browser(rest)?,
            "flow" => Shape::Flow(flow(rest).ok_or_else(shown)??),
            "baseline" => baseline(rest).ok_or_else(shown)??,
            "sql" => Shape::Sql(statement(rest)?),
            "ssh" => Shape::Ssh(command(rest)?),
            _ if rest.contains("://")
                && word.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-') =>
            {
                Target::parse(rest)?;
                Shape::Http { method: word.to_owned(), url: rest.to_owned() }
            }
            _ => return Err(shown()),
        };
        Ok(Self { shape, headers: Vec::new(), body: None, program: None })
    }

    /// Adds a header as `NAME: VALUE`.
    pub fn add_header(&mut self, text: &str) -> Result<(), RequestError> {
        let bad = || RequestError::Header(text.chars().take(80).collect());
        let (name, value) = text.split_once(':').ok_or_else(bad)?;
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(bad());
        }
        self.headers.push((name.to_owned(), value.trim().to_owned()));
        Ok(())
    }

    /// Hands the action to `judge`; it borrows from here, with what an HTTP client would add made up.
    pub fn with<T>(&self, judge: impl FnOnce(&Action<'_>) -> T) -> T {
        match &self.shape {
            Shape::Http { method, url } => self.with_http(method, url, judge),
            Shape::Tool { name, args } => judge(&Action::Tool(Tool { name, args })),
            Shape::Step { name, args } => judge(&Action::Step(Step { name, args })),
            Shape::File { path, access } => judge(&Action::File(File { path, access: *access })),
            Shape::Browser { name, url, args } => {
                judge(&Action::Browser(Browser { name, url: url.as_deref(), args }))
            }
            Shape::Flow(flow) => judge(&Action::Flow(flow.as_flow())),
            Shape::Baseline { finds, tool } => judge(&Action::Baseline(Baseline { finds: *finds, tool })),
            Shape::Sql(text) => judge(&Action::Sql(Sql {
                host: &text.host,
                port: text.port,
                database: &text.database,
                user: &text.user,
                acts: &text.acts,
                shape: text.shape.as_ref(),
                program: self.program.as_deref(),
            })),
            Shape::Ssh(text) => judge(&Action::Ssh(Ssh {
                host: &text.host,
                port: text.port,
                user: &text.user,
                command: &text.command,
                program: self.program.as_deref(),
            })),
            Shape::Exec { argv } => {
                let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
                judge(&Action::Exec(Exec { argv: &argv, cwd: None }))
            }
        }
    }

    fn with_http<T>(&self, method: &str, url: &str, judge: impl FnOnce(&Action<'_>) -> T) -> T {
        // Checked when it was made; the root is only for the type.
        let nowhere = Target { scheme: "https", host: "", port: 443, path: "/", query: None };
        let target = Target::parse(url).unwrap_or(nowhere);
        let declared = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let body = self.body.as_deref().unwrap_or_default();
        let assumed = (!body.is_empty()).then_some("application/json");
        judge(&Action::Http(Http {
            scheme: target.scheme,
            host: target.host,
            port: target.port,
            sni: (target.scheme == "https").then_some(target.host),
            method,
            path: target.path,
            query: target.query,
            headers: &self.headers,
            body: Some(body),
            content_type: declared.map(|(_, value)| value.as_str()).or(assumed),
            length: Some(body.len() as u64),
            program: self.program.as_deref(),
        }))
    }
}

/// `NAME` or `NAME JSON`.
fn named(text: &str) -> Result<(String, Json), RequestError> {
    let (name, json) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let args = match json.trim() {
        "" => Json::Object(serde_json::Map::new()),
        json => {
            crate::json::parse(json.as_bytes()).map_err(|problem| RequestError::Json(problem.to_string()))?
        }
    };
    Ok((name.to_owned(), args))
}

fn file(text: &str) -> Option<Result<Shape, RequestError>> {
    let (access, path) = text.split_once(char::is_whitespace)?;
    let Some(access) = Access::named(access) else {
        let meant = nearest(access, Access::NAMES.iter().copied()).unwrap_or(access);
        return Some(Err(RequestError::Access(meant.to_owned())));
    };
    Some(Ok(Shape::File { path: path.trim().to_owned(), access }))
}

fn browser(text: &str) -> Result<Shape, RequestError> {
    let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let (url, rest) = match rest.trim().split_once(char::is_whitespace) {
        Some((url, rest)) => (url, rest),
        None => (rest.trim(), ""),
    };
    if !url.is_empty() {
        Target::parse(url)?;
    }
    let (_, args) = named(&format!("{name} {rest}"))?;
    let url = (!url.is_empty()).then(|| url.to_owned());
    Ok(Shape::Browser { name: name.to_owned(), url, args })
}

impl FlowText {
    const FROM: &'static [&'static str] = &["told", "own", "untrusted", "model", "tool:NAME"];

    fn as_flow(&self) -> Flow<'_> {
        let from = match self.from.as_str() {
            "told" => Origin::Told,
            "own" => Origin::Own,
            "model" => Origin::Made,
            other => Origin::Returned(other.strip_prefix("tool:").unwrap_or("")),
        };
        let Self { kind, to, known, .. } = *self;
        let (tool, arg, value) = (&self.tool, &self.arg, &self.value);
        Flow { from, to, kind, tool, arg, value, in_text: false, known, filled: true }
    }
}

fn word<T>(
    word: &str,
    named: fn(&str) -> Option<T>,
    known: &'static [&'static str],
) -> Result<T, RequestError> {
    named(word).ok_or_else(|| RequestError::Word { word: word.chars().take(40).collect(), known })
}

fn flow(text: &str) -> Option<Result<FlowText, RequestError>> {
    let mut words = text.split_whitespace();
    let (from, kind, to, place) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let (tool, arg) = place.split_once('.').unwrap_or((place, ""));
    let known = words.next();
    let value = words.collect::<Vec<_>>().join(" ");
    let read = || {
        if !matches!(from, "told" | "own" | "untrusted" | "model") && !from.starts_with("tool:") {
            return Err(RequestError::Word { word: from.chars().take(40).collect(), known: FlowText::FROM });
        }
        Ok(FlowText {
            from: from.to_owned(),
            kind: word(kind, ValueKind::named, ValueKind::NAMES)?,
            to: word(to, Sink::named, Sink::NAMES)?,
            tool: tool.to_owned(),
            arg: arg.to_owned(),
            known: known.map_or(Ok(Known::Never), |known| word(known, Known::named, Known::NAMES))?,
            value,
        })
    };
    Some(read())
}

/// Several statements are judged as one that does all of it; a template then fits none of them.
fn statement(text: &str) -> Result<SqlText, RequestError> {
    let (place, text) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let bad = || RequestError::Database(place.chars().take(80).collect());
    let (place, database) = place.split_once('/').ok_or_else(bad)?;
    let (user, place) = place.rsplit_once('@').unwrap_or(("", place));
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) => {
            (host, port.parse().map_err(|_| RequestError::Port(port.chars().take(20).collect()))?)
        }
        None => (place, 5432),
    };
    if host.is_empty() || database.is_empty() {
        return Err(bad());
    }
    let mut statements = sql::read(text)?.statements;
    let shape = if statements.len() == 1 { statements.pop() } else { None };
    let mut acts: Vec<Act> = statements.into_iter().flat_map(|statement| statement.acts).collect();
    let shape = shape.map(|one| {
        acts.extend(one.acts);
        one.shape
    });
    if acts.is_empty() {
        acts.push(Act::new(SqlKind::Connect, ""));
    }
    let (user, host, database) = (user.to_owned(), host.to_owned(), database.to_owned());
    Ok(SqlText { user, host, port, database, acts, shape })
}

fn command(text: &str) -> Result<SshText, RequestError> {
    let (place, text) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let (user, host) = place.rsplit_once('@').unwrap_or(("", place));
    let (host, port) = match host.rsplit_once(':') {
        Some((host, port)) => {
            (host, port.parse().map_err(|_| RequestError::Port(port.chars().take(20).collect()))?)
        }
        None => (host, 22),
    };
    if host.is_empty() {
        return Err(RequestError::SshHost(place.chars().take(80).collect()));
    }
    let command = SshCommand::read(text.trim().as_bytes())?;
    Ok(SshText { user: user.to_owned(), host: host.to_owned(), port, command })
}

fn baseline(text: &str) -> Option<Result<Shape, RequestError>> {
    let (finds, tool) = text.split_once(char::is_whitespace)?;
    let finds = word(finds, Deviation::named, Deviation::NAMES);
    Some(finds.map(|finds| Shape::Baseline { finds, tool: tool.trim().to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_are_read() {
        let check = |text: &str, host: &str, port: u16, path: &str, query: Option<&str>| {
            let told = Request::parse(text).unwrap().with(|action| match action {
                Action::Http(http) => {
                    (http.host.to_owned(), http.port, http.path.to_owned(), http.query.map(str::to_owned))
                }
                _ => panic!("{text}"),
            });
            assert_eq!(told, (host.to_owned(), port, path.to_owned(), query.map(str::to_owned)), "{text}");
        };
        check("GET https://a.com/x?y=1#z", "a.com", 443, "/x", Some("y=1"));
        check("POST http://a.com", "a.com", 80, "/", None);
        check("GET https://[::1]:8443/..", "[::1]", 8443, "/..", None);
        check("GET https://a.com?q", "a.com", 443, "/", Some("q"));
    }

    #[test]
    fn what_is_no_request_is_named() {
        let check = |text: &str, expected: &str| {
            let error = Request::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        };
        check("", "no request");
        check("GET", "no request");
        check("GET a.com", "no request");
        check("GET ftp://a.com", "not a URL");
        check("GET https://", "not a URL");
        check("GET https://u:p@a.com/", "credentials in a header");
        check("GET https://a.com:99999/", "not a port");
        check("GET https://a.com/a b", "not a URL");
        check("tool refund {", "not JSON");
        check("file raed /x", "not an access");
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in ".{0,60}") {
            let _ = Request::parse(&text);
            let _ = Request::parse(&format!("GET https://{text}"));
        }
    }
}
