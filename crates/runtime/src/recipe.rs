//! A long process as a table of named steps, each with its undo.
//!
//! If a step fails, the steps before it are undone in reverse; when the result is dropped, all are. So there
//! is one place that cleans up, and a test can make any step fail and look at what is left.

/// One row of the table. `undo` is called for every step whose `run` succeeded, and must not fail: what it
/// cannot remove, the next start reaps.
pub struct Step<C, E> {
    pub name: &'static str,
    pub run: fn(&mut C) -> Result<(), E>,
    pub undo: fn(&mut C),
}

/// The error of a fault that a test asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("fault injected at step `{0}`")]
pub struct Injected(pub &'static str);

/// Which step is to fail, for tests; the default is none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fault(pub Option<&'static str>);

pub struct Recipe<C: 'static, E: 'static>(pub &'static [Step<C, E>]);

/// What stands after some steps ran: the context, the steps to undo when it is dropped, and those to come.
pub struct Standing<C: 'static, E: 'static> {
    pub context: C,
    steps: &'static [Step<C, E>],
    done: usize,
    fault: Fault,
}

impl<C, E: From<Injected>> Recipe<C, E> {
    /// Nothing has been done yet.
    pub fn start(&self, context: C, fault: Fault) -> Standing<C, E> {
        Standing { context, steps: self.0, done: 0, fault }
    }
}

impl<C, E: From<Injected>> Standing<C, E> {
    /// Runs the steps that are left up to and with the one of this name, or all.
    pub fn run_to(mut self, last: Option<&str>) -> Result<Self, (&'static str, E)> {
        for step in &self.steps[self.done..] {
            if self.fault.0 == Some(step.name) {
                return Err((step.name, E::from(Injected(step.name))));
            }
            (step.run)(&mut self.context).map_err(|error| (step.name, error))?;
            self.done += 1;
            if last == Some(step.name) {
                break;
            }
        }
        Ok(self)
    }
}

impl<C, E> Drop for Standing<C, E> {
    fn drop(&mut self) {
        for step in self.steps[..self.done].iter().rev() {
            (step.undo)(&mut self.context);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[derive(Debug, PartialEq)]
    enum Error {
        Own,
        Injected(Injected),
    }

    impl From<Injected> for Error {
        fn from(fault: Injected) -> Self {
            Self::Injected(fault)
        }
    }

    type Log = Rc<RefCell<Vec<&'static str>>>;

    fn say(log: &mut Log, word: &'static str) {
        log.borrow_mut().push(word);
    }

    const TABLE: Recipe<Log, Error> = Recipe(&[
        Step {
            name: "a",
            run: |log| {
                say(log, "a");
                Ok(())
            },
            undo: |log| say(log, "undo a"),
        },
        Step {
            name: "b",
            run: |log| {
                say(log, "b");
                Ok(())
            },
            undo: |log| say(log, "undo b"),
        },
        Step { name: "c", run: |_| Err(Error::Own), undo: |log| say(log, "undo c") },
    ]);

    fn check(table: Recipe<Log, Error>, fault: Fault, expected: Option<(&'static str, Error)>, log: &[&str]) {
        // In one go, and with a pause after the first step.
        for pause in [None, Some("a")] {
            let seen = Log::default();
            let ran =
                table.start(seen.clone(), fault).run_to(pause).and_then(|standing| standing.run_to(None));
            assert_eq!(ran.err(), expected);
            assert_eq!(*seen.borrow(), log);
        }
    }

    #[test]
    fn what_was_done_is_undone_in_reverse() {
        check(TABLE, Fault(None), Some(("c", Error::Own)), &["a", "b", "undo b", "undo a"]);
        check(TABLE, Fault(Some("b")), Some(("b", Error::Injected(Injected("b")))), &["a", "undo a"]);
        check(Recipe(&TABLE.0[..2]), Fault(None), None, &["a", "b", "undo b", "undo a"]);
    }
}
