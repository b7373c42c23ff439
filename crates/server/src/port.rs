//! A way to a port inside, as a socket: for what speaks HTTP over sockets.

use crate::sandbox::{PortError, Ports};
use bytes::BytesMut;
use cofferdam_engine::House;
use cofferdam_engine::inside::PortStream;
use cofferdam_model::SessionId;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::runtime::Handle;

/// Read at once.
const PIECE: usize = 64 << 10;

impl Ports for House {
    fn connect(&self, session: &SessionId, port: u16) -> Result<OwnedFd, PortError> {
        let inside = self.inside(session, "proxy").ok_or(PortError::Closed)?;
        let runtime = Handle::current();
        let stream = runtime.block_on(inside.connect(port)).map_err(|_| PortError::Closed)?;
        let (ours, theirs) = StdStream::pair().map_err(|_| PortError::Closed)?;
        ours.set_nonblocking(true).map_err(|_| PortError::Closed)?;
        runtime.spawn(async move {
            if let Ok(ours) = UnixStream::from_std(ours) {
                pass(ours, stream).await;
            }
        });
        Ok(theirs.into())
    }
}

/// Both directions, until the inside has no more to say or nobody is there to hear it.
async fn pass(ours: UnixStream, mut inside: PortStream) {
    let sender = inside.sender();
    let (mut from, mut to) = ours.into_split();
    let sending = async {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(PIECE);
            match from.read_buf(&mut buffer).await {
                Ok(count) if count > 0 => {
                    if sender.send(buffer.split().freeze()).await.is_err() {
                        return;
                    }
                }
                _ => break,
            }
        }
        let _ = sender.finish().await;
    };
    let receiving = async {
        while let Ok(Some(bytes)) = inside.receive().await {
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::pin!(sending, receiving);
    tokio::select! {
        () = &mut receiving => {}
        () = &mut sending => receiving.await,
    }
}
