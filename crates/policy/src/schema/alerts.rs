//! `[[alert]]`, read.

use super::fields::{choice, each, id, span, unknown_word, words};
use crate::host::canonical;
use crate::mistake::Mistake;
use crate::read::{Notes, Table};
use crate::request::Target;
use crate::settings::{Alert, AlertFormat, AlertTo, Notice};
use core::net::IpAddr;
use std::time::Duration;

const KEYS: &[&str] = &["id", "to", "on", "format", "every", "key", "ca"];
const EVERY: Duration = Duration::from_secs(60);
/// Less would be a flood, more would be forgotten.
const BOUNDS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(86_400));

pub(super) fn alerts(root: &Table<'_, '_>, notes: &mut Notes<'_>) -> Vec<Alert> {
    let tables = root.tables("alert", KEYS, notes);
    tables.iter().filter_map(|table| alert(table, notes)).collect()
}

fn alert(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Option<Alert> {
    let id = id(table, notes);
    if !table.has("to") {
        table.missing("to", "write where it goes, as in \"https://alerts.example.com/agent\"", notes);
    }
    let to = words(table, "to", notes).and_then(|text| {
        let to = destination(&text.value);
        if to.is_none() {
            let shown = text.value.chars().take(80).collect();
            notes.wrong(text.spot, table.field("to"), Mistake::AlertTo(shown));
        }
        to
    });
    let named = |word: &str| Notice::named(word).ok_or_else(|| unknown_word(word, Notice::WORDS));
    let on = each(table, "on", notes, named).map(|found| found.concat());
    let format = choice(table, "format", AlertFormat::NAMES, AlertFormat::named, notes);
    let every = span(table, "every", BOUNDS, notes).unwrap_or(EVERY);
    let key = words(table, "key", notes).map(|text| text.value);
    let ca = words(table, "ca", notes).map(|text| text.value);
    let to = to?;
    let (is_web, is_tls) = match &to {
        AlertTo::Web { tls, .. } => (true, *tls),
        _ => (false, false),
    };
    for (field, wrong) in [
        ("key", key.is_some() && !is_web),
        ("ca", ca.is_some() && !is_tls),
        ("format", format == Some(AlertFormat::Slack) && !is_web),
    ] {
        if wrong {
            notes.wrong(table.spot_of(field, notes), table.field(field), Mistake::WebOnly);
        }
    }
    let format = format.unwrap_or(AlertFormat::Json);
    Some(Alert { id: id?, to, on, format, every, key, ca, line: table.spot.line })
}

fn destination(text: &str) -> Option<AlertTo> {
    if text == "syslog" {
        return Some(AlertTo::Local("/dev/log".to_owned()));
    }
    if let Some(path) = text.strip_prefix("file:") {
        return path.starts_with('/').then(|| AlertTo::File(path.to_owned()));
    }
    if let Some(path) = text.strip_prefix("syslog:").filter(|path| path.starts_with('/')) {
        return Some(AlertTo::Local(path.to_owned()));
    }
    if let Some(address) = text.strip_prefix("syslog:") {
        let (host, port) = host_port(address)?;
        return Some(AlertTo::Udp { host, port });
    }
    if let Some(address) = text.strip_prefix("syslog-tcp:") {
        let (host, port) = host_port(address)?;
        return Some(AlertTo::Tcp { host, port });
    }
    web(text)
}

fn host_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    Some((canonical(host).ok()?.into_owned(), port))
}

/// Plain HTTP could be read on the way, so it goes to this machine only.
fn web(text: &str) -> Option<AlertTo> {
    let url = Target::parse(text).ok()?;
    let tls = text.starts_with("https://");
    let host = canonical(url.host).ok()?.into_owned();
    let is_here = host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let fits = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if !(tls || text.starts_with("http://") && is_here) || !fits(url.path) || !url.query.is_none_or(fits) {
        return None;
    }
    let query = url.query.map(|query| format!("?{query}")).unwrap_or_default();
    Some(AlertTo::Web { tls, host, port: url.port, target: format!("{}{query}", url.path) })
}
