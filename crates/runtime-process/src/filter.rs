//! From the tables of system calls to the program that the boot installs.

use crate::syscalls::{
    ALLOWED, ALLOWED_HERE, CONDITIONAL, FALLS_BACK, NESTED, NO_SET_ID, NO_SET_ID_FALLS_BACK, REFUSED,
    REFUSED_HERE, Row,
};
use cofferdam_sys::seccomp::{Program, Rule, Verdict, compile};
use std::collections::BTreeMap;

const NO_SUCH_CALL: Verdict = Verdict::Refuse(libc::ENOSYS as u16);

/// What of the filter depends on the session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Nested namespaces are allowed.
    pub(crate) nested: bool,
    /// The inside can write to files of the host, so it must not make set-id files there.
    pub(crate) writes_host: bool,
    /// Refused attempts are heard.
    pub(crate) notify: bool,
}

fn number(row: libc::c_long) -> u32 {
    row as u32
}

fn rules(choice: Choice) -> BTreeMap<u32, Rule> {
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
    if choice.writes_host {
        rules.extend(NO_SET_ID.iter().map(|row| (number(row.1), Rule::Depends(row.2))));
        rules.extend(always(NO_SET_ID_FALLS_BACK, NO_SUCH_CALL));
    }
    rules
}

pub(crate) fn program(choice: Choice) -> Program {
    let rules: Vec<(u32, Rule)> = rules(choice).into_iter().collect();
    compile(&rules, NO_SUCH_CALL, choice.notify)
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
        let nested = rules(Choice { nested: true, ..Choice::default() });
        assert_eq!(nested[&number(libc::SYS_mount)], Rule::Always(Verdict::Allow));
        assert_eq!(nested[&number(libc::SYS_ptrace)], Rule::Always(Verdict::Record));
        assert_eq!(explain(number(libc::SYS_ptrace)).0, "ptrace");
    }

    #[test]
    fn the_program_stays_short() {
        assert!(program(Choice { nested: false, writes_host: true, notify: true }).len() < 400);
    }
}
