//! What is looked at while a machine comes to itself: whether what it is copied from is what was written, and whether the
//! host's directories are as they were listed. Nothing of anyone's runs in a machine before all of it has been found so.

use cofferdam_runtime::RuntimeError;
use std::io;
use std::thread::JoinHandle;

/// What was found of one thing.
pub(crate) enum Found {
    Good,
    /// It was right, and is not any more: another is to be made.
    Stale,
    Bad(RuntimeError),
}

impl Found {
    /// The worse of both: damage is told before age.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (bad @ Self::Bad(_), _) | (_, bad @ Self::Bad(_)) => bad,
            (Self::Stale, _) | (_, Self::Stale) => Self::Stale,
            (Self::Good, Self::Good) => Self::Good,
        }
    }
}

type Look = Box<dyn FnOnce() -> Found + Send>;

/// What is to be looked at, and is being looked at.
#[derive(Default)]
pub(crate) struct Pending {
    waiting: Vec<Look>,
    looking: Vec<JoinHandle<Found>>,
}

impl Pending {
    /// For later: what the machine cannot run without comes first.
    pub(crate) fn add(&mut self, look: impl FnOnce() -> Found + Send + 'static) {
        self.waiting.push(Box::new(look));
    }

    /// Takes over what is to be looked at beside this.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.waiting.append(&mut other.waiting);
        self.looking.append(&mut other.looking);
    }

    /// Looks at all of it, beside what else goes on.
    pub(crate) fn start(&mut self) -> io::Result<()> {
        self.start_after(|| ())
    }

    /// The same, from when that has come to its end.
    pub(crate) fn start_after(&mut self, first: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return Ok(());
        }
        // One after the other: there may be no more than one processor that has nothing else to do.
        let all = move || {
            first();
            waiting.into_iter().fold(Found::Good, |found, look| found.and(look()))
        };
        self.looking.push(std::thread::Builder::new().name("vm-check".into()).spawn(all)?);
        Ok(())
    }

    /// Waits for what was found.
    pub(crate) fn finish(mut self) -> Found {
        if let Err(error) = self.start() {
            return Found::Bad(RuntimeError::io("look at what the machine is copied from")(error));
        }
        let mut found = Found::Good;
        for looking in self.looking {
            let one = looking.join().unwrap_or_else(|_| {
                let error = io::Error::other("it was not looked at");
                Found::Bad(RuntimeError::io("look at what the machine is copied from")(error))
            });
            found = found.and(one);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_what_is_found_is_told() {
        let bad: fn() -> Found =
            || Found::Bad(RuntimeError::io("read it")(io::ErrorKind::InvalidData.into()));
        let good: fn() -> Found = || Found::Good;
        let stale: fn() -> Found = || Found::Stale;
        let gone: fn() -> Found = || panic!("gone");
        let check = |looks: Vec<fn() -> Found>, later: fn() -> Found, expected: &str| {
            let (mut pending, mut other) = (Pending::default(), Pending::default());
            looks.into_iter().for_each(|look| pending.add(look));
            let (first, comes) = std::sync::mpsc::channel::<()>();
            pending.start_after(move || _ = comes.recv()).unwrap();
            drop(first);
            other.add(later);
            pending.join(other);
            let told = match pending.finish() {
                Found::Good => "good",
                Found::Stale => "stale",
                Found::Bad(_) => "bad",
            };
            assert_eq!(told, expected);
        };
        check(vec![], good, "good");
        check(vec![good, stale], good, "stale");
        check(vec![stale, bad], good, "bad");
        check(vec![bad], stale, "bad");
        check(vec![gone], good, "bad");
    }
}
