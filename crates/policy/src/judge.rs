//! Holds one rule against one action, part by part. Deciding and explaining run the same parts, so that they
//! cannot disagree.
//!
//! Where a request leaves room for doubt (a header twice, a path with several readings, a program that is not
//! known) an allow rule must match in every way it could be meant, a deny or review rule in any.

use crate::action::{Action, Http, Sql, Ssh};
use crate::facts::Facts;
use crate::flow::{Flow, FlowMatch};
use crate::glob::{PathPattern, Pattern};
use crate::json::{self, Field};
use crate::octets::{Octets, Writing, is_well_escaped};
use crate::path::Segments;
use crate::problem::Problem;
use crate::rule::{Effect, HttpMatch, NamedText, PageMatch, Rule, SqlMatch, SshMatch, Subject};
use crate::sql::SqlKind;

/// How a part of a rule, or all of it, stands to an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fit {
    Yes,
    No,
    Unknown(Problem),
}

impl From<bool> for Fit {
    fn from(fits: bool) -> Self {
        if fits { Self::Yes } else { Self::No }
    }
}

impl From<Result<bool, Problem>> for Fit {
    fn from(result: Result<bool, Problem>) -> Self {
        result.map_or_else(Self::Unknown, Self::from)
    }
}

impl Rule {
    /// Whether the rule fires; the first part that does not fit ends it.
    pub(crate) fn judge(&self, facts: &Facts<'_>) -> Fit {
        let mut fit = Fit::Yes;
        self.parts(facts, &mut |_, part| {
            fit = part;
            fit == Fit::Yes
        });
        fit
    }

    /// Shows each part in order until `go_on` says no. A part is named like the field.
    pub(crate) fn parts(&self, facts: &Facts<'_>, go_on: &mut dyn FnMut(&'static str, Fit) -> bool) {
        let typed = match (&self.subject, &facts.action) {
            (Subject::Http(wanted), Action::Http(http)) => self.http(wanted, http, facts, go_on),
            (Subject::Tool { names, args }, Action::Tool(tool)) => {
                go_on("tool", any(names, tool.name).into()) && self.fields("args", args, tool.args, go_on)
            }
            (Subject::Step { names, args }, Action::Step(step)) => {
                go_on("step", any(names, step.name).into()) && self.fields("args", args, step.args, go_on)
            }
            (Subject::Exec { commands }, Action::Exec(exec)) => go_on(
                "exec",
                commands.iter().any(|command| runs(command, exec.argv, self.is_strict())).into(),
            ),
            (Subject::File { paths, access }, Action::File(file)) => {
                go_on("access", access.contains(&file.access).into())
                    && go_on("path", file_path(paths, file.path))
            }
            (Subject::Browser { actions, args, page }, Action::Browser(browser)) => {
                go_on("browser", any(actions, browser.name).into())
                    && page
                        .as_ref()
                        .is_none_or(|page| go_on("host", host(page, facts)) && self.page(page, facts, go_on))
                    && self.fields("args", args, browser.args, go_on)
            }
            (Subject::Sql(wanted), Action::Sql(sql)) => self.sql(wanted, sql, facts, go_on),
            (Subject::Ssh(wanted), Action::Ssh(ssh)) => self.ssh(wanted, ssh, facts, go_on),
            (Subject::Flow(wanted), Action::Flow(flow)) => flows(wanted, flow, go_on),
            (Subject::Baseline(wanted), Action::Baseline(found)) => {
                go_on("baseline", wanted.tools(found.finds).any(|tool| tool.matches_str(found.tool)).into())
            }
            _ => {
                go_on("kind", Fit::No);
                false
            }
        };
        let typed = typed
            && self.contract.as_ref().is_none_or(|contract| {
                let kept = match &facts.action {
                    Action::Tool(tool) => contract.check(tool.args),
                    _ => facts.body().and_then(|body| contract.check(body)),
                };
                go_on("schema", kept.map(|()| true).into())
            });
        // What is only the way to a statement is not asked about what the statement does.
        let is_way = self.is_strict() && facts.is_way();
        if let (true, false, Some(condition)) = (typed, is_way, &self.condition) {
            go_on("when", condition.run(facts).into());
        }
    }

    /// Doubts count against whoever asks: see the top.
    fn is_strict(&self) -> bool {
        self.name.effect == Effect::Allow
    }

    fn http(
        &self,
        wanted: &HttpMatch,
        http: &Http<'_>,
        facts: &Facts<'_>,
        go_on: &mut dyn FnMut(&'static str, Fit) -> bool,
    ) -> bool {
        let strict = self.is_strict();
        go_on("host", host(&wanted.page, facts))
            && wanted
                .methods
                .as_ref()
                .is_none_or(|methods| go_on("methods", methods.matches(http.method, !strict).into()))
            && self.page(&wanted.page, facts, go_on)
            && wanted
                .sni
                .as_ref()
                .is_none_or(|sni| go_on("sni", http.sni.is_some_and(|name| sni.matches_raw(name)).into()))
            && wanted
                .content_types
                .as_ref()
                .is_none_or(|types| go_on("content_types", media(types, http.content_type)))
            && wanted.programs.as_ref().is_none_or(|programs| {
                // Not knowing who asks is no way around a rule against someone.
                go_on("program", http.program.map_or(!strict, |program| any_path(programs, program)).into())
            })
            && wanted.headers.iter().all(|header| go_on("headers", self.header(header, http).into()))
            && wanted.max_body.is_none_or(|most| {
                go_on(
                    "max_body",
                    facts.length().map(|length| length <= most).ok_or(Problem::LengthUnknown).into(),
                )
            })
            && wanted
                .body
                .iter()
                .all(|field| go_on("body", facts.body().map(|body| field.matches(body, strict)).into()))
    }

    /// One act. A session and its transactions are allowed by any rule that allows something in them.
    fn sql(
        &self,
        wanted: &SqlMatch,
        sql: &Sql<'_>,
        facts: &Facts<'_>,
        go_on: &mut dyn FnMut(&'static str, Fit) -> bool,
    ) -> bool {
        let strict = self.is_strict();
        let Some(act) = sql.acts.first() else { return go_on("sql", Fit::No) };
        let whole = wanted.kinds.is_none()
            && wanted.tables.is_none()
            && wanted.functions.is_none()
            && wanted.statements.is_none();
        let kind = match act.kind {
            SqlKind::Connect | SqlKind::Control => strict || whole,
            SqlKind::Writable => (strict && wanted.writes()) || whole,
            kind => wanted.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind)),
        };
        let one_of = |patterns: &Vec<Pattern>, text: &str| any(patterns, text);
        go_on("host", facts.host().map(|host| wanted.hosts.matches(host)).into())
            && wanted.ports.as_ref().is_none_or(|ports| go_on("port", ports.contains(&sql.port).into()))
            && wanted
                .databases
                .as_ref()
                .is_none_or(|names| go_on("database", one_of(names, sql.database).into()))
            && wanted.users.as_ref().is_none_or(|names| go_on("user", one_of(names, sql.user).into()))
            && wanted.programs.as_ref().is_none_or(|programs| {
                go_on("program", sql.program.map_or(!strict, |program| any_path(programs, program)).into())
            })
            && go_on("sql", kind.into())
            && (facts.is_way()
                || wanted.tables.as_ref().is_none_or(|tables| {
                    let fits = match act.object.as_str() {
                        _ if act.kind == SqlKind::Call => strict,
                        "" if act.kind.has_table() => strict,
                        object if act.kind.has_table() => any(tables, object),
                        // Which tables it is about is not known.
                        _ => !strict,
                    };
                    go_on("tables", fits.into())
                }) && wanted.functions.as_ref().is_none_or(|functions| {
                    let fits = if act.kind == SqlKind::Call { any(functions, &act.object) } else { strict };
                    go_on("functions", fits.into())
                }) && wanted.statements.as_ref().is_none_or(|templates| {
                    let fits =
                        sql.shape.map_or(!strict, |shape| templates.iter().any(|one| one.admits(shape)));
                    go_on("statement", fits.into())
                }))
    }

    /// One command. Repositories narrow what git asks for, declared commands the rest.
    fn ssh(
        &self,
        wanted: &SshMatch,
        ssh: &Ssh<'_>,
        facts: &Facts<'_>,
        go_on: &mut dyn FnMut(&'static str, Fit) -> bool,
    ) -> bool {
        let strict = self.is_strict();
        let kind = ssh.command.kind();
        let named = wanted.kinds.as_ref().map(|kinds| kinds.contains(&kind));
        go_on("host", facts.host().map(|host| wanted.hosts.matches(host)).into())
            && wanted.ports.as_ref().is_none_or(|ports| go_on("port", ports.contains(&ssh.port).into()))
            && wanted.users.as_ref().is_none_or(|names| go_on("user", any(names, ssh.user).into()))
            && wanted.programs.as_ref().is_none_or(|programs| {
                go_on("program", ssh.program.map_or(!strict, |program| any_path(programs, program)).into())
            })
            && go_on("ssh", named.unwrap_or(true).into())
            && match (ssh.command.repo(), &wanted.repos, &wanted.commands) {
                (Some(path), Some(repos), _) => {
                    go_on("repo", repos.iter().any(|repo| repo.matches(path, strict)).into())
                }
                // It speaks of other commands only, unless it names this kind too.
                (Some(_), None, commands) => {
                    go_on("command", (commands.is_none() || named == Some(true)).into())
                }
                (None, _, Some(commands)) => go_on("command", commands.contains(ssh.command).into()),
                // A command that nobody has declared is never allowed, and always held or denied.
                (None, repos, None) => go_on("command", (!strict && repos.is_none()).into()),
            }
    }

    /// What comes after the host.
    fn page(
        &self,
        wanted: &PageMatch,
        facts: &Facts<'_>,
        go_on: &mut dyn FnMut(&'static str, Fit) -> bool,
    ) -> bool {
        let Some(target) = &facts.target else { return false };
        wanted.schemes.as_ref().is_none_or(|schemes| {
            go_on("scheme", schemes.iter().any(|scheme| scheme == target.scheme).into())
        }) && wanted.ports.as_ref().is_none_or(|ports| go_on("port", ports.contains(&target.port).into()))
            && wanted
                .paths
                .as_ref()
                .is_none_or(|paths| go_on("paths", self.path(paths, target.path, facts).into()))
            && wanted.query.iter().all(|wanted| go_on("query", self.parameter(wanted, target.query).into()))
    }

    fn path(&self, paths: &[PathPattern], path: &str, facts: &Facts<'_>) -> Result<bool, Problem> {
        let mut readings = facts.doubts()?.readings();
        let fits = |reading| paths.iter().any(|pattern| pattern.matches(Segments::new(path, reading)));
        Ok(if self.is_strict() { readings.all(fits) } else { readings.any(fits) })
    }

    fn parameter(&self, wanted: &NamedText, query: Option<&str>) -> Result<bool, Problem> {
        let mut tally = Tally::new(self.is_strict());
        let query = query.unwrap_or_default();
        if !is_well_escaped(query.as_bytes()) {
            return Err(Problem::Query);
        }
        // Some servers split at `;` too.
        let both = [&['&'][..], &['&', ';']].into_iter().take(1 + usize::from(query.contains(';')));
        for (name, value) in both.flat_map(|separators| json::pairs(query, separators)) {
            let decoded = |text| Octets::new(str::as_bytes(text), Writing::Form);
            if decoded(name).eq(wanted.name.bytes()) {
                tally.add(wanted.texts.iter().any(|pattern| pattern.matches(decoded(value))));
            }
        }
        Ok(tally.fits())
    }

    fn header(&self, wanted: &NamedText, http: &Http<'_>) -> bool {
        let mut tally = Tally::new(self.is_strict());
        http.headers.values(&wanted.name, &mut |value| {
            let text = || Octets::new(value, Writing::Plain);
            tally.add(wanted.texts.iter().any(|pattern| pattern.matches(text())));
        });
        tally.fits()
    }

    fn fields(
        &self,
        name: &'static str,
        fields: &[Field],
        json: &serde_json::Value,
        go_on: &mut dyn FnMut(&'static str, Fit) -> bool,
    ) -> bool {
        fields.iter().all(|field| go_on(name, field.matches(json, self.is_strict()).into()))
    }
}

fn flows(wanted: &FlowMatch, flow: &Flow<'_>, go_on: &mut dyn FnMut(&'static str, Fit) -> bool) -> bool {
    go_on("from", wanted.from.contains(&wanted.origin(flow.from)).into())
        && go_on("to", wanted.to.contains(&flow.to).into())
        && wanted.values.as_ref().is_none_or(|kinds| go_on("values", kinds.contains(&flow.kind).into()))
        && wanted.tools.as_ref().is_none_or(|tools| go_on("tool", any(tools, flow.tool).into()))
        && wanted.args.as_ref().is_none_or(|args| go_on("arg", any(args, flow.arg).into()))
        && (wanted.texts || go_on("texts", (!flow.in_text).into()))
        && go_on("known", wanted.is_strange(flow).into())
}

fn host(wanted: &PageMatch, facts: &Facts<'_>) -> Fit {
    match facts.target {
        Some(_) => facts.host().map(|host| wanted.hosts.matches(host)).into(),
        None => Fit::No,
    }
}

/// Counts values of which all or any must fit, and one must be there.
struct Tally {
    strict: bool,
    some: bool,
    all: bool,
}

impl Tally {
    fn new(strict: bool) -> Self {
        Self { strict, some: false, all: true }
    }

    fn add(&mut self, fits: bool) {
        self.some |= fits;
        self.all &= fits;
    }

    fn fits(&self) -> bool {
        self.some && (self.all || !self.strict)
    }
}

fn any(patterns: &[Pattern], text: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches_str(text))
}

fn media(types: &[Pattern], found: Option<&str>) -> Fit {
    let media = found.map(|text| text.split(';').next().unwrap_or(text).trim().as_bytes());
    let fits = |media| types.iter().any(|pattern| pattern.matches(Octets::new(media, Writing::AnyCase)));
    media.is_some_and(fits).into()
}

fn any_path(patterns: &[PathPattern], path: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(file_segments(path)))
}

fn file_segments(path: &str) -> impl Iterator<Item = Octets<'_>> + Clone {
    let segments = path.split('/').filter(|segment| !segment.is_empty());
    segments.map(|segment| Octets::new(segment.as_bytes(), Writing::Plain))
}

/// A path that leads elsewhere than it says is not judged by what it says.
fn file_path(patterns: &[PathPattern], path: &str) -> Fit {
    if !path.starts_with('/') || path.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Fit::Unknown(Problem::FilePath);
    }
    any_path(patterns, path).into()
}

/// Where programs of the system lie: a bare name in an allow rule means one of these.
const PROGRAM_DIRS: [&str; 6] =
    ["/usr/local/sbin/", "/usr/local/bin/", "/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/"];

/// Words against words. A bare `git` also means `/usr/bin/git`; for a rule that must not be missed, any `git`.
fn runs(command: &PathPattern, argv: &[&str], strict: bool) -> bool {
    let words = |first: &'_ str| {
        let rest = argv.iter().skip(1).map(|word| Octets::new(word.as_bytes(), Writing::Plain));
        command.matches(std::iter::once(Octets::new(first.as_bytes(), Writing::Plain)).chain(rest))
    };
    let Some(program) = argv.first() else { return false };
    let bare = match strict {
        true => {
            PROGRAM_DIRS.iter().find_map(|dir| program.strip_prefix(dir)).filter(|name| !name.contains('/'))
        }
        false => program.rsplit('/').next(),
    };
    words(program) || bare.is_some_and(words)
}
