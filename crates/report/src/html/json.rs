//! Arguments as people read them: one line for each value, those that changed set apart.

use maud::{Markup, html};
use serde_json::Value;

/// More lines than this do not help anyone.
const LINES: usize = 60;
/// Of one value.
const WIDTH: usize = 300;

/// One line for each leaf, under its pointer. `changed` are pointers; what lies below one has changed too.
pub(super) fn lines(value: &Value, changed: &[(&str, &str)]) -> Markup {
    let mut leaves = Vec::new();
    collect(value, &mut String::new(), changed, &mut leaves);
    if leaves.is_empty() {
        return html! {};
    }
    let class = |path: &str| {
        let is_below =
            |above: &str| path == above || path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'));
        changed.iter().find(|(above, _)| is_below(above)).map(|(_, class)| *class)
    };
    let more = leaves.len().saturating_sub(LINES);
    // What changed is shown, however far down it stands.
    leaves.sort_by_key(|(path, _)| class(path).is_none());
    leaves.truncate(LINES);
    html! {
        dl .args {
            @for (path, text) in &leaves {
                div class=[class(path)] { dt { (name(path)) } dd { (text) } }
            }
            @if more > 0 { div .more { "and " (more) " more" } }
        }
    }
}

/// As it is written in code: `items[0].price`.
pub(super) fn name(pointer: &str) -> String {
    let mut out = String::new();
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        match part.parse::<usize>() {
            Ok(index) => out.push_str(&format!("[{index}]")),
            Err(_) if out.is_empty() => out.push_str(&part),
            Err(_) => out.push_str(&format!(".{part}")),
        }
    }
    if out.is_empty() { "·".into() } else { out }
}

/// A value in one line.
pub(super) fn short(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match text.char_indices().nth(WIDTH) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// A list of plain values is one line, unless one of them is to be seen.
fn collect(value: &Value, path: &mut String, changed: &[(&str, &str)], leaves: &mut Vec<(String, String)>) {
    let length = path.len();
    let is_told = |path: &str| {
        changed.iter().any(|(told, _)| told.strip_prefix(path).is_some_and(|rest| rest.starts_with('/')))
    };
    let is_plain = |item: &Value| !item.is_object() && !item.is_array();
    match value {
        Value::Null if path.is_empty() => {}
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                path.push('/');
                path.push_str(&name.replace('~', "~0").replace('/', "~1"));
                collect(value, path, changed, leaves);
                path.truncate(length);
            }
        }
        Value::Array(items) if items.len() > 1 && items.iter().all(is_plain) && !is_told(path) => {
            let words: Vec<String> = items.iter().map(short).collect();
            leaves.push((path.clone(), short(&Value::String(words.join(", ")))));
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, value) in items.iter().enumerate() {
                path.push_str(&format!("/{index}"));
                collect(value, path, changed, leaves);
                path.truncate(length);
            }
        }
        leaf => leaves.push((path.clone(), short(leaf))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pointers_read_like_code() {
        for (pointer, expected) in
            [("", "·"), ("/a", "a"), ("/items/0/price", "items[0].price"), ("/a~1b", "a/b")]
        {
            assert_eq!(name(pointer), expected);
        }
    }

    #[test]
    fn what_changed_comes_first_and_is_set_apart() {
        let made = lines(&json!({"amount": 5, "to": {"iban": "<b>"}}), &[("/to", "set")]).0;
        let expected = "<dl class=\"args\"><div class=\"set\"><dt>to.iban</dt><dd>&lt;b&gt;</dd></div>\
                        <div><dt>amount</dt><dd>5</dd></div></dl>";
        assert_eq!(made, expected);
        assert_eq!(lines(&Value::Null, &[]).0, "");
    }

    #[test]
    fn a_list_of_plain_values_is_one_line_unless_one_of_them_changed() {
        let argv = json!({"argv": ["ls", "-l"], "rows": [[1], [2]]});
        let whole = lines(&argv, &[]).0;
        assert!(
            whole.contains("<dt>argv</dt><dd>ls, -l</dd>") && whole.contains("<dt>rows[0][0]</dt><dd>1</dd>")
        );
        let told = lines(&argv, &[("/argv/1", "set")]).0;
        assert!(told.contains("<div class=\"set\"><dt>argv[1]</dt><dd>-l</dd></div>"), "{told}");
    }
}
