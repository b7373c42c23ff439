//! What was sent and not yet answered, in order: by it an answer finds the statement that it belongs to.

use super::wire::Told;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// A client that sends more ahead is not waiting for answers at all.
const MOST: usize = 65_536;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    /// A statement runs, by the number of its event.
    Run(u64),
    /// The server says that it is ready.
    Sync,
}

#[derive(Default)]
pub(super) struct Ledger {
    items: VecDeque<Item>,
    /// What was refused, by the mark that was sent in its place.
    refusals: HashMap<u64, Told>,
    next: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

impl Ledger {
    pub(super) fn run(&mut self, seq: u64) -> Result<(), Full> {
        self.push(Item::Run(seq))
    }

    pub(super) fn sync(&mut self) -> Result<(), Full> {
        self.push(Item::Sync)
    }

    fn push(&mut self, item: Item) -> Result<(), Full> {
        if self.items.len() >= MOST || self.refusals.len() >= MOST {
            return Err(Full);
        }
        self.items.push_back(item);
        Ok(())
    }

    /// Keeps a refusal, and gives the number to find it by.
    pub(super) fn refuse(&mut self, told: Told) -> u64 {
        self.next += 1;
        self.refusals.insert(self.next, told);
        self.next
    }

    pub(super) fn refusal(&mut self, number: u64) -> Option<Told> {
        self.refusals.remove(&number)
    }

    /// A statement has ended.
    pub(super) fn ended(&mut self) -> Option<u64> {
        match self.items.front() {
            Some(Item::Run(seq)) => {
                let seq = *seq;
                self.items.pop_front();
                Some(seq)
            }
            _ => None,
        }
    }

    /// Something has failed: all up to the next time that the server is ready does not happen.
    pub(super) fn failed(&mut self) -> Option<u64> {
        let seq = self.ended();
        while self.ended().is_some() {}
        seq
    }

    pub(super) fn ready(&mut self) {
        while self.ended().is_some() {}
        self.items.pop_front();
        if self.items.is_empty() {
            self.refusals.clear();
        }
    }
}

/// A statement that was prepared, for those who execute it later.
pub(super) struct Prepared {
    /// Its decision; told again when it is executed again.
    pub(super) events: Vec<(u64, Box<cofferdam_model::SqlDecided>)>,
    pub(super) spent: bool,
}

/// What names stand for on this connection.
#[derive(Default)]
pub(super) struct Names {
    statements: HashMap<String, Arc<std::sync::Mutex<Prepared>>>,
    portals: HashMap<String, Arc<std::sync::Mutex<Prepared>>>,
}

impl Names {
    pub(super) fn prepare(&mut self, name: &str, prepared: Prepared) -> Result<(), Full> {
        if self.statements.len() >= MOST {
            return Err(Full);
        }
        self.statements.insert(name.to_owned(), Arc::new(std::sync::Mutex::new(prepared)));
        Ok(())
    }

    pub(super) fn bind(&mut self, portal: &str, statement: &str) -> Result<(), Full> {
        if self.portals.len() >= MOST {
            return Err(Full);
        }
        match self.statements.get(statement) {
            Some(found) => drop(self.portals.insert(portal.to_owned(), Arc::clone(found))),
            None => drop(self.portals.remove(portal)),
        }
        Ok(())
    }

    pub(super) fn portal(&self, name: &str) -> Option<Arc<std::sync::Mutex<Prepared>>> {
        self.portals.get(name).cloned()
    }

    pub(super) fn close(&mut self, kind: u8, name: &str) {
        match kind {
            b'S' => drop(self.statements.remove(name)),
            _ => drop(self.portals.remove(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_find_their_statements() {
        let mut ledger = Ledger::default();
        for seq in [1, 2] {
            ledger.run(seq).unwrap();
        }
        ledger.sync().unwrap();
        for seq in [3, 4, 5] {
            ledger.run(seq).unwrap();
        }
        ledger.sync().unwrap();
        assert_eq!((ledger.ended(), ledger.ended(), ledger.ended()), (Some(1), Some(2), None));
        ledger.ready();
        assert_eq!((ledger.ended(), ledger.failed()), (Some(3), Some(4)));
        assert_eq!(ledger.ended(), None, "the fifth never ran");
        ledger.ready();
        assert!(ledger.items.is_empty());
    }

    #[test]
    fn nobody_sends_ahead_without_end() {
        let mut ledger = Ledger::default();
        for seq in 0..MOST as u64 {
            ledger.run(seq).unwrap();
        }
        assert_eq!(ledger.run(0), Err(Full));
    }
}
