//! `cofferdam secret`: what the vault holds, and for whom. Values come from a source and are never shown.

use crate::args::{Secret as Args, SecretAdd, SecretCommand};
use crate::ask::hidden;
use crate::output::{Failure, Output, Paint};
use crate::story;
use cofferdam_engine::{Engine, Kept, KeyKind, SecretDraft, SecretEntry, Secrets};
use serde_json::{Value, json};
use std::path::PathBuf;

pub(crate) fn run(home: Option<PathBuf>, args: Args, output: &Output) -> Result<u8, Failure> {
    let engine = Engine::open(home)?;
    let secrets = engine.secrets(&hidden)?;
    match args.command {
        SecretCommand::Add(add) => self::add(&secrets, add, output),
        SecretCommand::Ls => list(&secrets, output),
        SecretCommand::Rotate { name, from, value } => {
            refuse(&value)?;
            let kept = secrets.rotate(&name, from.as_deref())?;
            let said = format!("rotated {name}: generation {}\n", kept.entry.generation);
            tell(&kept, &said, output)
        }
        SecretCommand::Revoke { name } => {
            let entry = secrets.revoke(&name)?;
            changed(
                &entry,
                &format!("revoked {name}: its value is wiped, and sessions that ask for it are refused\n"),
                output,
            )
        }
        SecretCommand::Rm { name } => changed(&secrets.remove(&name)?, &format!("removed {name}\n"), output),
        SecretCommand::Init { key } => init(&secrets, key, output),
    }
}

fn add(secrets: &Secrets<'_>, add: SecretAdd, output: &Output) -> Result<u8, Failure> {
    refuse(&add.value)?;
    let draft = SecretDraft {
        name: add.name,
        from: add.from,
        live: add.live,
        hosts: add.hosts,
        places: add.places,
        preset: add.preset,
        env: add.env,
        programs: add.program,
        scopes: add.scope,
    };
    let kept = secrets.add(draft)?;
    let SecretEntry { name, env, hosts, places, live, source, .. } = &kept.entry;
    let stored = if *live { format!("read from {source} for every session") } else { "stored".to_owned() };
    let said = format!(
        "added {name}: {stored}; inside, ${env} holds a placeholder\n  for  {}\n  as   {}\n\n  cofferdam run --policy FILE --secret {name} -- CMD\n",
        story::wrap(&hosts.join(" "), 7, 80),
        places.join(" "),
    );
    tell(&kept, &said, output)
}

/// A value on the command line is refused whatever it is, and not repeated.
fn refuse(value: &[String]) -> Result<(), Failure> {
    let why = "a secret's value is never an argument, because other users see it in `ps` and it stays in your shell's history: pipe it in (`--from -`) or name a source, and renew the value that you gave";
    if value.is_empty() { Ok(()) } else { Err(Failure::Usage(why.to_owned())) }
}

fn tell(kept: &Kept, said: &str, output: &Output) -> Result<u8, Failure> {
    let remarks: Vec<String> = kept.remarks.iter().map(ToString::to_string).collect();
    if output.json {
        let mut value = serde_json::to_value(&kept.entry).unwrap_or(Value::Null);
        value["remarks"] = json!(remarks);
        output.value(&value)?;
        return Ok(0);
    }
    output.data(said)?;
    remarks.iter().for_each(|remark| output.remark(remark));
    Ok(0)
}

fn changed(entry: &SecretEntry, said: &str, output: &Output) -> Result<u8, Failure> {
    match output.json {
        true => output.value(entry)?,
        false => output.data(said)?,
    }
    Ok(0)
}

fn init(secrets: &Secrets<'_>, kind: KeyKind, output: &Output) -> Result<u8, Failure> {
    let before = secrets.rekey(kind)?;
    if output.json {
        output.value(&json!({ "key": kind.to_string(), "before": before.map(|kind| kind.to_string()) }))?;
    } else {
        let verb = if before.is_some() { "sealed anew" } else { "made" };
        output.data(&format!("vault {verb}: its key is {}\n", key_words(kind)))?;
    }
    if kind == KeyKind::Keyring {
        output.remark("a restart of the machine empties the keyring: keep the key elsewhere too, or the secrets are lost then");
    }
    Ok(0)
}

fn key_words(kind: KeyKind) -> &'static str {
    match kind {
        KeyKind::File => "in vault.key beside it",
        KeyKind::Keyring => "in your keyring of the kernel's",
        KeyKind::Passphrase => "made from the passphrase",
    }
}

fn list(secrets: &Secrets<'_>, output: &Output) -> Result<u8, Failure> {
    let entries = secrets.list()?;
    if output.json {
        output.value(&entries)?;
        return Ok(0);
    }
    if entries.is_empty() {
        output.remark("no secrets yet; `cofferdam secret add NAME --from env:VAR --for HOST` adds one");
        return Ok(0);
    }
    let text: String = entries.iter().map(|entry| told(entry, output)).collect();
    output.data(&text)?;
    Ok(0)
}

/// A block for each, since hosts and places are lists.
fn told(entry: &SecretEntry, output: &Output) -> String {
    let state = match (entry.revoked, entry.live, &entry.fingerprint) {
        (Some(at), ..) => output.paint(Paint::Bad, format!("revoked {}", minute(at))),
        (None, true, _) => format!("live from {}", entry.source),
        (None, false, print) => format!("from {}, value {}", entry.source, print.as_deref().unwrap_or("-")),
    };
    let mut text = format!(
        "{}  ${}  {}\n  since {}, generation {}\n  for   {}\n  as    {}\n",
        output.paint(Paint::Bold, &entry.name),
        entry.env,
        story::printable(&state),
        minute(entry.changed),
        entry.generation,
        story::wrap(&entry.hosts.join(" "), 8, 80).trim_start(),
        entry.places.join(" "),
    );
    if !entry.scopes.is_empty() {
        text.push_str(&format!("  signs {}\n", entry.scopes.join(" ")));
    }
    if !entry.programs.is_empty() {
        text.push_str(&format!("  by    {}\n", story::printable(&entry.programs.join(" "))));
    }
    text
}

fn minute(ms: u64) -> String {
    story::minute(ms.saturating_mul(1000))
}
