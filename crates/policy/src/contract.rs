//! What a body or the arguments of a call must look like, as a JSON Schema in the rule that allows them. It is the
//! interface by which something is written: what does not keep to it is denied in the rule's name, with the place and the
//! part of the schema, whatever else would allow it.

use crate::json;
use crate::problem::Problem;
use jsonschema::{PatternOptions, Validator};
use serde_json::Value as Json;
use std::sync::Arc;

/// Compared by its text.
#[derive(Debug, Clone)]
pub(crate) struct Contract {
    schema: Json,
    validator: Arc<Validator>,
}

impl PartialEq for Contract {
    fn eq(&self, other: &Self) -> bool {
        self.schema == other.schema
    }
}

impl Contract {
    /// From a table, or from a text of JSON. Nothing is fetched: a reference leads to a place of the schema itself.
    pub(crate) fn new(written: &Json) -> Result<Self, String> {
        let schema = match written {
            Json::String(text) => json::parse(text.as_bytes()).map_err(|problem| problem.to_string())?,
            Json::Object(_) => written.clone(),
            _ => return Err("write a table, or JSON in a text".to_owned()),
        };
        if let Some(reference) = foreign(&schema) {
            let shown: String = reference.chars().take(80).collect();
            return Err(format!(
                "`{shown}` leads elsewhere: write what it stands for below $defs, and #/$defs/NAME"
            ));
        }
        let built = jsonschema::options()
            // In time that grows with the text alone, whatever the pattern.
            .with_pattern_options(PatternOptions::regex())
            .should_validate_formats(true)
            .offline()
            .build(&schema);
        match built {
            Ok(validator) => Ok(Self { schema, validator: Arc::new(validator) }),
            Err(error) => Err(format!("at {}: {}", place(error.instance_path().as_str()), error.masked())),
        }
    }

    pub(crate) fn check(&self, value: &Json) -> Result<(), Problem> {
        self.validator.validate(value).map_err(|error| Problem::Contract {
            at: place(error.instance_path().as_str()),
            // The value is not told: it may hold what must not be recorded.
            what: error.masked().to_string().chars().take(200).collect(),
            rule: error.schema_path().as_str().chars().take(200).collect(),
        })
    }
}

fn place(path: &str) -> String {
    if path.is_empty() { "the whole".to_owned() } else { path.chars().take(200).collect() }
}

/// A reference that leads out of the schema.
fn foreign(schema: &Json) -> Option<&str> {
    match schema {
        Json::Object(fields) => fields.iter().find_map(|(name, value)| match (name.as_str(), value) {
            ("$ref" | "$dynamicRef" | "$recursiveRef", Json::String(to)) if !to.starts_with('#') => {
                Some(to.as_str())
            }
            ("$id" | "id", Json::String(to)) if name == "$id" => Some(to.as_str()),
            ("const" | "enum" | "default" | "examples", _) => None,
            (_, value) => foreign(value),
        }),
        Json::Array(items) => items.iter().find_map(foreign),
        _ => None,
    }
}
