//! Credentials that are exchanged for tokens: a service account of Google's, a refresh token of OAuth 2, the key of a
//! GitHub App. What they are is kept here as one line; what is sent to get a token is put together here, and read here.

use super::DocumentError;
use crate::{Credential, Place, Plain};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use cofferdam_seal::dsse::Nonces;
use cofferdam_seal::{RsaKey, digest};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use zeroize::Zeroizing;

const GOOGLE: &str = "https://oauth2.googleapis.com/token";
const GITHUB: &str = "https://api.github.com";
const CLOUD: &str = "https://www.googleapis.com/auth/cloud-platform";
/// What a token lives where nobody says.
const USUAL_LIFE: u64 = 3600;
const FORM: &str = "application/x-www-form-urlencoded";

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Grant<'a> {
    Jwt {
        email: Cow<'a, str>,
        key_id: Cow<'a, str>,
        key: Cow<'a, str>,
        uri: Cow<'a, str>,
        scope: Cow<'a, str>,
    },
    Oauth {
        client: Cow<'a, str>,
        secret: Cow<'a, str>,
        refresh: Cow<'a, str>,
        uri: Cow<'a, str>,
    },
    GithubApp {
        app: Cow<'a, str>,
        installation: Cow<'a, str>,
        key: Cow<'a, str>,
        uri: Cow<'a, str>,
    },
}

/// What such files hold, under the names that their providers use.
#[derive(Deserialize)]
struct Given<'a> {
    #[serde(borrow)]
    client_email: Option<Cow<'a, str>>,
    #[serde(borrow)]
    private_key_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    private_key: Option<Cow<'a, str>>,
    #[serde(borrow)]
    token_uri: Option<Cow<'a, str>>,
    #[serde(borrow)]
    client_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    client_secret: Option<Cow<'a, str>>,
    #[serde(borrow)]
    refresh_token: Option<Cow<'a, str>>,
    #[serde(default)]
    scopes: Vec<String>,
    app_id: Option<Number>,
    installation_id: Option<Number>,
    #[serde(borrow)]
    api_url: Option<Cow<'a, str>>,
}

/// An id, however it is written.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Number(u64),
    Text(String),
}

impl Number {
    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("the credential cannot be read: add it again")]
    Grant,
    #[error("its private key cannot sign: give an RSA key")]
    Key,
    #[error("`{0}` is no https address: check the credential")]
    Uri(String),
    #[error("the answer holds no token: {0}")]
    Answer(String),
}

/// How a token is asked for.
pub struct TokenRequest {
    pub host: String,
    pub port: u16,
    pub path: String,
    pub content_type: &'static str,
    pub authorization: Option<Zeroizing<String>>,
    pub body: Zeroizing<Vec<u8>>,
}

/// What came back.
pub struct Token {
    pub plain: Plain,
    /// Seconds.
    pub lives: u64,
    /// The credential as it is from now on, where its provider changed it.
    pub grant: Option<Plain>,
}

/// A file of a provider's, as it is kept: one line.
pub(super) fn read(place: &Place, text: &str) -> Result<Plain, DocumentError> {
    let given: Given<'_> = serde_json::from_str(text).map_err(|error| DocumentError::Json(error.line()))?;
    let needed = |value: Option<Cow<'_, str>>, name: &'static str| {
        let value = value.filter(|value| !value.is_empty()).map(Cow::into_owned);
        value.ok_or(DocumentError::NoField(name))
    };
    let key = |value: Option<Cow<'_, str>>| -> Result<String, DocumentError> {
        let der =
            RsaKey::der_of(&needed(value, "private_key")?).ok_or(DocumentError::Unfit("private_key"))?;
        RsaKey::from_der(&der).ok_or(DocumentError::Unfit("private_key"))?;
        Ok(STANDARD.encode(&*der))
    };
    let id = |value: Option<Number>, name: &'static str| -> Result<Cow<'static, str>, DocumentError> {
        let text = value.map(|number| number.text()).ok_or(DocumentError::NoField(name))?;
        let fits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
        if fits { Ok(text.into()) } else { Err(DocumentError::Unfit(name)) }
    };
    let uri = |value: Option<Cow<'_, str>>, usual: &str| -> Result<Cow<'static, str>, DocumentError> {
        let uri = value.map_or_else(|| usual.to_owned(), Cow::into_owned);
        address(&uri).map(|_| uri.into()).map_err(|_| DocumentError::Unfit("token_uri"))
    };
    let grant = match place {
        Place::Jwt => Grant::Jwt {
            email: needed(given.client_email, "client_email")?.into(),
            key_id: needed(given.private_key_id, "private_key_id")?.into(),
            key: key(given.private_key)?.into(),
            uri: uri(given.token_uri, GOOGLE)?,
            scope: if given.scopes.is_empty() { CLOUD.into() } else { given.scopes.join(" ").into() },
        },
        Place::GithubApp => Grant::GithubApp {
            app: match given.client_id {
                Some(client) if given.app_id.is_none() => client.into_owned().into(),
                _ => id(given.app_id, "app_id")?,
            },
            installation: id(given.installation_id, "installation_id")?,
            key: key(given.private_key)?.into(),
            uri: uri(given.api_url, GITHUB)?,
        },
        _ => Grant::Oauth {
            client: needed(given.client_id, "client_id")?.into(),
            secret: given.client_secret.unwrap_or_default().into_owned().into(),
            refresh: needed(given.refresh_token, "refresh_token")?.into(),
            uri: uri(given.token_uri, GOOGLE)?,
        },
    };
    let line = serde_json::to_vec(&grant).map_err(|_| DocumentError::NotText)?;
    Ok(Plain::new(line))
}

/// What stands in the place of a token before there is one, and of what refreshes it: texts that open nothing, with
/// the shape of the real ones.
pub(super) fn stand_ins(line: &Plain) -> (Plain, Plain) {
    let text = |label: &str| digest(&[label.as_bytes(), line.reveal()].concat()).to_string();
    let (token, refresh) = match serde_json::from_slice::<Grant<'_>>(line.reveal()) {
        Ok(Grant::Jwt { .. }) => (format!("ya29.{}", text("token")), format!("1//{}", text("refresh"))),
        Ok(Grant::GithubApp { .. }) => {
            (format!("ghs_{}", text("token").get(..36).unwrap_or_default()), text("refresh"))
        }
        Ok(Grant::Oauth { refresh, .. }) => (text("token"), refresh.into_owned()),
        Err(_) => (text("token"), text("refresh")),
    };
    (Plain::new(token.into()), Plain::new(refresh.into()))
}

/// The host, port and path of a token's address.
pub fn token_address(grant: &Plain) -> Option<(String, u16, String)> {
    let uri = match serde_json::from_slice::<Grant<'_>>(grant.reveal()).ok()? {
        Grant::Jwt { uri, .. } | Grant::Oauth { uri, .. } | Grant::GithubApp { uri, .. } => uri,
    };
    address(&uri).ok()
}

/// What has to be sent for a token. `now` in seconds since 1970.
pub fn token_request(grant: &Plain, now: i64) -> Result<TokenRequest, TokenError> {
    let read: Grant<'_> = serde_json::from_slice(grant.reveal()).map_err(|_| TokenError::Grant)?;
    match read {
        Grant::Jwt { email, key_id, key, uri, scope } => {
            let claims = serde_json::json!({ "iss": email, "scope": scope, "aud": uri, "iat": now, "exp": now + 3600 });
            let assertion = assertion(&key, Some(&key_id), &claims)?;
            let kind = "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer";
            form(&uri, &[("grant_type", kind), ("assertion", assertion.as_str())])
        }
        Grant::Oauth { client, secret, refresh, uri } => {
            let coded = |text: &str| Zeroizing::new(percent(text));
            let (client, secret, refresh) = (coded(&client), coded(&secret), coded(&refresh));
            let mut fields = vec![
                ("grant_type", "refresh_token"),
                ("refresh_token", &**refresh),
                ("client_id", &**client),
            ];
            if !secret.is_empty() {
                fields.push(("client_secret", &**secret));
            }
            form(&uri, &fields)
        }
        Grant::GithubApp { app, installation, key, uri } => {
            let claims = serde_json::json!({ "iss": app, "iat": now - 60, "exp": now + 540 });
            let assertion = assertion(&key, None, &claims)?;
            let (host, port, path) = address(&uri)?;
            Ok(TokenRequest {
                host,
                port,
                path: format!(
                    "{}/app/installations/{installation}/access_tokens",
                    path.trim_end_matches('/')
                ),
                content_type: "application/json",
                authorization: Some(Zeroizing::new(format!("Bearer {}", *assertion))),
                body: Zeroizing::new(b"{}".to_vec()),
            })
        }
    }
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow, alias = "token")]
    access_token: Option<Cow<'a, str>>,
    expires_in: Option<u64>,
    #[serde(borrow)]
    refresh_token: Option<Cow<'a, str>>,
    #[serde(borrow)]
    error: Option<Cow<'a, str>>,
    #[serde(borrow)]
    message: Option<Cow<'a, str>>,
}

/// The token in an answer.
pub fn token_in(grant: &Plain, answer: &[u8]) -> Result<Token, TokenError> {
    let read: Answer<'_> =
        serde_json::from_slice(answer).map_err(|_| TokenError::Answer("it is no JSON".to_owned()))?;
    let said =
        || read.error.as_deref().or(read.message.as_deref()).unwrap_or("it names no reason").to_owned();
    let is_token = |text: &&Cow<'_, str>| text.len() >= 8 && text.bytes().all(|b| b.is_ascii_graphic());
    let token = read.access_token.as_ref().filter(is_token);
    let token = token
        .ok_or_else(|| TokenError::Answer(said().chars().filter(|c| !c.is_control()).take(120).collect()))?;
    let renewed = |fresh: &Cow<'_, str>| match serde_json::from_slice::<Grant<'_>>(grant.reveal()).ok()? {
        Grant::Oauth { client, secret, uri, .. } => {
            let grant = Grant::Oauth { client, secret, refresh: fresh.clone(), uri };
            serde_json::to_vec(&grant).ok().map(Plain::new)
        }
        _ => None,
    };
    Ok(Token {
        plain: Plain::new(token.as_bytes().to_vec()),
        lives: read.expires_in.unwrap_or(USUAL_LIFE).min(24 * 3600),
        grant: read.refresh_token.as_ref().and_then(renewed),
    })
}

/// A file that clients of Google's libraries read: they ask for tokens with the placeholder, and are given one.
pub(crate) fn client_file(credential: &Credential, grant: &Plain, refresh: &str) -> Option<String> {
    let is_google = match serde_json::from_slice::<Grant<'_>>(grant.reveal()).ok()? {
        Grant::Jwt { .. } => true,
        Grant::Oauth { uri, .. } => uri == GOOGLE,
        Grant::GithubApp { .. } => false,
    };
    let file = serde_json::json!({
        "type": "authorized_user",
        "client_id": format!("{}.apps.googleusercontent.com", credential.name),
        "client_secret": "placeholder",
        "refresh_token": refresh,
    });
    is_google.then(|| file.to_string())
}

fn form(uri: &str, fields: &[(&str, &str)]) -> Result<TokenRequest, TokenError> {
    let (host, port, path) = address(uri)?;
    let room = fields.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    let mut body = Zeroizing::new(Vec::with_capacity(room));
    for (at, (name, value)) in fields.iter().enumerate() {
        let between: &[u8] = if at == 0 { b"" } else { b"&" };
        for part in [between, name.as_bytes(), b"=", value.as_bytes()] {
            body.extend_from_slice(part);
        }
    }
    Ok(TokenRequest { host, port, path, content_type: FORM, authorization: None, body })
}

/// `https://host[:port]/path`; nothing else takes a credential.
fn address(uri: &str) -> Result<(String, u16, String), TokenError> {
    let bad = || TokenError::Uri(uri.chars().filter(|c| !c.is_control()).take(80).collect());
    let rest = uri.strip_prefix("https://").ok_or_else(bad)?;
    let (authority, path) =
        rest.split_once('/').map_or((rest, String::from("/")), |(a, p)| (a, format!("/{p}")));
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| bad())?),
        None => (authority, 443),
    };
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-.".contains(&b);
    if host.is_empty() || !host.bytes().all(fits) || !path.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(bad());
    }
    Ok((host.to_ascii_lowercase(), port, path))
}

fn assertion(
    key: &str,
    id: Option<&str>,
    claims: &serde_json::Value,
) -> Result<Zeroizing<String>, TokenError> {
    let der = Zeroizing::new(STANDARD.decode(key).map_err(|_| TokenError::Key)?);
    let key = RsaKey::from_der(&der).ok_or(TokenError::Key)?;
    let mut head = serde_json::json!({ "alg": "RS256", "typ": "JWT" });
    if let Some(id) = id {
        head["kid"] = id.into();
    }
    let coded = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", coded(&head), coded(claims));
    let signature = key.sign(&Nonces::new(), text.as_bytes()).ok_or(TokenError::Key)?;
    Ok(Zeroizing::new(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))))
}

fn percent(text: &str) -> String {
    text.bytes().fold(String::with_capacity(3 * text.len()), |mut out, byte| {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OAUTH: &str = r#"{"client_id": "c", "client_secret": "s&", "refresh_token": "refresh/token", "token_uri": "https://auth.example:8443/token"}"#;

    #[test]
    fn a_refresh_token_is_sent_to_its_address_alone() {
        let grant = read(&Place::Oauth, OAUTH).unwrap();
        let request = token_request(&grant, 0).unwrap();
        assert_eq!(
            (request.host.as_str(), request.port, request.path.as_str()),
            ("auth.example", 8443, "/token")
        );
        let expected =
            "grant_type=refresh_token&refresh_token=refresh%2Ftoken&client_id=c&client_secret=s%26";
        assert_eq!(String::from_utf8_lossy(&request.body), expected);
        for (from, to) in
            [("https:", "http:"), ("auth.example", "auth example"), ("\"refresh_token\"", "\"other\"")]
        {
            assert!(read(&Place::Oauth, &OAUTH.replace(from, to)).is_err(), "{to}");
        }
        assert!(read(&Place::Jwt, OAUTH).err().unwrap().to_string().contains("client_email"));
        assert!(read(&Place::GithubApp, OAUTH).err().unwrap().to_string().contains("installation_id"));
    }

    #[test]
    fn a_token_is_read_and_what_is_none_is_told() {
        let grant = read(&Place::Oauth, OAUTH).unwrap();
        let token = token_in(
            &grant,
            br#"{"access_token": "token-0001", "expires_in": 60, "refresh_token": "next/one"}"#,
        )
        .unwrap();
        assert_eq!((token.plain.reveal(), token.lives), (&b"token-0001"[..], 60));
        let next = token_request(&token.grant.unwrap(), 0).unwrap();
        assert!(String::from_utf8_lossy(&next.body).contains("next%2Fone"));
        let error = token_in(&grant, br#"{"error": "invalid_grant"}"#).err().unwrap().to_string();
        assert!(error.contains("invalid_grant"), "{error}");
        assert!(token_in(&grant, b"<html>").is_err());
    }

    proptest! {
        #[test]
        fn any_answer_is_survived(answer in ".{0,80}") {
            let grant = read(&Place::Oauth, OAUTH).unwrap();
            let _ = token_in(&grant, answer.as_bytes());
        }

        #[test]
        fn any_file_is_a_grant_or_an_error(text in "\\{(\"client_id\": \"[a-z]{0,3}\",? ?){0,2}.{0,40}\\}?") {
            let _ = read(&Place::Oauth, &text);
        }
    }
}
