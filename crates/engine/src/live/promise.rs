//! Whom it is told how something came out that another thread does. Nobody waits for it here, and whatever becomes of that
//! thread, somebody is told.

use super::supervisor::Supervisor;
use crate::control::{Reply, send};
use cofferdam_model::SessionId;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// What became of an order for a session.
pub(super) type Ordered = Result<SessionId, Reply>;

enum Awaits {
    /// At a connection. The supervisor counts the order as one that is carried out until they were told.
    There(UnixStream, Arc<Supervisor>),
    /// In this process.
    Here(SyncSender<Ordered>),
}

/// Somebody waits to hear whether a session stands.
pub(super) struct Promise(Option<Awaits>);

impl Promise {
    pub(super) fn there(asker: UnixStream, supervisor: Arc<Supervisor>) -> Self {
        Self(Some(Awaits::There(asker, supervisor)))
    }

    pub(super) fn here(to: SyncSender<Ordered>) -> Self {
        Self(Some(Awaits::Here(to)))
    }

    /// Tells them. Whoever does not wait any more has no use for it.
    pub(super) fn keep(&mut self, result: Ordered) {
        match self.0.take() {
            Some(Awaits::There(asker, supervisor)) => {
                let reply = result.map_or_else(|reply| reply, |session| Reply::Created { session });
                // Whoever hears of it may order the next at once, beside which this one does not count twice.
                supervisor.carried_out();
                let _ = send(&asker, &reply);
            }
            Some(Awaits::Here(to)) => drop(to.send(result)),
            None => {}
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        let what = "it could not be made: its thread has failed, or could not be started";
        self.keep(Err(Reply::Refused(what.into())));
    }
}

/// The connection of somebody who asked a session and is answered by it.
pub(super) struct Caller(Option<UnixStream>);

impl Caller {
    pub(super) fn at(stream: UnixStream) -> Self {
        Self(Some(stream))
    }

    pub(super) fn answer(mut self, reply: &Reply) {
        self.0.take().iter().for_each(|stream| _ = send(stream, reply));
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let gone = Reply::Refused(super::mail::Gone.to_string());
        self.0.take().iter().for_each(|stream| _ = send(stream, &gone));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn whoever_waits_is_told_once_also_where_nobody_did_what_was_asked() {
        let session = SessionId::new(1, 2);
        let (to, told) = sync_channel(2);
        Promise::here(to).keep(Ok(session.clone()));
        assert_eq!(told.try_iter().map(Result::ok).collect::<Vec<_>>(), [Some(session)]);
        let (to, told) = sync_channel(2);
        drop(Promise::here(to));
        assert!(matches!(told.try_iter().collect::<Vec<_>>().as_slice(), [Err(Reply::Refused(_))]));
    }

    #[test]
    fn a_caller_whose_letter_nobody_read_hears_that() {
        let heard = |with: &dyn Fn(Caller)| {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            with(Caller::at(theirs));
            let mut text = String::new();
            ours.read_to_string(&mut text).unwrap();
            text
        };
        assert_eq!(heard(&|caller| caller.answer(&Reply::Done { cut: 3 })), "{\"done\":{\"cut\":3}}\n");
        assert!(heard(&|caller| drop(caller)).contains("the session is ending"));
    }
}
