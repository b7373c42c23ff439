//! A policy's text as others may read it. Two things in a policy can be secrets: where a webhook is posted to, and
//! what is put into requests; neither says what is allowed.

use crate::schema;
use crate::settings::AlertTo;
use toml::de::{DeTable, DeValue};

const WITHHELD: &str = "withheld";

/// The same policy without those two. A text that is no policy comes back empty.
pub fn redact(text: &str) -> String {
    let (Ok(document), Ok(root)) = (schema::read(text), DeTable::parse(text)) else { return String::new() };
    let mut spans: Vec<(std::ops::Range<usize>, String)> = Vec::new();
    let tables = |name: &str| root.get_ref().get(name).and_then(|value| value.get_ref().as_array());
    for (alert, value) in document.alerts.iter().zip(tables("alert").into_iter().flatten()) {
        if let (AlertTo::Web { tls, host, port, .. }, Some(to)) = (&alert.to, field(value.get_ref(), "to")) {
            let scheme = if *tls { "https" } else { "http" };
            let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
            spans.push((to.span(), format!("\"{scheme}://{host}:{port}/{WITHHELD}\"")));
        }
    }
    for rewrite in tables("rewrite").into_iter().flatten() {
        for part in ["headers", "query", "json"] {
            let set = field(rewrite.get_ref(), part).and_then(|part| field(part.get_ref(), "set"));
            let values =
                set.and_then(|set| set.get_ref().as_table()).into_iter().flat_map(|table| table.values());
            spans.extend(values.map(|value| (value.span(), format!("\"{WITHHELD}\""))));
        }
    }
    spans.sort_by_key(|(span, _)| span.start);
    let (mut out, mut done) = (String::with_capacity(text.len()), 0);
    for (span, instead) in spans {
        out.push_str(text.get(done..span.start).unwrap_or_default());
        out.push_str(&instead);
        done = span.end;
    }
    out.push_str(text.get(done..).unwrap_or_default());
    out
}

fn field<'a, 't>(value: &'a DeValue<'t>, name: &str) -> Option<&'a toml::Spanned<DeValue<'t>>> {
    value.as_table()?.get(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;

    #[test]
    fn what_could_be_a_secret_is_withheld_and_nothing_else() {
        let text = r#"
[[rule]] # reads
id = "a"
reason = "r"
effect = "allow"
host = "x.example"

[[alert]]
id = "chat"
to = "https://hooks.example.com/services/T0/B0/s3cr3t"

[[alert]]
id = "log"
to = "syslog"

[[rewrite]]
id = "tag"
host = "x.example"
headers = { set = { x-team = "t0ken" }, remove = ["x-a"] }
query.set.key = "s3cr3t"
json.set = { "m.user" = { n = "s3cr3t" } }
"#;
        let shown = redact(text);
        assert!(!shown.contains("s3cr3t") && !shown.contains("t0ken"), "{shown}");
        assert!(
            shown.contains("[[rule]] # reads")
                && shown.contains("\"https://hooks.example.com:443/withheld\"")
        );
        let (whole, shown) = (Policy::parse(text).unwrap(), Policy::parse(&shown).unwrap());
        assert_eq!(whole.rules().count(), shown.rules().count());
        assert_eq!(whole.alerts().count(), shown.alerts().count());
        assert_eq!(redact("rule = 1"), "");
        let plain = "[[rule]]\nid = \"a\"\nreason = \"r\"\neffect = \"deny\"\nhost = \"x.example\"\n";
        assert_eq!(redact(plain), plain);
    }
}
