//! The body of a request, as the connection gives it. Whoever answers reads as much of it as there is need for; what is
//! left, mostly the mark that ends it, may still be on its way. The connection could not be used again before it has
//! come, and a client that has sent all of it takes it for granted that it can: so a little that is left is read and
//! dropped. Of one that is large nothing is read that nobody wants; its connection ends, and the answer says so.

use axum::body::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// What is read of a body that nobody reads.
const MOST: u64 = 64 << 10;

/// A body that is read to its end. It keeps `held` until then.
pub(crate) struct Whole<B: Body + Unpin + Send + 'static, H: Send + 'static> {
    rest: Option<(B, H)>,
    patience: Duration,
    left: Left,
}

/// Whether too much was left.
#[derive(Clone, Default)]
pub(crate) struct Left(Arc<AtomicBool>);

impl Left {
    pub(crate) fn is_too_much(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl<B, H> Whole<B, H>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    H: Send + 'static,
{
    pub(crate) fn new(body: B, held: H, patience: Duration) -> (Self, Left) {
        let left = Left::default();
        (Self { rest: Some((body, held)), patience, left: left.clone() }, left)
    }
}

impl<B, H> Body for Whole<B, H>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    H: Send + Unpin + 'static,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some((body, _)) = &mut self.rest else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            self.rest = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.rest.as_ref().is_none_or(|(body, _)| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), |(body, _)| body.size_hint())
    }
}

impl<B: Body + Unpin + Send + 'static, H: Send + 'static> Drop for Whole<B, H> {
    fn drop(&mut self) {
        let Some((mut body, held)) = self.rest.take() else { return };
        if body.is_end_stream() {
            return;
        }
        let runtime = tokio::runtime::Handle::try_current();
        let (Ok(runtime), true) = (runtime, body.size_hint().lower() <= MOST) else {
            return self.left.0.store(true, Ordering::Release);
        };
        let patience = self.patience;
        runtime.spawn(async move {
            let _held = held;
            let reading = async {
                let mut read = 0;
                while let Some(Ok(frame)) = next(&mut body).await {
                    read += frame.data_ref().map_or(0, |data| bytes::Buf::remaining(data) as u64);
                    if read > MOST {
                        return;
                    }
                }
            };
            // Who sends so slowly, or so much, finds the connection closed.
            let _ = tokio::time::timeout(patience, reading).await;
        });
    }
}

async fn next<B: Body + Unpin>(body: &mut B) -> Option<Result<Frame<B::Data>, B::Error>> {
    std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, StreamBody};
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    type Pieces = StreamBody<futures_util::stream::BoxStream<'static, Result<Frame<Bytes>, std::io::Error>>>;

    fn body(pieces: UnboundedReceiver<&'static [u8]>) -> Pieces {
        let all = futures_util::stream::unfold(pieces, |mut pieces| async move {
            let piece = pieces.recv().await?;
            Some((Ok(Frame::data(Bytes::from_static(piece))), pieces))
        });
        StreamBody::new(Box::pin(all))
    }

    #[tokio::test]
    async fn a_little_that_nobody_reads_is_read() {
        let (give, pieces) = unbounded_channel();
        let (held, free) = tokio::sync::oneshot::channel::<()>();
        let (mut whole, left) = Whole::new(body(pieces), held, Duration::from_secs(60));
        give.send(b"first").unwrap();
        let first = whole.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first, &b"first"[..]);
        drop(whole);
        assert!(!left.is_too_much());
        // Taken, although nobody asks for it; and until then what it holds is held.
        give.send(b"second").unwrap();
        tokio::task::yield_now().await;
        assert!(!give.is_closed());
        drop(give);
        assert!(free.await.is_err(), "it is let go at the end");
    }

    #[tokio::test]
    async fn of_much_no_more_is_read_than_anybody_wants() {
        static MUCH: [u8; 48 << 10] = [0; 48 << 10];
        let (give, pieces) = unbounded_channel();
        let (whole, _) = Whole::new(body(pieces), (), Duration::from_secs(60));
        drop(whole);
        for _ in 0..3 {
            let _ = give.send(&MUCH[..]);
        }
        give.closed().await;
        let known = http_body_util::Full::new(Bytes::from(vec![0; 100 << 10]));
        let (whole, left) = Whole::new(known, (), Duration::from_secs(60));
        drop(whole);
        assert!(left.is_too_much(), "its length was known");
    }
}
