//! E2B's `network` as a policy of ours. Allow beats deny in E2B and deny beats allow here, so that what is allowed in
//! spite of a denial is taken out of the denial. What cannot be said in rules is refused, never let through.

use crate::config::E2b;
use crate::sandbox::Record;
use cofferdam_api::e2b::Network;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

/// How the SDKs write a secret that is to be put in.
const SECRET: &str = "${e2b.secrets.";
/// Every address, in E2B's two spellings.
const EVERYTHING: [&str; 2] = ["0.0.0.0/0", "::/0"];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NetworkError {
    #[error("`network.{field}`: `{value}` is not a host name, `*.name`, an address or 0.0.0.0/0")]
    Destination { field: &'static str, value: String },
    #[error(
        "`network.{field}`: ranges of addresses (`{value}`) cannot be held here: name hosts, single addresses or 0.0.0.0/0"
    )]
    Range { field: &'static str, value: String },
    #[error(
        "`network.denyOut`: `{0}` is a name: E2B denies addresses only; leave it out of `allowOut` instead"
    )]
    DeniedName(String),
    #[error("`network.rules`: the header `{0}` cannot be set")]
    Header(String),
    #[error("`network.rules`: the secret `{0}` is not one of this sandbox: name it when the sandbox is made")]
    Secret(String),
    #[error("`network.{0}` is not supported here")]
    Unsupported(&'static str),
}

/// Whether it is in a form that rules can say.
pub(crate) fn check(network: &Network) -> Result<(), NetworkError> {
    if network.egress_proxy.as_ref().is_some_and(|proxy| !proxy.is_null()) {
        return Err(NetworkError::Unsupported("egressProxy"));
    }
    allowed(network)?;
    denied(network)?;
    for (host, name, value) in headers(network) {
        destination("rules", host)?;
        let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
        if name.is_empty() || !name.bytes().all(fits) || value.bytes().any(|b| b < 0x20 || b == 0x7f) {
            return Err(NetworkError::Header(name.chars().take(80).collect()));
        }
    }
    Ok(())
}

/// The secrets that its headers name.
pub(crate) fn secrets(network: &Network) -> Vec<String> {
    let mut found: Vec<String> = headers(network)
        .flat_map(|(_, _, value)| value.split(SECRET).skip(1))
        .filter_map(|rest| rest.split_once('}').map(|(name, _)| name.to_ascii_lowercase()))
        .collect();
    found.sort();
    found.dedup();
    found
}

fn headers(network: &Network) -> impl Iterator<Item = (&str, &str, &str)> {
    let rules = network.rules.iter().flatten();
    rules.flat_map(|(host, rules)| {
        let set = rules.iter().filter_map(|rule| rule.transform.as_ref()?.headers.as_ref()).flatten();
        set.map(move |(name, value)| (host.as_str(), name.as_str(), value.as_str()))
    })
}

enum Destination {
    Everything,
    Host(String),
    Address(IpAddr),
}

fn destination(field: &'static str, value: &str) -> Result<Destination, NetworkError> {
    let text = value.trim().to_ascii_lowercase();
    if EVERYTHING.contains(&text.as_str()) {
        return Ok(Destination::Everything);
    }
    let bad = || NetworkError::Destination { field, value: value.chars().take(80).collect() };
    if let Some((address, bits)) = text.split_once('/') {
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let whole = if address.is_ipv4() { "32" } else { "128" };
        return match bits == whole {
            true => Ok(Destination::Address(address)),
            false => Err(NetworkError::Range { field, value: value.chars().take(80).collect() }),
        };
    }
    if let Ok(address) = text.parse() {
        return Ok(Destination::Address(address));
    }
    let name = text.strip_prefix("*.").unwrap_or(&text);
    let label = |part: &str| !part.is_empty() && part.len() <= 63;
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let fine = name.len() <= 253 && name.split('.').all(label) && name.chars().all(fits);
    if fine { Ok(Destination::Host(text)) } else { Err(bad()) }
}

/// Hosts and addresses; whether all are.
fn allowed(network: &Network) -> Result<(Vec<String>, bool), NetworkError> {
    let mut hosts = Vec::new();
    let mut all = false;
    for value in network.allow_out.iter().flatten() {
        match destination("allowOut", value)? {
            Destination::Everything => all = true,
            Destination::Host(host) => hosts.push(host),
            Destination::Address(address) => hosts.push(address.to_string()),
        }
    }
    Ok((hosts, all))
}

fn denied(network: &Network) -> Result<(Vec<String>, bool), NetworkError> {
    let mut hosts = Vec::new();
    let mut all = false;
    for value in network.deny_out.iter().flatten() {
        match destination("denyOut", value)? {
            Destination::Everything => all = true,
            Destination::Host(host) => return Err(NetworkError::DeniedName(host)),
            Destination::Address(address) => hosts.push(address.to_string()),
        }
    }
    Ok((hosts, all))
}

/// A text of TOML: quoted so that nothing in it means anything.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn list(all: &[String]) -> String {
    let all: Vec<String> = all.iter().map(|one| quoted(one)).collect();
    format!("[{}]", all.join(", "))
}

/// The policy of a sandbox. With placeholders, by the variable that holds each, headers have them in their place;
/// without, headers that name a secret are left out.
pub(crate) fn policy(
    config: &E2b,
    record: &Record,
    placeholders: &[(String, String)],
) -> Result<String, NetworkError> {
    if let Some(policy) = &record.policy {
        return Ok(format!("{}\n{policy}", config.floor.as_deref().unwrap_or_default()));
    }
    let none = Network::default();
    let network = record.network.as_ref().unwrap_or(&none);
    let (mut allow, allow_all) = allowed(network)?;
    let (deny, deny_all) = denied(network)?;
    let internet = record.internet.unwrap_or(config.internet);
    if allow_all || (internet && !deny_all) {
        allow = vec!["*".into()];
    }
    let mut text =
        String::from("# Made from E2B's `network` by the service. Changed by `PUT /sandboxes/ID/network`.\n");
    text += config.floor.as_deref().unwrap_or_default();
    if !allow.is_empty() {
        text += &rule("e2b-allow-out", "the sandbox's own network settings", "allow", &allow);
    }
    // What is allowed by name stays so.
    let deny: Vec<String> = deny.into_iter().filter(|host| !allow.contains(host)).collect();
    if !deny.is_empty() {
        text += &rule("e2b-deny-out", "the sandbox's own network settings", "deny", &deny);
    }
    // A later value of the same header on the same host is the one that holds.
    let mut set: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    set.extend(headers(network).map(|(host, name, value)| ((host, name), value)));
    for (number, ((host, name), value)) in set.into_iter().enumerate() {
        let Some(value) = filled(value, &record.tenant, placeholders)? else { continue };
        text += &format!(
            "\n[[rewrite]]\nid = \"e2b-transform-{number}\"\nhost = {}\nheaders = {{ set = {{ {} = {} }} }}\n",
            quoted(&host.to_ascii_lowercase()),
            quoted(&name.to_ascii_lowercase()),
            quoted(&value)
        );
    }
    Ok(text)
}

fn rule(id: &str, reason: &str, effect: &str, hosts: &[String]) -> String {
    format!(
        "\n[[rule]]\nid = \"{id}\"\nreason = \"{reason}\"\neffect = \"{effect}\"\nhost = {}\n",
        list(hosts)
    )
}

/// A header's value with placeholders where it names secrets.
fn filled(
    value: &str,
    tenant: &str,
    placeholders: &[(String, String)],
) -> Result<Option<String>, NetworkError> {
    let mut parts = value.split(SECRET);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let Some((name, rest)) = part.split_once('}') else {
            out += SECRET;
            out += part;
            continue;
        };
        if placeholders.is_empty() {
            return Ok(None);
        }
        let variable = variable(tenant, name);
        let found = placeholders.iter().find(|(held, _)| *held == variable);
        let (_, placeholder) = found.ok_or_else(|| NetworkError::Secret(name.chars().take(80).collect()))?;
        out += placeholder;
        out += rest;
    }
    Ok(Some(out))
}

/// What a tenant's secret is called in the vault.
pub(crate) fn vault_name(tenant: &str, name: &str) -> String {
    format!("e2b.{tenant}.{}", name.to_ascii_lowercase())
}

/// The variable that holds its placeholder inside.
pub(crate) fn variable(tenant: &str, name: &str) -> String {
    let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let _ = tenant;
    format!("E2B_SECRET_{}", name.chars().map(word).collect::<String>())
}

/// For tests of others, and for `metadata.hosts`: whether a credential could be sent there.
pub(crate) fn is_host(text: &str) -> bool {
    matches!(destination("hosts", text), Ok(Destination::Host(_)))
        || text.parse::<Ipv4Addr>().is_ok_and(|address| !address.is_link_local())
}
