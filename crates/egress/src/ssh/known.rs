//! Which keys hosts are known by: the policy's word where it has one, otherwise the files of known hosts that the
//! operator's own OpenSSH goes by. A host that nobody knows is not spoken to, and neither is one that shows another key.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cofferdam_policy::{HostClaim, Policy};
use cofferdam_seal::Hash;
use cofferdam_seal::ssh::{HOST_KEYS, fingerprint, key_kind};

/// The operator's files, read once.
#[derive(Default)]
pub struct KnownHosts(Vec<Line>);

struct Line {
    names: Names,
    key: Vec<u8>,
    revoked: bool,
}

enum Names {
    Hashed {
        salt: Vec<u8>,
        hash: Vec<u8>,
    },
    /// Each with whether it is meant not to match.
    Listed(Vec<(String, bool)>),
}

/// What is to be said of a key that a host shows.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// Nobody has said anything of this host.
    Unknown,
    /// It is known by these.
    Other(Vec<String>),
    Revoked,
}

impl KnownHosts {
    /// Lines that cannot be read say nothing of anybody, as with OpenSSH.
    pub fn read(text: &str) -> Self {
        Self(text.lines().filter_map(Line::read).collect())
    }

    /// The ways in which a host may prove itself: those whose keys are known, so that it does not show another kind.
    pub(super) fn ways(&self, policy: &Policy, host: &str, port: u16) -> Vec<&'static str> {
        let mut kinds: Vec<String> = Vec::new();
        let declared = declared(policy, host, port);
        match declared.is_empty() {
            false => {
                for claim in &declared {
                    match claim {
                        HostClaim::Key { kind, .. } => kinds.push(kind.clone()),
                        // Of what kind it is does not show.
                        HostClaim::Fingerprint(_) => return HOST_KEYS.iter().map(|(way, _)| *way).collect(),
                    }
                }
            }
            true => kinds.extend(self.of(host, port).filter_map(|key| key_kind(key).map(str::to_owned))),
        }
        let known = |kind: &str| kinds.iter().any(|known| known == kind);
        let ways: Vec<_> = HOST_KEYS.iter().filter(|(_, kind)| known(kind)).map(|(way, _)| *way).collect();
        // Nothing is known: whatever it shows is told to people.
        if ways.is_empty() { HOST_KEYS.iter().map(|(way, _)| *way).collect() } else { ways }
    }

    /// Whether this is the key of this host.
    pub(super) fn judge(&self, policy: &Policy, host: &str, port: u16, key: &[u8]) -> Result<(), Doubt> {
        let revoked =
            self.0.iter().any(|line| line.revoked && line.key == key && line.names.matches(host, port));
        if revoked {
            return Err(Doubt::Revoked);
        }
        let shown = fingerprint(key);
        let declared = declared(policy, host, port);
        let known: Vec<String> = match declared.is_empty() {
            false => declared.iter().map(|claim| print_of(claim)).collect(),
            true => self.of(host, port).map(fingerprint).collect(),
        };
        match known.is_empty() {
            true => Err(Doubt::Unknown),
            false if known.contains(&shown) => Ok(()),
            false => Err(Doubt::Other(known)),
        }
    }

    fn of(&self, host: &str, port: u16) -> impl Iterator<Item = &[u8]> {
        let fits = move |line: &&Line| !line.revoked && line.names.matches(host, port);
        self.0.iter().filter(fits).map(|line| line.key.as_slice())
    }
}

fn declared<'p>(policy: &'p Policy, host: &str, port: u16) -> Vec<&'p HostClaim> {
    let of_it = policy.known_hosts().filter(|known| known.host == host && known.port == port);
    of_it.flat_map(|known| &known.keys).collect()
}

fn print_of(claim: &HostClaim) -> String {
    match claim {
        HostClaim::Fingerprint(text) => text.clone(),
        HostClaim::Key { base64, .. } => fingerprint(&STANDARD.decode(base64).unwrap_or_default()),
    }
}

impl Line {
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace().peekable();
        let revoked = match *words.peek()? {
            "@revoked" => words.next().is_some(),
            // Whom an authority vouches for is not looked into here.
            other if other.starts_with(['@', '#']) => return None,
            _ => false,
        };
        let (names, kind, key) = (words.next()?, words.next()?, words.next()?);
        let key = STANDARD.decode(key).ok().filter(|key| key_kind(key) == Some(kind))?;
        Some(Self { names: Names::read(names)?, key, revoked })
    }
}

impl Names {
    fn read(text: &str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix("|1|") {
            let (salt, hash) = rest.split_once('|')?;
            return Some(Self::Hashed {
                salt: STANDARD.decode(salt).ok()?,
                hash: STANDARD.decode(hash).ok()?,
            });
        }
        let one = |name: &str| match name.strip_prefix('!') {
            Some(name) => (name.to_ascii_lowercase(), true),
            None => (name.to_ascii_lowercase(), false),
        };
        Some(Self::Listed(text.split(',').filter(|name| !name.is_empty()).map(one).collect()))
    }

    fn matches(&self, host: &str, port: u16) -> bool {
        let name = if port == 22 { host.to_owned() } else { format!("[{host}]:{port}") };
        match self {
            Self::Hashed { salt, hash } => *Hash::Sha1.authenticate(salt, &[name.as_bytes()]) == *hash,
            Self::Listed(names) => {
                let fits = |wanted: bool| {
                    names
                        .iter()
                        .any(|(pattern, not)| *not == wanted && like(pattern.as_bytes(), name.as_bytes()))
                };
                fits(false) && !fits(true)
            }
        }
    }
}

/// `*` is any number of characters and `?` one. Goes back to the last `*` only.
fn like(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut seen, mut back) = (0, 0, None);
    while seen < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                back = Some((at, seen));
                at += 1;
            }
            Some(c) if *c == b'?' || *c == text[seen] => (at, seen) = (at + 1, seen + 1),
            _ => match back {
                Some((star, from)) => {
                    back = Some((star, from + 1));
                    (at, seen) = (star + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_seal::dsse::Nonces;
    use cofferdam_seal::ssh::HostKey;

    fn key() -> HostKey {
        HostKey::new(&Nonces::new()).unwrap()
    }

    fn policy(text: &str) -> Policy {
        Policy::parse(text).unwrap()
    }

    #[test]
    fn files_as_openssh_writes_them() {
        let (right, wrong) = (key(), key());
        let salt = [7; 20];
        let hash = Hash::Sha1.authenticate(&salt, &[b"[hidden.example]:2222"]);
        let hashed = format!("|1|{}|{}", STANDARD.encode(salt), STANDARD.encode(&*hash));
        let line = right.line();
        let text = format!(
            "# a comment\n\ngit.example,10.0.0.7 {line} me@here\n[git.example]:2222 {line}\n{hashed} {line}\n\
             *.below.example,!not.below.example {line}\n@cert-authority * {line}\nbroken ssh-ed25519 AAAA\n"
        );
        let known = KnownHosts::read(&text);
        let check = |host: &str, port: u16, expected: bool| {
            let found = known.judge(&policy(""), host, port, right.public());
            assert_eq!(found == Ok(()), expected, "{host}:{port}: {found:?}");
            if expected {
                let other = known.judge(&policy(""), host, port, wrong.public());
                assert_eq!(other, Err(Doubt::Other(vec![fingerprint(right.public())])));
                assert_eq!(known.ways(&policy(""), host, port), ["ssh-ed25519"]);
            } else {
                assert_eq!(found, Err(Doubt::Unknown));
            }
        };
        check("git.example", 22, true);
        check("10.0.0.7", 22, true);
        check("git.example", 2222, true);
        check("git.example", 2223, false);
        check("hidden.example", 2222, true);
        check("hidden.example", 22, false);
        check("a.below.example", 22, true);
        check("not.below.example", 22, false);
        check("below.example", 22, false);
        check("broken", 22, false);
    }

    #[test]
    fn a_key_that_was_taken_back_is_no_key() {
        let right = key();
        let known = KnownHosts::read(&format!("@revoked * {0}\ngit.example {0}\n", right.line()));
        assert_eq!(known.judge(&policy(""), "git.example", 22, right.public()), Err(Doubt::Revoked));
    }

    #[test]
    fn the_policys_word_comes_before_the_files() {
        let (declared, filed) = (key(), key());
        let known = KnownHosts::read(&format!("git.example {}\n", filed.line()));
        for claim in [fingerprint(declared.public()), declared.line()] {
            let policy = policy(&format!("[[known_host]]\nhost = \"git.example\"\nkey = \"{claim}\"\n"));
            assert_eq!(known.judge(&policy, "git.example", 22, declared.public()), Ok(()));
            let other = known.judge(&policy, "git.example", 22, filed.public());
            assert_eq!(other, Err(Doubt::Other(vec![fingerprint(declared.public())])));
            assert_eq!(known.judge(&policy, "git.example", 23, filed.public()), Err(Doubt::Unknown));
        }
    }
}
