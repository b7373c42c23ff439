//! How SSH writes things (RFC 4251, section 5).

/// Takes apart what came over the wire; none as soon as something is not there.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub fn flag(&mut self) -> Option<bool> {
        self.byte().map(|byte| byte != 0)
    }

    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    pub fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.take(usize::try_from(length).ok()?)
    }

    pub fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.string()?).ok()
    }

    /// A number that is not negative, in its bytes without leading zeros.
    pub fn mpint(&mut self) -> Option<&'a [u8]> {
        let bytes = self.string()?;
        if bytes.first().is_some_and(|first| first & 0x80 != 0) {
            return None;
        }
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        bytes.get(zeros..)
    }

    pub fn rest(&self) -> &'a [u8] {
        self.0
    }
}

pub fn put_u32(to: &mut Vec<u8>, number: u32) {
    to.extend_from_slice(&number.to_be_bytes());
}

/// Nothing that we write is longer than a length can say.
pub fn put_string(to: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(to, u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    to.extend_from_slice(bytes);
}

/// A number that is not negative, from its bytes.
pub fn put_mpint(to: &mut Vec<u8>, bytes: &[u8]) {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let bytes = bytes.get(zeros..).unwrap_or_default();
    let sign = usize::from(bytes.first().is_some_and(|first| first & 0x80 != 0));
    put_u32(to, u32::try_from(bytes.len() + sign).unwrap_or(u32::MAX));
    to.extend(std::iter::repeat_n(0, sign));
    to.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The examples of RFC 4251, section 5.
    #[test]
    fn numbers_as_the_standard_writes_them() {
        let check = |bytes: &[u8], expected: &[u8]| {
            let mut to = Vec::new();
            put_mpint(&mut to, bytes);
            assert_eq!(to, expected);
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            assert_eq!(Reader::new(&to).mpint(), Some(&bytes[zeros..]));
        };
        check(&[], &[0, 0, 0, 0]);
        check(&[0, 0], &[0, 0, 0, 0]);
        check(
            &[0x09, 0xa3, 0x78, 0xf9, 0xb2, 0xe3, 0x32, 0xa7],
            &[0, 0, 0, 8, 0x09, 0xa3, 0x78, 0xf9, 0xb2, 0xe3, 0x32, 0xa7],
        );
        check(&[0x80], &[0, 0, 0, 2, 0, 0x80]);
        assert_eq!(Reader::new(&[0, 0, 0, 2, 0xed, 0xcc]).mpint(), None, "negative");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut reader = Reader::new(&bytes);
            while reader.string().is_some() {}
            let _ = (Reader::new(&bytes).mpint(), Reader::new(&bytes).text(), Reader::new(&bytes).flag());
        }
    }
}
