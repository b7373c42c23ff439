//! A session from within this process: its commands with their bytes, its files, its ports. Everything is asked of
//! the thread that holds the session, and on record there as if anyone else had asked; nothing here touches the
//! sandbox by itself, and nothing that comes out of it is believed to be what it should be.

mod files;
mod process;
mod task;

pub use files::{FileEntry, FileKind, FileReader, FileWriter, Watch, WatchChange, WatchEvent};
pub use process::{Attached, Process, ProcessSpec};
pub use task::{PortSender, PortStream};

use super::Mailbox;
use super::errand::{Errand, TaskAsked};
use super::mail::Letter;
use crate::error::EngineError;
use cofferdam_guest::wire::{self, Said, Why, Work};
use process::Processes;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Of an account's name.
const LONGEST_NAME: usize = 256;
/// So many accounts are remembered.
const ACCOUNTS: usize = 64;

/// What all that look into a session share.
#[derive(Default)]
pub(crate) struct Known {
    processes: Processes,
    accounts: Mutex<BTreeMap<String, Account>>,
}

/// A way into one session. Clones are the same way.
#[derive(Clone)]
pub struct Inside {
    mail: Mailbox,
    by: String,
}

/// Somebody inside, by the inside's own account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub home: PathBuf,
    pub shell: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum InsideError {
    /// The session ended, or its guest was replaced.
    #[error("the session is not there any more")]
    Gone,
    #[error("{0}")]
    Refused(#[from] EngineError),
    /// Only paths: what else can be wrong with a request is `Refused`.
    #[error("{kind}")]
    File { kind: FileProblem },
    #[error("the guest said something that it cannot say here; end the session")]
    Nonsense,
    #[error("there are more than {0} entries: ask for less at a time")]
    TooMany(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FileProblem {
    #[error("there is no such file or directory")]
    Missing,
    #[error("it is there already")]
    Exists,
    #[error("it is a directory")]
    IsDirectory,
    #[error("it is not a directory")]
    NotDirectory,
    #[error("it is neither a file nor a directory")]
    Special,
    #[error("there is no such user")]
    NoAccount,
    #[error("no space is left")]
    NoSpace,
    #[error("nothing listens there")]
    Closed,
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    Other(i32),
}

impl FileProblem {
    fn of(why: Why, errno: u16) -> Self {
        use rustix::io::Errno;
        let errno = i32::from(errno);
        match (why, Errno::from_raw_os_error(errno)) {
            (Why::IsDirectory, _) => Self::IsDirectory,
            (Why::NotDirectory, _) => Self::NotDirectory,
            (Why::Special, _) => Self::Special,
            (Why::NoAccount, _) => Self::NoAccount,
            (_, Errno::NOENT) => Self::Missing,
            (_, Errno::NOTDIR) => Self::NotDirectory,
            (_, Errno::EXIST) => Self::Exists,
            (_, Errno::NOSPC | Errno::DQUOT) => Self::NoSpace,
            (_, Errno::CONNREFUSED) => Self::Closed,
            _ => Self::Other(errno),
        }
    }
}

impl Inside {
    /// `by` is who asks, for the record.
    pub(super) fn new(mail: Mailbox, by: String) -> Self {
        Self { mail, by }
    }

    /// The same way, for somebody else.
    pub fn as_of(&self, by: impl Into<String>) -> Self {
        Self { mail: self.mail.clone(), by: by.into() }
    }

    fn put(&self, errand: Errand) -> Result<(), InsideError> {
        self.mail.put(Letter::Errand(Box::new(errand))).map_err(|_| InsideError::Gone)
    }

    /// Who that is inside.
    pub async fn account(&self, name: &str) -> Result<Account, InsideError> {
        // None that an account can have: the guest is not asked.
        if name.is_empty() || name.len() > LONGEST_NAME || name.contains(['\0', '\n', ':', '/']) {
            return Err(InsideError::File { kind: FileProblem::NoAccount });
        }
        let accounts = || self.mail.known.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(account) = accounts().get(name) {
            return Ok(account.clone());
        }
        let work = Work::Account { name: name.as_bytes().to_vec() };
        let account = match self.ask(work).await? {
            Said::Account(account) => Account::read(account).ok_or(InsideError::Nonsense)?,
            _ => return Err(InsideError::Nonsense),
        };
        let mut known = accounts();
        if known.len() >= ACCOUNTS {
            known.clear();
        }
        known.insert(name.to_owned(), account.clone());
        Ok(account)
    }

    /// What the file system at a path can hold, and what of it is free, in bytes.
    pub async fn space(&self, path: &std::path::Path) -> Result<(u64, u64), InsideError> {
        match self.ask(Work::Space { path: task::bytes(path) }).await? {
            Said::Space { total, free } => Ok((total, free.min(total))),
            _ => Err(InsideError::Nonsense),
        }
    }

    /// Ports that something inside listens at; `true`: at any address, not only at the loopback's.
    pub async fn ports(&self) -> Result<Vec<(u16, bool)>, InsideError> {
        let mut found = Vec::new();
        let mut task = self.begin(self.plain(Work::Ports)).await?;
        while let Said::Port { port, everywhere } = task.said().await? {
            if found.len() > usize::from(u16::MAX) * 2 {
                return Err(InsideError::Nonsense);
            }
            found.push((port, everywhere));
        }
        Ok(found)
    }

    /// Work that leaves nothing behind, and is therefore not on record.
    fn plain(&self, work: Work) -> TaskAsked {
        TaskAsked { work, owner: None, idle: false, record: None, by: self.by.clone() }
    }

    /// The one answer to a question that has one.
    async fn ask(&self, work: Work) -> Result<Said, InsideError> {
        self.begin(self.plain(work)).await?.said().await
    }
}

impl Account {
    fn read(account: wire::Account) -> Option<Self> {
        let wire::Account { name, uid, gid, groups, home, shell } = account;
        let path = |bytes| PathBuf::from(std::ffi::OsString::from_vec(bytes));
        let (home, shell) = (path(home), path(shell));
        let sound = home.is_absolute() && !home.as_os_str().as_encoded_bytes().contains(&0);
        let name = String::from_utf8(name).ok()?;
        sound.then_some(Self { name, uid, gid, groups, home, shell })
    }
}
