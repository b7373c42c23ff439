//! Content codings, decoded as they come and within bounds.

use crate::sign::frames::{FrameError, Frames};
use std::io::{self, Write};

/// How much more may come out than went in. JSON and HTML stay far below it, bombs live far above.
const RATIO: u64 = 128;
/// What may come out before the ratio counts.
const FREE: u64 = 1024 * 1024;
/// RFC 8878 lets a receiver refuse larger windows; each costs memory per stream.
const ZSTD_WINDOW: u32 = 23;

#[derive(Debug, thiserror::Error)]
pub enum CodingError {
    #[error("content coding `{0}` cannot be read here: use identity, gzip, deflate, br or zstd")]
    Unknown(String),
    #[error("the body is not what `content-encoding: {coding}` says: send it uncompressed")]
    Broken { coding: &'static str, source: io::Error },
    #[error("the body grows more than {RATIO}-fold when decompressed: send it uncompressed")]
    Bomb,
    #[error("the body is not framed as its head says ({0}): send it as signed")]
    Frames(#[from] FrameError),
    #[error("a part of a compressed body cannot be read: ask for the whole, without `range`")]
    Partial,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

impl Coding {
    /// What a `content-encoding` says; none for a body as it is.
    pub(crate) fn parse(value: &[u8]) -> Result<Option<Self>, CodingError> {
        let text = String::from_utf8_lossy(value).to_ascii_lowercase();
        // `aws-chunked` is framing, which is read before any coding.
        let codings: Vec<&str> =
            text.split(',').map(str::trim).filter(|coding| *coding != "aws-chunked").collect();
        let text = codings.join(",");
        match text.as_str() {
            "" | "identity" => Ok(None),
            "gzip" | "x-gzip" => Ok(Some(Self::Gzip)),
            "deflate" => Ok(Some(Self::Deflate)),
            "br" => Ok(Some(Self::Brotli)),
            "zstd" => Ok(Some(Self::Zstd)),
            _ => Err(CodingError::Unknown(text.chars().take(40).collect())),
        }
    }

    pub(crate) fn of(headers: &http::HeaderMap) -> Result<Option<Self>, CodingError> {
        let mut values = headers.get_all(http::header::CONTENT_ENCODING).iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => Self::parse(value.as_bytes()),
            _ => Err(CodingError::Unknown("several, one upon another".to_owned())),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }
}

pub(crate) struct Decoder {
    frames: Option<Frames>,
    inner: Option<Inner>,
}

struct Inner {
    coding: Coding,
    stream: Stream,
}

enum Stream {
    Gzip(flate2::write::MultiGzDecoder<Sink>),
    Deflate(flate2::write::ZlibDecoder<Sink>),
    Brotli(Box<brotli_decompressor::DecompressorWriter<Sink>>),
    Zstd(zstd::stream::write::Decoder<'static, Sink>),
}

impl Decoder {
    /// What a body with this head needs; none for one that can be read as it is.
    pub(crate) fn of(headers: &http::HeaderMap) -> Result<Option<Box<Self>>, CodingError> {
        let is_framed =
            headers.get_all("x-amz-content-sha256").iter().any(|v| v.as_bytes().starts_with(b"STREAMING-"));
        let inner = Coding::of(headers)?.map(Inner::new).transpose()?;
        let frames = is_framed.then(Frames::any);
        Ok((frames.is_some() || inner.is_some()).then(|| Box::new(Self { frames, inner })))
    }

    pub(crate) fn new(coding: Coding) -> Result<Self, CodingError> {
        Ok(Self { frames: None, inner: Some(Inner::new(coding)?) })
    }

    /// All that these bytes complete.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<Vec<u8>, CodingError> {
        let Some(frames) = &mut self.frames else {
            return self.inner.as_mut().map_or_else(|| Ok(chunk.to_vec()), |inner| inner.push(chunk));
        };
        let mut inside = Vec::with_capacity(chunk.len());
        frames.push(chunk, &mut |bytes| inside.extend_from_slice(bytes))?;
        match &mut self.inner {
            Some(inner) => inner.push(&inside),
            None => Ok(inside),
        }
    }
}

impl Inner {
    fn new(coding: Coding) -> Result<Self, CodingError> {
        let sink = Sink::default();
        let broken = |source| CodingError::Broken { coding: coding.name(), source };
        let stream = match coding {
            Coding::Gzip => Stream::Gzip(flate2::write::MultiGzDecoder::new(sink)),
            Coding::Deflate => Stream::Deflate(flate2::write::ZlibDecoder::new(sink)),
            Coding::Brotli => {
                Stream::Brotli(Box::new(brotli_decompressor::DecompressorWriter::new(sink, 16 * 1024)))
            }
            Coding::Zstd => {
                let mut decoder = zstd::stream::write::Decoder::new(sink).map_err(broken)?;
                decoder.window_log_max(ZSTD_WINDOW).map_err(broken)?;
                Stream::Zstd(decoder)
            }
        };
        Ok(Self { coding, stream })
    }

    fn push(&mut self, chunk: &[u8]) -> Result<Vec<u8>, CodingError> {
        self.sink().read += chunk.len() as u64;
        let writer: &mut dyn Write = match &mut self.stream {
            Stream::Gzip(stream) => stream,
            Stream::Deflate(stream) => stream,
            Stream::Brotli(stream) => stream,
            Stream::Zstd(stream) => stream,
        };
        let written = writer.write_all(chunk).and_then(|()| writer.flush());
        let coding = self.coding.name();
        let sink = self.sink();
        match written {
            Ok(()) => Ok(std::mem::take(&mut sink.out)),
            Err(_) if sink.burst => Err(CodingError::Bomb),
            Err(source) => Err(CodingError::Broken { coding, source }),
        }
    }

    fn sink(&mut self) -> &mut Sink {
        match &mut self.stream {
            Stream::Gzip(stream) => stream.get_mut(),
            Stream::Deflate(stream) => stream.get_mut(),
            Stream::Brotli(stream) => stream.get_mut(),
            Stream::Zstd(stream) => stream.get_mut(),
        }
    }
}

/// Takes what a decoder writes until it is too much: the decoder stops where it stands.
#[derive(Default)]
struct Sink {
    out: Vec<u8>,
    read: u64,
    written: u64,
    burst: bool,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written += bytes.len() as u64;
        if self.written > FREE + RATIO * self.read {
            self.burst = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    const CODINGS: [Coding; 3] = [Coding::Gzip, Coding::Deflate, Coding::Zstd];
    /// "Hello, hello, hello, hello!\n", by another implementation.
    #[rustfmt::skip]
    const BROTLI: &[u8] = &[0x1b, 0x1b, 0x00, 0xf8, 0x1d, 0x89, 0x71, 0x2c, 0xc9, 0x1a, 0x83, 0x9e, 0x4a, 0x36, 0xa4, 0xb7, 0x56, 0x00, 0x29, 0x43, 0x53, 0x21, 0x2c, 0x25, 0xc9, 0x3e, 0x91, 0x40, 0x14, 0x77, 0x00];

    pub(crate) fn encoded(coding: Coding, plain: &[u8]) -> Vec<u8> {
        let level = flate2::Compression::fast();
        match coding {
            Coding::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
                encoder.write_all(plain).unwrap();
                encoder.finish().unwrap()
            }
            Coding::Deflate => {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
                encoder.write_all(plain).unwrap();
                encoder.finish().unwrap()
            }
            Coding::Zstd => zstd::encode_all(plain, 1).unwrap(),
            Coding::Brotli => unreachable!("there is no encoder here"),
        }
    }

    fn decode(coding: Coding, bytes: &[u8], cut: usize) -> Result<Vec<u8>, CodingError> {
        let mut decoder = Decoder::new(coding).unwrap();
        let mut out = Vec::new();
        for chunk in bytes.chunks(cut) {
            out.extend(decoder.push(chunk)?);
        }
        Ok(out)
    }

    #[test]
    fn what_is_named_is_read_and_the_rest_refused() {
        for (name, expected) in [
            ("gzip", Some(Coding::Gzip)),
            ("X-GZip", Some(Coding::Gzip)),
            ("br", Some(Coding::Brotli)),
            ("identity", None),
            ("aws-chunked", None),
            ("aws-chunked, gzip", Some(Coding::Gzip)),
        ] {
            assert_eq!(Coding::parse(name.as_bytes()).unwrap(), expected);
        }
        for name in ["compress", "gzip, br", "gzip,gzip", "\u{7f}"] {
            assert!(matches!(Coding::parse(name.as_bytes()), Err(CodingError::Unknown(_))), "{name}");
        }
    }

    #[test]
    fn brotli_is_read_byte_by_byte() {
        for cut in [1, 2, 100] {
            assert_eq!(decode(Coding::Brotli, BROTLI, cut).unwrap(), b"Hello, hello, hello, hello!\n");
        }
    }

    #[test]
    fn a_bomb_goes_off_in_no_memory() {
        for coding in CODINGS {
            let bomb = encoded(coding, &vec![0; 64 << 20]);
            assert!(matches!(decode(coding, &bomb, 1024), Err(CodingError::Bomb)), "{coding:?}");
        }
    }

    #[test]
    fn what_is_not_compressed_is_broken() {
        for coding in [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd] {
            let said = decode(coding, &b"plain text that claims to be compressed".repeat(40), 64);
            assert!(matches!(said, Err(CodingError::Broken { .. })), "{coding:?}");
        }
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same(plain in prop::collection::vec(any::<u8>(), 0..2000), cut in 1usize..200) {
            for coding in CODINGS {
                prop_assert_eq!(&decode(coding, &encoded(coding, &plain), cut).unwrap(), &plain);
            }
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..2000), cut in 1usize..200) {
            for coding in [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd] {
                let _ = decode(coding, &bytes, cut);
            }
        }
    }
}
