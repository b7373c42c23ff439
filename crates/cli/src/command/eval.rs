//! `cofferdam eval`: the tier of restricted expressions. CEL over JSON that keeps to a schema: no files, no network, no
//! clock; bounded in steps and in what its value can be made of.

use crate::args::Eval;
use crate::output::{Failure, Output};
use cofferdam_engine::policy::{self, Expression, InputSchema};
use serde_json::json;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The input is not what the schema says, or nothing can be computed from it.
const NO_VALUE: u8 = 1;
/// More than an input may have, so that one that is too long is told as that.
const LONGEST: u64 = 2 << 20;

pub(crate) fn run(eval: &Eval, output: &Output) -> Result<u8, Failure> {
    let expression = Expression::compile(&eval.expression)
        .map_err(|error| Failure::Usage(format!("the expression {error}")))?;
    let schema = InputSchema::parse(&policy::read(&eval.schema)?)
        .map_err(|why| Failure::Usage(format!("{}: no schema: {why}", eval.schema.display())))?;
    match expression.run(&schema, &input(eval.input.as_deref())?) {
        Ok(value) => {
            output.data(&format!("{value}\n"))?;
            Ok(0)
        }
        Err(error) if output.json => {
            output.aside(
                &json!({ "error": { "kind": "input", "message": error.to_string() }, "exit": NO_VALUE }),
            );
            Ok(NO_VALUE)
        }
        Err(error) => {
            output.trouble(error);
            Ok(NO_VALUE)
        }
    }
}

fn input(file: Option<&Path>) -> Result<Vec<u8>, Failure> {
    let name = file.map_or("stdin".into(), |path| path.display().to_string());
    let from: io::Result<Box<dyn Read>> = match file {
        Some(path) => File::open(path).map(|file| Box::new(file) as Box<dyn Read>),
        None => Ok(Box::new(io::stdin().lock())),
    };
    let mut bytes = Vec::new();
    from.and_then(|from| from.take(LONGEST).read_to_end(&mut bytes)).map_err(|error| {
        Failure::Usage(format!("cannot read {name}: {error}; give the input with --input FILE"))
    })?;
    Ok(bytes)
}
