//! The tier of restricted expressions: one CEL expression over one JSON document that keeps to a schema. It has the
//! bounds of conditions, can do nothing but compute, and its value is JSON.

use super::variables::{Variables, value};
use super::{ConditionError, compute, read};
use crate::contract::Contract;
use crate::json::{self, MAX_BODY};
use crate::problem::Problem;
use cel::Value;
use cel::common::ast::IdedExpr;
use cel::objects::Key;
use serde_json::{Map, Number, Value as Json};

/// Bytes of the input times how often the expression names it: as much can its value be made of.
const MAX_DATA: usize = 64 << 20;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    #[error("the input is longer than {MAX_BODY} bytes; give less")]
    Long,
    #[error("the input is not JSON at line {line}, column {column}")]
    NotJson { line: usize, column: usize },
    #[error("the input can be read in two ways, or has too many values; name each field once")]
    Ambiguous,
    #[error("the input does not keep to the schema: {0}")]
    Schema(Problem),
    #[error("the input is too large for an expression that names it {0} times; name it less often")]
    Data(usize),
    #[error("{}", .0.to_string().replacen("the condition", "the expression", 1))]
    Computation(Problem),
    #[error("its value is {0}, which JSON cannot say; convert it with string() or int()")]
    Value(&'static str),
}

/// What an input must look like, as a JSON Schema.
#[derive(Debug)]
pub struct InputSchema(Contract);

impl InputSchema {
    pub fn parse(text: &str) -> Result<Self, String> {
        Contract::new(&Json::String(text.to_owned())).map(Self)
    }
}

/// An expression over `input`.
#[derive(Debug)]
pub struct Expression {
    expression: IdedExpr,
    /// How often the input is named.
    uses: usize,
}

impl Expression {
    pub fn compile(text: &str) -> Result<Self, ConditionError> {
        let (expression, _) = read(text, "input")?;
        Ok(Self { expression, uses: text.matches("input").count() })
    }

    pub fn run(&self, schema: &InputSchema, input: &[u8]) -> Result<Json, ExpressionError> {
        if input.len() > MAX_BODY {
            return Err(ExpressionError::Long);
        }
        let data = json::parse(input).map_err(|problem| match problem {
            Problem::BodyNotJson { line, column } => ExpressionError::NotJson { line, column },
            _ => ExpressionError::Ambiguous,
        })?;
        schema.0.check(&data).map_err(ExpressionError::Schema)?;
        if input.len().saturating_mul(self.uses) > MAX_DATA {
            return Err(ExpressionError::Data(self.uses));
        }
        let variables = Variables { values: vec![("input", value(&data))], bytes: input.len() };
        let found = compute(&self.expression, variables).map_err(ExpressionError::Computation)?;
        told(&found)
    }
}

fn told(found: &Value) -> Result<Json, ExpressionError> {
    Ok(match found {
        Value::Null => Json::Null,
        Value::Bool(flag) => Json::Bool(*flag),
        Value::Int(number) => Json::from(*number),
        Value::UInt(number) => Json::from(*number),
        Value::Float(number) => {
            Json::Number(Number::from_f64(*number).ok_or(ExpressionError::Value("no finite number"))?)
        }
        Value::String(text) => Json::String(text.to_string()),
        Value::List(items) => Json::Array(items.iter().map(told).collect::<Result<_, _>>()?),
        Value::Map(map) => {
            let mut fields = Map::new();
            for (key, value) in map.map.iter() {
                let name = match key {
                    Key::Int(number) => number.to_string(),
                    Key::Uint(number) => number.to_string(),
                    Key::Bool(flag) => flag.to_string(),
                    Key::String(text) => text.to_string(),
                };
                fields.insert(name, told(value)?);
            }
            Json::Object(fields)
        }
        Value::Bytes(_) => return Err(ExpressionError::Value("bytes")),
        _ => return Err(ExpressionError::Value("no data")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SCHEMA: &str = r#"{ "type": "object", "required": ["items"], "properties": {
        "items": { "type": "array", "items": { "type": "integer" } }, "name": { "type": "string" } } }"#;

    fn run(text: &str, input: &str) -> Result<Json, String> {
        let expression = Expression::compile(text).map_err(|error| error.to_string())?;
        let schema = InputSchema::parse(SCHEMA).unwrap();
        expression.run(&schema, input.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn it_computes() {
        let check = |text: &str, expected: Json| {
            assert_eq!(run(text, r#"{"items": [3, 1, 2], "name": "ada"}"#).unwrap(), expected, "{text}");
        };
        check("1 + 1", json!(2));
        check("size(input.items) > 2", json!(true));
        check("input.items.filter(n, n > 1)", json!([3, 2]));
        check("input.name + '!'", json!("ada!"));
        check("{'n': input.items[0], 'all': input.items}", json!({ "n": 3, "all": [3, 1, 2] }));
        check("has(input.other) ? input.other : null", json!(null));
        check("1.5 * 2.0", json!(3.0));
    }

    #[test]
    fn what_it_refuses_is_named() {
        let check = |text: &str, input: &str, expected: &str| {
            let refused = run(text, input).unwrap_err();
            assert!(refused.contains(expected), "{text}: {refused}");
        };
        let good = r#"{"items": [1]}"#;
        check("1 +", good, "is not CEL at column");
        check("inptu.items", good, "did you mean `input`?");
        check("input.items.map(n, n * 2)", good, "builds data in a loop");
        check("open('/etc/passwd')", good, "knows no function `open`");
        check("input.other", good, "`other`, which is not there");
        check("1 / 0", good, "divides by zero");
        check("bytes('a')", good, "its value is bytes");
        check("1.0 / 0.0", good, "no finite number");
        check("true", r#"{"items": ["a"]}"#, "/items/0");
        check("true", r#"{"itmes": []}"#, "does not keep to the schema");
        check("true", r#"{"items": [], "items": []}"#, "in two ways");
        check("true", "{", "is not JSON at line 1");
        assert!(InputSchema::parse("{ \"type\": 7 }").is_err());
        assert!(InputSchema::parse(r#"{ "$ref": "https://example.org/x" }"#).is_err());
    }

    #[test]
    fn steps_and_data_are_bounded() {
        let many: Vec<u32> = (0..200).collect();
        let input = json!({ "items": many }).to_string();
        let loops = "input.items.all(a, input.items.all(b, input.items.all(c, a >= 0 && b >= 0 && c >= 0)))";
        assert!(run(loops, &input).unwrap_err().contains("too many steps"));
        let input = json!({ "items": [], "name": "a".repeat(1 << 19) }).to_string();
        let wide = vec!["input.name"; 150].join(" + ");
        assert!(run(&wide, &input).unwrap_err().contains("names it 150 times"));
        assert!(run(&wide, r#"{"items": [], "name": "a"}"#).is_ok());
        let long = json!({ "items": [], "name": "a".repeat(MAX_BODY) }).to_string();
        assert!(run("true", &long).unwrap_err().contains("is longer than"));
    }
}
