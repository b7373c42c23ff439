//! Files into and out of a session, for who asks at its socket: the caller opens the file outside, the guest the one
//! inside, and neither sees the other's.

use super::Mailbox;
use super::inside::{Account, Inside, InsideError};
use crate::Engine;
use crate::control::{Asked, Question, Reply, asking, unexpected};
use crate::error::EngineError;
use bytes::Bytes;
use cofferdam_model::SessionId;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

const PIECE: usize = 256 << 10;

impl Engine {
    /// A file from outside; it appears inside as a whole, with the directories on the way.
    pub fn copy_in(
        &self,
        session: &SessionId,
        from: &File,
        to: &Path,
        user: Option<&str>,
    ) -> Result<(), EngineError> {
        self.copy(session, Question::Put { path: to.to_owned(), user: user.map(str::to_owned) }, from)
    }

    pub fn make_dir_in(&self, session: &SessionId, at: &Path, user: Option<&str>) -> Result<(), EngineError> {
        let question = Question::MakeDir { path: at.to_owned(), user: user.map(str::to_owned) };
        self.command(session, &question).map(drop)
    }

    /// A file from inside, into one that is open.
    pub fn copy_out(&self, session: &SessionId, from: &Path, to: &File) -> Result<(), EngineError> {
        self.copy(session, Question::Get { path: from.to_owned() }, to)
    }

    fn copy(&self, session: &SessionId, question: Question, file: &File) -> Result<(), EngineError> {
        let mut lines = self.ask_session(session, &question, &[file.as_fd()])?;
        // As long as it takes: the file may be large.
        match lines.next(None).map_err(asking)? {
            Some(Reply::Done { .. }) => Ok(()),
            Some(other) => Err(unexpected(other)),
            None => Err(EngineError::Declined(format!("session {session} ended before all was copied"))),
        }
    }
}

/// On the thread of the connection that asks.
pub(super) fn answer(mail: &Mailbox, asked: Asked) -> Reply {
    let inside = Inside::new(mail.clone(), asked.by);
    let file = asked.descriptors.into_iter().next().map(File::from);
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let done = match (runtime, asked.question) {
        (Ok(runtime), Question::MakeDir { path, user }) => runtime.block_on(make_dir(&inside, &path, user)),
        (Ok(runtime), Question::Put { path, user }) => match file {
            Some(file) => runtime.block_on(put(&inside, &path, user, file)),
            None => return Reply::Refused("the file has to come along".into()),
        },
        (Ok(runtime), Question::Get { path }) => match file {
            Some(file) => runtime.block_on(get(&inside, &path, file)),
            None => return Reply::Refused("the file has to come along".into()),
        },
        _ => return Reply::Refused("that is nothing to ask a session".into()),
    };
    match done {
        Ok(()) => Reply::Done { cut: 0 },
        Err(CopyError::Inside(path, error)) => Reply::Refused(format!("{} inside: {error}", path.display())),
        Err(CopyError::Outside(error)) => Reply::Refused(format!("the file outside: {error}")),
    }
}

enum CopyError {
    Inside(PathBuf, InsideError),
    Outside(io::Error),
}

/// Who the file is to belong to. A session without several users has one, whatever its name.
async fn owner(inside: &Inside, user: Option<String>) -> Account {
    let name = user.unwrap_or_else(|| "user".to_owned());
    inside.account(&name).await.unwrap_or_else(|_| Account {
        name,
        uid: 1000,
        gid: 1000,
        groups: Vec::new(),
        home: "/".into(),
        shell: "/bin/sh".into(),
    })
}

async fn make_dir(inside: &Inside, path: &Path, user: Option<String>) -> Result<(), CopyError> {
    let who = owner(inside, user).await;
    match inside.make_dir(path, &who).await {
        Ok(_) => Ok(()),
        Err(InsideError::File { kind: super::inside::FileProblem::Exists }) => Ok(()),
        Err(error) => Err(CopyError::Inside(path.to_owned(), error)),
    }
}

async fn put(inside: &Inside, path: &Path, user: Option<String>, mut file: File) -> Result<(), CopyError> {
    let failed = |error| CopyError::Inside(path.to_owned(), error);
    let who = owner(inside, user).await;
    let mut to = inside.write(path, &who, None).await.map_err(failed)?;
    let mut buffer = vec![0; PIECE];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => to.write(Bytes::copy_from_slice(&buffer[..count])).await.map_err(failed)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // What has come so far never was.
            Err(error) => return Err(CopyError::Outside(error)),
        }
    }
    to.finish().await.map(drop).map_err(failed)
}

async fn get(inside: &Inside, path: &Path, mut file: File) -> Result<(), CopyError> {
    let failed = |error| CopyError::Inside(path.to_owned(), error);
    let mut from = inside.read(path, 0, None).await.map_err(failed)?;
    while let Some(bytes) = from.next().await.map_err(failed)? {
        file.write_all(&bytes).map_err(CopyError::Outside)?;
    }
    Ok(())
}
