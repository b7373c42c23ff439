//! The shape of a statement: its tree with the values taken out. A template's parameters (`$1`) stand for any one
//! value, its own values for themselves.

use core::ops::ControlFlow;
use sqlparser::ast::{Ident, Statement, Value, ValueWithSpan, VisitMut, VisitorMut};

/// Compared as trees; how a statement is written (case, spaces, comments) does not matter.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    tree: Box<Statement>,
    values: Vec<Value>,
}

struct Blank(Vec<Value>);

impl VisitorMut for Blank {
    type Break = ();

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<()> {
        self.0.push(std::mem::replace(&mut value.value, Value::Null));
        ControlFlow::Continue(())
    }

    fn pre_visit_ident(&mut self, ident: &mut Ident) -> ControlFlow<()> {
        if ident.quote_style.is_none() {
            ident.value.make_ascii_lowercase();
        }
        ControlFlow::Continue(())
    }
}

impl Shape {
    pub(super) fn of(mut statement: Statement) -> Self {
        let mut blank = Blank(Vec::new());
        let _ = statement.visit(&mut blank);
        Self { tree: Box::new(statement), values: blank.0 }
    }

    /// Whether `other` is a statement of this template.
    pub(crate) fn admits(&self, other: &Self) -> bool {
        let fits = |(wanted, found): (&Value, &Value)| match wanted {
            Value::Placeholder(_) => true,
            wanted => wanted == found,
        };
        self.tree == other.tree
            && self.values.len() == other.values.len()
            && self.values.iter().zip(&other.values).all(fits)
    }
}
