//! A WebSocket between client and upstream, message by message: frames are masked with a key of the
//! client's choice, so only whole messages can be looked into. Pings are answered on each side.

use super::flow::{Filter, IDLE};
use super::upgrade::{Broken, Filters};
use crate::exchange::{Exchange, Side};
use crate::rescue::Failure;
use crate::scrub::{Message as Piece, Seams};
use bytes::Bytes;
use cofferdam_model::Ending;
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

/// The longest message that is put together.
const MAX_MESSAGE: usize = 16 << 20;
const BUFFER: usize = 16 << 10;

pub(crate) async fn relay<A, B>(client: A, upstream: B, exchange: Arc<Exchange>, filters: Filters)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER)
        .write_buffer_size(0)
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE));
    let client = WebSocketStream::from_raw_socket(client, Role::Server, Some(config)).await;
    let upstream = WebSocketStream::from_raw_socket(upstream, Role::Client, Some(config)).await;
    let (mut to_client, mut from_client) = client.split();
    let (mut to_upstream, mut from_upstream) = upstream.split();
    let up = one_way(&mut from_client, &mut to_upstream, &exchange, Side::Up, filters.up);
    let down = one_way(&mut from_upstream, &mut to_client, &exchange, Side::Down, filters.down);
    match tokio::try_join!(up, down) {
        Ok(_) => exchange.end(Ending::Complete),
        Err(Broken::Refused(failure)) => exchange.stop(&failure),
        Err(Broken::Cut) => {}
        Err(Broken::Io(Side::Up)) => exchange.end(Ending::ClientGone),
        Err(Broken::Io(Side::Down)) => exchange.end(Ending::UpstreamFailed),
    }
}

async fn one_way<R, W>(
    from: &mut R,
    to: &mut W,
    exchange: &Exchange,
    side: Side,
    mut filter: Option<Box<dyn Filter>>,
) -> Result<(), Broken>
where
    R: Stream<Item = Result<Message, Error>> + Unpin,
    W: Sink<Message, Error = Error> + Unpin,
{
    let mut seams = filter.as_ref().and_then(|filter| filter.seams());
    // After a farewell, whatever fails is how this side hangs up: some do it without a word more.
    let mut said_farewell = false;
    loop {
        let waits = seams.as_ref().is_some_and(Seams::is_waiting);
        let message = tokio::select! {
            biased;
            () = exchange.until_cut(side) => return Err(Broken::Cut),
            message = from.next() => message,
            // Whoever reads may be waiting for just what is held back.
            () = tokio::time::sleep(IDLE), if waits => {
                let ready = seams.as_mut().map(Seams::idle).unwrap_or_default();
                send(to, exchange, side, texts(ready)?, said_farewell).await?;
                continue;
            }
        };
        let message = match message {
            None | Some(Err(Error::ConnectionClosed)) => {
                let rest = seams.as_mut().map(Seams::finish).unwrap_or_default();
                return send(to, exchange, side, texts(rest)?, true).await;
            }
            Some(Err(_)) if said_farewell => return Ok(()),
            Some(Err(_)) => return Err(Broken::Io(side)),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
            Some(Ok(message)) => message,
        };
        said_farewell |= message.is_close();
        exchange.count(side, message.len());
        let message = look(message, &mut filter, exchange).map_err(Broken::Refused)?;
        let ready = match &mut seams {
            Some(seams) => joined(seams, message, exchange)?,
            None => vec![message],
        };
        send(to, exchange, side, ready, said_farewell).await?;
    }
}

async fn send<W>(
    to: &mut W,
    exchange: &Exchange,
    side: Side,
    messages: Vec<Message>,
    said_farewell: bool,
) -> Result<(), Broken>
where
    W: Sink<Message, Error = Error> + Unpin,
{
    for message in messages {
        hear(exchange, side, &message)?;
        let sent = tokio::select! {
            biased;
            () = exchange.until_cut(side) => return Err(Broken::Cut),
            sent = to.send(message) => sent,
        };
        match sent {
            Ok(()) | Err(Error::ConnectionClosed) => {}
            // The other side's farewell was answered already.
            Err(_) if said_farewell => {}
            Err(_) => return Err(Broken::Io(side)),
        }
    }
    Ok(())
}

/// Shows a message to whoever follows the exchange, who may want it stopped.
fn hear(exchange: &Exchange, side: Side, message: &Message) -> Result<(), Broken> {
    let bytes: &[u8] = match message {
        Message::Text(text) => text.as_bytes(),
        Message::Binary(bytes) => bytes,
        _ => return Ok(()),
    };
    let heard = exchange.watch(|watcher| watcher.heard(side == Side::Up, bytes));
    heard.unwrap_or(Ok(())).map_err(|stop| Broken::Refused(Box::new(stop.into())))
}

/// What may go on of this message and those before it: a value may be spread over several.
fn joined(seams: &mut Seams<bool>, message: Message, exchange: &Exchange) -> Result<Vec<Message>, Broken> {
    let before = seams.covered();
    let (is_text, bytes) = match message {
        Message::Text(text) => (true, Bytes::from(text)),
        Message::Binary(bytes) => (false, bytes),
        // A farewell comes after all that was said.
        other => {
            let mut rest = texts(seams.finish())?;
            rest.push(other);
            return Ok(rest);
        }
    };
    let whole = 0..bytes.len();
    let ready = seams.push(Piece { kind: is_text, bytes: bytes.into() }, whole);
    exchange.count_scrubbed(seams.covered() - before);
    texts(ready)
}

fn texts(pieces: Vec<Piece<bool>>) -> Result<Vec<Message>, Broken> {
    let message = |piece: Piece<bool>| match piece.kind {
        true => {
            let text = Utf8Bytes::try_from(Bytes::from(piece.bytes));
            text.map(Message::Text).map_err(|_| Broken::Refused(Box::new(Failure::NotText)))
        }
        false => Ok(Message::Binary(piece.bytes.into())),
    };
    pieces.into_iter().map(message).collect()
}

fn look(
    message: Message,
    filter: &mut Option<Box<dyn Filter>>,
    exchange: &Exchange,
) -> Result<Message, Box<Failure>> {
    let Some(filter) = filter else { return Ok(message) };
    let mut through = |bytes: Bytes| -> Result<Bytes, Box<Failure>> {
        let passed = filter.pass(bytes)?;
        let held = filter.finish()?;
        exchange.count_scrubbed(filter.replaced());
        filter.noticed().into_iter().for_each(|text| exchange.flag(text));
        Ok(if held.is_empty() { passed } else { [passed, held].concat().into() })
    };
    match message {
        Message::Text(text) => {
            let bytes = through(Bytes::from(text))?;
            let text = Utf8Bytes::try_from(bytes).map_err(|_| Failure::NotText)?;
            Ok(Message::Text(text))
        }
        Message::Binary(bytes) => Ok(Message::Binary(through(bytes)?)),
        other => Ok(other),
    }
}
