//! Takes a kernel or a module out of its wrapping. The wrapping is known by its first bytes; a kernel says itself
//! where its payload is.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

/// Nothing that is unpacked is larger.
const MOST: usize = 512 << 20;

const ELF: &[u8] = b"\x7fELF";
const GZIP: &[u8] = b"\x1f\x8b";
const XZ: &[u8] = b"\xfd7zXZ\0";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
/// The old form, which kernels are wrapped in.
const LZ4: &[u8] = b"\x02\x21\x4c\x18";

/// A kernel as the linker left it.
pub(super) fn kernel(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let bytes = match payload(bytes) {
        Some(payload) => unwrap(payload)?,
        None => bytes.to_vec(),
    };
    match bytes.starts_with(ELF) && bytes.get(18..20) == Some(&[62, 0]) {
        true => Ok(bytes),
        false => Err("it is no kernel for x86_64".into()),
    }
}

pub(super) fn module(bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    if bytes.starts_with(ELF) { Ok(bytes) } else { unwrap(&bytes) }
}

fn four(bytes: &[u8], at: usize) -> Option<usize> {
    let part: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(part)).ok()
}

/// What a bootable kernel wraps, by its own header (Documentation/arch/x86/boot.rst).
fn payload(bytes: &[u8]) -> Option<&[u8]> {
    if bytes.get(0x202..0x206) != Some(b"HdrS") {
        return None;
    }
    let sectors = match *bytes.get(0x1f1)? {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (sectors + 1) * 512 + four(bytes, 0x248)?;
    bytes.get(start..start.checked_add(four(bytes, 0x24c)?)?)
}

/// The release that a bootable kernel names.
pub(super) fn release(bytes: &[u8]) -> Option<String> {
    let text = match payload(bytes) {
        Some(_) => {
            let at = 0x200 + usize::from(u16::from_le_bytes(bytes.get(0x20e..0x210)?.try_into().ok()?));
            bytes.get(at..at + 128)?
        }
        None => {
            const SAYS: &[u8] = b"Linux version ";
            let at = bytes.windows(SAYS.len()).position(|part| part == SAYS)? + SAYS.len();
            bytes.get(at..at + 128)?
        }
    };
    let text = text.split(|byte| matches!(byte, 0 | b' ')).next()?;
    String::from_utf8(text.to_vec()).ok().filter(|text| !text.is_empty())
}

fn unwrap(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let all = |reader: &mut dyn Read, out: &mut Vec<u8>| {
        reader.take(MOST as u64).read_to_end(out).map(drop).map_err(|error| error.to_string())
    };
    if bytes.starts_with(LZ4) {
        return lz4(bytes).ok_or_else(|| "its wrapping is damaged".to_owned());
    } else if bytes.starts_with(GZIP) {
        // What follows the stream is its length, and no damage.
        let read = all(&mut flate2::read::GzDecoder::new(bytes), &mut out);
        if out.is_empty() {
            read?;
        }
    } else if bytes.starts_with(ZSTD) {
        let mut reader =
            zstd::stream::read::Decoder::new(bytes).map_err(|error| error.to_string())?.single_frame();
        all(&mut reader, &mut out)?;
    } else if bytes.starts_with(XZ) {
        return by_tool("xz", bytes);
    } else {
        return Err("its wrapping is none of gzip, xz, zstd and lz4".into());
    }
    Ok(out)
}

/// Kernels and modules are the only things here that may be wrapped so, and whoever wraps so has the tool.
fn by_tool(tool: &str, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("`{tool}` cannot be run ({error})");
    let mut child = Command::new(tool)
        .args(["--decompress", "--stdout", "--single-stream"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let stdin = child.stdin.take();
    let out = std::thread::scope(|scope| {
        scope.spawn(|| {
            // It may end before all is written: what follows the stream is not part of it.
            let _ = stdin.map(|mut stdin| stdin.write_all(bytes));
        });
        let mut out = Vec::new();
        let read = child.stdout.take().map(|stdout| stdout.take(MOST as u64).read_to_end(&mut out));
        read.transpose().map(|_| out)
    });
    let out = out.map_err(failed)?;
    child.wait().map_err(failed)?;
    if out.is_empty() { Err("its wrapping is damaged".into()) } else { Ok(out) }
}

/// Blocks of at most 8 MiB, each with its length before it.
fn lz4(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = bytes.get(4..)?;
    while let Some(length) = four(rest, 0).filter(|length| *length > 0) {
        // The kernel's build writes the whole's length after the last block.
        let Some(block) = rest.get(4..4 + length) else { break };
        lz4_block(block, &mut out)?;
        rest = rest.get(4 + length..)?;
    }
    Some(out)
}

/// Sequences of bytes as they are and bytes that were there before.
fn lz4_block(mut block: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let start = out.len();
    while let Some((&token, rest)) = block.split_first() {
        block = rest;
        let literal = lz4_length(usize::from(token >> 4), &mut block)?;
        let (now, rest) = block.split_at_checked(literal)?;
        out.extend_from_slice(now);
        block = rest;
        if block.is_empty() {
            return Some(());
        }
        let (distance, rest) = block.split_first_chunk::<2>()?;
        let distance = usize::from(u16::from_le_bytes(*distance));
        block = rest;
        let length = lz4_length(usize::from(token & 15), &mut block)? + 4;
        let from = out.len().checked_sub(distance).filter(|from| distance > 0 && *from >= start)?;
        if out.len() + length > MOST {
            return None;
        }
        for at in from..from + length {
            let byte = *out.get(at)?;
            out.push(byte);
        }
    }
    None
}

fn lz4_length(first: usize, block: &mut &[u8]) -> Option<usize> {
    let mut length = first;
    if first == 15 {
        loop {
            let (&more, rest) = block.split_first()?;
            *block = rest;
            length = length.checked_add(usize::from(more))?;
            if more != 255 {
                break;
            }
        }
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_old_lz4_form_is_read() {
        // `abcabcabcabc!` as a literal of three, a copy of nine, and a literal of one.
        let block = [0x35, b'a', b'b', b'c', 3, 0, 0x10, b'!'];
        let mut wrapped = LZ4.to_vec();
        wrapped.extend_from_slice(&(block.len() as u32).to_le_bytes());
        wrapped.extend_from_slice(&block);
        wrapped.extend_from_slice(&13u32.to_le_bytes());
        assert_eq!(lz4(&wrapped).unwrap(), b"abcabcabcabc!");
    }

    #[test]
    fn what_is_no_kernel_is_named() {
        assert!(kernel(b"hello").unwrap_err().contains("no kernel for x86_64"));
        assert!(kernel(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xb7\0").unwrap_err().contains("x86_64"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_fall(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let _ = kernel(&bytes);
            let _ = release(&bytes);
            let _ = lz4(&[LZ4, &bytes].concat());
            let mut out = Vec::new();
            let _ = lz4_block(&bytes, &mut out);
        }
    }
}
