//! What is measured of each, by the client's own words.

use super::EgressError;
use super::field::{Field, FieldError};
use super::peers::{Contender, OURS, PLAIN};
use crate::command;
use serde_json::Value;
use std::collections::BTreeMap;

/// The samples of one contender, by what they are of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples(BTreeMap<&'static str, Vec<f64>>);

pub(crate) type Seen = Vec<(&'static str, f64)>;

impl Samples {
    pub(crate) fn add(&mut self, seen: Seen) {
        seen.into_iter().for_each(|(what, value)| self.0.entry(what).or_default().push(value));
    }

    pub(crate) fn of(&self, what: &str) -> Option<&[f64]> {
        self.0.get(what).map(Vec::as_slice)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, &[f64])> {
        self.0.iter().map(|(what, values)| (*what, values.as_slice()))
    }
}

/// A call of the client, and the names of what it prints here.
type Call = (&'static [&'static str], &'static [(&'static str, &'static str)]);

const CALLS: &[Call] = &[
    (
        &["requests", "--connections", "8", "--seconds", "1"],
        &[("cpu_us", "cpu us"), ("per_second", "per second"), ("p50_ms", "p50 8"), ("p99_ms", "p99 8")],
    ),
    (&["requests", "--connections", "1", "--seconds", "0.5"], &[("p50_ms", "p50 1"), ("p99_ms", "p99 1")]),
    (
        &["requests", "--body", "4096", "--seconds", "0.7"],
        &[("cpu_us", "post cpu us"), ("per_second", "posts")],
    ),
    (&["tunnels", "--seconds", "0.7"], &[("cpu_ms", "tunnel cpu ms")]),
    (&["events", "--count", "10"], &[("first_ms", "first event ms")]),
    (&["download"], &[("mb_per_second", "download"), ("cpu_s", "download cpu s")]),
    (&["upload"], &[("mb_per_second", "upload")]),
];

/// Uploads to a store, with the key of which requests are signed: without a signature, and in signed pieces.
const STORE: &[Call] = &[
    (
        &["--host", "store.test", "--plain", "upload"],
        &[("mb_per_second", "store upload"), ("cpu_s", "store upload cpu s")],
    ),
    (
        &["--host", "store.test", "--plain", "--signed", "upload"],
        &[("mb_per_second", "signed upload"), ("cpu_s", "signed upload cpu s"), ("pass_us", "pass us")],
    ),
];
/// Of 64 KiB, in what is uploaded.
const PIECES: f64 = 1024.0;

/// One round of one contender.
pub(crate) fn all(field: &Field, contender: &Contender) -> Result<Seen, EgressError> {
    let mut seen = Seen::new();
    for (what, names) in CALLS {
        seen.extend(named(&field.measure(contender, what)?, names));
    }
    if contender.name == OURS {
        for (what, names) in STORE {
            seen.extend(named(&field.measure(contender, what)?, names));
        }
        let of = |name: &str| seen.iter().find(|(what, _)| *what == name).map_or(0.0, |(_, value)| *value);
        let beyond = (of("signed upload cpu s") - of("store upload cpu s")) * 1e6 / PIECES - of("pass us");
        seen.push(("piece us", beyond));
    }
    // Without a proxy there is no processor time of one.
    seen.retain(|(what, _)| contender.is_proxy() || !what.contains("cpu"));
    Ok(seen)
}

fn named(value: &Value, names: &[(&str, &'static str)]) -> Seen {
    names.iter().filter_map(|(key, name)| Some((*name, value.get(key)?.as_f64()?))).collect()
}

/// What a thousand connections that wait hold, and what a gigabyte leaves behind.
pub(crate) fn memory(field: &Field, contender: &Contender) -> Result<Seen, EgressError> {
    // Two rows are one process, and what the first has left in it the second does not have to take.
    if !contender.is_proxy() || contender.name == PLAIN {
        return Ok(Seen::new());
    }
    let mut seen = named(&field.measure(contender, &["idle"])?, &[("kib_each", "idle kib")]);
    seen.extend(named(&field.measure(contender, &["idle", "--used"])?, &[("kib_each", "used kib")]));
    let gigabyte = field.measure(contender, &["download", "--bytes", "1073741824"])?;
    seen.extend(named(&gigabyte, &[("grown_kib", "gigabyte kib")]));
    Ok(seen)
}

/// From the word to revoke to the last byte that any of a thousand streams got, in milliseconds. A credential
/// that was taken back stays so: each time it is a new proxy.
pub(crate) fn revocation(field: &mut Field, policy: &str, number: usize) -> Result<f64, EgressError> {
    let name = format!("revoked{number}");
    let (mut ours, address) = field.ours(&name, policy)?;
    let contender = Contender::ours(OURS, address, ours.id(), field.file(&format!("{name}.pem")));
    let mut client = field.client(&contender, &["hold", "--count", "1000"]);
    let line = command::line(&client);
    let mut client = field.start(&mut client)?;
    let opened = client.line().map_err(FieldError::Pipe)?;
    if opened != "open" {
        return Err(EgressError::NoNumber { line, text: opened });
    }
    ours.tell("revoke").map_err(FieldError::Pipe)?;
    let began = ours.line().map_err(FieldError::Pipe)?;
    client.tell(&began).map_err(FieldError::Pipe)?;
    let text = client.line().map_err(FieldError::Pipe)?;
    let value = serde_json::from_str::<Value>(&text).ok().and_then(|v| v.get("last_byte_ms")?.as_f64());
    value.ok_or(EgressError::NoNumber { line, text })
}
