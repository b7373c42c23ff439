//! Whether one rule surely matches whatever another does. Where it is hard to say, the answer is no: a warning
//! that is wrong is worse than none.

use crate::flow::{FlowMatch, Known};
use crate::glob::{PathPattern, Pattern};
use crate::rule::{HttpMatch, NamedText, PageMatch, Rule, SqlMatch, SshMatch, Subject};

impl Rule {
    /// Whether whatever `other` matches is matched by this one too.
    pub(crate) fn covers(&self, other: &Rule) -> bool {
        let same_condition = match (&self.condition, &other.condition) {
            (None, _) => true,
            (Some(a), Some(b)) => a.text == b.text,
            (Some(_), None) => false,
        };
        let same_contract = self.contract.is_none() || self.contract == other.contract;
        same_condition && same_contract && subject(&self.subject, &other.subject)
    }
}

fn subject(a: &Subject, b: &Subject) -> bool {
    match (a, b) {
        (Subject::Http(a), Subject::Http(b)) => http(a, b),
        (Subject::Tool { names: a, args: x }, Subject::Tool { names: b, args: y })
        | (Subject::Step { names: a, args: x }, Subject::Step { names: b, args: y }) => {
            texts(a, b) && x.iter().all(|field| y.contains(field))
        }
        (Subject::Exec { commands: a }, Subject::Exec { commands: b }) => paths(a, b),
        (Subject::File { paths: a, access: x }, Subject::File { paths: b, access: y }) => {
            paths(a, b) && y.iter().all(|access| x.contains(access))
        }
        (
            Subject::Browser { actions: a, args: x, page: p },
            Subject::Browser { actions: b, args: y, page: q },
        ) => {
            let pages = match (p, q) {
                (None, _) => true,
                (Some(p), Some(q)) => page(p, q),
                (Some(_), None) => false,
            };
            texts(a, b) && x.iter().all(|field| y.contains(field)) && pages
        }
        (Subject::Flow(a), Subject::Flow(b)) => flow(a, b),
        (Subject::Sql(a), Subject::Sql(b)) => sql(a, b),
        (Subject::Ssh(a), Subject::Ssh(b)) => ssh(a, b),
        (Subject::Baseline(a), Subject::Baseline(b)) => b.finds.iter().all(|(finds, tools)| {
            tools.iter().all(|tool| a.tools(*finds).any(|pattern| pattern.covers(tool)))
        }),
        _ => false,
    }
}

fn flow(a: &FlowMatch, b: &FlowMatch) -> bool {
    let within = |a: &[_], b: &[_]| b.iter().all(|one| a.contains(one));
    b.from.iter().all(|from| a.from.contains(from))
        && b.to.iter().all(|to| a.to.contains(to))
        && part(&a.values, &b.values, |a, b| within(a, b))
        && part(&a.tools, &b.tools, |a, b| texts(a, b))
        && part(&a.args, &b.args, |a, b| texts(a, b))
        && (a.texts || !b.texts)
        && (a.known == Known::Never || (b.known != Known::Never && a.known >= b.known))
}

fn sql(a: &SqlMatch, b: &SqlMatch) -> bool {
    let within = |a: &[_], b: &[_]| b.iter().all(|one| a.contains(one));
    part(&a.kinds, &b.kinds, |a, b| within(a, b))
        && a.hosts.covers(&b.hosts)
        && part(&a.ports, &b.ports, |a, b| b.iter().all(|port| a.contains(port)))
        && part(&a.databases, &b.databases, |a, b| texts(a, b))
        && part(&a.users, &b.users, |a, b| texts(a, b))
        && part(&a.tables, &b.tables, |a, b| texts(a, b))
        && part(&a.functions, &b.functions, |a, b| texts(a, b))
        && part(&a.statements, &b.statements, |a, b| b.iter().all(|one| a.contains(one)))
        && part(&a.programs, &b.programs, |a, b| paths(a, b))
}

fn ssh(a: &SshMatch, b: &SshMatch) -> bool {
    part(&a.kinds, &b.kinds, |a, b| b.iter().all(|kind| a.contains(kind)))
        && a.hosts.covers(&b.hosts)
        && part(&a.ports, &b.ports, |a, b| b.iter().all(|port| a.contains(port)))
        && part(&a.users, &b.users, |a, b| texts(a, b))
        && part(&a.programs, &b.programs, |a, b| paths(a, b))
        && match (&a.repos, &b.repos, &a.commands, &b.commands) {
            (None, _, None, _) => true,
            (Some(a), Some(b), None, None) => b.iter().all(|b| a.iter().any(|a| a.covers(b))),
            (None, None, Some(a), Some(b)) => b.iter().all(|b| a.contains(b)),
            // What narrows two things at once is only surely covered by what is the same.
            (Some(a), Some(b), Some(x), Some(y)) => a == b && x == y,
            _ => false,
        }
}

fn http(a: &HttpMatch, b: &HttpMatch) -> bool {
    page(&a.page, &b.page)
        && part(&a.sni, &b.sni, |a, b| a.covers(b))
        && part(&a.methods, &b.methods, |a, b| a.covers(b))
        && named(&a.headers, &b.headers)
        && part(&a.content_types, &b.content_types, |a, b| texts(a, b))
        && part(&a.max_body, &b.max_body, |a, b| a >= b)
        && a.body.iter().all(|field| b.body.contains(field))
        && part(&a.programs, &b.programs, |a, b| paths(a, b))
}

fn page(a: &PageMatch, b: &PageMatch) -> bool {
    a.hosts.covers(&b.hosts)
        && part(&a.schemes, &b.schemes, |a, b| b.iter().all(|scheme| a.contains(scheme)))
        && part(&a.ports, &b.ports, |a, b| b.iter().all(|port| a.contains(port)))
        && part(&a.paths, &b.paths, |a, b| paths(a, b))
        && named(&a.query, &b.query)
}

/// What is not said matches anything.
fn part<T>(a: &Option<T>, b: &Option<T>, covers: impl Fn(&T, &T) -> bool) -> bool {
    match (a, b) {
        (None, _) => true,
        (Some(a), Some(b)) => covers(a, b),
        (Some(_), None) => false,
    }
}

fn texts(a: &[Pattern], b: &[Pattern]) -> bool {
    b.iter().all(|b| a.iter().any(|a| a.covers(b)))
}

fn paths(a: &[PathPattern], b: &[PathPattern]) -> bool {
    b.iter().all(|b| a.iter().any(|a| a.covers(b)))
}

fn named(a: &[NamedText], b: &[NamedText]) -> bool {
    a.iter().all(|a| b.iter().any(|b| a.name == b.name && texts(&a.texts, &b.texts)))
}
