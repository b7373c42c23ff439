//! What seals packets. Both kinds prove the whole packet; the length is proven with it, and so must not be believed for
//! more than waiting until the packet is there.

use super::agree::derive;
use ring::aead::chacha20_poly1305_openssh as chacha;
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use zeroize::Zeroizing;

/// What proves a packet, at its end.
pub const TAG: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketCipher {
    Aes128Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

impl PacketCipher {
    /// As we like them best.
    pub const ALL: [Self; 3] = [Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305];

    pub fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "aes128-gcm@openssh.com",
            Self::Aes256Gcm => "aes256-gcm@openssh.com",
            Self::ChaCha20Poly1305 => "chacha20-poly1305@openssh.com",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// The packet was not made by the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a packet is not what the other end sealed")]
pub struct Forged;

struct Gcm {
    key: LessSafeKey,
    /// Fixed, then a count.
    nonce: [u8; NONCE_LEN],
}

impl Gcm {
    fn new(algorithm: &'static ring::aead::Algorithm, key: &[u8], nonce: [u8; NONCE_LEN]) -> Option<Self> {
        let key = LessSafeKey::new(UnboundKey::new(algorithm, key).ok()?);
        Some(Self { key, nonce })
    }

    /// Each once; who sends so many packets that the count comes round is stopped long before.
    fn next(&mut self) -> Nonce {
        let nonce = self.nonce;
        for byte in self.nonce.iter_mut().skip(4).rev() {
            *byte = byte.wrapping_add(1);
            if *byte != 0 {
                break;
            }
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

/// The two letters under which keys are derived for one direction: of the nonce and of the key.
type Letters = (u8, u8);

fn gcm(cipher: PacketCipher, (secret, hash, session): Known<'_>, letters: Letters) -> Option<Gcm> {
    let (algorithm, length) = match cipher {
        PacketCipher::Aes128Gcm => (&AES_128_GCM, 16),
        _ => (&AES_256_GCM, 32),
    };
    let mut nonce = [0; NONCE_LEN];
    derive(secret, hash, letters.0, session, &mut nonce);
    let mut key = Zeroizing::new([0; 32]);
    derive(secret, hash, letters.1, session, &mut key[..length]);
    Gcm::new(algorithm, &key[..length], nonce)
}

fn chacha_key((secret, hash, session): Known<'_>, letters: Letters) -> Zeroizing<[u8; chacha::KEY_LEN]> {
    let mut key = Zeroizing::new([0; chacha::KEY_LEN]);
    derive(secret, hash, letters.1, session, &mut *key);
    key
}

/// What an agreement has come to: the number as it is written, the hash of the exchange, that of the first one.
type Known<'a> = (&'a [u8], &'a [u8], &'a [u8]);

const fn letters(from_client: bool) -> Letters {
    if from_client { (b'A', b'C') } else { (b'B', b'D') }
}

enum SealingKind {
    Gcm(Box<Gcm>),
    ChaCha(Box<chacha::SealingKey>),
}

/// Seals what one end sends.
pub struct Sealing(SealingKind);

impl Sealing {
    pub fn new(cipher: PacketCipher, known: Known<'_>, from_client: bool) -> Option<Self> {
        let letters = letters(from_client);
        Some(Self(match cipher {
            PacketCipher::ChaCha20Poly1305 => {
                SealingKind::ChaCha(Box::new(chacha::SealingKey::new(&chacha_key(known, letters))))
            }
            cipher => SealingKind::Gcm(Box::new(gcm(cipher, known, letters)?)),
        }))
    }

    /// A packet with its length before it and room for a [`TAG`] behind it.
    pub fn seal(&mut self, sequence: u32, packet: &mut [u8]) -> Result<(), Forged> {
        let at = packet.len().checked_sub(TAG).ok_or(Forged)?;
        let (packet, tag) = packet.split_at_mut_checked(at).ok_or(Forged)?;
        let tag: &mut [u8; TAG] = tag.try_into().map_err(|_| Forged)?;
        match &mut self.0 {
            SealingKind::Gcm(gcm) => {
                let nonce = gcm.next();
                let (length, rest) = packet.split_at_mut_checked(4).ok_or(Forged)?;
                let made = gcm
                    .key
                    .seal_in_place_separate_tag(nonce, Aad::from(&*length), rest)
                    .map_err(|_| Forged)?;
                tag.copy_from_slice(made.as_ref());
            }
            SealingKind::ChaCha(_) if packet.len() < 4 => return Err(Forged),
            SealingKind::ChaCha(key) => key.seal_in_place(sequence, packet, tag),
        }
        Ok(())
    }
}

enum OpeningKind {
    Gcm(Box<Gcm>),
    ChaCha(Box<chacha::OpeningKey>),
}

/// Opens what the other end sealed.
pub struct Opening(OpeningKind);

impl Opening {
    pub fn new(cipher: PacketCipher, known: Known<'_>, from_client: bool) -> Option<Self> {
        let letters = letters(from_client);
        Some(Self(match cipher {
            PacketCipher::ChaCha20Poly1305 => {
                OpeningKind::ChaCha(Box::new(chacha::OpeningKey::new(&chacha_key(known, letters))))
            }
            cipher => OpeningKind::Gcm(Box::new(gcm(cipher, known, letters)?)),
        }))
    }

    /// How long a packet says it is, which is not proven yet.
    pub fn length(&self, sequence: u32, first: [u8; 4]) -> u32 {
        u32::from_be_bytes(match &self.0 {
            OpeningKind::Gcm(_) => first,
            OpeningKind::ChaCha(key) => key.decrypt_packet_length(sequence, first),
        })
    }

    /// A packet with its length before it and its tag behind it; what it says is in between afterwards.
    pub fn open(&mut self, sequence: u32, packet: &mut [u8]) -> Result<(), Forged> {
        match &mut self.0 {
            OpeningKind::Gcm(gcm) => {
                let (length, rest) = packet.split_at_mut_checked(4).ok_or(Forged)?;
                let nonce = gcm.next();
                gcm.key.open_in_place(nonce, Aad::from(&*length), rest).map_err(|_| Forged)?;
            }
            OpeningKind::ChaCha(key) => {
                let at = packet.len().checked_sub(TAG).filter(|at| *at >= 4).ok_or(Forged)?;
                let (packet, tag) = packet.split_at_mut_checked(at).ok_or(Forged)?;
                let tag: &[u8; TAG] = (&*tag).try_into().map_err(|_| Forged)?;
                key.open_in_place(sequence, packet, tag).map_err(|_| Forged)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Known<'static> = (b"\0\0\0\x01k", b"hash of the exchange", b"the first hash");

    fn packet(text: &[u8]) -> Vec<u8> {
        let length = u32::try_from(text.len()).unwrap();
        [&length.to_be_bytes()[..], text, &[0; TAG]].concat()
    }

    #[test]
    fn what_one_end_seals_the_other_opens_in_order() {
        for cipher in PacketCipher::ALL {
            let mut sealing = Sealing::new(cipher, KNOWN, true).unwrap();
            let mut opening = Opening::new(cipher, KNOWN, true).unwrap();
            for (sequence, text) in (0..300).zip([&b"sixteen bytes..!"[..], b"another"].iter().cycle()) {
                let mut bytes = packet(text);
                sealing.seal(sequence, &mut bytes).unwrap();
                assert!(memchr_absent(&bytes, text), "{cipher:?}");
                let first = bytes[..4].try_into().unwrap();
                assert_eq!(opening.length(sequence, first) as usize, text.len());
                opening.open(sequence, &mut bytes).unwrap();
                assert_eq!(&bytes[4..4 + text.len()], *text);
            }
        }
    }

    fn memchr_absent(bytes: &[u8], text: &[u8]) -> bool {
        !bytes.windows(text.len()).any(|window| window == text)
    }

    #[test]
    fn any_changed_bit_and_any_other_order_is_found() {
        for cipher in PacketCipher::ALL {
            let mut sealed = packet(b"sixteen bytes..!");
            Sealing::new(cipher, KNOWN, true).unwrap().seal(0, &mut sealed).unwrap();
            for at in 0..sealed.len() {
                let mut changed = sealed.clone();
                changed[at] ^= 1;
                assert_eq!(Opening::new(cipher, KNOWN, true).unwrap().open(0, &mut changed), Err(Forged));
            }
            let mut opening = Opening::new(cipher, KNOWN, true).unwrap();
            opening.open(0, &mut sealed.clone()).unwrap();
            assert_eq!(opening.open(1, &mut sealed.clone()), Err(Forged), "sent again");
            assert_eq!(Opening::new(cipher, KNOWN, false).unwrap().open(0, &mut sealed), Err(Forged));
            for short in 0..TAG + 4 {
                let mut opening = Opening::new(cipher, KNOWN, true).unwrap();
                assert_eq!(opening.open(0, &mut vec![0; short]), Err(Forged), "{short}");
                if short < TAG + 4 {
                    let _ = Sealing::new(cipher, KNOWN, true).unwrap().seal(0, &mut vec![0; short]);
                }
            }
        }
    }
}
