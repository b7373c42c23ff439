//! SCRAM-SHA-256 (RFC 5802, 7677) in both of its roles: towards the server with the real password, towards the client with
//! its placeholder. Neither is ever sent; each side proves that it knows. Nonces come from the caller.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_seal::{Hash, same};
use std::num::NonZeroU32;
use thiserror::Error;
use zeroize::Zeroizing;

pub(crate) const PLAIN: &str = "SCRAM-SHA-256";
pub(crate) const BOUND: &str = "SCRAM-SHA-256-PLUS";

/// More would be work that the other side chooses for us.
const MOST_ROUNDS: u32 = 600_000;
const ROUNDS: NonZeroU32 = match NonZeroU32::new(4096) {
    Some(rounds) => rounds,
    None => NonZeroU32::MIN,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum ScramError {
    #[error("a message of its sign-in cannot be read")]
    Malformed,
    #[error("it wants more than {MOST_ROUNDS} rounds of work for one password")]
    TooMuchWork,
    #[error("it does not know the password itself: it is not the server that it says it is")]
    WrongServer,
    #[error("the password is not the one that was expected")]
    WrongPassword,
}

fn keys(salted: &[u8]) -> (Zeroizing<Vec<u8>>, Vec<u8>, Zeroizing<Vec<u8>>) {
    let client = Hash::Sha256.authenticate(salted, &[b"Client Key"]);
    let stored = Hash::Sha256.digest(&client);
    let server = Hash::Sha256.authenticate(salted, &[b"Server Key"]);
    (client, stored, server)
}

fn attribute(text: &str, name: char) -> Result<&str, ScramError> {
    let found = text.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    found.ok_or(ScramError::Malformed)
}

fn xor(a: &[u8], b: &[u8]) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(a.iter().zip(b).map(|(a, b)| a ^ b).collect())
}

/// Us, to a server. `binding` is what ties the sign-in to the TLS connection.
pub(crate) struct Client {
    gs2: &'static str,
    binding: Vec<u8>,
    nonce: String,
}

/// What a server must answer.
pub(crate) struct Expected(Zeroizing<Vec<u8>>);

impl Client {
    pub(crate) fn new(nonce: &[u8], binding: Option<&[u8]>) -> Self {
        let gs2 = if binding.is_some() { "p=tls-server-end-point,," } else { "n,," };
        Self { gs2, binding: binding.unwrap_or_default().to_vec(), nonce: STANDARD.encode(nonce) }
    }

    pub(crate) fn first(&self) -> String {
        format!("{}n=,r={}", self.gs2, self.nonce)
    }

    /// The proof, and what proves the server. Costs as many rounds as the server wants, within bounds.
    pub(crate) fn answer(
        &self,
        password: &[u8],
        server_first: &str,
    ) -> Result<(String, Expected), ScramError> {
        let nonce = attribute(server_first, 'r')?;
        if !nonce.starts_with(&self.nonce) || nonce.len() <= self.nonce.len() || nonce.len() > 512 {
            return Err(ScramError::Malformed);
        }
        let salt = STANDARD.decode(attribute(server_first, 's')?).map_err(|_| ScramError::Malformed)?;
        let rounds: NonZeroU32 = attribute(server_first, 'i')?.parse().map_err(|_| ScramError::Malformed)?;
        if rounds.get() > MOST_ROUNDS {
            return Err(ScramError::TooMuchWork);
        }
        let salted = Hash::Sha256.stretch(password, &salt, rounds);
        let (client, stored, server) = keys(&salted);
        let channel = STANDARD.encode([self.gs2.as_bytes(), &self.binding].concat());
        let bare = format!("c={channel},r={nonce}");
        let signed = format!("n=,r={},{server_first},{bare}", self.nonce);
        let proof = xor(&client, &Hash::Sha256.authenticate(&stored, &[signed.as_bytes()]));
        let expected = Hash::Sha256.authenticate(&server, &[signed.as_bytes()]);
        Ok((format!("{bare},p={}", STANDARD.encode(&*proof)), Expected(expected)))
    }
}

impl Expected {
    pub(crate) fn check(&self, server_final: &str) -> Result<(), ScramError> {
        let found = STANDARD.decode(attribute(server_final, 'v')?).map_err(|_| ScramError::Malformed)?;
        if same(&self.0, &found) { Ok(()) } else { Err(ScramError::WrongServer) }
    }
}

/// Us, to a client that should know `password`.
pub(crate) struct Server {
    first: String,
    client_bare: String,
    gs2: String,
    salted: Zeroizing<Vec<u8>>,
    nonce: String,
}

impl Server {
    /// Reads the client's first message; `random` is for the nonce and the salt.
    pub(crate) fn new(password: &[u8], client_first: &str, random: &[u8; 40]) -> Result<Self, ScramError> {
        let (flag, rest) = client_first.split_once(',').ok_or(ScramError::Malformed)?;
        let (name, bare) = rest.split_once(',').ok_or(ScramError::Malformed)?;
        // No binding is offered, so one that is used anyway is a mistake; another name than one's own is refused.
        if !matches!(flag, "n" | "y") || !name.is_empty() || bare.starts_with("m=") {
            return Err(ScramError::Malformed);
        }
        let (random, salt) = random.split_at(24);
        let nonce = format!("{}{}", attribute(bare, 'r')?, STANDARD.encode(random));
        if nonce.len() > 512 {
            return Err(ScramError::Malformed);
        }
        let first = format!("r={nonce},s={},i={ROUNDS}", STANDARD.encode(salt));
        let salted = Hash::Sha256.stretch(password, salt, ROUNDS);
        Ok(Self { first, client_bare: bare.to_owned(), gs2: format!("{flag},,"), salted, nonce })
    }

    pub(crate) fn first(&self) -> &str {
        &self.first
    }

    /// The last message for a client that has proven itself.
    pub(crate) fn verify(&self, client_final: &str) -> Result<String, ScramError> {
        let (bare, proof) = client_final.rsplit_once(",p=").ok_or(ScramError::Malformed)?;
        let proof = STANDARD.decode(proof).map_err(|_| ScramError::Malformed)?;
        if attribute(bare, 'c')? != STANDARD.encode(&self.gs2)
            || attribute(bare, 'r')? != self.nonce
            || proof.len() != 32
        {
            return Err(ScramError::Malformed);
        }
        let (_, stored, server) = keys(&self.salted);
        let signed = format!("{},{},{bare}", self.client_bare, self.first);
        let client = xor(&proof, &Hash::Sha256.authenticate(&stored, &[signed.as_bytes()]));
        if !same(&Hash::Sha256.digest(&client), &stored) {
            return Err(ScramError::WrongPassword);
        }
        Ok(format!("v={}", STANDARD.encode(&*Hash::Sha256.authenticate(&server, &[signed.as_bytes()]))))
    }
}

/// What binds to a TLS connection (RFC 5929): the digest of the server's certificate, by the hash of its signature; none
/// for signatures of which that is not defined.
pub(crate) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let body = element(certificate, 0x30)?.0;
    let (_, after) = element(body, 0x30)?;
    let oid = element(element(after, 0x30)?.0, 0x06)?.0;
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];
    let hash = match oid.split_last()? {
        // MD5 and SHA-1 count as SHA-256 here.
        (4 | 5 | 11, RSA) | (2, ECDSA) => Hash::Sha256,
        (12, RSA) | (3, ECDSA) => Hash::Sha384,
        (13, RSA) | (4, ECDSA) => Hash::Sha512,
        _ => return None,
    };
    Some(hash.digest(certificate))
}

/// The content of a DER element with this tag, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    if found == tag { rest.split_at_checked(length) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The example of RFC 7677, with its nonces.
    #[test]
    fn the_published_example() {
        let client = Client { gs2: "n,,", binding: Vec::new(), nonce: "rOprNGfwEbeRWgbNEkqO".into() };
        // Postgres sends no user name here, which the signature covers: the example is taken apart and signed anew.
        let salted = Hash::Sha256.stretch(
            b"pencil",
            &STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap(),
            NonZeroU32::new(4096).unwrap(),
        );
        let (key, stored, server) = keys(&salted);
        let signed = "n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
            s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let proof = xor(&key, &Hash::Sha256.authenticate(&stored, &[signed.as_bytes()]));
        assert_eq!(STANDARD.encode(&*proof), "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
        let answer = Hash::Sha256.authenticate(&server, &[signed.as_bytes()]);
        assert_eq!(STANDARD.encode(&*answer), "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        assert_eq!(client.first(), "n,,n=,r=rOprNGfwEbeRWgbNEkqO");
    }

    fn talk(theirs: &[u8], ours: &[u8]) -> Result<(), ScramError> {
        let client = Client::new(&[1; 18], None);
        let server = Server::new(ours, &client.first(), &[2; 40])?;
        let (last, expected) = client.answer(theirs, server.first())?;
        expected.check(&server.verify(&last)?)
    }

    #[test]
    fn both_sides_prove_themselves() {
        assert_eq!(talk(b"the placeholder", b"the placeholder"), Ok(()));
        assert_eq!(talk(b"something else", b"the placeholder"), Err(ScramError::WrongPassword));
        let client = Client::new(&[1; 18], None);
        let (_, expected) = client.answer(b"x", &format!("r={}abc,s=c2FsdA==,i=4096", client.nonce)).unwrap();
        assert_eq!(expected.check(&format!("v={}", STANDARD.encode([0; 32]))), Err(ScramError::WrongServer));
    }

    #[test]
    fn what_the_other_side_says_is_bounded() {
        let client = Client::new(&[1; 18], None);
        let check = |first: String, expected: ScramError| {
            assert_eq!(client.answer(b"x", &first).err(), Some(expected), "{first}");
        };
        check(format!("r={}abc,s=c2FsdA==,i=4000000000", client.nonce), ScramError::TooMuchWork);
        check(format!("r={}abc,s=c2FsdA==,i=0", client.nonce), ScramError::Malformed);
        check("r=another,s=c2FsdA==,i=1".into(), ScramError::Malformed);
        check(format!("r={},s=c2FsdA==,i=1", client.nonce), ScramError::Malformed);
        for first in ["p=tls-unique,,n=,r=a", "n,a=other,n=,r=a", "n,,m=x,n=,r=a", "n,,n=", ""] {
            assert!(Server::new(b"x", first, &[0; 40]).is_err(), "{first}");
        }
    }

    #[test]
    fn a_certificate_binds() {
        let ca = crate::Ca::new("test").unwrap();
        let der = pem_der(ca.pem());
        assert_eq!(end_point(&der), Some(Hash::Sha256.digest(&der)));
        assert_eq!(end_point(&der[..der.len() / 2]), None);
    }

    fn pem_der(pem: &str) -> Vec<u8> {
        let body: String = pem.lines().filter(|line| !line.starts_with("---")).collect();
        STANDARD.decode(body).unwrap()
    }

    proptest! {
        #[test]
        fn any_text_is_answered_or_refused(text in ".{0,80}", bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let client = Client::new(&[1; 18], None);
            let _ = client.answer(b"x", &text.replace("i=", "i=1"));
            if let Ok(server) = Server::new(b"x", "n,,n=,r=abc", &[3; 40]) {
                prop_assert!(server.verify(&text).is_err());
            }
            let _ = end_point(&bytes);
        }
    }
}
