//! Times as AWS writes them: `20150830T123600Z`.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

const FORM: &str = "%Y%m%dT%H%M%SZ";

/// Since 1970.
pub(super) fn seconds(text: &str) -> Option<i64> {
    if text.len() != 16 || !text.is_ascii() {
        return None;
    }
    let time = DateTime::strptime(FORM, text).ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second())
}

pub(super) fn text(seconds: i64) -> String {
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH).strftime(FORM).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_reads_as_it_is_written() {
        assert_eq!(seconds("20150830T123600Z"), Some(1_440_938_160));
        assert_eq!(text(1_440_938_160), "20150830T123600Z");
        for bad in ["", "20150830T123600", "20151330T123600Z", "2015-08-30T12:36", "20150830T126000Z"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }
}
