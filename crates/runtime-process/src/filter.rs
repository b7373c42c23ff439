//! From the tables of system calls to the program that the boot installs.

use crate::syscalls::{
    ALLOWED, ALLOWED_HERE, CONDITIONAL, FALLS_BACK, NESTED, NO_SET_ID, NO_SET_ID_FALLS_BACK, REFUSED,
    REFUSED_HERE, Row, TRACING,
};
use crate::watched;
use cofferdam_model::BlockedAttempt;
use cofferdam_sys::seccomp::{Check, Program, Rule, Verdict, compile};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

const NO_SUCH_CALL: Verdict = Verdict::Refuse(libc::ENOSYS as u16);

/// What of the filter depends on the session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Nested namespaces are allowed.
    pub(crate) nested: bool,
    /// Processes may trace each other.
    pub(crate) tracing: bool,
    /// The inside can write to files of the host, so it must not make set-id files there.
    pub(crate) writes_host: bool,
    /// Refused attempts are heard.
    pub(crate) notify: bool,
    /// So is what is let through and does something.
    pub(crate) all: bool,
}

fn number(row: libc::c_long) -> u32 {
    row as u32
}

pub(crate) fn rules(choice: Choice) -> BTreeMap<u32, Rule> {
    let always = |rows: &'static [Row], verdict: Verdict| {
        rows.iter().map(move |row| (number(row.1), Rule::Always(verdict)))
    };
    let mut rules: BTreeMap<u32, Rule> = BTreeMap::new();
    for table in [ALLOWED, ALLOWED_HERE] {
        rules.extend(always(table, Verdict::Allow));
    }
    for table in [REFUSED, REFUSED_HERE] {
        rules.extend(always(table, Verdict::Record));
    }
    rules.extend(always(FALLS_BACK, NO_SUCH_CALL));
    rules.extend(CONDITIONAL.iter().map(|row| (number(row.1), Rule::Depends(row.2))));
    if choice.nested {
        rules.extend(always(NESTED, Verdict::Allow));
    }
    if choice.tracing {
        rules.extend(always(TRACING, Verdict::Allow));
    }
    if choice.writes_host {
        rules.extend(NO_SET_ID.iter().map(|row| (number(row.1), Rule::Depends(row.2))));
        rules.extend(always(NO_SET_ID_FALLS_BACK, NO_SUCH_CALL));
    }
    if choice.all {
        for watched in watched::all() {
            rules.entry(number(watched.1)).and_modify(told);
        }
    }
    rules
}

/// Who would be let through is, once it is told.
fn told(rule: &mut Rule) {
    let told = |verdict: Verdict| if verdict == Verdict::Allow { Verdict::Tell } else { verdict };
    *rule = match *rule {
        Rule::Always(verdict) => Rule::Always(told(verdict)),
        Rule::Depends(check) => {
            Rule::Depends(Check { then: told(check.then), otherwise: told(check.otherwise), ..check })
        }
    };
}

/// Compiled once: nearly all sandboxes of a process make the same choice.
pub(crate) fn program(choice: Choice) -> Arc<Program> {
    static COMPILED: Mutex<Vec<(Choice, Arc<Program>)>> = Mutex::new(Vec::new());
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, program)) = compiled.iter().find(|(made, _)| *made == choice) {
        return program.clone();
    }
    let program = Arc::new(compile(rules(choice), NO_SUCH_CALL, choice.notify));
    compiled.push((choice, program.clone()));
    program
}

/// The name of a refused call and why it is refused, for its event.
pub(crate) fn explain(call: u32) -> (&'static str, &'static str) {
    let plain = [REFUSED, REFUSED_HERE]
        .into_iter()
        .flatten()
        .find(|row| number(row.1) == call)
        .map(|row| (row.0, row.2));
    let conditional = || {
        let rows = CONDITIONAL.iter().chain(NO_SET_ID);
        rows.into_iter().find(|row| number(row.1) == call).map(|row| (row.0, row.3))
    };
    plain.or_else(conditional).unwrap_or(("unknown", "not in the list of allowed calls"))
}

/// Calls that programs make to find out what there is, and do without: nobody needs to be told of them.
const TRIED: &[libc::c_long] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_kcmp,
    libc::SYS_ioctl,
    libc::SYS_syslog,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
];

/// What a refused caller is told, and what it can do instead.
pub(crate) fn in_words(attempt: &BlockedAttempt, call: u32) -> Option<String> {
    if TRIED.iter().any(|tried| number(*tried) == call) {
        return None;
    }
    let instead = match NESTED.iter().any(|row| number(row.1) == call) {
        true => "; a session with `--nested` may do it in namespaces of its own",
        false => "; it is on record, and trying again changes nothing",
    };
    Some(format!("`{}` is refused in this sandbox: {}{instead}", attempt.syscall, attempt.reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_stands_in_two_tables() {
        let mut seen = BTreeMap::new();
        for table in [ALLOWED, ALLOWED_HERE, REFUSED, REFUSED_HERE, FALLS_BACK] {
            for row in table {
                assert_eq!(seen.insert(row.1, row.0), None, "{} stands twice", row.0);
            }
        }
        for row in CONDITIONAL {
            assert_eq!(seen.insert(row.1, row.0), None, "{} stands twice", row.0);
        }
    }

    #[test]
    fn every_line_has_a_reason() {
        for table in [ALLOWED, ALLOWED_HERE, REFUSED, REFUSED_HERE, FALLS_BACK, NESTED, NO_SET_ID_FALLS_BACK]
        {
            assert!(table.iter().all(|row| row.2.len() > 5));
        }
    }

    #[test]
    fn the_escape_surface_is_recorded_unless_nested_asks_for_it() {
        let strict = rules(Choice::default());
        for call in
            [libc::SYS_mount, libc::SYS_ptrace, libc::SYS_bpf, libc::SYS_keyctl, libc::SYS_io_uring_setup]
        {
            assert_eq!(strict[&number(call)], Rule::Always(Verdict::Record));
        }
        let tracing = rules(Choice { tracing: true, ..Choice::default() });
        assert_eq!(tracing[&number(libc::SYS_ptrace)], Rule::Always(Verdict::Allow));
        assert_eq!(tracing[&number(libc::SYS_mount)], Rule::Always(Verdict::Record));
        let nested = rules(Choice { nested: true, ..Choice::default() });
        assert_eq!(nested[&number(libc::SYS_mount)], Rule::Always(Verdict::Allow));
        assert_eq!(nested[&number(libc::SYS_ptrace)], Rule::Always(Verdict::Record));
        assert_eq!(explain(number(libc::SYS_ptrace)).0, "ptrace");
    }

    #[test]
    fn the_program_stays_short() {
        assert!(
            program(Choice { nested: false, tracing: false, writes_host: true, notify: true, all: true })
                .len()
                < 500
        );
    }

    /// Watching lets nothing through that was not let through before.
    #[test]
    fn what_is_watched_is_what_was_allowed() {
        for writes_host in [false, true] {
            let before = rules(Choice { writes_host, notify: true, ..Choice::default() });
            let watched = rules(Choice { writes_host, notify: true, all: true, ..Choice::default() });
            assert!(before.keys().eq(watched.keys()));
            for (call, rule) in &before {
                for seed in 0..64u64 {
                    let args = [seed, seed << 9, seed << 3, seed << 8, 0, 0].map(|arg| arg & 0xffff);
                    let now = match watched[call].verdict(&args) {
                        Verdict::Tell => Verdict::Allow,
                        other => other,
                    };
                    assert_eq!(rule.verdict(&args), now, "call {call} {args:?}");
                }
            }
        }
        let names: Vec<_> = watched::all().map(|row| row.0).collect();
        assert!(names.iter().all(|name| names.iter().filter(|other| *other == name).count() == 1));
        assert!(watched::all().all(|row| watched::CLASSES.contains(&row.2)));
    }
}
