//! A session's files as they are at a moment, named and gone back to, and sessions that begin with them. Layers
//! are frozen where they lie: nothing is copied.

use super::holder::Holder;
use super::shelf;
use crate::Engine;
use crate::control::{CreateAsked, Origin, Question, Reply, unexpected};
use crate::environment::Caller;
use crate::error::EngineError;
use crate::record::now_us;
use cofferdam_model::{Digest, Provenance, SessionId, Snapshot};

impl Holder {
    /// Moves what the session did so far to the shelf, and goes on over it.
    fn freeze(&mut self, force: bool, by: &str) -> Result<(Vec<SessionId>, Provenance), EngineError> {
        // What keeps its processes has them stand still, and nothing of it ends.
        let alive = self.standing.sandbox.keeps_processes();
        self.make_ready(force || alive, by)?;
        if alive {
            self.relay.say_all()?;
        }
        let layer = Engine { home: self.standing.home.clone() }.new_id()?;
        let session = self.standing.session.clone();
        let before = self.shelf.held(&session);
        let to = self.shelf.place(&session, &layer)?;
        self.note_files()?;
        let frozen = self.standing.sandbox.freeze(&to);
        if alive && frozen.is_ok() {
            // It is whole by itself, and the session goes on without it: beside what it began with, only the last is
            // needed, by those who are about to begin with it.
            let needed = [layer.clone()].into_iter().chain(before.last().cloned()).collect();
            self.shelf.hold(&session, needed)?;
            self.shelf.sweep();
            return Ok((vec![layer], frozen?));
        }
        if frozen.is_err() && !to.join("upper").exists() {
            self.shelf.hold(&session, before)?;
            self.shelf.sweep();
        }
        self.meet_guest()?;
        self.note_files()?;
        Ok((self.shelf.held(&session), frozen?))
    }

    pub(super) fn snapshot(&mut self, name: &str, force: bool, by: &str) -> Result<(), EngineError> {
        self.shelf.check_name(name)?;
        let (layers, since) = self.freeze(force, by)?;
        self.changed("snapshot", by, name.to_owned())?;
        self.shelf.write(&Snapshot {
            name: name.to_owned(),
            session: self.standing.session.clone(),
            taken_us: now_us(),
            workdir: self.standing.workdir.clone(),
            layers,
            since,
            image: self.standing.image_digest(),
        })
    }

    /// Files become what they were; what was done since is dropped.
    pub(super) fn restore(&mut self, name: &str, by: &str) -> Result<(), EngineError> {
        let snapshot = shelf::find(&self.standing.home, name)?;
        of_workdir(&snapshot, &self.standing.workdir)?;
        of_image(&snapshot, self.standing.image_digest())?;
        self.make_ready(false, by)?;
        let session = self.standing.session.clone();
        let before = self.shelf.held(&session);
        // Until it is done both are needed.
        let both = snapshot.layers.iter().chain(&before).cloned().collect();
        self.shelf.hold(&session, both)?;
        let base = self.shelf.base(&snapshot.layers, snapshot.since);
        let rebased = self.standing.sandbox.rebase(base);
        self.shelf.hold(&session, if rebased.is_ok() { snapshot.layers } else { before })?;
        self.shelf.sweep();
        self.meet_guest()?;
        rebased?;
        self.changed("restore", by, name.to_owned()).map(drop)
    }

    /// What it takes to make sessions that begin as this one is now.
    pub(super) fn fork(&mut self, count: usize, by: &str) -> Result<CreateAsked, EngineError> {
        if count == 0 && self.standing.sandbox.keeps_processes() {
            let text = "the files of a machine are its own and cannot be put into an archive: copy them out with `session cp`";
            return Err(EngineError::Declined(text.into()));
        }
        if count == 0 && self.standing.image.is_some() {
            let text = "an archive holds a work dir, and not what was done to an image: keep a snapshot";
            return Err(EngineError::Declined(text.into()));
        }
        let (layers, since) = self.freeze(false, by)?;
        match count {
            // For an archive.
            0 => self.changed("archive", by, String::new())?,
            count => self.changed("fork", by, format!("{count} sessions"))?,
        };
        let mut spec = self.spec.clone();
        spec.live.name = None;
        let Caller::Asker(caller) = self.standing.caller.clone() else { return Err(EngineError::NoChannel) };
        let from = Some(Origin { layers, since });
        Ok(CreateAsked { spec, by: self.by.clone(), durable: self.durable, caller, snapshot: None, from })
    }
}

pub(super) fn of_workdir(snapshot: &Snapshot, workdir: &std::path::Path) -> Result<(), EngineError> {
    if snapshot.workdir == workdir {
        return Ok(());
    }
    let (name, of) = (&snapshot.name, snapshot.workdir.display());
    Err(EngineError::Declined(format!(
        "the snapshot `{name}` is of the work dir {of}, and means nothing over another: use `--workdir {of}`"
    )))
}

pub(super) fn of_image(snapshot: &Snapshot, image: Option<Digest>) -> Result<(), EngineError> {
    if snapshot.image == image {
        return Ok(());
    }
    let name = &snapshot.name;
    Err(EngineError::Declined(match snapshot.image {
        Some(image) => {
            format!("the snapshot `{name}` is over the image {image}, and means nothing over another")
        }
        None => format!("the snapshot `{name}` is of a session without an image: leave --image out"),
    }))
}

impl Engine {
    /// Names a session's files as they are now.
    pub fn snapshot_session(&self, session: &SessionId, name: &str) -> Result<(), EngineError> {
        self.command(session, &Question::Snapshot { name: name.to_owned(), force: false }).map(drop)
    }

    /// Why processes cannot be kept along with the files. The program that could is tried, not looked for; that it
    /// works is not enough yet: it would have to put back what holds a process, and this version does not ask it to.
    pub fn keep_processes(&self) -> EngineError {
        let tried =
            std::process::Command::new("criu").arg("check").stdin(std::process::Stdio::null()).output();
        let reason = match tried {
            Err(error) => format!("`criu` cannot be run ({error})"),
            Ok(tried) if !tried.status.success() => {
                let said = String::from_utf8_lossy(&tried.stderr).into_owned();
                let line: String = said.lines().next_back().unwrap_or("it fails").chars().take(120).collect();
                format!("`criu check` fails here: {line}")
            }
            Ok(_) => "`criu` works here, and this version does not use it".into(),
        };
        EngineError::Unenforceable(format!(
            "refused: the processes of a session cannot be kept: {reason}; keep its files, without `--processes`"
        ))
    }

    /// Makes a session's files what they were.
    pub fn restore_session(&self, session: &SessionId, name: &str) -> Result<(), EngineError> {
        self.command(session, &Question::Restore { name: name.to_owned() }).map(drop)
    }

    pub fn snapshots(&self) -> Vec<Snapshot> {
        shelf::snapshots(&self.home)
    }

    pub fn remove_snapshot(&self, name: &str) -> Result<(), EngineError> {
        match self.order_of_supervisor(&Question::Forget { name: name.to_owned() })? {
            Reply::Done { .. } => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// Makes so many sessions that begin with the files of this one.
    pub fn fork_session(&self, session: &SessionId, count: usize) -> Result<Vec<SessionId>, EngineError> {
        match self.order_of_supervisor(&Question::Fork { session: session.clone(), count })? {
            Reply::Forked { sessions } => Ok(sessions),
            other => Err(unexpected(other)),
        }
    }
}
