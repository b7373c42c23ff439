//! Streams that have left HTTP, and pass-through TLS: bytes go both ways until one side ends, are counted,
//! and stop when the exchange is cut. A WebSocket is taken apart into messages, because its frames are
//! masked and nothing could be found in them otherwise.

use super::flow::{Filter, IDLE};
use crate::exchange::{Exchange, Side};
use crate::rescue::Failure;
use cofferdam_model::Ending;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Large enough for a busy stream; one per direction and open stream.
const BUFFER: usize = 8 << 10;

/// What looks at each direction of a stream.
#[derive(Default)]
pub(crate) struct Filters {
    pub(crate) up: Option<Box<dyn Filter>>,
    pub(crate) down: Option<Box<dyn Filter>>,
}

impl Filters {
    pub(crate) fn any(&self) -> bool {
        self.up.is_some() || self.down.is_some()
    }
}

/// Carries bytes between the client and the upstream until both have ended or it is cut.
pub(crate) async fn relay<A, B>(client: A, upstream: B, exchange: Arc<Exchange>, filters: Filters)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_upstream, mut to_upstream) = tokio::io::split(upstream);
    let up = one_way(&mut from_client, &mut to_upstream, &exchange, Side::Up, filters.up);
    let down = one_way(&mut from_upstream, &mut to_client, &exchange, Side::Down, filters.down);
    // A failure of either direction ends both; a quiet end of one lets the other go on.
    match tokio::try_join!(up, down) {
        Ok(_) => exchange.end(Ending::Complete),
        Err(Broken::Refused(failure)) => exchange.stop(&failure),
        Err(Broken::Cut) => {}
        Err(Broken::Io(Side::Up)) => exchange.end(Ending::ClientGone),
        Err(Broken::Io(Side::Down)) => exchange.end(Ending::UpstreamFailed),
    }
}

pub(crate) enum Broken {
    Cut,
    Refused(Box<Failure>),
    /// This side's reader or the other's writer failed.
    Io(Side),
}

async fn one_way<R, W>(
    from: &mut R,
    to: &mut W,
    exchange: &Exchange,
    side: Side,
    mut filter: Option<Box<dyn Filter>>,
) -> Result<(), Broken>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let failed = |_: io::Error| Broken::Io(side);
    let mut buffer = bytes::BytesMut::with_capacity(BUFFER);
    loop {
        buffer.reserve(BUFFER);
        let waits = filter.as_ref().is_some_and(|filter| filter.is_waiting());
        let n = tokio::select! {
            biased;
            () = exchange.until_cut(side) => return Err(Broken::Cut),
            n = from.read_buf(&mut buffer) => Some(n.map_err(failed)?),
            // The other side may be waiting for just what is held back.
            () = tokio::time::sleep(IDLE), if waits => None,
        };
        let chunk = match (n, &mut filter) {
            (Some(0), Some(filter)) => filter.finish().map_err(Broken::Refused)?,
            (Some(_), Some(filter)) => filter.pass(buffer.split().freeze()).map_err(Broken::Refused)?,
            (None, Some(filter)) => filter.idle().map_err(Broken::Refused)?,
            (_, None) => buffer.split().freeze(),
        };
        exchange.count(side, chunk.len());
        if let Some(filter) = &mut filter {
            exchange.count_scrubbed(filter.replaced());
            filter.noticed().into_iter().for_each(|text| exchange.flag(text));
        }
        tokio::select! {
            biased;
            () = exchange.until_cut(side) => return Err(Broken::Cut),
            done = to.write_all(&chunk) => done.map_err(failed)?,
        }
        if n == Some(0) {
            return to.shutdown().await.map_err(failed);
        }
        to.flush().await.map_err(failed)?;
    }
}
