//! CEL conditions: compiled when the policy is read, run only after the typed part of a rule matched, and
//! bounded in both. What cannot be computed is a [`Problem`], never false: false would open a deny rule.
//!
//! There are no regular expressions, no building of data (`map`, and `+` in a loop), and every step of a loop
//! is counted: a body cannot make a condition run for long.

mod analysis;
mod expression;
mod variables;

pub(crate) use analysis::{Names, Needs};
pub use expression::{Expression, ExpressionError, InputSchema};

use crate::facts::Facts;
use crate::problem::Problem;
use cel::common::ast::{Expr, IdedExpr, LiteralValue};
use cel::{Context, Env, ExecutionError, Program, Value};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use variables::Variables;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    #[error("is longer than {MAX_TEXT} characters; split the rule")]
    Long,
    #[error("has more than {} parts; split the rule", analysis::MAX_PARTS)]
    Large,
    #[error("has loops nested deeper than {}; write it flatter", analysis::MAX_LOOPS)]
    Nested,
    #[error("is not CEL at column {column}: {message}")]
    Syntax { column: usize, message: String },
    #[error("knows no variable `{name}`; {}", hint(.near.as_deref(), .known))]
    Variable { name: String, near: Option<String>, known: &'static [&'static str] },
    #[error("knows no `{root}.{name}`; {}", hint(.near.as_deref(), .known))]
    Field { root: &'static str, name: String, near: Option<String>, known: &'static [&'static str] },
    #[error("knows no function `{name}`; {}", hint(.near.as_deref(), .known))]
    Function { name: String, near: Option<String>, known: &'static [&'static str] },
    #[error("builds data in a loop with `map` or `+`; test with `exists`, `all` or `filter` instead")]
    Builds,
    #[error("is neither true nor false; write a comparison")]
    NotBoolean,
}

fn hint(near: Option<&str>, known: &[&str]) -> String {
    match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known are {}", known.join(", ")),
    }
}

const MAX_TEXT: usize = 2_000;
/// Steps of all loops of one run, however small the data.
const MAX_STEPS: usize = 10_000;
/// Steps times bytes of data: what a step may look at is all of it.
const MAX_WORK: usize = 1 << 31;

/// The name can not be written in CEL.
const TICK: &str = "@tick";

static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib().with_optional_support(false)));

#[derive(Debug)]
pub(crate) struct Condition {
    expression: IdedExpr,
    pub(crate) needs: Needs,
    /// On one line.
    pub(crate) text: Box<str>,
}

impl Condition {
    /// `kind` is the rule's: it decides which variables there are.
    pub(crate) fn compile(text: &str, kind: &'static str) -> Result<Self, ConditionError> {
        let (expression, needs) = read(text, kind)?;
        if matches!(&expression.expr, Expr::Literal(literal) if !matches!(literal, LiteralValue::Boolean(_)))
        {
            return Err(ConditionError::NotBoolean);
        }
        let text: Vec<&str> = text.split_whitespace().collect();
        Ok(Self { expression, needs, text: text.join(" ").into() })
    }

    /// The value it always has, if it is written down.
    pub(crate) fn constant(&self) -> Option<bool> {
        match &self.expression.expr {
            Expr::Literal(LiteralValue::Boolean(flag)) => Some(*flag.inner()),
            _ => None,
        }
    }

    pub(crate) fn run(&self, facts: &Facts<'_>) -> Result<bool, Problem> {
        match compute(&self.expression, variables::gather(&self.needs, facts)?)? {
            Value::Bool(flag) => Ok(flag),
            other => Err(Problem::NotBoolean(kind_of(&other))),
        }
    }
}

fn read(text: &str, kind: &'static str) -> Result<(IdedExpr, Needs), ConditionError> {
    if text.len() > MAX_TEXT {
        return Err(ConditionError::Long);
    }
    // The parser is another's and the text is a stranger's: a panic in it is a syntax error here.
    let parsed = catch_unwind(|| Program::compile(text));
    let program = match parsed {
        Ok(Ok(program)) => program,
        Ok(Err(errors)) => return Err(syntax(errors.errors.first())),
        Err(_) => return Err(syntax(None)),
    };
    let mut expression = program.expression().clone();
    let needs = analysis::analyse(&mut expression, kind)?;
    Ok((expression, needs))
}

fn compute(expression: &IdedExpr, variables: Variables<'_>) -> Result<Value, Problem> {
    let left = AtomicUsize::new((MAX_WORK / variables.bytes.max(1)).min(MAX_STEPS));
    let tick =
        move || match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => Ok(Value::Bool(true)),
            Err(_) => Err(ExecutionError::function_error(TICK, "")),
        };
    let mut context = Context::with_env(Arc::clone(&ENV));
    context.add_function(TICK, tick).map_err(|_| Problem::Computation("its set-up failed"))?;
    for (name, value) in variables.values {
        context.add_variable_as_val(name, value);
    }
    match catch_unwind(AssertUnwindSafe(|| Value::resolve(expression, &context))) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(problem(error)),
        Err(_) => Err(Problem::Computation("it failed")),
    }
}

fn syntax(error: Option<&cel::ParseError>) -> ConditionError {
    let message = error.map_or("it cannot be read", |error| &error.msg);
    let message = message.strip_prefix("Syntax error: ").unwrap_or(message);
    let column = error.map_or(1, |error| usize::try_from(error.pos.1).unwrap_or(1).max(1));
    ConditionError::Syntax { column, message: message.chars().take(120).collect() }
}

/// Names of functions, types and keys, and never a value of the request.
fn problem(error: ExecutionError) -> Problem {
    match error {
        ExecutionError::NoSuchKey(name) => Problem::NoSuchKey(name.chars().take(40).collect()),
        ExecutionError::NoSuchOverload(overload) => Problem::Types {
            function: operator(overload.function()),
            types: overload.argument_types().join(" and "),
        },
        ExecutionError::FunctionError { function, .. } if function == TICK => Problem::Steps,
        ExecutionError::FunctionError { function, .. } => Problem::Conversion(function),
        ExecutionError::UnexpectedType { .. } => Problem::Computation("a value has the wrong type"),
        ExecutionError::ValuesNotComparable(..) => Problem::Computation("two values cannot be compared"),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => {
            Problem::Computation("it divides by zero")
        }
        ExecutionError::Overflow(..) => Problem::Computation("a number is too large"),
        ExecutionError::IndexOutOfBounds(_) => Problem::Computation("a list has no such element"),
        _ => Problem::Computation("its parts do not fit together"),
    }
}

fn operator(name: &str) -> String {
    match name.trim_matches('_') {
        "@in" => "`in`".to_owned(),
        "[_]" => "an index".to_owned(),
        sign => format!("`{sign}`"),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::List(_) => "a list",
        Value::Map(_) => "a map",
        Value::Int(_) | Value::UInt(_) | Value::Float(_) => "a number",
        Value::String(_) => "a string",
        Value::Null => "null",
        _ => "something else",
    }
}
