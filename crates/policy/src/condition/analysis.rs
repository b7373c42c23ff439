//! Looks through a condition once: what it asks for (so that only that is made ready), whether all of it is
//! known, and whether it can be bounded; loops are made to count their steps.

use super::{ConditionError, TICK};
use crate::mistake::nearest;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use cel::common::types::CelBool;

pub(super) const MAX_PARTS: usize = 500;
pub(super) const MAX_LOOPS: usize = 3;

const REQUEST: &[&str] = &[
    "body",
    "content_type",
    "headers",
    "host",
    "method",
    "path",
    "port",
    "program",
    "query",
    "scheme",
    "size",
    "sni",
];
const EXEC: &[&str] = &["argv", "cwd", "program"];
const FILE: &[&str] = &["access", "path"];
const BROWSER: &[&str] = &["action", "url"];
const FLOW: &[&str] = &["arg", "kind", "known", "to", "tool", "value"];
const BASELINE: &[&str] = &["finds", "tool"];
const SSH: &[&str] = &["command", "host", "kind", "port", "program", "repo", "user"];
const SQL: &[&str] = &["database", "host", "kind", "object", "port", "program", "user"];

/// The variables of each kind of rule, and the fields of each; none where it is no record.
type Roots = &'static [(&'static str, Option<&'static [&'static str]>)];

fn roots(kind: &str) -> (Roots, &'static [&'static str]) {
    match kind {
        "input" => (&[("input", None)], &["input"]),
        "tool" => (&[("tool", None), ("args", None)], &["tool", "args"]),
        "exec" => (&[("exec", Some(EXEC))], &["exec"]),
        "file" => (&[("file", Some(FILE))], &["file"]),
        "browser" => (&[("browser", Some(BROWSER)), ("args", None)], &["browser", "args"]),
        "flow" => (&[("flow", Some(FLOW))], &["flow"]),
        "sql" => (&[("sql", Some(SQL))], &["sql"]),
        "ssh" => (&[("ssh", Some(SSH))], &["ssh"]),
        "baseline" => (&[("baseline", Some(BASELINE))], &["baseline"]),
        "step" => (&[("step", None), ("args", None)], &["step", "args"]),
        _ => (&[("request", Some(REQUEST))], &["request"]),
    }
}

const FUNCTIONS: &[&str] = &[
    "bool",
    "bytes",
    "contains",
    "double",
    "dyn",
    "endsWith",
    "int",
    "size",
    "startsWith",
    "string",
    "type",
    "uint",
];
const TYPES: &[&str] =
    &["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];
const OPERATORS: &[&str] = &[
    operators::CONDITIONAL,
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::SUBSTRACT,
    operators::ADD,
    operators::MULTIPLY,
    operators::DIVIDE,
    operators::MODULO,
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::GREATER_EQUALS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::LESS,
    operators::NEGATE,
    operators::INDEX,
    operators::IN,
    operators::NOT_STRICTLY_FALSE,
];

/// Which members of a map are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Names {
    Some(Vec<String>),
    /// It is used as a whole.
    All,
}

/// What must be made ready for a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Fields of `request`, `exec`, `file` or `browser`.
    fields: Vec<&'static str>,
    pub(crate) query: Names,
    pub(crate) headers: Names,
}

impl Needs {
    pub(crate) fn has(&self, field: &str) -> bool {
        self.fields.contains(&field)
    }
}

pub(super) fn analyse(expression: &mut IdedExpr, kind: &'static str) -> Result<Needs, ConditionError> {
    let needs =
        Needs { fields: Vec::new(), query: Names::Some(Vec::new()), headers: Names::Some(Vec::new()) };
    let (roots, names) = roots(kind);
    let mut walk = Walk { roots, names, needs, bound: Vec::new(), parts: 0, loops: 0 };
    walk.expression(expression)?;
    Ok(walk.needs)
}

struct Walk {
    roots: Roots,
    names: &'static [&'static str],
    needs: Needs,
    /// Variables of the loops around.
    bound: Vec<String>,
    parts: usize,
    loops: usize,
}

impl Walk {
    fn expression(&mut self, at: &mut IdedExpr) -> Result<(), ConditionError> {
        self.parts += 1;
        if self.parts > MAX_PARTS {
            return Err(ConditionError::Large);
        }
        if let Some(path) = member_path(at) {
            return self.member(&path);
        }
        match &mut at.expr {
            Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.variable(&name.clone()),
            Expr::Select(select) => self.expression(&mut select.operand),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => list.elements.iter_mut().try_for_each(|item| self.expression(item)),
            Expr::Map(map) => map.entries.iter_mut().try_for_each(|entry| match &mut entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.expression(&mut entry.key)?;
                    self.expression(&mut entry.value)
                }
                EntryExpr::StructField(field) => self.expression(&mut field.value),
            }),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Struct(record) => Err(self.unknown_variable(&record.type_name)),
            Expr::Unspecified => Err(ConditionError::NotBoolean),
        }
    }

    /// `root.field.name…`, the shape in which facts are asked for.
    fn member(&mut self, path: &[String]) -> Result<(), ConditionError> {
        let [root, rest @ ..] = path else { return Ok(()) };
        let found =
            if self.bound.contains(root) { None } else { self.roots.iter().find(|(name, _)| name == root) };
        let Some((root, Some(fields))) = found else {
            return self.variable(root);
        };
        let Some(name) = rest.first() else {
            // Used as a whole: everything must be there.
            self.needs.fields.extend_from_slice(fields);
            (self.needs.query, self.needs.headers) = (Names::All, Names::All);
            return Ok(());
        };
        let Some(field) = fields.iter().find(|field| *field == name) else {
            let near = nearest(name, fields.iter().copied()).map(str::to_owned);
            return Err(ConditionError::Field { root, name: name.clone(), near, known: fields });
        };
        self.needs.fields.push(field);
        let names = match *field {
            "query" => &mut self.needs.query,
            "headers" => &mut self.needs.headers,
            _ => return Ok(()),
        };
        match (rest.get(1), names) {
            (Some(name), Names::Some(names)) => names.push(name.clone()),
            (None, names) => *names = Names::All,
            (Some(_), Names::All) => {}
        }
        Ok(())
    }

    fn variable(&self, name: &str) -> Result<(), ConditionError> {
        let is_known = self.bound.iter().any(|bound| bound == name) || self.names.contains(&name);
        if is_known || TYPES.contains(&name) { Ok(()) } else { Err(self.unknown_variable(name)) }
    }

    fn unknown_variable(&self, name: &str) -> ConditionError {
        let near = nearest(name, self.names.iter().copied()).map(str::to_owned);
        ConditionError::Variable { name: name.to_owned(), near, known: self.names }
    }

    fn call(&mut self, call: &mut CallExpr) -> Result<(), ConditionError> {
        let name = call.func_name.as_str();
        if name == operators::ADD && self.loops > 0 {
            return Err(ConditionError::Builds);
        }
        if !FUNCTIONS.contains(&name) && !OPERATORS.contains(&name) {
            let near = nearest(name, FUNCTIONS.iter().copied()).map(str::to_owned);
            return Err(ConditionError::Function { name: name.to_owned(), near, known: FUNCTIONS });
        }
        if let Some(target) = &mut call.target {
            self.expression(target)?;
        }
        call.args.iter_mut().try_for_each(|argument| self.expression(argument))
    }

    /// A loop is what a macro became, so its shape is known: only the parts that the author wrote are looked at.
    fn comprehension(&mut self, it: &mut ComprehensionExpr) -> Result<(), ConditionError> {
        self.expression(&mut it.iter_range)?;
        if self.loops == MAX_LOOPS {
            return Err(ConditionError::Nested);
        }
        self.loops += 1;
        let before = self.bound.len();
        self.bound.push(it.iter_var.clone());
        self.bound.extend(it.iter_var2.clone());
        let walked = self.step(it);
        self.bound.truncate(before);
        self.loops -= 1;
        walked
    }

    fn step(&mut self, it: &mut ComprehensionExpr) -> Result<(), ConditionError> {
        let (accumulator, item) = (it.accu_var.clone(), it.iter_var.clone());
        let is = |at: &IdedExpr, name: &str| matches!(&at.expr, Expr::Ident(found) if found == name);
        let Expr::Call(step) = &mut it.loop_step.expr else { return Err(ConditionError::Builds) };
        match (step.func_name.as_str(), step.args.as_mut_slice()) {
            // all, exists
            (operators::LOGICAL_AND | operators::LOGICAL_OR, [accu, test]) if is(accu, &accumulator) => {
                self.expression(test)?;
                tick(&mut it.loop_cond);
                Ok(())
            }
            // filter, exists_one
            (operators::CONDITIONAL, [test, then, _]) => {
                let collects = |list: &IdedExpr| match &list.expr {
                    Expr::List(list) => matches!(list.elements.as_slice(), [only] if is(only, &item)),
                    Expr::Literal(LiteralValue::Int(_)) => true,
                    _ => false,
                };
                match &then.expr {
                    Expr::Call(add) if add.args.get(1).is_some_and(collects) => {}
                    _ => return Err(ConditionError::Builds),
                }
                self.expression(test)?;
                tick(test);
                Ok(())
            }
            _ => Err(ConditionError::Builds),
        }
    }
}

/// `test` becomes `@tick() ? test : false`: an error of the count is not swallowed, as `&&` would.
fn tick(test: &mut IdedExpr) {
    let id = test.id;
    let made = |expr| IdedExpr { id, expr };
    let count = CallExpr { func_name: TICK.to_owned(), target: None, args: Vec::new() };
    let never = LiteralValue::Boolean(CelBool::from(false));
    let args = vec![made(Expr::Call(count)), std::mem::take(test), made(Expr::Literal(never))];
    *test = made(Expr::Call(CallExpr { func_name: operators::CONDITIONAL.to_owned(), target: None, args }));
}

/// `a.b["c"]` as its names; none if there is anything else in it.
fn member_path(at: &IdedExpr) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut at = at;
    loop {
        match &at.expr {
            Expr::Ident(name) => {
                names.push(name.clone());
                names.reverse();
                return Some(names);
            }
            Expr::Select(select) => {
                names.push(select.field.clone());
                at = &select.operand;
            }
            Expr::Call(call) if call.func_name == operators::INDEX => match call.args.as_slice() {
                [operand, IdedExpr { expr: Expr::Literal(LiteralValue::String(name)), .. }] => {
                    names.push(name.inner().to_owned());
                    at = operand;
                }
                _ => return None,
            },
            _ => return None,
        }
    }
}
