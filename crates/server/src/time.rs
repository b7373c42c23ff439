//! Times as they are told.

/// RFC 3339, with microseconds.
pub(crate) fn told(us: u64) -> String {
    let us = i64::try_from(us).unwrap_or(i64::MAX);
    let when = jiff::Timestamp::from_microsecond(us).unwrap_or(jiff::Timestamp::MAX);
    when.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}
