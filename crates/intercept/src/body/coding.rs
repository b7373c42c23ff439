//! Content codings, undone at the end and within a bound.

use std::borrow::Cow;
use std::io::{self, Read};

/// The most that comes out of a compressed body.
const LIMIT: u64 = 32 << 20;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CodingError {
    #[error("content coding `{0}` is not known")]
    Unknown(String),
    #[error("the body is not what `content-encoding: {coding}` says: {source}")]
    Broken { coding: String, source: io::Error },
    #[error("the body is over {LIMIT} bytes when it is decompressed")]
    Long,
}

/// What the bytes say. A stream that was cut off gives what there is of it.
pub(crate) fn decoded<'a>(bytes: &'a [u8], coding: &str) -> Result<Cow<'a, [u8]>, CodingError> {
    let reader: Box<dyn Read + 'a> = match coding.trim().to_ascii_lowercase().as_str() {
        "" | "identity" => return Ok(Cow::Borrowed(bytes)),
        "gzip" | "x-gzip" => Box::new(flate2::read::MultiGzDecoder::new(bytes)),
        "deflate" => Box::new(flate2::read::ZlibDecoder::new(bytes)),
        "br" => Box::new(brotli_decompressor::Decompressor::new(bytes, 16 << 10)),
        "zstd" => {
            let broken = |source| CodingError::Broken { coding: coding.to_owned(), source };
            let mut decoder = zstd::stream::read::Decoder::with_buffer(bytes).map_err(broken)?;
            decoder.window_log_max(23).map_err(broken)?;
            Box::new(decoder)
        }
        other => return Err(CodingError::Unknown(other.chars().take(40).collect())),
    };
    let mut plain = Vec::new();
    match reader.take(LIMIT + 1).read_to_end(&mut plain) {
        Ok(_) if plain.len() as u64 > LIMIT => Err(CodingError::Long),
        Ok(_) => Ok(Cow::Owned(plain)),
        Err(_) if !plain.is_empty() => Ok(Cow::Owned(plain)),
        Err(source) => Err(CodingError::Broken { coding: coding.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn what_is_compressed_is_read_and_a_bomb_is_not() {
        let plain = b"data: {}\n\n".repeat(100);
        assert_eq!(*decoded(&gzip(&plain), "GZip").unwrap(), plain);
        assert_eq!(*decoded(&zstd::encode_all(plain.as_slice(), 1).unwrap(), "zstd").unwrap(), plain);
        assert_eq!(*decoded(&plain, "identity").unwrap(), plain);
        let brotli = [
            0x1b, 0x2f, 0x00, 0xf8, 0x9d, 0x05, 0x76, 0x33, 0xf5, 0x42, 0x27, 0x96, 0x6f, 0x1e, 0x26, 0x46,
            0xa2, 0xb7, 0x0e, 0x53, 0x20, 0xeb, 0x5b, 0x31, 0x7b, 0xa5, 0x43, 0x57, 0x20, 0x22, 0xd1, 0x54,
            0x0c, 0xa0, 0x26, 0x16, 0x2f,
        ];
        assert_eq!(*decoded(&brotli, "br").unwrap(), b"data: {\"a\": 1}\n\n".repeat(3));
        assert!(matches!(decoded(&gzip(&vec![0; 33 << 20]), "gzip"), Err(CodingError::Long)));
        assert!(matches!(decoded(b"plain", "gzip"), Err(CodingError::Broken { .. })));
        assert!(matches!(decoded(b"plain", "compress"), Err(CodingError::Unknown(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            for coding in ["gzip", "deflate", "br", "zstd"] {
                let _ = decoded(&bytes, coding);
            }
        }
    }
}
