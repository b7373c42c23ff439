//! Work of the guest's own, from the side that asked for it: records, then bytes.

use super::{FileProblem, Inside, InsideError};
use crate::live::Mailbox;
use crate::live::errand::{Errand, Key, TaskAsked};
use crate::live::mail::Letter;
use crate::relay::{Feed, Heard, Hub};
use bytes::{Bytes, BytesMut};
use cofferdam_guest::wire::{RECORD_MAX, Said, Work};
use cofferdam_model::{Body, Exit};
use cofferdam_runtime_process::DOOR_PORTS;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

pub(super) fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

impl Inside {
    pub(super) async fn begin(&self, asked: TaskAsked) -> Result<Task, InsideError> {
        let hub = Arc::new(Hub::default());
        let heard = hub.attach();
        let (to, began) = oneshot::channel();
        self.put(Errand::Task { asked, hub, to })?;
        let key = began.await.map_err(|_| InsideError::Gone)??;
        Ok(Task { mail: self.mail.clone(), key, heard, held: BytesMut::new(), over: false })
    }

    /// A connection to a port on the loopback inside. To who comes from outside, the session's own way out is closed:
    /// it would spend what only the inside may.
    pub async fn connect(&self, port: u16) -> Result<PortStream, InsideError> {
        if DOOR_PORTS.contains(&port) {
            return Err(InsideError::File { kind: FileProblem::Closed });
        }
        let mut task = self.begin(self.plain(Work::Connect { port })).await?;
        match task.said().await? {
            Said::Done => Ok(PortStream { task }),
            _ => Err(InsideError::Nonsense),
        }
    }
}

/// Dropped, it ends.
pub(super) struct Task {
    mail: Mailbox,
    key: Key,
    heard: UnboundedReceiver<Heard>,
    /// Came, and was not asked for yet: less than a record, or the first of the bytes.
    held: BytesMut,
    over: bool,
}

impl Task {
    /// The next record. A failure is an error here.
    pub(super) async fn said(&mut self) -> Result<Said, InsideError> {
        loop {
            match Said::read(&self.held) {
                Ok(Some((said, size))) => {
                    let _ = self.held.split_to(size);
                    return match said {
                        Said::Failed { why, errno } => {
                            Err(InsideError::File { kind: FileProblem::of(why, errno) })
                        }
                        said => Ok(said),
                    };
                }
                Ok(None) if self.held.len() <= RECORD_MAX + 4 => {}
                _ => return Err(InsideError::Nonsense),
            }
            match self.heard().await? {
                Some(bytes) => self.held.extend_from_slice(&bytes),
                None => return Err(InsideError::Nonsense),
            }
        }
    }

    /// Bytes as they come; nothing at their end. An end that is none is an error.
    pub(super) async fn bytes(&mut self) -> Result<Option<Bytes>, InsideError> {
        if !self.held.is_empty() {
            return Ok(Some(self.held.split().freeze()));
        }
        self.heard().await
    }

    async fn heard(&mut self) -> Result<Option<Bytes>, InsideError> {
        if self.over {
            return Ok(None);
        }
        loop {
            match self.heard.recv().await {
                Some(Heard::Started { .. }) => {}
                // A copy: what is let go of here is what the guest may send again.
                Some(Heard::Output { piece, .. }) => return Ok(Some(piece.bytes().clone())),
                Some(Heard::Ended(end)) => {
                    self.over = true;
                    return match &end.exit {
                        Ok(Exit::Code(0)) => Ok(None),
                        // It has said why, or will be taken not to have said anything.
                        Ok(Exit::Code(_)) => Ok(None),
                        _ => Err(InsideError::Gone),
                    };
                }
                None => return Err(InsideError::Gone),
            }
        }
    }

    fn put(&self, errand: Errand) -> Result<(), InsideError> {
        self.mail.put(Letter::Errand(Box::new(errand))).map_err(|_| InsideError::Gone)
    }

    /// Waits until the guest has room for it.
    pub(super) async fn feed(&self, bytes: Bytes) -> Result<(), InsideError> {
        let (done, gone) = oneshot::channel();
        self.put(Errand::Feed { key: self.key, feed: Feed { bytes, done } })?;
        gone.await.map_err(|_| InsideError::Gone)
    }

    pub(super) async fn end_feed(&self, record: Option<Body>) -> Result<(), InsideError> {
        let (done, gone) = oneshot::channel();
        self.put(Errand::EndFeed { key: self.key, record, done })?;
        gone.await.map_err(|_| InsideError::Gone)
    }

    pub(super) fn key(&self) -> Key {
        self.key
    }

    pub(super) fn mail(&self) -> &Mailbox {
        &self.mail
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if !self.over {
            let _ = self.put(Errand::Kill { key: self.key });
        }
    }
}

/// A connection to a port inside. Bytes go in and come out; dropped, it is closed.
pub struct PortStream {
    task: Task,
}

impl PortStream {
    /// Nothing at the end.
    pub async fn receive(&mut self) -> Result<Option<Bytes>, InsideError> {
        self.task.bytes().await
    }

    /// For whoever sends while another receives.
    pub fn sender(&self) -> PortSender {
        PortSender { mail: self.task.mail().clone(), key: self.task.key() }
    }
}

/// The other direction of a connection.
pub struct PortSender {
    mail: Mailbox,
    key: Key,
}

impl PortSender {
    fn put(&self, errand: Errand) -> Result<(), InsideError> {
        self.mail.put(Letter::Errand(Box::new(errand))).map_err(|_| InsideError::Gone)
    }

    /// Waits until there is room for it.
    pub async fn send(&self, bytes: Bytes) -> Result<(), InsideError> {
        let (done, gone) = oneshot::channel();
        self.put(Errand::Feed { key: self.key, feed: Feed { bytes, done } })?;
        gone.await.map_err(|_| InsideError::Gone)
    }

    /// No more will be sent.
    pub async fn finish(&self) -> Result<(), InsideError> {
        let (done, gone) = oneshot::channel();
        self.put(Errand::EndFeed { key: self.key, record: None, done })?;
        gone.await.map_err(|_| InsideError::Gone)
    }
}
