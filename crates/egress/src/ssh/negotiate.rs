//! Which of the ways that both ends know they use (RFC 4253, section 7.1).

use super::transport::{Done, TransportError, msg};
use cofferdam_seal::ssh::{Agreement, PacketCipher, Reader, put_string};

/// Never used, because what seals packets proves them too; some clients look for one all the same.
const MACS: &str = "hmac-sha2-256-etm@openssh.com,hmac-sha2-512-etm@openssh.com,hmac-sha2-256";
const STRICT_CLIENT: &str = "kex-strict-c-v00@openssh.com";
const STRICT_SERVER: &str = "kex-strict-s-v00@openssh.com";

/// What we can do.
pub(super) struct Offer {
    pub(super) host_keys: Vec<&'static str>,
    pub(super) is_client: bool,
    pub(super) is_first: bool,
}

pub(super) struct Agreed {
    pub(super) agreement: Agreement,
    pub(super) host_key: &'static str,
    /// From the client, and from the server.
    pub(super) ciphers: (PacketCipher, PacketCipher),
    pub(super) strict: bool,
    /// The other end has sent a packet ahead that does not fit.
    pub(super) guessed_wrong: bool,
}

impl Offer {
    fn agreements(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = Agreement::ALL.iter().map(|one| one.name()).collect();
        if self.is_first {
            names.push(if self.is_client { STRICT_CLIENT } else { STRICT_SERVER });
        }
        names
    }

    pub(super) fn message(&self) -> Option<Vec<u8>> {
        let mut message = vec![msg::KEXINIT];
        let mut cookie = [0; 16];
        super::random(&mut cookie)?;
        message.extend_from_slice(&cookie);
        let ciphers = PacketCipher::ALL.map(PacketCipher::name).join(",");
        let lists = [
            self.agreements().join(",").as_str(),
            self.host_keys.join(",").as_str(),
            &ciphers,
            &ciphers,
            MACS,
            MACS,
            "none",
            "none",
            "",
            "",
        ]
        .map(str::to_owned);
        lists.iter().for_each(|list| put_string(&mut message, list.as_bytes()));
        message.extend_from_slice(&[0; 5]);
        Some(message)
    }
}

/// The first of the client's that the server has too.
fn first<'a>(what: &'static str, ours: &[&'a str], theirs: &str, is_client: bool) -> Done<&'a str> {
    let found = match is_client {
        true => ours.iter().copied().find(|name| theirs.split(',').any(|one| one == *name)),
        false => theirs.split(',').find_map(|one| ours.iter().copied().find(|name| *name == one)),
    };
    let shown = || theirs.chars().filter(char::is_ascii_graphic).take(300).collect();
    found.ok_or_else(|| TransportError::NoCommon(what, shown()))
}

pub(super) fn agree(offer: &Offer, theirs: &[u8]) -> Done<Agreed> {
    let mut reader = Reader::new(theirs);
    let mut lists = Vec::with_capacity(10);
    let mut read = || {
        reader.take(17)?;
        for _ in 0..10 {
            lists.push(reader.text()?);
        }
        reader.flag()
    };
    let follows = read().ok_or(TransportError::Malformed)?;
    let [kex, host_keys, up, down, _, _, pack_up, pack_down, ..] = lists[..] else {
        return Err(TransportError::Malformed);
    };
    let ciphers = PacketCipher::ALL.map(PacketCipher::name);
    let first = |what, ours: &[&'static str], theirs| first(what, ours, theirs, offer.is_client);
    let agreements: Vec<_> = Agreement::ALL.iter().map(|one| one.name()).collect();
    let name = first("way to agree on keys", &agreements, kex)?;
    let host_key = first("kind of host key", &offer.host_keys, host_keys)?;
    let (up, down) = (first("cipher", &ciphers, up)?, first("cipher", &ciphers, down)?);
    first("compression", &["none"], pack_up)?;
    first("compression", &["none"], pack_down)?;
    let strict = if offer.is_client { STRICT_SERVER } else { STRICT_CLIENT };
    let cipher = |name| PacketCipher::named(name).ok_or(TransportError::Malformed);
    let guess = |list: &str, chosen: &str| list.split(',').next() == Some(chosen);
    Ok(Agreed {
        agreement: Agreement::named(name).ok_or(TransportError::Malformed)?,
        host_key,
        ciphers: (cipher(up)?, cipher(down)?),
        strict: kex.split(',').any(|one| one == strict),
        guessed_wrong: follows && !(guess(kex, name) && guess(host_keys, host_key)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn offer(is_client: bool) -> Offer {
        Offer { host_keys: vec!["ssh-ed25519"], is_client, is_first: true }
    }

    fn theirs(lists: [&str; 4], follows: bool) -> Vec<u8> {
        let [kex, keys, up, down] = lists;
        let mut message = vec![msg::KEXINIT; 17];
        for list in [kex, keys, up, down, "hmac-sha1", "hmac-sha1", "none,zlib", "none", "", ""] {
            put_string(&mut message, list.as_bytes());
        }
        message.extend_from_slice(&[u8::from(follows), 0, 0, 0, 0]);
        message
    }

    const CHACHA: &str = "chacha20-poly1305@openssh.com";
    const AES: &str = "aes128-gcm@openssh.com";

    #[test]
    fn the_clients_wish_comes_first() {
        let both = format!("{CHACHA},aes128-ctr,{AES}");
        let kex = "sntrup761x25519-sha512@openssh.com,curve25519-sha256,kex-strict-c-v00@openssh.com";
        let agreed = agree(&offer(false), &theirs([kex, "ssh-rsa,ssh-ed25519", &both, &both], true)).unwrap();
        assert_eq!((agreed.agreement, agreed.host_key), (Agreement::Curve25519, "ssh-ed25519"));
        assert_eq!(agreed.ciphers, (PacketCipher::ChaCha20Poly1305, PacketCipher::ChaCha20Poly1305));
        assert!(agreed.strict && agreed.guessed_wrong);
        let agreed = agree(&offer(true), &theirs([kex, "ssh-ed25519", &both, AES], false)).unwrap();
        assert_eq!(agreed.ciphers, (PacketCipher::Aes128Gcm, PacketCipher::Aes128Gcm));
        assert!(!agreed.strict && !agreed.guessed_wrong, "that was a client's word");
    }

    #[test]
    fn what_is_not_common_is_named() {
        let check = |lists: [&str; 4], expected: &str| {
            let error = agree(&offer(true), &theirs(lists, false)).err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
        };
        let kex = "curve25519-sha256";
        check(["diffie-hellman-group14-sha1", "ssh-ed25519", AES, AES], "way to agree on keys");
        check([kex, "ssh-rsa", AES, AES], "kind of host key that both sides know; it offers ssh-rsa");
        check([kex, "ssh-ed25519", "aes128-ctr", AES], "cipher");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = agree(&offer(true), &bytes);
        }
    }

    #[test]
    fn two_of_us_agree() {
        let (client, server) = (offer(true), offer(false));
        let agreed = agree(&client, &server.message().unwrap()).unwrap();
        let back = agree(&server, &client.message().unwrap()).unwrap();
        assert_eq!((agreed.agreement, agreed.ciphers), (back.agreement, back.ciphers));
        assert!(agreed.strict && back.strict);
    }
}
