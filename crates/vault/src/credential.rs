//! What is known of a secret apart from its value, and the rules a description has to keep.

use crate::host::{self, HostError};
use crate::{Declaration, Part, Place, Plain, Role, Scope};
use serde::{Deserialize, Serialize};

const MAX_NAME: usize = 64;
/// More of anything is a mistake.
const MAX_LIST: usize = 64;

/// Variables that decide how programs run: a placeholder in one breaks the inside.
const RESERVED: &[&str] =
    &["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TERM", "LANG", "PWD", "IFS"];
const RESERVED_STARTS: &[&str] = &["LD_", "COFFERDAM_", "LC_"];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    #[error(
        "`{0}` cannot be a secret's name: use up to 64 letters, digits, `-`, `_` and `.`, a letter or digit first"
    )]
    Name(String),
    #[error("`{0}` cannot be a variable's name: use letters, digits and `_`, as in `--env STRIPE_KEY`")]
    Env(String),
    #[error("the variable `{0}` decides how programs run inside: choose another with --env")]
    ReservedEnv(String),
    #[error("no host is named that the secret may be sent to: add `--for api.example.com`, or a --preset")]
    NoHost,
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("no place in a request is named: add `--as bearer`, `--as header:NAME`, …")]
    NoPlace,
    #[error("`{0}` is not a program's path inside: give an absolute one without `..`, as in `/usr/bin/git`")]
    Program(String),
    #[error(
        "`{0}` makes signatures, and what is signed with is never sent: declare no other place beside it"
    )]
    Mixed(String),
    #[error(
        "`{0}` is a protocol of its own, and what it proves is never sent: declare no other place beside it"
    )]
    OtherProtocol(String),
    #[error(
        "a scope says what a key may sign for, and this credential makes no signature of AWS: leave out --scope"
    )]
    ScopeWithoutSigner,
    #[error("too many {0}: at most 64")]
    TooMany(&'static str),
}

/// A named secret, where it may go, and where in a request it may stand.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    pub name: String,
    /// The variable in which the placeholder stands inside.
    pub env: String,
    /// Hosts the real value may be sent to: `api.example.com`, or `*.example.com` for names below it.
    pub hosts: Vec<String>,
    /// Positions in which the placeholder is swapped; anywhere else it is an attempt to leak.
    pub places: Vec<Place>,
    /// Programs that may spend it (absolute paths inside); empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<String>,
    /// What it may sign for; empty for all services that give out no credentials.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<Scope>,
    /// The scheme of [`Place::Hmac`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hmac: Option<Declaration>,
}

impl Credential {
    /// The same in canonical form, without repetitions; or what is wrong with it.
    pub fn checked(mut self) -> Result<Self, CredentialError> {
        check_name(&self.name)?;
        check_env(&self.env)?;
        if self.hosts.is_empty() {
            return Err(CredentialError::NoHost);
        }
        if self.places.is_empty() {
            return Err(CredentialError::NoPlace);
        }
        let counts = [
            (self.hosts.len(), "hosts"),
            (self.places.len(), "places"),
            (self.programs.len(), "programs"),
            (self.scopes.len(), "scopes"),
        ];
        if let Some((_, what)) = counts.into_iter().find(|(count, _)| *count > MAX_LIST) {
            return Err(CredentialError::TooMany(what));
        }
        let signs = self.signs();
        let canonical = |host: &String| match self.own_port() {
            Some(port) => host::with_port(host, port),
            None => host::canonical(host, signs),
        };
        let hosts: Vec<String> = self.hosts.iter().map(canonical).collect::<Result<_, HostError>>()?;
        self.hosts = once_each(hosts);
        self.places = once_each(self.places);
        self.programs = once_each(self.programs);
        self.scopes = once_each(self.scopes);
        self.check_signing()?;
        match self.programs.iter().find(|path| !is_program(path)) {
            Some(path) => Err(CredentialError::Program(shown(path))),
            None => Ok(self),
        }
    }

    /// Whether it is exchanged for tokens, which are sent in its place.
    pub fn mints(&self) -> bool {
        self.places.iter().any(Place::mints)
    }

    /// Whether it makes signatures, and is never sent itself.
    pub fn signs(&self) -> bool {
        self.places.iter().any(Place::signs)
    }

    /// The usual port of the protocol other than HTTP that it is for, if it is.
    pub fn own_port(&self) -> Option<u16> {
        self.places.iter().find_map(Place::own_port)
    }

    fn check_signing(&self) -> Result<(), CredentialError> {
        let signer = self.places.iter().find(|place| place.signs());
        if let Some(own) = self.places.iter().find(|place| place.own_port().is_some())
            && self.places.len() > 1
        {
            return Err(CredentialError::OtherProtocol(own.to_string()));
        }
        let of_aws = self.places.iter().all(|place| matches!(place, Place::SigV4 | Place::SigV4a));
        match signer {
            Some(signer) if self.places.len() > 1 && !of_aws => {
                Err(CredentialError::Mixed(signer.to_string()))
            }
            _ if !self.scopes.is_empty() && !of_aws => Err(CredentialError::ScopeWithoutSigner),
            _ => Ok(()),
        }
    }

    /// The variable that stands for a name of which nothing else is known: the name in capitals.
    pub fn default_env(name: &str) -> String {
        let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        let text: String = name.chars().map(letter).collect();
        if text.starts_with(|c: char| c.is_ascii_digit()) { format!("_{text}") } else { text }
    }
}

/// A credential in one session: what the inside sees of it, and what it stands for.
pub struct Bound {
    pub credential: Credential,
    /// Looks like the real thing, is unique to this session, opens nothing.
    pub placeholder: String,
    pub plain: Plain,
    /// Goes up when the value is replaced: what was sent under an older one is cut.
    pub generation: u64,
    /// What else belongs to it: a key's id, a token.
    pub parts: Vec<Part>,
}

impl Bound {
    /// A credential without a value, for a session in which nothing is sent: its placeholder stands for a text that
    /// opens nothing anywhere.
    pub fn hollow(credential: Credential, placeholder: String, parts: Vec<(String, String)>) -> Self {
        let nothing = |placeholder: &str| {
            Plain::new(cofferdam_seal::digest(placeholder.as_bytes()).to_string().into_bytes())
        };
        let roles = crate::sign::roles(&credential);
        let role = |env: &str| roles.iter().find(|(_, of)| of == env).map_or(Role::Token, |(role, _)| *role);
        let part = |(env, placeholder): (String, String)| Part {
            role: role(&env),
            plain: nothing(&placeholder),
            env,
            placeholder,
        };
        let parts = parts.into_iter().map(part).collect();
        let plain = nothing(&placeholder);
        Self { credential, placeholder, plain, generation: 1, parts }
    }

    /// The variables of the inside, each with its placeholder.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        let main = (self.credential.env.as_str(), self.placeholder.as_str());
        let parts = self.parts.iter().map(|part| (part.env.as_str(), part.placeholder.as_str()));
        std::iter::once(main).chain(parts.filter(|(env, _)| !env.is_empty()))
    }

    /// A file that the provider's own clients read, with placeholders in it, and the variable that names it.
    pub fn client_file(&self) -> Option<(&'static str, String)> {
        let part = |role| self.parts.iter().find(|part| part.role == role);
        let (grant, refresh) = part(Role::Grant).zip(part(Role::Refresh))?;
        let text = crate::sign::client_file(&self.credential, &grant.plain, &refresh.placeholder)?;
        Some(("GOOGLE_APPLICATION_CREDENTIALS", text))
    }
}

pub(crate) fn check_name(name: &str) -> Result<(), CredentialError> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let first = name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
    let ok = first && name.len() <= MAX_NAME && name.bytes().all(fits);
    if ok { Ok(()) } else { Err(CredentialError::Name(shown(name))) }
}

fn check_env(name: &str) -> Result<(), CredentialError> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let first = name.as_bytes().first().is_some_and(|b| !b.is_ascii_digit());
    if !first || name.len() > MAX_NAME || !name.bytes().all(fits) {
        return Err(CredentialError::Env(shown(name)));
    }
    let upper = name.to_ascii_uppercase();
    let starts = RESERVED_STARTS.iter().any(|start| upper.starts_with(start));
    if starts || RESERVED.contains(&upper.as_str()) || upper.ends_with("_PROXY") {
        return Err(CredentialError::ReservedEnv(name.to_owned()));
    }
    Ok(())
}

fn is_program(path: &str) -> bool {
    let parts = path.strip_prefix('/').map(|rest| rest.split('/'));
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    parts.is_some_and(|mut parts| parts.all(plain)) && !path.contains(char::is_control)
}

fn once_each<T: PartialEq>(list: Vec<T>) -> Vec<T> {
    let mut kept = Vec::with_capacity(list.len());
    for item in list {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}

fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential() -> Credential {
        Credential {
            name: "stripe".into(),
            env: "STRIPE_KEY".into(),
            hosts: vec!["api.stripe.com".into()],
            places: vec![Place::Bearer],
            ..Credential::default()
        }
    }

    fn check(change: impl Fn(&mut Credential), expected: &str) {
        let mut credential = credential();
        change(&mut credential);
        let error = credential.clone().checked().expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(credential().checked(), Ok(credential()));
        check(|c| c.name = "../x".into(), "`../x` cannot be a secret's name");
        check(|c| c.name = "-x".into(), "cannot be a secret's name");
        check(|c| c.name = "x".repeat(65), "cannot be a secret's name");
        check(|c| c.env = "1A".into(), "`1A` cannot be a variable's name");
        check(|c| c.env = "A=B".into(), "cannot be a variable's name");
        check(|c| c.env = "ld_preload".into(), "decides how programs run");
        check(|c| c.env = "https_proxy".into(), "decides how programs run");
        check(|c| c.hosts.clear(), "--for");
        check(|c| c.hosts.push("*.com".into()), "strangers");
        check(|c| c.places.clear(), "--as");
        check(|c| c.places = vec![Place::Bearer; 65], "too many places");
        check(|c| c.places.push(Place::SigV4), "declare no other place");
        check(|c| c.places.push(Place::Postgres), "a protocol of its own");
        check(|c| c.scopes.push("s3".parse().unwrap()), "makes no signature of AWS");
        check(|c| c.programs = vec!["git".into()], "`git` is not a program's path");
        check(|c| c.programs = vec!["/usr/../bin/git".into()], "is not a program's path");
    }

    #[test]
    fn the_canonical_form_repeats_nothing() {
        let mut twice = credential();
        twice.hosts.push("API.stripe.com.".into());
        twice.places.push(Place::Bearer);
        assert_eq!(twice.checked(), Ok(credential()));
    }

    #[test]
    fn hosts_of_another_protocol_have_ports() {
        let of = |host: &str| {
            let hosts = vec![host.to_owned()];
            let credential = Credential { hosts, places: vec![Place::Postgres], ..credential() };
            credential.checked().map(|c| c.hosts.join(" ")).map_err(|error| error.to_string())
        };
        assert_eq!(of("DB.internal").as_deref(), Ok("db.internal:5432"));
        assert_eq!(of("db.internal:6432").as_deref(), Ok("db.internal:6432"));
        assert_eq!(of("10.1.2.3:5432").as_deref(), Ok("10.1.2.3:5432"));
        assert_eq!(of("[fd12::1]").as_deref(), Ok("[fd12::1]:5432"));
        assert!(of("*.db.example:0").is_err() && of("db:99999").is_err() && of("*.com:5432").is_err());
    }

    #[test]
    fn a_variable_for_a_name() {
        for (name, expected) in [("stripe", "STRIPE"), ("my.api-key", "MY_API_KEY"), ("7up", "_7UP")] {
            assert_eq!(Credential::default_env(name), expected);
        }
    }
}
