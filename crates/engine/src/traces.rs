//! What can be done with traces that are there: list, find, tell, verify, take out and bring in.

use crate::Engine;
use crate::error::EngineError;
use cofferdam_model::{BlobRef, Body, Event, SessionId};
use cofferdam_seal::{Keyring, PublicKey};
use cofferdam_store::{Catalog, Rotated, Summary, TraceState};
use cofferdam_trace::{
    Check, EVENTS_FILE, Held, MAX_ARCHIVE, Query, ReadError, Reader, Story, Verification, pack, reduce,
    unpack, verify, verify_held,
};
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// A trace that was found: its id, if it is one of ours, and where it lies.
#[derive(Debug, Clone)]
pub struct Trace {
    pub id: Option<SessionId>,
    pub path: PathBuf,
}

impl Engine {
    fn catalog(&self) -> Result<Catalog<'static>, EngineError> {
        Ok(self.home.catalog(self.home.bundles(EVENTS_FILE), summarise)?)
    }

    /// The newest first.
    pub fn list_traces(&self, limit: usize) -> Result<Vec<Summary>, EngineError> {
        Ok(self.catalog()?.list(limit)?)
    }

    /// By id, by the beginning of one, by the word `latest`, or by the path of a bundle or an events file.
    pub fn find_trace(&self, name: &str) -> Result<Trace, EngineError> {
        let path = Path::new(name);
        if name.contains('/')
            || path.extension().is_some()
            || (path.exists() && name.parse::<SessionId>().is_err())
        {
            return Ok(Trace { id: None, path: path.to_owned() });
        }
        if let Ok(id) = name.parse::<SessionId>() {
            let path = self.home.trace_dir(&id);
            return if path.is_dir() {
                Ok(Trace { id: Some(id), path })
            } else {
                Err(EngineError::NoTrace(name.into()))
            };
        }
        let found = match name {
            "latest" => self.catalog()?.list(1)?,
            _ => self.catalog()?.find(name, 10)?,
        };
        match found.as_slice() {
            [] => Err(EngineError::NoTrace(name.into())),
            [one] => Ok(Trace { id: Some(one.id.clone()), path: self.home.trace_dir(&one.id) }),
            many => Err(EngineError::Ambiguous { prefix: name.into(), count: many.len() }),
        }
    }

    /// Believes the local keys, or only the given ones.
    pub fn verify_trace(&self, trace: &Trace, keys: &[PathBuf]) -> Result<Verification, EngineError> {
        let ring = if keys.is_empty() { self.home.trusted_keys()? } else { read_keys(keys)? };
        Ok(verify(&trace.path, &Check { keys: &ring, session: trace.id.as_ref() })?)
    }

    /// The same, with what was read of it.
    pub(crate) fn hold_trace(&self, trace: &Trace, keys: &[PathBuf]) -> Result<Held, EngineError> {
        let ring = if keys.is_empty() { self.home.trusted_keys()? } else { read_keys(keys)? };
        Ok(verify_held(&trace.path, &Check { keys: &ring, session: trace.id.as_ref() })?)
    }

    pub fn story(&self, trace: &Trace) -> Result<Story, EngineError> {
        Ok(reduce(&events(trace)?))
    }

    pub fn events(&self, trace: &Trace) -> Result<Vec<Event>, EngineError> {
        events(trace)
    }

    pub fn payload(&self, trace: &Trace, wanted: &BlobRef) -> Result<Vec<u8>, EngineError> {
        Ok(Reader::open(&trace.path)?.read_blob(wanted)?)
    }

    /// The events as they are.
    pub fn export_events(&self, trace: &Trace, to: &mut dyn Write) -> Result<(), EngineError> {
        let path = if trace.path.is_dir() { trace.path.join(EVENTS_FILE) } else { trace.path.clone() };
        let copying = |source| EngineError::Io { doing: "export the events", source };
        let mut file = File::open(&path).map_err(|source| EngineError::Unreadable { path, source })?;
        std::io::copy(&mut file, to).map(drop).map_err(copying)
    }

    /// As spans of OpenTelemetry, in OTLP's JSON.
    pub fn export_otlp(&self, trace: &Trace) -> Result<serde_json::Value, EngineError> {
        Ok(cofferdam_trace::to_otlp(&events(trace)?, env!("CARGO_PKG_VERSION")))
    }

    /// Events that a query is about, with their sessions: of one trace, or of all, the newest trace first. A trace
    /// that cannot be read ends with its last event that can.
    pub fn query(
        &self,
        of: Option<&Trace>,
        query: &Query,
        limit: usize,
    ) -> Result<Vec<(SessionId, Event)>, EngineError> {
        let traces = match of {
            Some(trace) => vec![trace.clone()],
            None => {
                let all = self.list_traces(usize::MAX)?.into_iter();
                all.map(|one| Trace { path: self.home.trace_dir(&one.id), id: Some(one.id) }).collect()
            }
        };
        let mut found = Vec::new();
        for trace in traces {
            let mut session = trace.id.clone();
            for event in Reader::open(&trace.path)?.map_while(Result::ok) {
                if let (None, Some(Body::SessionStarted(fact))) = (&session, event.typed()) {
                    session = Some(fact.session);
                }
                if found.len() >= limit {
                    return Ok(found);
                }
                if let Some(session) = session.as_ref().filter(|_| query.matches(&event)) {
                    found.push((session.clone(), event));
                }
            }
        }
        Ok(found)
    }

    /// Everything, in one file.
    pub fn export_bundle(&self, trace: &Trace, to: impl Write) -> Result<(), EngineError> {
        let writing = |source| EngineError::Io { doing: "export the bundle", source };
        let id = match &trace.id {
            Some(id) => Some(id.clone()),
            None => self.story(trace)?.session.map(|told| told.fact.session),
        };
        let id = id.ok_or_else(|| EngineError::NoTrace(trace.path.display().to_string()))?;
        pack(&trace.path, &id, BufWriter::new(to))?.flush().map_err(writing)
    }

    /// Brings a bundle in. It is not believed for that: verify it.
    pub fn import_bundle(&self, from: impl Read) -> Result<SessionId, EngineError> {
        Ok(unpack(from, &self.home.traces_dir(), MAX_ARCHIVE)?)
    }

    pub fn public_key(&self) -> Result<PublicKey, EngineError> {
        Ok(*self.home.signing_key()?.public())
    }

    pub fn rotate_key(&self) -> Result<Rotated, EngineError> {
        Ok(self.home.rotate_key()?)
    }

    pub fn trust_key(&self, path: &Path) -> Result<PublicKey, EngineError> {
        let text = read_text(path)?;
        PublicKey::from_pem(&text).map_err(|source| EngineError::Key { path: path.to_owned(), source })?;
        Ok(self.home.trust_key(&text)?)
    }
}

fn read_text(path: &Path) -> Result<String, EngineError> {
    std::fs::read_to_string(path).map_err(|source| EngineError::Unreadable { path: path.to_owned(), source })
}

fn read_keys(paths: &[PathBuf]) -> Result<Keyring, EngineError> {
    let read = |path: &PathBuf| {
        PublicKey::from_pem(&read_text(path)?)
            .map_err(|source| EngineError::Key { path: path.clone(), source })
    };
    paths.iter().map(read).collect::<Result<Vec<_>, _>>().map(|keys| keys.into_iter().collect())
}

fn events(trace: &Trace) -> Result<Vec<Event>, EngineError> {
    Ok(Reader::open(&trace.path)?.collect::<Result<Vec<_>, ReadError>>()?)
}

/// A line for the index. Whatever cannot be read is said to be unreadable; nothing here fails.
fn summarise(id: &SessionId, path: &Path) -> Summary {
    let mut story = Story::default();
    let mut state = TraceState::Unreadable;
    if let Ok(reader) = Reader::open(path) {
        let live = reader.is_live();
        let mut sound = true;
        for event in reader {
            match event {
                Ok(event) => story.push(&event),
                Err(_) => sound = false,
            }
        }
        state = match (sound, story.finished, live) {
            (false, ..) => TraceState::Unreadable,
            (_, true, _) => TraceState::Finished,
            (_, _, true) => TraceState::Running,
            _ => TraceState::Incomplete,
        };
    }
    Summary {
        id: id.clone(),
        started_us: story.session.as_ref().map_or(0, |told| told.time_us),
        ended_us: story.end.as_ref().map(|told| told.time_us),
        command: story.session.as_ref().map(|told| told.fact.spec.command.clone()).unwrap_or_default(),
        exit: story.end.as_ref().map(|told| told.fact.exit),
        state,
        tier: story.enforcement.as_ref().map(|told| told.fact.tier),
        workdir: story.session.as_ref().map(|told| told.fact.workdir.clone()),
        events: story.events,
    }
}
