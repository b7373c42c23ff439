//! What a tool's name promises: its verb, in any of the usual spellings. The words are those of interfaces in general;
//! none is here for the sake of one product.

use cofferdam_model::EffectOf;

const READING: &[&str] = &[
    "analyse",
    "analyze",
    "ask",
    "browse",
    "calc",
    "calculate",
    "check",
    "classify",
    "compare",
    "compute",
    "convert",
    "count",
    "describe",
    "detect",
    "diff",
    "display",
    "download",
    "estimate",
    "evaluate",
    "examine",
    "exists",
    "explain",
    "extract",
    "fetch",
    "filter",
    "find",
    "get",
    "glob",
    "grep",
    "has",
    "head",
    "help",
    "inspect",
    "is",
    "list",
    "load",
    "locate",
    "look",
    "lookup",
    "ls",
    "measure",
    "parse",
    "peek",
    "ping",
    "plan",
    "predict",
    "preview",
    "query",
    "read",
    "recall",
    "resolve",
    "retrieve",
    "scan",
    "screenshot",
    "search",
    "see",
    "select",
    "show",
    "stat",
    "status",
    "summarise",
    "summarize",
    "tail",
    "think",
    "translate",
    "validate",
    "verify",
    "view",
    "wait",
    "whoami",
];

const CHANGING: &[&str] = &[
    "accept",
    "activate",
    "add",
    "adjust",
    "allocate",
    "append",
    "apply",
    "approve",
    "archive",
    "assign",
    "attach",
    "authorize",
    "ban",
    "block",
    "book",
    "buy",
    "cancel",
    "change",
    "charge",
    "checkout",
    "clear",
    "click",
    "close",
    "commit",
    "complete",
    "confirm",
    "copy",
    "create",
    "deactivate",
    "debit",
    "decline",
    "delete",
    "deploy",
    "deposit",
    "disable",
    "dispatch",
    "drop",
    "edit",
    "enable",
    "enrol",
    "enroll",
    "exchange",
    "execute",
    "forward",
    "grant",
    "import",
    "insert",
    "install",
    "invite",
    "invoke",
    "issue",
    "join",
    "kick",
    "kill",
    "launch",
    "leave",
    "lock",
    "make",
    "mark",
    "merge",
    "modify",
    "move",
    "mute",
    "notify",
    "order",
    "overwrite",
    "patch",
    "pause",
    "pay",
    "post",
    "press",
    "promote",
    "publish",
    "purchase",
    "purge",
    "push",
    "put",
    "reboot",
    "redeem",
    "refund",
    "register",
    "reject",
    "release",
    "remove",
    "rename",
    "renew",
    "reply",
    "reschedule",
    "reserve",
    "reset",
    "restart",
    "restore",
    "resume",
    "return",
    "revert",
    "revoke",
    "rm",
    "rollback",
    "rotate",
    "run",
    "save",
    "schedule",
    "sell",
    "send",
    "set",
    "share",
    "sign",
    "start",
    "stop",
    "store",
    "submit",
    "subscribe",
    "suspend",
    "swap",
    "terminate",
    "tip",
    "toggle",
    "transfer",
    "trigger",
    "type",
    "unblock",
    "uninstall",
    "unlock",
    "unsubscribe",
    "update",
    "upgrade",
    "upload",
    "upsert",
    "void",
    "withdraw",
    "write",
];

/// Words by which a tool hands the matter to a person: nothing is changed, and the run is over.
const PEOPLE: &[&str] =
    &["human", "humans", "operator", "supervisor", "handoff", "handover", "escalate", "escalation"];

/// By the first verb of the name; a changing verb after `and` or `or` wins, as in `get_or_create`.
pub(super) fn effect(name: &str) -> EffectOf {
    let (spaced, mut first, mut before) = (spaced(name), EffectOf::Unknown, "");
    for word in spaced.split(' ') {
        let changes = CHANGING.binary_search(&word).is_ok();
        if changes && matches!(before, "and" | "or" | "then") {
            return EffectOf::Changes;
        }
        if first == EffectOf::Unknown {
            first = match () {
                () if changes => EffectOf::Changes,
                () if READING.binary_search(&word).is_ok() => EffectOf::Reads,
                () => EffectOf::Unknown,
            };
        }
        before = word;
    }
    first
}

pub(super) fn hands_over(name: &str) -> bool {
    spaced(name).split(' ').any(|word| PEOPLE.contains(&word))
}

/// `getUserById`, `mcp__files__read_file` and `Read-File` in lower-case words with a space between.
fn spaced(name: &str) -> String {
    let mut spaced = String::with_capacity(name.len() + 4);
    let mut before = '_';
    for c in name.chars() {
        let hump = c.is_uppercase() && (before.is_lowercase() || before.is_numeric());
        if (hump || !c.is_alphanumeric()) && !spaced.is_empty() && !spaced.ends_with(' ') {
            spaced.push(' ');
        }
        if c.is_alphanumeric() {
            spaced.extend(c.to_lowercase());
        }
        before = c;
    }
    spaced
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, expected: EffectOf) {
        assert_eq!(effect(name), expected, "{name}");
    }

    #[test]
    fn the_tables_can_be_searched() {
        assert!(READING.is_sorted() && CHANGING.is_sorted());
        assert!(READING.iter().all(|word| !CHANGING.contains(word)));
    }

    #[test]
    fn a_name_promises_what_its_verb_says() {
        check("get_user", EffectOf::Reads);
        check("getUpdateStatus", EffectOf::Reads);
        check("mcp__github__create_issue", EffectOf::Changes);
        check("calendar.events.delete", EffectOf::Changes);
        check("Send-Mail", EffectOf::Changes);
        check("get_or_create_user", EffectOf::Changes);
        check("read_and_delete", EffectOf::Changes);
        check("frobnicate", EffectOf::Unknown);
        check("", EffectOf::Unknown);
    }

    #[test]
    fn people_are_asked_not_changed() {
        assert!(hands_over("transfer_to_human_agents") && hands_over("escalateTicket"));
        assert!(!hands_over("transfer_money"));
    }
}
