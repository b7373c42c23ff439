//! A credential of several values: what is read of it (a file of keys as its provider hands it out), how it is kept
//! as one text, and its values apart, each of which has a placeholder of its own inside.
//!
//! It is kept as lines, the values in the order of [`Role`]s of its kind; no value has a line end in it.

use crate::value::SHORTEST;
use crate::{Credential, Place, Plain};
use cofferdam_seal::dsse::Nonces;
use cofferdam_seal::ssh::{SshKey, SshKeyError};
use serde::Deserialize;
use std::borrow::Cow;
use zeroize::Zeroizing;

/// What a value is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// What signs. Never sent.
    Key,
    /// Names the key, and is sent with every request.
    KeyId,
    /// Goes with a key that is valid for a while.
    Token,
    /// What is exchanged for tokens. Sent to whoever gives them out, and to nobody else.
    Grant,
    /// What the inside asks for tokens with.
    Refresh,
}

/// A value beside the one that the credential is named for.
pub struct Part {
    pub role: Role,
    /// The variable in which its placeholder stands inside.
    pub env: String,
    pub placeholder: String,
    pub plain: Plain,
}

/// What is read from a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Document {
    /// One line, the value itself.
    Line,
    /// Keys of AWS: a credentials file, or JSON as its tools print it.
    Aws,
    /// A key of an Azure account, alone or in a connection string.
    Azure,
    /// A file of a provider's that is exchanged for tokens.
    Grant,
    /// A private key of OpenSSH.
    SshKey,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    #[error("it is not UTF-8 text: check the source")]
    NotText,
    #[error(
        "there is no `{0}` in it: give a credentials file of AWS (`aws_access_key_id = …`), or JSON with AccessKeyId and SecretAccessKey"
    )]
    NoAwsKey(&'static str),
    #[error("it has several profiles and none is `default`: leave one in it")]
    Profiles,
    #[error("its JSON cannot be read at line {0}: check the source")]
    Json(usize),
    #[error("there is no `{0}` in it: give the JSON file that the provider hands out")]
    NoField(&'static str),
    #[error(
        "it is neither a key in base64 nor a connection string with an AccountKey: copy it from the account's access keys"
    )]
    AzureKey,
    #[error(transparent)]
    SshKey(#[from] SshKeyError),
    #[error("its `{0}` is too short, or has spaces or control characters in it: check the source")]
    Unfit(&'static str),
}

impl Document {
    pub(crate) fn of(places: &[Place]) -> Self {
        match places.iter().find(|place| place.signs()) {
            Some(Place::SigV4 | Place::SigV4a) => Self::Aws,
            Some(Place::AzureSharedKey) => Self::Azure,
            _ if places.iter().any(Place::mints) => Self::Grant,
            _ if places.contains(&Place::Ssh) => Self::SshKey,
            _ => Self::Line,
        }
    }

    /// The variable for the main value where nobody names one.
    pub(crate) fn default_env(self) -> Option<&'static str> {
        match self {
            Self::Line | Self::Grant | Self::SshKey => None,
            Self::Aws => Some("AWS_SECRET_ACCESS_KEY"),
            Self::Azure => Some("AZURE_STORAGE_KEY"),
        }
    }
}

/// The values of a credential apart; the parts may be fewer than its kind has roles.
pub(crate) struct Whole {
    pub(crate) main: Plain,
    pub(crate) parts: Vec<(Role, Plain)>,
}

impl Whole {
    pub(crate) fn values(&self) -> impl Iterator<Item = &Plain> {
        std::iter::once(&self.main).chain(self.parts.iter().map(|(_, plain)| plain))
    }
}

/// The roles beside the main value, and the variable of each.
pub(crate) fn roles(credential: &Credential) -> Vec<(Role, String)> {
    match Document::of(&credential.places) {
        Document::Line | Document::Azure | Document::SshKey => Vec::new(),
        Document::Grant => {
            vec![(Role::Grant, String::new()), (Role::Refresh, format!("{}_REFRESH", credential.env))]
        }
        Document::Aws if credential.env == "AWS_SECRET_ACCESS_KEY" => {
            vec![(Role::KeyId, "AWS_ACCESS_KEY_ID".into()), (Role::Token, "AWS_SESSION_TOKEN".into())]
        }
        Document::Aws => {
            let named = |end: &str| format!("{}_{end}", credential.env);
            vec![(Role::KeyId, named("ID")), (Role::Token, named("TOKEN"))]
        }
    }
}

/// What the vault keeps, taken apart.
pub(crate) fn split(credential: &Credential, kept: Plain) -> Whole {
    if Document::of(&credential.places) == Document::Grant {
        let (main, refresh) = super::grant::stand_ins(&kept);
        return Whole { main, parts: vec![(Role::Grant, kept), (Role::Refresh, refresh)] };
    }
    let roles = roles(credential);
    if roles.is_empty() {
        return Whole { main: kept, parts: Vec::new() };
    }
    let mut lines = kept.reveal().split(|&b| b == b'\n').map(|line| Plain::new(line.to_vec()));
    let main = lines.next().unwrap_or_else(|| Plain::new(Vec::new()));
    let parts = roles.into_iter().map(|(role, _)| role).zip(lines);
    Whole { main, parts: parts.filter(|(_, plain)| !plain.reveal().is_empty()).collect() }
}

/// What a source gave, as it is kept.
pub(crate) fn read(places: &[Place], bytes: &[u8]) -> Result<Plain, DocumentError> {
    let document = Document::of(places);
    let text = std::str::from_utf8(bytes).map_err(|_| DocumentError::NotText)?.trim();
    match document {
        Document::Line => Ok(Plain::new(text.as_bytes().to_vec())),
        Document::SshKey => Ok(Plain::new(SshKey::line(text, &Nonces::new())?.as_bytes().to_vec())),
        Document::Grant => {
            super::grant::read(places.iter().find(|place| place.mints()).unwrap_or(&Place::Oauth), text)
        }
        Document::Azure => Ok(Plain::new(super::azure::key_in(text)?.as_bytes().to_vec())),
        Document::Aws => {
            let keys = if text.starts_with('{') { json(text)? } else { profile(text)? };
            keys.kept()
        }
    }
}

#[derive(Default)]
struct AwsKeys<'a> {
    id: Option<Cow<'a, str>>,
    secret: Option<Cow<'a, str>>,
    token: Option<Cow<'a, str>>,
}

impl AwsKeys<'_> {
    fn kept(&self) -> Result<Plain, DocumentError> {
        let fits = |text: &str| text.len() >= SHORTEST && text.bytes().all(|b| b.is_ascii_graphic());
        let id = self.id.as_deref().ok_or(DocumentError::NoAwsKey("aws_access_key_id"))?;
        let secret = self.secret.as_deref().ok_or(DocumentError::NoAwsKey("aws_secret_access_key"))?;
        let token = self.token.as_deref().filter(|token| !token.is_empty());
        // It stands between slashes and commas of what it is sent in.
        if !fits(id) || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
            return Err(DocumentError::Unfit("aws_access_key_id"));
        }
        if !fits(secret) {
            return Err(DocumentError::Unfit("aws_secret_access_key"));
        }
        if token.is_some_and(|token| !fits(token)) {
            return Err(DocumentError::Unfit("aws_session_token"));
        }
        let token = token.unwrap_or_default();
        let mut kept = Zeroizing::new(Vec::with_capacity(secret.len() + id.len() + token.len() + 2));
        for part in [secret, "\n", id, "\n", token] {
            kept.extend_from_slice(part.as_bytes());
        }
        Ok(Plain::new(std::mem::take(&mut *kept)))
    }
}

#[derive(Deserialize)]
struct JsonKeys<'a> {
    #[serde(borrow, alias = "AccessKeyId", alias = "aws_access_key_id", alias = "AWS_ACCESS_KEY_ID")]
    #[serde(alias = "accessKeyId", alias = "access_key_id")]
    id: Option<Cow<'a, str>>,
    #[serde(
        borrow,
        alias = "SecretAccessKey",
        alias = "aws_secret_access_key",
        alias = "AWS_SECRET_ACCESS_KEY"
    )]
    #[serde(alias = "secretAccessKey", alias = "secret_access_key")]
    secret: Option<Cow<'a, str>>,
    #[serde(borrow, alias = "SessionToken", alias = "aws_session_token", alias = "AWS_SESSION_TOKEN")]
    #[serde(alias = "sessionToken", alias = "session_token", alias = "Token")]
    token: Option<Cow<'a, str>>,
    /// What `aws sts` and `aws iam create-access-key` print it in.
    #[serde(borrow, alias = "Credentials", alias = "AccessKey")]
    inner: Option<Box<JsonKeys<'a>>>,
}

fn json(text: &str) -> Result<AwsKeys<'_>, DocumentError> {
    let read: JsonKeys<'_> = serde_json::from_str(text).map_err(|error| DocumentError::Json(error.line()))?;
    let JsonKeys { id, secret, token, .. } = match (read.inner, &read.id) {
        (Some(inner), None) => *inner,
        (_, _) => JsonKeys { inner: None, ..read },
    };
    Ok(AwsKeys { id, secret, token })
}

/// `~/.aws/credentials`, or lines of a shell that set the variables.
fn profile(text: &str) -> Result<AwsKeys<'_>, DocumentError> {
    let mut profiles: Vec<(&str, AwsKeys<'_>)> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            profiles.push((name.trim(), AwsKeys::default()));
            continue;
        }
        let Some((name, value)) = line.split_once('=') else { continue };
        let name = name.trim().trim_start_matches("export ").trim().to_ascii_lowercase();
        let value = value.trim().trim_matches(['"', '\'']);
        if profiles.is_empty() {
            profiles.push(("default", AwsKeys::default()));
        }
        let Some((_, keys)) = profiles.last_mut() else { continue };
        match name.as_str() {
            "aws_access_key_id" => keys.id = Some(value.into()),
            "aws_secret_access_key" => keys.secret = Some(value.into()),
            "aws_session_token" => keys.token = Some(value.into()),
            _ => {}
        }
    }
    let several = profiles.len() > 1;
    let found = profiles.into_iter().find(|(name, _)| !several || *name == "default");
    match found {
        Some((_, keys)) => Ok(keys),
        None if several => Err(DocumentError::Profiles),
        None => Err(DocumentError::NoAwsKey("aws_access_key_id")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: &str = "AKIAIOSFODNN7EXAMPLE";
    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

    fn check(text: &str, expected: Result<&str, &str>) {
        let found = read(&[Place::SigV4], text.as_bytes());
        match (&found, expected) {
            (Ok(kept), Ok(token)) => {
                assert_eq!(String::from_utf8_lossy(kept.reveal()), format!("{SECRET}\n{ID}\n{token}"));
            }
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{text}: {error}"),
            _ => panic!("{text}: {:?}", found.err()),
        }
    }

    #[test]
    fn keys_as_aws_hands_them_out() {
        let lines = format!("aws_access_key_id = {ID}\naws_secret_access_key={SECRET}\n");
        check(&format!("[default]\n{lines}region = eu-west-1\n"), Ok(""));
        check(
            &format!("# work\n[work]\n{lines}aws_session_token = FQoGZXIvYXdzEBc=\n"),
            Ok("FQoGZXIvYXdzEBc="),
        );
        check(&format!("[a]\naws_access_key_id = x\n[default]\n{lines}"), Ok(""));
        check(&format!("export AWS_ACCESS_KEY_ID={ID}\nexport AWS_SECRET_ACCESS_KEY=\"{SECRET}\"\n"), Ok(""));
        check(&format!(r#"{{"AccessKeyId": "{ID}", "SecretAccessKey": "{SECRET}", "Version": 1}}"#), Ok(""));
        let inner = format!(
            r#"{{"AccessKeyId": "{ID}", "SecretAccessKey": "{SECRET}", "SessionToken": "tokentoken"}}"#
        );
        check(&format!(r#"{{"Credentials": {inner}, "AssumedRoleUser": {{"Arn": "x"}}}}"#), Ok("tokentoken"));
    }

    #[test]
    fn what_is_missing_is_named_and_no_value_is() {
        check("", Err("aws_access_key_id"));
        check(SECRET, Err("aws_access_key_id"));
        check("{", Err("line 1"));
        check(&format!("aws_access_key_id = {ID}"), Err("aws_secret_access_key"));
        check(
            &format!("aws_access_key_id = a/b/cdefgh\naws_secret_access_key = {SECRET}"),
            Err("aws_access_key_id"),
        );
        check(
            &format!("[a]\naws_access_key_id = {ID}\n[b]\naws_secret_access_key = {SECRET}"),
            Err("several"),
        );
        check(&format!("aws_access_key_id = {ID}\naws_secret_access_key = short"), Err("too short"));
    }

    #[test]
    fn the_values_come_apart_again() {
        let credential = Credential {
            name: "aws".into(),
            env: "AWS_SECRET_ACCESS_KEY".into(),
            hosts: vec!["s3.example".into()],
            places: vec![Place::SigV4],
            ..Credential::default()
        };
        let whole = split(&credential, Plain::new(format!("{SECRET}\n{ID}\n").into()));
        assert_eq!(whole.main.reveal(), SECRET.as_bytes());
        let told: Vec<_> = whole.parts.iter().map(|(role, plain)| (*role, plain.reveal().to_vec())).collect();
        assert_eq!(told, [(Role::KeyId, ID.as_bytes().to_vec())]);
        let whole = split(&credential, Plain::new(format!("{SECRET}\n{ID}\ntokentoken").into()));
        assert_eq!(whole.parts[1].0, Role::Token);
    }

    proptest! {
        #[test]
        fn any_text_is_keys_or_an_error(text in "(\\{|\\[a\\]\n)?(aws_access_key_id *= *)?.{0,80}") {
            let _ = read(&[Place::SigV4], text.as_bytes());
        }
    }
}
