//! Checksums that formats of others prescribe. Nothing of ours rests on them.

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};

/// Of all parts, one after the other.
pub fn sha1(parts: &[&[u8]]) -> [u8; 20] {
    let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    parts.iter().for_each(|part| context.update(part));
    let mut sum = [0; 20];
    sum.copy_from_slice(context.finish().as_ref());
    sum
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_known_sum() {
        let sum = super::sha1(&[b"a", b"", b"bc"]);
        assert_eq!(sum[..4], [0xa9, 0x99, 0x3e, 0x36]);
    }
}
