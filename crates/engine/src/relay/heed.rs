//! What the guest owes: word that something was begun, and that what was killed has ended. The guest is inside, with code
//! that may hold it up or hold back what it waits for; a time limit that only the guest could enforce would be none.
//! So whoever holds the sandbox is told when a word is overdue, and ends all of it.
//!
//! It never concludes anything from the time alone in which nobody looked, as when this process was stopped: the guest
//! gets a last moment then.

use cofferdam_guest::host::ExecId;
use cofferdam_guest::wire::SECONDS_TO_BEGIN;
use std::time::{Duration, Instant};

/// For the guest to do what it is told, and then to say so at last.
const HEEDS: Duration = Duration::from_secs(12);
const LAST: Duration = Duration::from_secs(3);
/// What does not begin is ended by the guest itself, and told: that is no reason to end everything.
const _: () = assert!(HEEDS.as_secs() > SECONDS_TO_BEGIN as u64 + 2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Started,
    Exited,
}

struct Debt {
    id: ExecId,
    word: Word,
    due: Instant,
    /// It was overdue before.
    last: bool,
}

/// Something that the guest did not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unheeded {
    exec: u32,
    word: Word,
}

impl Unheeded {
    /// For people and for the record.
    pub(crate) fn reason(self) -> String {
        let Self { exec, word } = self;
        let what = match word {
            Word::Started => format!("begun what it was asked for (number {exec})"),
            Word::Exited => format!("ended what was killed (number {exec})"),
        };
        format!("the sandbox had not {what} {} s later, so all of it was ended", (HEEDS + LAST).as_secs())
    }
}

/// What is owed on one channel.
#[derive(Default)]
pub(super) struct Debts {
    all: Vec<Debt>,
    /// The guest has spoken; before that it may still be coming up, for which others have their own patience.
    up: bool,
}

impl Debts {
    pub(super) fn is_up(&mut self, now: Instant) {
        self.up = true;
        self.all.iter_mut().for_each(|debt| debt.due = now + HEEDS);
    }

    pub(super) fn asked(&mut self, id: ExecId, now: Instant) {
        self.owes(id, Word::Started, now);
    }

    /// However often: the first time counts.
    pub(super) fn killed(&mut self, id: ExecId, now: Instant) {
        if !self.all.iter().any(|debt| debt.id == id && debt.word == Word::Exited) {
            self.owes(id, Word::Exited, now);
        }
    }

    fn owes(&mut self, id: ExecId, word: Word, now: Instant) {
        self.all.push(Debt { id, word, due: now + HEEDS, last: false });
    }

    pub(super) fn started(&mut self, id: ExecId) {
        self.all.retain(|debt| debt.id != id || debt.word != Word::Started);
    }

    pub(super) fn exited(&mut self, id: ExecId) {
        self.all.retain(|debt| debt.id != id);
    }

    pub(super) fn postpone(&mut self, by: Duration) {
        self.all.iter_mut().for_each(|debt| debt.due += by);
    }

    /// When to look again.
    pub(super) fn due(&self) -> Option<Instant> {
        self.all.iter().filter(|_| self.up).map(|debt| debt.due).min()
    }

    /// What is overdue for good. To be asked when the guest has said nothing that was not heard yet.
    pub(super) fn overdue(&mut self, now: Instant) -> Option<Unheeded> {
        let late = self.all.iter_mut().filter(|debt| self.up && debt.due <= now);
        let mut found = None;
        for debt in late {
            if debt.last {
                found = found.or(Some(Unheeded { exec: debt.id.number(), word: debt.word }));
            }
            (debt.last, debt.due) = (true, now + LAST);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_guest::host::Client;
    use cofferdam_guest::wire::{Exec, Stdin};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    /// Numbers of execs come from a conversation alone.
    fn ids() -> [ExecId; 2] {
        let (ours, _guest) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None).unwrap();
        let mut client = Client::new(ours).unwrap();
        let exec =
            Exec { argv: vec![b"x"], env: vec![], cwd: b"/", user: None, tty: None, stdin: Stdin::Null };
        [client.exec(&exec).unwrap(), client.exec(&exec).unwrap()]
    }

    #[test]
    fn what_is_said_in_time_is_owed_no_more() {
        let ([one, other], began) = (ids(), Instant::now());
        let mut debts = Debts::default();
        debts.is_up(began);
        debts.asked(one, began);
        debts.started(one);
        assert_eq!(debts.due(), None);
        debts.killed(one, began);
        debts.killed(one, began + HEEDS);
        assert_eq!(debts.due(), Some(began + HEEDS), "asking again gives no more time");
        debts.started(one);
        assert!(debts.due().is_some(), "it is killed, and has not ended");
        debts.exited(other);
        assert!(debts.due().is_some());
        debts.exited(one);
        assert_eq!((debts.due(), debts.overdue(began + HEEDS * 9)), (None, None));
    }

    #[test]
    fn what_is_overdue_has_a_last_moment_and_time_that_nobody_saw_does_not_count() {
        let ([one, other], began) = (ids(), Instant::now());
        let mut debts = Debts::default();
        debts.asked(other, began);
        assert_eq!(debts.due(), None, "it is coming up");
        debts.exited(other);
        debts.is_up(began);
        debts.killed(one, began);
        debts.postpone(HEEDS);
        assert_eq!(debts.overdue(began + HEEDS), None);
        let late = began + HEEDS * 50;
        assert_eq!(debts.overdue(late), None, "nobody has looked for long");
        assert_eq!(debts.due(), Some(late + LAST));
        assert_eq!(debts.overdue(late + LAST / 2), None);
        let found = debts.overdue(late + LAST).expect("overdue").reason();
        assert!(found.contains("had not ended what was killed (number 1) 15 s later"), "{found}");
    }
}
