//! Settings that a client may change: how values look, how long things may take. Not how text is read, what is found
//! under a name, who one is, or what a transaction may do.

const HARMLESS: &[&str] = &[
    "application_name",
    "bytea_output",
    "client_min_messages",
    "cursor_tuple_fraction",
    "datestyle",
    "extra_float_digits",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "intervalstyle",
    "jit",
    "lc_monetary",
    "lc_numeric",
    "lc_time",
    "lock_timeout",
    "statement_timeout",
    "timezone",
    "transaction_isolation",
    "default_transaction_isolation",
    "xmloption",
];

/// Whether this setting may be set to this by anyone who may connect.
pub fn harmless_setting(name: &str, value: Option<&str>) -> bool {
    let name = name.to_ascii_lowercase();
    match (name.as_str(), value) {
        // The words of a text are found in bytes: in other encodings some of them lie within characters.
        ("client_encoding" | "names", Some(value)) => {
            let value = value.to_ascii_lowercase();
            matches!(value.as_str(), "utf8" | "utf-8" | "unicode")
        }
        ("standard_conforming_strings", Some(value)) => {
            matches!(value.to_ascii_lowercase().as_str(), "on" | "true" | "1" | "yes")
        }
        ("default_transaction_read_only" | "transaction_read_only", Some(value)) => {
            matches!(value.to_ascii_lowercase().as_str(), "on" | "true" | "1" | "yes")
        }
        _ => HARMLESS.contains(&name.as_str()),
    }
}
