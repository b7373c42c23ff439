//! A line for a syslog daemon: RFC 5424, with the main facts as structured data and the alert as the message.
//! What came from inside cannot end a field or begin a line.

use super::message::{Content, Severity};

/// Security and authorization messages.
const FACILITY: u8 = 10;
/// An element that is not registered carries an enterprise number; this is the one for examples (RFC 5612).
const ELEMENT: &str = "cofferdam@32473";

pub(super) fn line(content: &Content<'_>, hostname: &str, text: &str) -> String {
    let severity = match content.severity {
        Severity::High => 2,
        Severity::Medium => 4,
        Severity::Low => 5,
    };
    let approval = content.approval.as_ref().map_or("", |approval| approval.id.as_str());
    let times = content.times.to_string();
    let fields = [
        ("alert", content.alert),
        ("session", content.session),
        ("uid", &content.uid),
        ("about", content.about),
        ("cause", content.cause),
        ("destination", content.destination),
        ("request", content.request),
        ("program", content.program.unwrap_or_default()),
        ("credential", content.credential.unwrap_or_default()),
        ("times", &times),
        ("approval", approval),
    ];
    let mut data = String::new();
    for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
        data.push_str(&format!(" {name}=\"{}\"", value_of(value)));
    }
    format!(
        "<{}>1 {} {} cofferdam {} {} [{ELEMENT}{data}] {text}",
        FACILITY * 8 + severity,
        content.time,
        header(hostname, 255),
        std::process::id(),
        header(content.about, 32),
    )
}

/// For a stream, where a line's end is told by its length (RFC 6587).
pub(super) fn counted(line: &str) -> Vec<u8> {
    format!("{} {line}", line.len()).into_bytes()
}

/// Three characters are escaped; control characters, which daemons treat each in its own way, are not passed on.
fn value_of(text: &str) -> String {
    let mut value = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' | ']' => value.extend(['\\', c]),
            c if c.is_control() => value.push(char::REPLACEMENT_CHARACTER),
            c => value.push(c),
        }
    }
    value
}

/// A field of the header: visible ASCII, or a dash where nothing is left.
fn header(text: &str, most: usize) -> String {
    let text: String = text.chars().filter(char::is_ascii_graphic).take(most).collect();
    if text.is_empty() { "-".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::message::tests::{alert, content, due};
    use cofferdam_policy::{Alarm, Notice};
    use proptest::prelude::*;

    #[test]
    fn a_line_is_of_the_standard_form() {
        let (alert, due) = (alert("json"), due(Notice::Alarm(Alarm::SecretLeak)));
        let line = line(&content(&alert, &due), "my host", "{}");
        let line = line.replace(&format!(" {} ", std::process::id()), " PID ");
        insta::assert_snapshot!(line, @r#"<82>1 2023-11-14T22:13:30Z myhost cofferdam PID secret-leak [cofferdam@32473 alert="ops" session="s1" uid="s1.a9" about="secret-leak" cause="no-rule" destination="evil.example:8443" request="POST /up?a=<b>" program="/usr/bin/curl" credential="stripe" times="12"] {}"#);
        assert_eq!(counted("<1>1 ä"), "7 <1>1 ä".as_bytes());
    }

    #[test]
    fn a_value_cannot_end_its_field() {
        let check = |text: &str, expected: &str| assert_eq!(value_of(text), expected, "{text:?}");
        check("plain ü", "plain ü");
        check(r#"a"b\c]d"#, r#"a\"b\\c\]d"#);
        check("a\nb\u{1b}c", "a\u{fffd}b\u{fffd}c");
    }

    /// As the standard reads it.
    fn unescaped(value: &str) -> Option<String> {
        let (mut text, mut chars) = (String::new(), value.chars());
        while let Some(c) = chars.next() {
            match c {
                '\\' => text.push(chars.next().filter(|c| "\"\\]".contains(*c))?),
                '"' | ']' => return None,
                c => text.push(c),
            }
        }
        Some(text)
    }

    proptest! {
        #[test]
        fn any_text_reads_back(text in "\\PC*") {
            prop_assert_eq!(unescaped(&value_of(&text)), Some(text));
        }
    }
}
