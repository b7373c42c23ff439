//! Whose a session was, also when it is long over: its trace and its usage stay, and are its tenant's.

use cofferdam_model::SessionId;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// A line each: the session, then the tenant. Only ever added to.
pub(crate) struct Owners {
    known: Mutex<(HashMap<SessionId, String>, File)>,
}

impl Owners {
    pub(crate) fn open(home: &Path) -> io::Result<Self> {
        let path = home.join("service").join("owners");
        let file = OpenOptions::new().append(true).read(true).create(true).mode(0o600).open(path)?;
        let mut known = HashMap::new();
        for line in BufReader::new(&file).lines().map_while(Result::ok) {
            if let Some((session, tenant)) = line.split_once(' ')
                && let Ok(session) = session.parse()
            {
                known.insert(session, tenant.to_owned());
            }
        }
        Ok(Self { known: Mutex::new((known, file)) })
    }

    /// What cannot be written is the administrator's alone after the next start.
    pub(crate) fn enter(&self, session: &SessionId, tenant: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = known.1.write_all(format!("{session} {tenant}\n").as_bytes());
        known.0.insert(session.clone(), tenant.to_owned());
    }

    pub(crate) fn of(&self, session: &SessionId) -> Option<String> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).0.get(session).cloned()
    }
}
