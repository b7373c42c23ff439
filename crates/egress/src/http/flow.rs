//! A body on its way, in either direction: counted, filtered where something must be found in it, and stopped
//! at the next poll when its exchange is cut. Nothing is collected; a slow reader slows the writer.

use super::body::Begun;
use super::mended::Mending;
use super::tapped::Played;
use crate::exchange::{Exchange, Side};
use crate::rescue::Failure;
use crate::scrub::Seams;
use crate::upstream::pool::{Key, Pool};
use bytes::Bytes;
use cofferdam_model::Ending;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use thiserror::Error;
use tokio::time::Sleep;

#[derive(Debug, Error)]
pub(crate) enum FlowError {
    #[error("the exchange was cut ({0:?})")]
    Cut(Ending),
    #[error("the body broke off: {0}")]
    Source(#[from] hyper::Error),
    #[error("{0}")]
    Refused(Box<Failure>),
}

/// What looks at, and may change, the bytes of a body. It may hold some back until it knows more.
pub(crate) trait Filter: Send {
    fn pass(&mut self, chunk: Bytes) -> Result<Bytes, Box<Failure>>;
    /// What may be let go because no more has come for a while, though it is not the end.
    fn idle(&mut self) -> Result<Bytes, Box<Failure>> {
        Ok(Bytes::new())
    }
    /// Whether there is something that [`Self::idle`] would let go.
    fn is_waiting(&self) -> bool {
        false
    }
    /// What may go on now although nothing has come.
    fn poll_more(&mut self, _: &mut Context<'_>) -> Poll<Result<Bytes, Box<Failure>>> {
        Poll::Pending
    }
    /// What was held back, at the end.
    fn finish(&mut self) -> Result<Bytes, Box<Failure>>;
    fn trailers(&mut self, _: &mut HeaderMap) -> Result<(), Box<Failure>> {
        Ok(())
    }
    /// What looks over messages that follow one another, where that is needed.
    fn seams(&self) -> Option<Seams<bool>> {
        None
    }
    /// How many values it has replaced since it was last asked.
    fn replaced(&mut self) -> u64 {
        0
    }
    /// What it has noticed and let pass, since it was last asked.
    fn noticed(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// Long for a sender that is in the midst of something, short for one that waits for an answer.
pub(super) const IDLE: Duration = Duration::from_millis(20);

enum Source {
    Whole(Option<Bytes>),
    Live(Incoming),
    /// An answer from a recording.
    Played(Played),
}

/// Where a connection goes back to once its answer was read.
pub(crate) struct Home {
    pub(crate) pool: Arc<Pool>,
    pub(crate) key: Key,
    pub(crate) sender: http1::SendRequest<Flow>,
}

/// Where a request's body is left that was refused midway, so that its client can be heard out.
pub(crate) type Rest = Arc<Mutex<Option<Incoming>>>;

pub(crate) struct Flow {
    source: Source,
    side: Side,
    exchange: Option<Arc<Exchange>>,
    filter: Option<Box<dyn Filter>>,
    home: Option<Box<Home>>,
    rest: Option<Rest>,
    trailers: Option<HeaderMap>,
    /// What was looked through before the rest was asked for, and what came after all of it.
    ahead: Option<Bytes>,
    after: Option<HeaderMap>,
    /// Whether the exchange's watcher sees what passes here: not where credentials are in it.
    is_seen: bool,
    /// Runs while a filter waits for more.
    pause: Option<Pin<Box<Sleep>>>,
    done: bool,
}

impl Flow {
    /// An answer of our own.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self::new(Source::Whole(Some(bytes).filter(|b| !b.is_empty())), Side::Down)
    }

    /// A request's body that was collected; it is counted like one that streams. Whoever watches has seen it as it
    /// was before credentials were put in.
    pub(crate) fn collected(bytes: Bytes, exchange: Arc<Exchange>) -> Self {
        let source = Source::Whole(Some(bytes).filter(|b| !b.is_empty()));
        let mut flow = Self::new(source, Side::Up);
        flow.exchange = Some(exchange);
        flow.is_seen = false;
        flow.settled_if_empty()
    }

    /// An answer that comes from no upstream.
    pub(super) fn played(played: Played, exchange: Arc<Exchange>, mending: Option<Mending>) -> Self {
        let mut flow = Self::new(Source::Played(played), Side::Down);
        flow.exchange = Some(exchange);
        flow.mended_by(mending).settled_if_empty()
    }

    /// The same, as whoever understands it lets it go on.
    pub(super) fn mended_by(mut self, mending: Option<Mending>) -> Self {
        if let Some(mending) = mending {
            // It shows the watcher what comes, and this what goes on.
            self.is_seen = false;
            self.filter = Some(Box::new(mending));
        }
        self
    }

    pub(crate) fn live(
        body: Incoming,
        side: Side,
        exchange: Arc<Exchange>,
        filter: Option<Box<dyn Filter>>,
        home: Option<Home>,
    ) -> Self {
        let mut flow = Self::new(Source::Live(body), side);
        flow.exchange = Some(exchange);
        flow.filter = filter;
        flow.home = home.map(Box::new);
        flow.settled_if_empty()
    }

    /// A request's body whose beginning has passed `filter` already.
    pub(crate) fn begun(begun: Begun, exchange: Arc<Exchange>, filter: Option<Box<dyn Filter>>) -> Self {
        let mut flow = Self::new(Source::Live(begun.rest), Side::Up);
        flow.exchange = Some(exchange);
        flow.filter = filter;
        flow.ahead = Some(begun.first).filter(|first| !first.is_empty());
        flow.after = begun.trailers;
        flow
    }

    fn new(source: Source, side: Side) -> Self {
        Self {
            source,
            side,
            exchange: None,
            filter: None,
            home: None,
            rest: None,
            trailers: None,
            ahead: None,
            after: None,
            is_seen: true,
            pause: None,
            done: false,
        }
    }

    /// The same, leaving what it did not read of a body that is refused.
    pub(crate) fn leaving(mut self, rest: Rest) -> Self {
        self.rest = Some(rest);
        self
    }

    /// The body it was made of, if none of it was read.
    pub(crate) fn reclaim(mut self) -> Option<Incoming> {
        self.done = true;
        match std::mem::replace(&mut self.source, Source::Whole(None)) {
            Source::Live(body) => Some(body),
            Source::Whole(_) | Source::Played(_) => None,
        }
    }

    /// An empty body is never polled, so its end is now.
    fn settled_if_empty(mut self) -> Self {
        if self.source_ended() {
            self.settle();
        }
        self
    }

    fn source_ended(&self) -> bool {
        if self.ahead.is_some() || self.after.is_some() {
            return false;
        }
        match &self.source {
            Source::Whole(bytes) => bytes.is_none(),
            Source::Live(body) => body.is_end_stream(),
            Source::Played(played) => played.is_over(),
        }
    }

    /// It was read to its end.
    fn settle(&mut self) {
        if std::mem::replace(&mut self.done, true) {
            return;
        }
        let Some(exchange) = &self.exchange else { return };
        match self.side {
            Side::Up => {
                exchange.uploaded();
                if self.is_seen {
                    // Too late to change anything: only what is held can be stopped.
                    exchange.watch(|watcher| drop(watcher.sent_all()));
                }
            }
            Side::Down => exchange.end(Ending::Complete),
        }
        if let Some(home) = self.home.take()
            && exchange.is_uploaded()
            && !exchange.is_cut()
        {
            home.pool.keep(home.key, home.sender);
        }
    }

    fn fail(&mut self, error: FlowError) -> FlowError {
        self.done = true;
        if let Some(exchange) = &self.exchange {
            match &error {
                FlowError::Cut(_) => {}
                FlowError::Refused(failure) => {
                    let source = std::mem::replace(&mut self.source, Source::Whole(None));
                    if let (Some(rest), Source::Live(body)) = (&self.rest, source) {
                        *rest.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
                    }
                    exchange.stop(failure);
                }
                FlowError::Source(_) if self.side == Side::Up => exchange.end(Ending::ClientGone),
                FlowError::Source(source) => {
                    exchange.explain(source.to_string());
                    exchange.end(Ending::UpstreamFailed);
                }
            }
        }
        error
    }

    /// What of this chunk may go on.
    fn filtered(&mut self, chunk: Bytes) -> Result<Bytes, FlowError> {
        let passed = match &mut self.filter {
            Some(filter) => filter.pass(chunk).map_err(FlowError::Refused)?,
            None => chunk,
        };
        self.count(&passed)?;
        Ok(passed)
    }

    fn count(&mut self, bytes: &Bytes) -> Result<(), FlowError> {
        let Some(exchange) = &self.exchange else { return Ok(()) };
        exchange.count(self.side, bytes.len());
        if let Some(filter) = &mut self.filter {
            exchange.count_scrubbed(filter.replaced());
            filter.noticed().into_iter().for_each(|text| exchange.flag(text));
        }
        if exchange.is_cut() {
            return Err(FlowError::Cut(exchange.ending().unwrap_or(Ending::Refused)));
        }
        if self.is_seen && !bytes.is_empty() {
            exchange.watch(|watcher| match self.side {
                Side::Up => watcher.sent(bytes),
                Side::Down => watcher.received(bytes),
            });
        }
        Ok(())
    }

    /// The end of the data: what the filter held back, then the trailers.
    fn finish(&mut self, trailers: Option<HeaderMap>) -> Result<Option<Frame<Bytes>>, FlowError> {
        let (mut last, mut trailers) = (Bytes::new(), trailers);
        if let Some(filter) = &mut self.filter {
            last = filter.finish().map_err(FlowError::Refused)?;
            if let Some(trailers) = &mut trailers {
                filter.trailers(trailers).map_err(FlowError::Refused)?;
            }
            self.count(&last)?;
        }
        self.settle();
        if last.is_empty() {
            return Ok(trailers.map(Frame::trailers));
        }
        self.trailers = trailers;
        Ok(Some(Frame::data(last)))
    }

    /// Lets go what is held back when nothing follows it: the other side may be waiting for just that.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame<Bytes>, FlowError>> {
        let Some(filter) = self.filter.as_mut().filter(|filter| filter.is_waiting()) else {
            return Poll::Pending;
        };
        let pause = self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(IDLE)));
        ready!(pause.as_mut().poll(cx));
        self.pause = None;
        let bytes = filter.idle().map_err(FlowError::Refused)?;
        self.count(&bytes)?;
        Poll::Ready(Ok(Frame::data(bytes)))
    }

    /// What a filter lets go of its own accord.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, FlowError>> {
        let Some(filter) = &mut self.filter else { return Poll::Pending };
        let more = ready!(filter.poll_more(cx)).map_err(FlowError::Refused);
        Poll::Ready(more.and_then(|bytes| self.count(&bytes).map(|()| bytes)))
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.source {
            Source::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Source::Live(body) => Pin::new(body).poll_frame(cx),
            Source::Played(played) => played.poll(cx).map(|part| part.map(|part| Ok(Frame::data(part)))),
        }
    }
}

impl Body for Flow {
    type Data = Bytes;
    type Error = FlowError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, FlowError>>> {
        let this = &mut *self;
        if let Some(trailers) = this.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        if this.done {
            return Poll::Ready(None);
        }
        loop {
            if let Some(exchange) = &this.exchange
                && exchange.poll_cut(this.side, cx).is_ready()
            {
                let why = exchange.ending().unwrap_or(Ending::Refused);
                return Poll::Ready(Some(Err(this.fail(FlowError::Cut(why)))));
            }
            if let Some(ahead) = this.ahead.take() {
                let counted = this.count(&ahead).map_err(|error| this.fail(error));
                return Poll::Ready(Some(counted.map(|()| Frame::data(ahead))));
            }
            if let Some(trailers) = this.after.take() {
                let last = this.finish(Some(trailers)).map_err(|error| this.fail(error));
                return Poll::Ready(last.transpose());
            }
            let polled = this.poll_source(cx);
            if polled.is_pending() {
                if let Poll::Ready(more) = this.poll_more(cx) {
                    match more {
                        Ok(bytes) if bytes.is_empty() => continue,
                        Ok(bytes) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                        Err(error) => return Poll::Ready(Some(Err(this.fail(error)))),
                    }
                }
                return this.poll_idle(cx).map(|frame| Some(frame.map_err(|e| this.fail(e))));
            }
            this.pause = None;
            let frame = match ready!(polled) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(this.fail(error.into())))),
                None => return Poll::Ready(this.finish(None).map_err(|e| this.fail(e)).transpose()),
            };
            let passed = match frame.into_data() {
                Ok(chunk) => this.filtered(chunk).map(|chunk| Some(Frame::data(chunk))),
                Err(frame) => this.finish(frame.into_trailers().ok()),
            };
            match passed {
                // Held back as a whole: ask for more.
                Ok(Some(frame)) if frame.data_ref().is_some_and(Bytes::is_empty) => {}
                Ok(frame) => return Poll::Ready(frame.map(Ok)),
                Err(error) => return Poll::Ready(Some(Err(this.fail(error)))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.trailers.is_none() && (self.done || (self.filter.is_none() && self.source_ended()))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            _ if self.done => SizeHint::with_exact(0),
            _ if self.filter.is_some() || self.ahead.is_some() => SizeHint::default(),
            Source::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Source::Live(body) => body.size_hint(),
            Source::Played(played) => {
                played.left().map_or_else(SizeHint::default, |left| SizeHint::with_exact(left as u64))
            }
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        // With a known length the reader stops at its last byte and does not ask for the end.
        if !self.done && self.source_ended() {
            self.settle();
        }
    }
}
