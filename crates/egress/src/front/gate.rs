//! Stands between a client's bytes and the HTTP/1 server, and lets through only requests whose shape has one
//! reading. It follows bodies just as far as it must to find the next head. What it refuses, it replaces by
//! a request of its own that says why, so that the refusal is answered in its turn and recorded like any other.

use super::framing::{Framing, MAX_HEAD, Malformed, REFUSED, check_head, check_trailer, chunk_size};
use bytes::{Buf, BytesMut};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The longest line of a chunk's size or of a trailer.
const MAX_LINE: usize = 8 << 10;
/// How much is read and dropped after a refusal.
const MAX_DRAIN: usize = 1 << 20;

enum State {
    /// In a head, whose end was not found in so many bytes.
    Head {
        seen: usize,
    },
    /// In a body of known length, or in a chunk of one.
    Data {
        left: u64,
        chunked: bool,
    },
    ChunkSize,
    ChunkEnd,
    Trailers {
        total: usize,
    },
    /// Nothing more is let through; what still comes is read and dropped, up to a bound, so that the client
    /// gets to read its answer.
    Refused {
        drained: usize,
    },
    /// A body was refused in its midst, which only a broken connection can tell.
    Broken,
}

/// Set once the client and the upstream have agreed to leave HTTP: from then on bytes pass as they are.
#[derive(Clone, Default)]
pub(crate) struct Opened(Arc<AtomicBool>);

impl Opened {
    pub(crate) fn open(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

pub(crate) struct Gate<T> {
    inner: T,
    state: State,
    held: BytesMut,
    /// How much of `held` may pass.
    passed: usize,
    opened: Opened,
}

impl<T> Gate<T> {
    pub(crate) fn new(inner: T, opened: Opened) -> Self {
        Self { inner, state: State::Head { seen: 0 }, held: BytesMut::new(), passed: 0, opened }
    }

    /// Judges what is held as far as it goes.
    fn judge(&mut self) {
        let (passed, verdict) = self.state.advance(&self.held[self.passed..]);
        self.passed += passed;
        if let Err(why) = verdict {
            self.refuse(why);
        }
    }

    /// Judges what was read straight into the reader's buffer from `start` on; nearly always all of it stays
    /// there. The rest is held back.
    fn judge_in_place(&mut self, to: &mut ReadBuf<'_>, start: usize) {
        let fresh = &to.filled()[start..];
        let (passed, verdict) = self.state.advance(fresh);
        if passed < fresh.len() {
            self.held.extend_from_slice(&fresh[passed..]);
            to.set_filled(start + passed);
        }
        if let Err(why) = verdict {
            self.refuse(why);
        }
    }

    fn refuse(&mut self, why: Malformed) {
        self.held.truncate(self.passed);
        if !matches!(self.state, State::Head { .. }) {
            self.state = State::Broken;
            return;
        }
        let code = why.code();
        let head = format!("{REFUSED} /{code} HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n");
        self.held.extend_from_slice(head.as_bytes());
        self.passed = self.held.len();
        self.state = State::Refused { drained: 0 };
    }

    fn is_refused(&self) -> bool {
        matches!(self.state, State::Refused { .. } | State::Broken)
    }
}

impl State {
    /// Goes through these bytes and says how many of them may pass, and whether what follows is refused.
    fn advance(&mut self, bytes: &[u8]) -> (usize, Result<(), Malformed>) {
        let mut passed = 0;
        while passed < bytes.len() {
            match self.step(&bytes[passed..]) {
                Ok(0) => break,
                Ok(n) => passed += n,
                Err(why) => return (passed, Err(why)),
            }
        }
        (passed, Ok(()))
    }

    /// One step over the bytes it returns, or none if it needs more.
    fn step(&mut self, rest: &[u8]) -> Result<usize, Malformed> {
        match self {
            State::Head { seen } => {
                let from = seen.saturating_sub(3);
                let Some(end) = memchr::memmem::find(&rest[from..], b"\r\n\r\n") else {
                    return head_may_go_on(rest, seen);
                };
                let head = &rest[..from + end + 4];
                if head.len() > MAX_HEAD {
                    return Err(Malformed::TooLarge);
                }
                *self = match check_head(head)? {
                    Framing::Length(0) => State::Head { seen: 0 },
                    Framing::Length(left) => State::Data { left, chunked: false },
                    Framing::Chunked => State::ChunkSize,
                };
                Ok(head.len())
            }
            State::Data { left, chunked } => {
                let n = (*left).min(rest.len() as u64);
                *left -= n;
                if *left == 0 {
                    *self = if *chunked { State::ChunkEnd } else { State::Head { seen: 0 } };
                }
                Ok(n as usize)
            }
            State::ChunkSize => {
                let Some(line) = line(rest)? else { return Ok(0) };
                *self = match chunk_size(line)? {
                    0 => State::Trailers { total: 0 },
                    left => State::Data { left, chunked: true },
                };
                Ok(line.len())
            }
            State::ChunkEnd => {
                let Some(line) = line(rest)? else { return Ok(0) };
                if line != b"\r\n" {
                    return Err(Malformed::Chunk);
                }
                *self = State::ChunkSize;
                Ok(line.len())
            }
            State::Trailers { total } => {
                let Some(line) = line(rest)? else { return Ok(0) };
                *total += line.len();
                if *total > MAX_HEAD {
                    return Err(Malformed::TooLarge);
                }
                if line == b"\r\n" {
                    *self = State::Head { seen: 0 };
                } else {
                    check_trailer(line)?;
                }
                Ok(line.len())
            }
            State::Refused { .. } | State::Broken => Ok(0),
        }
    }
}

/// A head that is not complete yet: wait for more, or refused for what is there.
fn head_may_go_on(rest: &[u8], seen: &mut usize) -> Result<usize, Malformed> {
    let is_bare = |at: usize| rest[at] == b'\n' && (at == 0 || rest[at - 1] != b'\r');
    if memchr::memchr_iter(b'\n', &rest[*seen..]).any(|at| is_bare(at + *seen)) {
        return Err(Malformed::LineEnd);
    }
    if rest.len() > MAX_HEAD {
        return Err(Malformed::TooLarge);
    }
    *seen = rest.len();
    Ok(0)
}

fn line(rest: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    match memchr::memchr(b'\n', &rest[..rest.len().min(MAX_LINE)]) {
        Some(end) => Ok(Some(&rest[..=end])),
        None if rest.len() >= MAX_LINE => Err(Malformed::TooLarge),
        None => Ok(None),
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Gate<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if this.opened.is_open() && !this.is_refused() {
                this.passed = this.held.len();
                if this.passed == 0 {
                    return Pin::new(&mut this.inner).poll_read(cx, to);
                }
            }
            if this.passed > 0 {
                let n = this.passed.min(to.remaining());
                to.put_slice(&this.held[..n]);
                this.held.advance(n);
                this.passed -= n;
                return Poll::Ready(Ok(()));
            }
            match &mut this.state {
                State::Broken => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
                State::Refused { drained } if *drained > MAX_DRAIN => return Poll::Pending,
                State::Refused { drained } => {
                    // An end here would make the server drop the answer that is on its way.
                    let n = ready!(fill(&mut this.inner, cx, &mut this.held))?;
                    this.held.clear();
                    if n == 0 {
                        return Poll::Ready(Ok(()));
                    }
                    *drained += n;
                }
                _ if this.held.is_empty() => {
                    let start = to.filled().len();
                    ready!(Pin::new(&mut this.inner).poll_read(cx, to))?;
                    if to.filled().len() == start {
                        return Poll::Ready(Ok(()));
                    }
                    this.judge_in_place(to, start);
                    if to.filled().len() > start {
                        return Poll::Ready(Ok(()));
                    }
                }
                _ => {
                    if ready!(fill(&mut this.inner, cx, &mut this.held))? == 0 {
                        return Poll::Ready(Ok(()));
                    }
                    this.judge();
                }
            }
        }
    }
}

fn fill<T: AsyncRead + Unpin>(
    inner: &mut T,
    cx: &mut Context<'_>,
    held: &mut BytesMut,
) -> Poll<io::Result<usize>> {
    let mut space = [0u8; 4096];
    let mut part = ReadBuf::new(&mut space);
    ready!(Pin::new(inner).poll_read(cx, &mut part))?;
    held.extend_from_slice(part.filled());
    Poll::Ready(Ok(part.filled().len()))
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Gate<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, from)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt;

    /// What comes out when the bytes come in pieces of this size.
    fn through(bytes: &[u8], piece: usize) -> String {
        let reader = Pieces { bytes: bytes.to_vec(), piece };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut out = Vec::new();
            let read = Gate::new(reader, Opened::default()).read_to_end(&mut out).await;
            if read.is_err() {
                out.extend_from_slice(b"<broken>");
            }
            String::from_utf8_lossy(&out).into_owned()
        })
    }

    struct Pieces {
        bytes: Vec<u8>,
        piece: usize,
    }

    impl AsyncRead for Pieces {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            to: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let n = self.piece.min(self.bytes.len()).min(to.remaining());
            to.put_slice(&self.bytes[..n]);
            self.bytes.drain(..n);
            Poll::Ready(Ok(()))
        }
    }

    const GOOD: &str = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nHost: a\r\n\r\n\
        PUT /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nxyz\r\n0\r\nx-sum: 1\r\n\r\n\
        GET /d HTTP/1.1\r\nHost: a\r\n\r\n";

    #[test]
    fn good_requests_pass_unchanged() {
        for piece in [1, 2, 7, 4096] {
            assert_eq!(through(GOOD.as_bytes(), piece), GOOD);
        }
    }

    #[test]
    fn c4_a_bad_head_is_refused_in_its_turn_and_nothing_behind_it_passes() {
        let bad =
            format!("{GOOD}GET /e HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\nGET /f HTTP/1.1\r\nHost: a\r\n\r\n");
        for piece in [1, 5, 4096] {
            let out = through(bad.as_bytes(), piece);
            assert!(out.starts_with(GOOD));
            assert!(out[GOOD.len()..].starts_with("COFFERDAM-REFUSED /host-count HTTP/1.1\r\n"), "{out}");
            assert!(!out.contains("/f"));
        }
    }

    #[test]
    fn a_bad_chunk_ends_the_body() {
        let bad = "PUT /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nxyz\r\n0\r\n\r\n";
        let out = through(bad.as_bytes(), 3);
        assert!(out.ends_with("chunked\r\n\r\n<broken>"), "{out}");
    }

    #[test]
    fn a_head_without_end_is_refused() {
        let out =
            through(format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(MAX_HEAD + 9)).as_bytes(), 4096);
        assert!(out.starts_with("COFFERDAM-REFUSED /head-too-large"), "{out}");
    }

    #[test]
    fn an_opened_gate_passes_anything() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let opened = Opened::default();
        opened.open();
        let mut out = Vec::new();
        let raw = &b"\x81\x00\nnot http"[..];
        runtime.block_on(Gate::new(raw, opened).read_to_end(&mut out)).unwrap();
        assert_eq!(out, raw);
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(bytes in proptest::collection::vec(any::<u8>(), 0..200), piece in 1usize..9) {
            prop_assert_eq!(through(&bytes, piece), through(&bytes, 4096));
            let mixed = [GOOD.as_bytes(), &bytes].concat();
            prop_assert_eq!(through(&mixed, piece), through(&mixed, 4096));
        }
    }
}
