//! Which element an action is about: asked of the page in a world of our own, where its scripts cannot lie about it
//! by changing what the language does. Its words are the page's all the same, and are bounded.

use serde_json::Value;

/// The name of that world. Clients do not get to see it.
pub(super) const WORLD: &str = "cofferdam";
/// The function by which that world tells what it sees.
pub(super) const BINDING: &str = "__cofferdam";

const DESCRIBE: &str = include_str!("describe.js");
const POINT: &str = include_str!("point.js");
const FOCUS: &str = include_str!("focus.js");
const WATCH: &str = include_str!("watch.js");
const LONGEST: usize = 400;

/// Where to look for it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Look {
    At(f64, f64),
    Focused,
    /// An object of the client's own session.
    Object(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Element {
    pub(super) role: String,
    pub(super) name: String,
    pub(super) selector: String,
    /// What is typed into it is nobody's business.
    pub(super) secret: bool,
}

impl Look {
    /// What to evaluate in our world.
    pub(super) fn expression(&self) -> String {
        match self {
            Self::At(x, y) => {
                let body = POINT.replacen("X,", &format!("{x},"), 1).replacen("= Y", &format!("= {y}"), 1);
                format!("(() => {{\n{DESCRIBE}{body}}})()")
            }
            Self::Focused => format!("(() => {{\n{DESCRIBE}{FOCUS}}})()"),
            Self::Object(_) => String::new(),
        }
    }
}

/// To be called on an element.
pub(super) fn function() -> String {
    format!("function () {{\n{DESCRIBE}return D(this);\n}}")
}

/// To be run in every document, in our world.
pub(super) fn watcher() -> String {
    format!("(() => {{\n{DESCRIBE}{WATCH}}})()")
}

impl Element {
    pub(super) fn read(value: &Value) -> Option<Self> {
        let text = |name: &str| {
            let text = value.get(name).and_then(Value::as_str).unwrap_or_default();
            crate::kept::clipped(text, LONGEST)
        };
        value.is_object().then(|| Self {
            role: text("role"),
            name: text("name"),
            selector: text("selector"),
            // A page that does not say is not one that says no.
            secret: value.get("secret").and_then(Value::as_bool).unwrap_or(true),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn coordinates_are_put_where_they_belong() {
        let text = Look::At(1.5, -2.0).expression();
        assert!(text.contains("let x = 1.5, y = -2, r = document"), "{text}");
    }

    #[test]
    fn a_description_is_bounded_and_secret_unless_it_says_no() {
        let long = "é".repeat(1000);
        let element = Element::read(&json!({"role": "textbox", "name": long, "selector": "#a"})).unwrap();
        assert!(element.secret && element.name.len() <= LONGEST);
        assert_eq!(Element::read(&json!(null)), None);
        assert!(!Element::read(&json!({"secret": false})).unwrap().secret);
    }
}
