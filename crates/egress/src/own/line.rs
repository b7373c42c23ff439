//! A WebSocket between a client and whoever understands it: whole texts go both ways, and those who answer need not
//! be asynchronous. A client that does not read is given up before it fills our memory; one that says too much
//! waits.

use crate::http::flow::Flow;
use futures_util::{SinkExt, StreamExt};
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// The longest message of a client.
const LONGEST: usize = 16 << 20;
/// What a client has not read.
const MOST_UNREAD: usize = 256 << 20;
/// Messages of a client that nobody has taken yet.
const AHEAD: usize = 16;

/// The end that the WebSocket is at.
pub struct Near {
    heard: Sender<String>,
    said: UnboundedReceiver<String>,
    unread: Arc<AtomicUsize>,
}

/// Where the client is heard.
pub struct Ear(Receiver<String>);

/// Where it is spoken to. Dropping it says goodbye.
pub struct Mouth {
    said: UnboundedSender<String>,
    unread: Arc<AtomicUsize>,
}

pub fn line() -> (Near, Ear, Mouth) {
    let ((heard, ear), (mouth, said)) = (channel(AHEAD), unbounded_channel());
    let unread = Arc::new(AtomicUsize::new(0));
    (Near { heard, said, unread: unread.clone() }, Ear(ear), Mouth { said: mouth, unread })
}

impl Ear {
    /// Waits for the next text; nothing once the client is gone. Not for asynchronous code.
    pub fn hear(&mut self) -> Option<String> {
        self.0.blocking_recv()
    }
}

impl Mouth {
    /// False when the client is gone, or does not read.
    pub fn say(&self, text: String) -> bool {
        let length = text.len();
        self.unread.fetch_add(length, Relaxed) <= MOST_UNREAD && self.said.send(text).is_ok()
    }
}

/// What a client that asks for a WebSocket is to be shown in return.
pub(super) fn key(head: &Parts) -> Option<String> {
    let wanted = crate::http::hop::upgrade(&head.headers)?;
    if !wanted.as_bytes().eq_ignore_ascii_case(b"websocket") {
        return None;
    }
    Some(derive_accept_key(head.headers.get(SEC_WEBSOCKET_KEY)?.as_bytes()))
}

pub(super) fn accept(key: &str) -> Response<Flow> {
    let mut response = Response::new(Flow::whole(bytes::Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(key) = HeaderValue::from_str(key) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, key);
    }
    response
}

/// Until one of the two is gone.
pub(super) async fn carry(client: OnUpgrade, near: Near) {
    let Near { heard, mut said, unread } = near;
    let Ok(client) = client.await else { return };
    let config = WebSocketConfig::default().max_message_size(Some(LONGEST)).max_frame_size(Some(LONGEST));
    let socket = WebSocketStream::from_raw_socket(TokioIo::new(client), Role::Server, Some(config)).await;
    let (mut to, mut from) = socket.split();
    let hear = async {
        while let Some(Ok(message)) = from.next().await {
            let text = match message {
                Message::Text(text) => text.to_string(),
                // Some clients send texts as bytes.
                Message::Binary(bytes) => match String::from_utf8(bytes.into()) {
                    Ok(text) => text,
                    Err(_) => return,
                },
                Message::Close(_) => return,
                _ => continue,
            };
            if heard.send(text).await.is_err() {
                return;
            }
        }
    };
    let say = async {
        while let Some(text) = said.recv().await {
            let length = text.len();
            if to.send(Message::text(text)).await.is_err() {
                return;
            }
            unread.fetch_sub(length, Relaxed);
        }
        let _ = to.close().await;
    };
    tokio::select! {
        () = hear => {}
        () = say => {}
    }
}
