//! What a session has used, second by second, in a file of its own: a line for every second in which something
//! runs, and for every minute in which nothing does. A line is one write, so whoever is killed loses at most the
//! second that was under way; what the lines say adds up to the counters of its control groups.

use crate::Engine;
use crate::error::EngineError;
use crate::record::now_us;
use cofferdam_model::{Counters, LiveState, SessionId, UsageRecord, UsageTotal};
use cofferdam_store::Home;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const BUSY: Duration = Duration::from_secs(1);
const QUIET: Duration = Duration::from_secs(60);

pub(super) struct Meter {
    path: PathBuf,
    /// Made with its first line: a file is the slowest thing that a short session asks of a disk.
    file: Option<File>,
    since: Instant,
    cpu_us: u64,
    /// Whether something ran in the last span.
    busy: bool,
}

fn failed(source: io::Error) -> EngineError {
    EngineError::Io { doing: "write down what the session uses", source }
}

impl Meter {
    pub(super) fn new(home: &Home, session: &SessionId, now: Instant) -> Self {
        let path = home.usage_dir().join(format!("{session}.jsonl"));
        Self { path, file: None, since: now, cpu_us: 0, busy: true }
    }

    fn file(&mut self) -> io::Result<&mut File> {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        let file = match self.file.take() {
            Some(file) => file,
            None => match (options.open(&self.path), self.path.parent()) {
                (Err(error), Some(dir)) if error.kind() == io::ErrorKind::NotFound => {
                    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
                    options.open(&self.path)?
                }
                (opened, _) => opened?,
            },
        };
        Ok(self.file.insert(file))
    }

    /// When the next line is to be written.
    pub(super) fn due(&self, running: usize) -> Instant {
        self.since + if running > 0 || self.busy { BUSY } else { QUIET }
    }

    /// Ends a span.
    pub(super) fn read(
        &mut self,
        state: LiveState,
        counters: Counters,
        now: Instant,
    ) -> Result<(), EngineError> {
        let cpu = counters.cpu_us.map(|total| total.saturating_sub(self.cpu_us));
        let record = UsageRecord {
            at_us: now_us(),
            span_us: now.duration_since(self.since).as_micros() as u64,
            state,
            cpu_us: cpu,
            memory: counters.memory,
        };
        let mut line = serde_json::to_vec(&record).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        self.file().and_then(|file| file.write_all(&line)).map_err(failed)?;
        // Looking costs nothing inside: a span in which nothing ran has no time at all.
        self.busy = cpu.is_some_and(|cpu| cpu > 0);
        self.cpu_us = counters.cpu_us.unwrap_or(self.cpu_us);
        self.since = now;
        Ok(())
    }
}

impl Engine {
    /// What a session has used second by second, as far as it was written down.
    pub fn usage_records(&self, session: &SessionId) -> Result<Vec<UsageRecord>, EngineError> {
        let failed = |source| EngineError::Io { doing: "read what the session has used", source };
        let path = self.home.usage_dir().join(format!("{session}.jsonl"));
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(failed)?,
        };
        let mut records = Vec::new();
        for line in BufReader::new(file).lines() {
            // The last line may have been cut by a full disk or a lost machine: the rest counts.
            match serde_json::from_str(&line.map_err(failed)?) {
                Ok(record) => records.push(record),
                Err(_) => break,
            }
        }
        Ok(records)
    }

    /// All sessions that stayed, with what each has used in all, the oldest first.
    pub fn usage(&self) -> Result<Vec<UsageTotal>, EngineError> {
        let names =
            fs::read_dir(self.home.usage_dir()).into_iter().flatten().flatten().map(|e| e.file_name());
        let mut ids: Vec<SessionId> =
            names.filter_map(|name| name.to_str()?.strip_suffix(".jsonl")?.parse().ok()).collect();
        ids.sort();
        ids.into_iter().map(|session| self.usage_of(session)).collect()
    }

    pub fn usage_of(&self, session: SessionId) -> Result<UsageTotal, EngineError> {
        Ok(UsageTotal::of(session.clone(), &self.usage_records(&session)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_add_up_to_the_counters() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine { home: Home::open(&dir.path().join("home")).unwrap() };
        let (session, start) = (SessionId::new(1, 2), Instant::now());
        let mut meter = Meter::new(&engine.home, &session, start);
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let counted = |cpu| Counters { cpu_us: Some(cpu), memory: Some(1 << 20), ..Counters::default() };
        meter.read(LiveState::Running, counted(700), at(1)).unwrap();
        assert_eq!(meter.due(0), at(2), "something may still run");
        meter.read(LiveState::Running, counted(700), at(2)).unwrap();
        assert_eq!((meter.due(0), meter.due(1)), (at(62), at(3)));
        meter.read(LiveState::Paused, counted(1000), at(4)).unwrap();
        // A torn line.
        meter.file().unwrap().write_all(b"{\"at_us\":").unwrap();
        let total = engine.usage_of(session.clone()).unwrap();
        assert_eq!((total.cpu_us, total.span_us, total.paused_us), (1000, 4_000_000, 2_000_000));
        assert_eq!(total.memory_mib_ms, 4000);
        assert_eq!(engine.usage().unwrap(), [total]);
    }
}
