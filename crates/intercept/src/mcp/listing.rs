//! A server's list of tools: each held against its pin and the policy, and what is withheld taken out, since a
//! description is read by a model before anything is called.

use super::call::content;
use super::json::sorted;
use super::mediator::{Mediator, Out};
use super::pins::Standing;
use super::subject::LONGEST_NAME;
use cofferdam_model::{Body, NotRecorded, ToolChanged, ToolListed, ToolOffered, ToolRegistered};
use serde_json::Value;
use std::collections::BTreeSet;

/// Tools of one listing; an event holds all of them.
const MOST: usize = 1_000;

/// What the client gets to see.
pub(super) enum Shown {
    AsItIs,
    Without(Value),
    Unreadable(&'static str),
}

pub(super) fn read(mediator: &Mediator, mut result: Value, out: &mut Vec<Out>) -> Result<Shown, NotRecorded> {
    let last = result.get("nextCursor").is_none_or(Value::is_null);
    let Some(Value::Array(tools)) = result.get_mut("tools") else {
        return Ok(Shown::Unreadable("`tools` is no list"));
    };
    let names: Option<BTreeSet<&str>> = tools.iter().map(|tool| tool.get("name")?.as_str()).collect();
    match names {
        None => return Ok(Shown::Unreadable("a tool has no name")),
        Some(names) if names.len() > MOST => return Ok(Shown::Unreadable("there are too many tools")),
        Some(names) if names.iter().any(|name| name.len() > LONGEST_NAME) => {
            return Ok(Shown::Unreadable("a tool's name is too long"));
        }
        Some(names) if names.len() < tools.len() => return Ok(Shown::Unreadable("two tools have one name")),
        Some(_) => {}
    }
    let before = mediator.tools().pins.clone();
    let mut offered = Vec::with_capacity(tools.len());
    for tool in &*tools {
        offered.push(mediator.meet(tool)?);
    }
    let mut known = mediator.tools();
    known.pins.complete |= last;
    if known.pins != before && known.pins.complete {
        out.push(Out::Pin(known.pins.clone()));
    }
    drop(known);
    let all = tools.len();
    let mut shown = offered.iter().map(|tool| tool.hidden.is_empty());
    tools.retain(|_| shown.next().unwrap_or(false));
    let hides = tools.len() < all;
    let fact = ToolListed { via: mediator.via, server: mediator.server.clone(), tools: offered };
    mediator.record.append(mediator.parent, &Body::ToolListed(fact))?;
    Ok(if hides { Shown::Without(result) } else { Shown::AsItIs })
}

impl Mediator {
    /// One tool of a listing: new ones and changed ones are told, and whether it may be shown is found out.
    fn meet(&self, tool: &Value) -> Result<ToolOffered, NotRecorded> {
        let name = tool.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let definition = sorted(tool);
        let schema = self.record.keep(definition.as_bytes())?.digest;
        let mut known = self.tools();
        let standing = known.pins.see(&name, schema);
        let is_news = standing != Standing::Same && known.told.insert((name.clone(), schema));
        if is_news {
            let definition = content(self.record.as_ref(), &definition)?;
            let (via, server, name) = (self.via, self.server.clone(), name.clone());
            let body = match standing {
                Standing::Changed(was) => {
                    Body::ToolChanged(ToolChanged { via, server, name, was, now: schema, definition })
                }
                _ => {
                    let first = standing == Standing::First;
                    Body::ToolRegistered(ToolRegistered { via, server, name, schema, definition, first })
                }
            };
            self.record.append(self.parent, &body)?;
        }
        let withheld = match standing {
            Standing::Same | Standing::First => None,
            Standing::Late => Some("this tool was not there when the server's tools were pinned"),
            Standing::Changed(_) => Some("this tool is not what it was when the server's tools were pinned"),
        };
        let hidden = match withheld {
            Some(why) => {
                let why = format!("{why}; {}", self.remedy);
                known.withheld.insert(name.clone(), why.clone());
                why
            }
            None => {
                known.withheld.remove(&name);
                self.judge.rules_out(&name).unwrap_or_default()
            }
        };
        Ok(ToolOffered { name, schema, hidden })
    }
}
