//! Equations that an answer writes out: `50.0 + 1000.0 = 1050.0`. Arithmetic is evidence enough: one that does not come out
//! has a wrong number in it, and one that does holds its numbers up by each other.

use super::amount::Unit;
use super::extract::Raw;
use super::link::Judge;
use super::report::{Operation, Quoted, Why};
use super::scan::Value;
use std::ops::Range;

/// Bytes between two numbers of an equation, and terms of one.
const APART: usize = 6;
const MOST: usize = 40;

/// What stands between two numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    Plus,
    Minus,
    Times,
    Over,
    Equals,
}

/// An equation as it is written, and whether it comes out.
struct Equation {
    range: Range<usize>,
    terms: Vec<Range<usize>>,
    falls: bool,
    product: bool,
    holds: bool,
}

impl Judge<'_> {
    /// The equation that a claim is part of does not come out.
    pub(super) fn does_not_come_out(&self, raw: &Raw) -> Option<Why> {
        let equation = self.equation(raw).filter(|equation| !equation.holds)?;
        let wants = format!("a number with which `{}` comes out", &self.text[equation.range.clone()]);
        Some(Why::Misfit { wants, found: None, beside: vec![self.own_words(&equation.range)] })
    }

    /// Whether a claim is part of an equation that comes out.
    pub(super) fn comes_out(&self, raw: &Raw) -> bool {
        self.equation(raw).is_some_and(|equation| equation.holds)
    }

    /// What a claim is worked out from, where the answer writes it down and it comes out.
    pub(super) fn written_out(&self, raw: &Raw) -> Option<(Operation, Vec<Quoted>)> {
        let equation = self.equation(raw).filter(|equation| equation.holds)?;
        let (last, rest) = equation.terms.split_last()?;
        let operation = match (equation.product, equation.falls) {
            (true, _) => Operation::Product,
            (false, true) => Operation::Difference,
            (false, false) => Operation::Sum,
        };
        (*last == raw.range).then(|| (operation, rest.iter().map(|range| self.own_words(range)).collect()))
    }

    /// The equation around a claim as it is written, and whether it comes out. Products are only tried alone: what
    /// binds first is the writer's business.
    fn equation(&self, raw: &Raw) -> Option<Equation> {
        let amount = |c: &&Raw| matches!(c.value, Some(Value::Amount(_)));
        let here = self.answer.claims.iter().filter(|c| c.statement == raw.statement);
        let terms: Vec<&Raw> = here.filter(amount).take(MOST).collect();
        let own = terms.iter().position(|c| c.range == raw.range)?;
        let sign = |at: usize| sign(self.text.get(terms[at].range.end..terms[at + 1].range.start)?);
        let from = (0..own).rev().take_while(|at| sign(*at).is_some()).last().unwrap_or(own);
        let joined = (own..terms.len().saturating_sub(1)).take_while(|at| sign(*at).is_some()).last();
        let to = joined.map_or(own, |at| at + 1);
        let signs: Vec<Sign> = (from..to).filter_map(sign).collect();
        let value = |at: usize| match &terms[at].value {
            Some(Value::Amount(a)) if a.unit == Some(Unit::Percent) => a.value / 100.0,
            Some(Value::Amount(a)) => a.value,
            _ => 0.0,
        };
        // one equals sign, and a number alone behind it
        let whole = signs.split_last().is_some_and(|(last, rest)| {
            *last == Sign::Equals && !rest.is_empty() && !rest.contains(&Sign::Equals)
        });
        let product = signs.iter().any(|s| matches!(s, Sign::Times | Sign::Over));
        if !whole || product && signs.len() != 2 {
            return None;
        }
        let mut left = value(from);
        for (sign, at) in signs[..signs.len() - 1].iter().zip(from + 1..) {
            match sign {
                Sign::Plus => left += value(at),
                Sign::Minus => left -= value(at),
                Sign::Times => left *= value(at),
                Sign::Over => left /= value(at),
                Sign::Equals => {}
            }
        }
        let step = match &terms[to].value {
            Some(Value::Amount(a)) => a.step.min(1.0),
            _ => 1.0,
        };
        let holds = (left - value(to)).abs() <= step.max(left.abs() * 1e-6);
        Some(Equation {
            range: terms[from].range.start..terms[to].range.end,
            terms: terms[from..=to].iter().map(|c| c.range.clone()).collect(),
            falls: signs.contains(&Sign::Minus),
            product,
            holds,
        })
    }
}

fn sign(between: &str) -> Option<Sign> {
    if between.len() > APART {
        return None;
    }
    match between.trim_matches(|c: char| c.is_whitespace() || "$€£*".contains(c)) {
        "+" => Some(Sign::Plus),
        "-" | "−" | "–" => Some(Sign::Minus),
        "×" | "x" => Some(Sign::Times),
        "" if between.trim() == "*" => Some(Sign::Times),
        "/" | "÷" => Some(Sign::Over),
        "=" => Some(Sign::Equals),
        _ => None,
    }
}
