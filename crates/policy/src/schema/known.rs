//! `[[known_host]]`.

use crate::host::canonical;
use crate::mistake::Mistake;
use crate::read::{Notes, Table};
use crate::schema::fields::each;
use crate::settings::{HostClaim, KnownHost};

const USUAL: u16 = 22;

pub(super) fn known_hosts(root: &Table<'_, '_>, notes: &mut Notes<'_>) -> Vec<KnownHost> {
    let tables = root.tables("known_host", &["host", "port", "key"], notes);
    tables.iter().filter_map(|table| known_host(table, notes)).collect()
}

fn known_host(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Option<KnownHost> {
    for (key, why) in [("host", "the name that the inside uses"), ("key", "write its fingerprint, SHA256:…")]
    {
        if !table.has(key) {
            table.missing(key, why, notes);
        }
    }
    let keys = each(table, "key", notes, |text| {
        HostClaim::parse(text).ok_or_else(|| Mistake::HostKey(text.chars().take(80).collect()))
    });
    let port = match table.integer("port", notes) {
        None => USUAL,
        Some(number) => match u16::try_from(number.value).ok().filter(|port| *port > 0) {
            Some(port) => port,
            None => {
                notes.wrong(number.spot, table.field("port"), Mistake::Port(number.value));
                return None;
            }
        },
    };
    let host = table.string("host", notes)?;
    match canonical(&host.value) {
        Ok(name) => Some(KnownHost { host: name.into_owned(), port, keys: keys?, line: table.spot.line }),
        Err(error) => {
            notes.wrong(host.spot, table.field("host"), error);
            None
        }
    }
}
