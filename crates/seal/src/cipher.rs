//! Secrecy at rest: authenticated encryption under a key that comes from a file, a keyring or a passphrase, and
//! a keyed stream of bytes for whoever needs chance that can be repeated.
//!
//! Salts and passphrases are the caller's: nothing here draws randomness. A key has no `Debug`, `Clone` or
//! serde form, and is wiped when dropped.

use argon2::{Algorithm, Argon2, Params, Version};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::{hkdf, hmac};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// What authentication adds to a text.
pub const TAG_LEN: usize = 16;
pub const KEY_LEN: usize = 32;
pub const SALT_LEN: usize = 32;

const SEALING: &[u8] = b"cofferdam sealed text 1";
const MARKING: &[u8] = b"cofferdam mark 1";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CipherError {
    #[error("it was sealed with another key, or changed since")]
    NotAuthentic,
    #[error("{0} bytes are too many to seal at once")]
    TooLong(usize),
    #[error(
        "stretching a passphrase with {memory_kib} KiB, {passes} passes and {lanes} lanes is outside of what is accepted"
    )]
    Stretch { memory_kib: u32, passes: u32, lanes: u32 },
}

/// How much work one guess of a passphrase costs (Argon2id).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    pub memory_kib: u32,
    pub passes: u32,
    pub lanes: u32,
}

impl Stretch {
    /// The second choice of RFC 9106, for machines that do more than check passphrases.
    pub const DEFAULT: Self = Self { memory_kib: 64 << 10, passes: 3, lanes: 4 };
    /// A file asks for this much before it can be authenticated: more is an attack on us, not on it.
    const MOST: Self = Self { memory_kib: 1 << 20, passes: 16, lanes: 16 };

    fn accepted(self) -> Result<Params, CipherError> {
        let Self { memory_kib, passes, lanes } = self;
        let refused = || CipherError::Stretch { memory_kib, passes, lanes };
        let most = Self::MOST;
        if memory_kib > most.memory_kib || passes > most.passes || lanes > most.lanes {
            return Err(refused());
        }
        Params::new(memory_kib, passes, lanes, Some(KEY_LEN)).map_err(|_| refused())
    }
}

/// A key that texts are sealed with.
pub struct CipherKey(Zeroizing<[u8; KEY_LEN]>);

impl CipherKey {
    pub fn new(bytes: Zeroizing<[u8; KEY_LEN]>) -> Self {
        Self(bytes)
    }

    pub fn from_passphrase(
        passphrase: &[u8],
        salt: &[u8; SALT_LEN],
        stretch: Stretch,
    ) -> Result<Self, CipherError> {
        let Stretch { memory_kib, passes, lanes } = stretch;
        let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, stretch.accepted()?);
        let mut bytes = Zeroizing::new([0; KEY_LEN]);
        argon.hash_password_into(passphrase, salt, &mut *bytes).map_err(|_| CipherError::Stretch {
            memory_kib,
            passes,
            lanes,
        })?;
        Ok(Self(bytes))
    }

    /// Whoever keeps the key somewhere answers for the place.
    pub fn reveal(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    /// Seals `text` in place and appends the tag; `header` stays readable and cannot be changed. The salt must be
    /// 32 fresh random bytes: each text gets a key of its own, so no nonce is ever used twice.
    pub fn seal(
        &self,
        salt: &[u8; SALT_LEN],
        header: &[u8],
        mut text: Zeroizing<Vec<u8>>,
    ) -> Result<Vec<u8>, CipherError> {
        let (key, length) = (self.text_key(salt)?, text.len());
        // In one piece: growing would leave the plain text behind in freed memory.
        if text.capacity() < length + TAG_LEN {
            let mut roomy = Zeroizing::new(Vec::with_capacity(length + TAG_LEN));
            roomy.extend_from_slice(&text);
            text = roomy;
        }
        key.seal_in_place_append_tag(only_nonce(), Aad::from(header), &mut *text)
            .map_err(|_| CipherError::TooLong(length))?;
        Ok(std::mem::take(&mut *text))
    }

    /// The text, if it and the header are as they were sealed under this key.
    pub fn open(
        &self,
        salt: &[u8; SALT_LEN],
        header: &[u8],
        sealed: Vec<u8>,
    ) -> Result<Zeroizing<Vec<u8>>, CipherError> {
        let mut text = Zeroizing::new(sealed);
        let key = self.text_key(salt)?;
        let opened = key.open_in_place(only_nonce(), Aad::from(header), &mut text);
        let length = opened.map_err(|_| CipherError::NotAuthentic)?.len();
        text.truncate(length);
        Ok(text)
    }

    fn text_key(&self, salt: &[u8; SALT_LEN]) -> Result<LessSafeKey, CipherError> {
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(&*self.0);
        let derived = secret.expand(&[SEALING], &CHACHA20_POLY1305).map_err(|_| CipherError::NotAuthentic)?;
        Ok(LessSafeKey::new(UnboundKey::from(derived)))
    }
}

/// The key belongs to one text, so the nonce need not tell texts apart.
fn only_nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

/// Tells whether two values are the same to who holds the key, and nothing to anyone else.
pub fn mark(key: &[u8; KEY_LEN], value: &[u8]) -> [u8; 32] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    context.update(MARKING);
    context.update(value);
    block(context)
}

/// HMAC-SHA256: tells who holds the same key that a text is ours and unchanged.
pub fn authenticate(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    context.update(text);
    block(context)
}

/// Equality that takes as long for a near miss as for a far one. The lengths are not hidden.
pub fn same(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

/// Bytes that look random to who lacks the seed and are the same for the same seed and label.
pub struct ByteStream {
    key: hmac::Key,
    counter: u64,
    block: Zeroizing<[u8; 32]>,
    used: usize,
}

impl ByteStream {
    pub fn new(seed: &[u8; KEY_LEN], label: &[&[u8]]) -> Self {
        let root = hmac::Key::new(hmac::HMAC_SHA256, seed);
        let mut context = hmac::Context::with_key(&root);
        for part in label {
            // With its length, so that no two labels are the same bytes.
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let key = Zeroizing::new(block(context));
        let key = hmac::Key::new(hmac::HMAC_SHA256, &*key);
        Self { key, counter: 0, block: Zeroizing::new([0; 32]), used: 32 }
    }

    pub fn byte(&mut self) -> u8 {
        if self.used == self.block.len() {
            let mut context = hmac::Context::with_key(&self.key);
            context.update(&self.counter.to_be_bytes());
            self.block = Zeroizing::new(block(context));
            self.counter += 1;
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }
}

fn block(context: hmac::Context) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(context.sign().as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SALT: [u8; SALT_LEN] = [7; SALT_LEN];

    fn key(byte: u8) -> CipherKey {
        CipherKey::new(Zeroizing::new([byte; KEY_LEN]))
    }

    /// RFC 4231, cases 1 and 6.
    #[test]
    fn authentication_by_the_standard_vectors() {
        let check = |key: &[u8], text: &[u8], expected: &str| {
            let code: String = authenticate(key, text).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(code, expected);
        };
        check(&[0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
        let text = b"Test Using Larger Than Block-Size Key - Hash Key First";
        check(&[0xaa; 131], text, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }

    fn sealed(text: &[u8]) -> Vec<u8> {
        key(1).seal(&SALT, b"header", Zeroizing::new(text.to_vec())).unwrap()
    }

    #[test]
    fn what_was_sealed_opens_with_the_same_key_salt_and_header_only() {
        let text = sealed(b"plain");
        assert_eq!(text.len(), 5 + TAG_LEN);
        let check = |key: &CipherKey, salt: &[u8; 32], header: &[u8], expected: bool| {
            let opened = key.open(salt, header, text.clone());
            assert_eq!(opened.as_ref().map(|t| t.as_slice()).ok(), expected.then_some(&b"plain"[..]));
        };
        check(&key(1), &SALT, b"header", true);
        check(&key(2), &SALT, b"header", false);
        check(&key(1), &[8; 32], b"header", false);
        check(&key(1), &SALT, b"heade", false);
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let text = sealed(b"plain");
        for bit in 0..text.len() * 8 {
            let mut other = text.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(key(1).open(&SALT, b"header", other).is_err(), "bit {bit}");
        }
        for length in 0..text.len() {
            assert!(key(1).open(&SALT, b"header", text[..length].to_vec()).is_err(), "length {length}");
        }
    }

    #[test]
    fn a_passphrase_gives_the_key_of_its_salt_and_work() {
        let low = Stretch { memory_kib: 64, passes: 1, lanes: 1 };
        let of = |phrase: &[u8], salt: u8, stretch| {
            *CipherKey::from_passphrase(phrase, &[salt; 32], stretch).unwrap().reveal()
        };
        let first = of(b"correct horse", 1, low);
        assert_eq!(of(b"correct horse", 1, low), first);
        assert_ne!(of(b"correct horsf", 1, low), first);
        assert_ne!(of(b"correct horse", 2, low), first);
        assert_ne!(of(b"correct horse", 1, Stretch { passes: 2, ..low }), first);
        for greedy in [
            Stretch { memory_kib: u32::MAX, ..low },
            Stretch { passes: u32::MAX, ..low },
            Stretch { lanes: 1000, ..low },
            Stretch { memory_kib: 0, ..low },
            Stretch { passes: 0, ..low },
        ] {
            assert!(CipherKey::from_passphrase(b"x", &SALT, greedy).is_err(), "{greedy:?}");
        }
    }

    #[test]
    fn a_stream_repeats_for_its_label_and_no_other() {
        let take = |seed: u8, label: &[&[u8]]| -> Vec<u8> {
            let mut stream = ByteStream::new(&[seed; 32], label);
            (0..100).map(|_| stream.byte()).collect()
        };
        let first = take(1, &[b"a", b"bc"]);
        assert_eq!(take(1, &[b"a", b"bc"]), first);
        assert_ne!(take(2, &[b"a", b"bc"]), first);
        assert_ne!(take(1, &[b"ab", b"c"]), first, "labels are not run together");
        assert_ne!(first[..32], first[32..64]);
    }

    #[test]
    fn marks_and_equality() {
        assert_eq!(mark(&[1; 32], b"a"), mark(&[1; 32], b"a"));
        assert_ne!(mark(&[1; 32], b"a"), mark(&[1; 32], b"b"));
        assert_ne!(mark(&[1; 32], b"a"), mark(&[2; 32], b"a"));
        assert!(same(b"abc", b"abc") && !same(b"abc", b"abd") && !same(b"abc", b"ab"));
    }

    proptest! {
        #[test]
        fn any_text_comes_back(text in prop::collection::vec(any::<u8>(), 0..300), header in prop::collection::vec(any::<u8>(), 0..60)) {
            let sealed = key(3).seal(&SALT, &header, Zeroizing::new(text.clone())).unwrap();
            prop_assert_eq!(&*key(3).open(&SALT, &header, sealed).unwrap(), &text);
        }

        #[test]
        fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(key(3).open(&SALT, b"", bytes).is_err());
        }
    }
}
