//! Structured lines of what the service does. Never a key, a token, a body or a query: only what is named here.

use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// One line; whoever is told writes it.
#[derive(Debug, Serialize)]
pub struct Line {
    pub level: Level,
    pub message: &'static str,
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// Where lines go.
pub type Tell = Arc<dyn Fn(Line) + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Log(pub(crate) Tell);

impl Log {
    pub(crate) fn debug(&self, message: &'static str, fields: Value) {
        self.line(Level::Debug, message, fields);
    }

    pub(crate) fn info(&self, message: &'static str, fields: Value) {
        self.line(Level::Info, message, fields);
    }

    pub(crate) fn warn(&self, message: &'static str, fields: Value) {
        self.line(Level::Warn, message, fields);
    }

    fn line(&self, level: Level, message: &'static str, fields: Value) {
        let fields = match fields {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        (self.0)(Line { level, message, fields });
    }
}
