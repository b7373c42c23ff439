//! Sizes and spans of time as people write them: `256M`, `1.5GiB`, `90s`, `2h`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("`{0}` is not a size: write a number and B, K, M, G or T, as in 512M")]
    Size(String),
    #[error("`{0}` is not a length of time: write a number and ms, s, m, h or d, as in 90s")]
    Span(String),
    #[error("`{0}` is not a number of cores: write a decimal number, as in 1.5")]
    Cores(String),
}

/// Processor cores in thousandths: traces hold no floating-point numbers, whose text has many forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cores {
    pub milli: u32,
}

/// A number of bytes. Units are powers of 1024, as the kernel counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// A length of time, to the millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// Sizes go into traces, whose integers stay below this so that every JSON reader keeps them exactly.
const MAX_BYTES: u64 = 1 << 53;

fn split(text: &str) -> Option<(f64, String)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, text[end..].trim().to_ascii_lowercase()))
}

impl FromStr for Bytes {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let bad = || QuantityError::Size(text.chars().take(40).collect());
        let (number, unit) = split(text).ok_or_else(bad)?;
        let shift = match unit.as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(bad()),
        };
        let bytes = number * (1u64 << shift) as f64;
        if !bytes.is_finite() || bytes >= MAX_BYTES as f64 {
            return Err(bad());
        }
        Ok(Self(bytes as u64))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut unit = 0;
        let mut value = self.0 as f64;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let digits = if unit == 0 || value.fract() < 0.05 || value >= 100.0 { 0 } else { 1 };
        write!(f, "{value:.digits$} {}", UNITS[unit])
    }
}

impl FromStr for Span {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let bad = || QuantityError::Span(text.chars().take(40).collect());
        let (number, unit) = split(text).ok_or_else(bad)?;
        let millis = match unit.as_str() {
            "ms" => 1.0,
            "" | "s" | "sec" => 1e3,
            "m" | "min" => 6e4,
            "h" => 3.6e6,
            "d" => 8.64e7,
            _ => return Err(bad()),
        };
        let total = number * millis;
        if !total.is_finite() || total > 8.64e7 * 36_500.0 {
            return Err(bad());
        }
        Ok(Self(Duration::from_millis(total as u64)))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        match millis {
            0..1_000 => write!(f, "{millis} ms"),
            1_000..60_000 => write!(f, "{:.1} s", millis as f64 / 1e3),
            60_000..3_600_000 => write!(f, "{} min {} s", millis / 60_000, millis / 1_000 % 60),
            _ => write!(f, "{} h {} min", millis / 3_600_000, millis / 60_000 % 60),
        }
    }
}

impl FromStr for Cores {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let cores: Option<f64> = text.trim().parse().ok().filter(|n| (0.0..=100_000.0).contains(n));
        let cores = cores.ok_or_else(|| QuantityError::Cores(text.chars().take(40).collect()))?;
        Ok(Self { milli: (cores * 1000.0).round() as u32 })
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.milli) / 1000.0)
    }
}

impl Serialize for Cores {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cores {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(f64),
            Text(String),
        }
        match Either::deserialize(from)? {
            Either::Number(cores) => cores.to_string().parse().map_err(de::Error::custom),
            Either::Text(text) => text.parse().map_err(de::Error::custom),
        }
    }
}

/// Files may say `memory = "256M"` or a plain number of bytes or seconds; we always write the plain number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u64),
    Text(String),
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Written::deserialize(from)? {
            Written::Number(bytes) if bytes < MAX_BYTES => Ok(Self(bytes)),
            Written::Number(bytes) => bytes.to_string().parse().map_err(de::Error::custom),
            Written::Text(text) => text.parse().map_err(de::Error::custom),
        }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{}ms", self.0.as_millis()))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Written::deserialize(from)? {
            Written::Number(seconds) => Ok(Self(Duration::from_secs(seconds))),
            Written::Text(text) => text.parse().map_err(de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [("0", 0), ("512", 512), ("1K", 1024), ("256M", 256 << 20), ("1.5GiB", 3 << 29)]
        {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for bad in ["", "M", "-1M", "1X", "1e400", "99999999T", "8192T", "1 M M"] {
            assert!(bad.parse::<Bytes>().is_err(), "{bad}");
        }
        assert_eq!(Bytes(256 << 20).to_string(), "256 MiB");
    }

    #[test]
    fn cores() {
        assert_eq!("1.5".parse(), Ok(Cores { milli: 1500 }));
        assert_eq!(serde_json::to_string(&Cores { milli: 1500 }).unwrap(), r#""1.5""#);
        assert_eq!(serde_json::from_str::<Cores>("2").unwrap(), Cores { milli: 2000 });
        for bad in ["", "-1", "NaN", "inf", "two"] {
            assert!(bad.parse::<Cores>().is_err(), "{bad}");
        }
    }

    #[test]
    fn spans() {
        for (text, millis) in [("10", 10_000), ("250ms", 250), ("1.5m", 90_000), ("2h", 7_200_000)] {
            assert_eq!(text.parse(), Ok(Span(Duration::from_millis(millis))), "{text}");
        }
        for bad in ["", "s", "-1s", "1w", "9e99d"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
    }
}
