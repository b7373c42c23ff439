//! The client's side until it may ask: TLS by the session's authority, the startup, the proof that it has the placeholder.

use super::wire::{self, Opening, Startup, message, put_text, read_message, read_opening};
use super::{Refused, Visit, Wish, outside, relay, scram, told};
use crate::rescue::Failure;
use crate::stream::Io;
use crate::swap::state::Entry;
use bytes::{BufMut, BytesMut};
use cofferdam_policy::sql::harmless_setting;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// Messages of the sign-in are short.
const MAX_SIGN_IN: usize = 4096;

type Stream = Box<dyn Io>;

impl Visit {
    /// Carries a stream to its end.
    pub(crate) async fn serve(self, stream: Stream) -> Result<(), Failure> {
        let limit = self.session.limits.head_time;
        let (mut stream, opening) = match timeout(limit, self.open(stream)).await {
            Ok(Ok(Some(opened))) => opened,
            Ok(Ok(None)) => return Ok(()),
            Ok(Err(failure)) => return Err(failure),
            Err(_) => return Err(Refused::Malformed.into()),
        };
        let startup = match opening {
            Opening::Startup(startup) => startup,
            Opening::Cancel { pid, secret } => {
                let done = self.cancel(pid, &secret).await;
                // Closed as TLS wants it, or its client takes it for cut off.
                let _ = stream.shutdown().await;
                return done;
            }
            Opening::Ssl | Opening::Gss => return Err(Refused::Malformed.into()),
        };
        match self.session_of(&mut stream, &startup).await {
            Ok(()) => Ok(()),
            Err(failure) => {
                let mut bytes = BytesMut::new();
                told(&failure).write(&mut bytes);
                let _ = stream.write_all(&bytes).await;
                let _ = stream.shutdown().await;
                Err(failure)
            }
        }
    }

    /// Answers what is asked before the startup: TLS yes, Kerberos no.
    async fn open(&self, mut stream: Stream) -> Result<Option<(Stream, Opening)>, Failure> {
        let malformed = |_| Failure::from(Refused::Malformed);
        let mut is_tls = false;
        // Each can be asked once; who asks for more is not a client.
        for _ in 0..3 {
            match read_opening(&mut stream).await.map_err(malformed)? {
                None => return Ok(None),
                Some(Opening::Gss) if !is_tls => stream.write_all(b"N").await.map_err(malformed)?,
                Some(Opening::Ssl) if !is_tls => {
                    stream.write_all(b"S").await.map_err(malformed)?;
                    stream = self.tls(stream).await?;
                    is_tls = true;
                }
                Some(other) => return Ok(Some((stream, other))),
            }
        }
        Err(Refused::Malformed.into())
    }

    async fn tls(&self, stream: Stream) -> Result<Stream, Failure> {
        let failed = |error| Failure::from(crate::front::BadOpening::Handshake(error));
        let config = self.session.ca.server_for(&self.host).map_err(|e| failed(std::io::Error::other(e)))?;
        let mut config = rustls::ServerConfig::clone(&config);
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        let stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await.map_err(failed)?;
        // Another name in the hello than the one that was asked for is another server's client.
        let named = stream.get_ref().1.server_name().map(str::to_owned);
        if let Some(name) = named
            && !crate::http::identify::host_of(&name).is_ok_and(|name| name == self.host)
        {
            let sni = name.chars().take(80).collect();
            return Err(crate::front::BadOpening::OtherName { sni, host: self.host.clone() }.into());
        }
        Ok(Box::new(stream))
    }

    async fn session_of(&self, stream: &mut Stream, startup: &Startup) -> Result<(), Failure> {
        let wish = wish(startup)?;
        self.session.coffer.check_name(&wish.database)?;
        self.session.coffer.check_name(&wish.user)?;
        let entry = self.credential()?;
        if startup.minor > 0 || startup.parameters.iter().any(|(name, _)| name.starts_with("_pq_.")) {
            negotiate(stream, startup).await.map_err(|_| Refused::Malformed)?;
        }
        let limit = self.session.limits.head_time;
        match timeout(limit, sign_in(stream, &entry)).await {
            Ok(signed) => signed?,
            Err(_) => return Err(Refused::Malformed.into()),
        }
        let rules = self.session.rules.load_full();
        let exchange = self.decide(&rules, &wish, &entry).await?;
        let terms = rules.policy().sql_terms(&self.host, self.port, &wish.database, &wish.user);
        let server = outside::Server { visit: self, rules: &rules, wish: &wish, terms };
        let opened = match server.open(&entry).await {
            Ok(opened) => opened,
            Err(failure) => {
                super::ended(&exchange, &failure);
                return Err(failure);
            }
        };
        let link = relay::Link { visit: self, rules, wish, exchange };
        link.carry(stream, opened).await
    }
}

/// What is asked for, with nothing in it that would get around the rules.
fn wish(startup: &Startup) -> Result<Wish, Refused> {
    let user = startup.get("user").filter(|user| !user.is_empty()).ok_or(Refused::NoUser)?.to_owned();
    let database = startup.get("database").filter(|name| !name.is_empty()).unwrap_or(&user).to_owned();
    let mut parameters = Vec::new();
    for (name, value) in &startup.parameters {
        let lower = name.to_ascii_lowercase();
        match lower.as_str() {
            "user" | "database" | "client_encoding" if lower == *name => {}
            "replication" if matches!(value.as_str(), "false" | "off" | "no" | "0") => {}
            "options" if value.trim().is_empty() => {}
            _ if lower.starts_with("_pq_.") => {}
            _ if harmless_setting(&lower, Some(value)) => parameters.push((lower, value.clone())),
            _ => return Err(Refused::Parameter(name.chars().take(40).collect())),
        }
    }
    if startup.get("client_encoding").is_some_and(|value| !harmless_setting("client_encoding", Some(value))) {
        return Err(Refused::Parameter("client_encoding".to_owned()));
    }
    Ok(Wish { database, user, parameters })
}

/// Says which version is spoken, and which wishes are not known.
async fn negotiate(stream: &mut Stream, startup: &Startup) -> std::io::Result<()> {
    let unknown: Vec<&String> =
        startup.parameters.iter().map(|(name, _)| name).filter(|name| name.starts_with("_pq_.")).collect();
    let mut bytes = BytesMut::new();
    message(&mut bytes, b'v', |to| {
        to.put_u32(196_608);
        to.put_u32(unknown.len() as u32);
        unknown.iter().for_each(|name| put_text(to, name));
    });
    stream.write_all(&bytes).await
}

/// The client proves that it has the placeholder, without sending it.
async fn sign_in(stream: &mut Stream, entry: &Entry) -> Result<(), Failure> {
    let malformed = |_| Failure::from(Refused::Malformed);
    let wrong = || Refused::Placeholder { name: entry.name.to_string(), env: entry.credential.env.clone() };
    let mut bytes = BytesMut::new();
    message(&mut bytes, b'R', |to| {
        to.put_u32(10);
        put_text(to, scram::PLAIN);
        to.put_u8(0);
    });
    stream.write_all(&bytes).await.map_err(malformed)?;
    let (tag, payload) = read_message(stream, MAX_SIGN_IN).await.map_err(malformed)?;
    let first = first_response(tag, &payload).ok_or(Refused::Malformed)?;
    let random = super::cancel::random::<40>()?;
    let server =
        scram::Server::new(entry.placeholder.as_bytes(), first, &random).map_err(|_| Refused::Malformed)?;
    bytes.clear();
    message(&mut bytes, b'R', |to| {
        to.put_u32(11);
        to.put_slice(server.first().as_bytes());
    });
    stream.write_all(&bytes).await.map_err(malformed)?;
    let (tag, payload) = read_message(stream, MAX_SIGN_IN).await.map_err(malformed)?;
    let last = std::str::from_utf8(&payload).ok().filter(|_| tag == b'p').ok_or(Refused::Malformed)?;
    let last = server.verify(last).map_err(|error| match error {
        scram::ScramError::WrongPassword => wrong(),
        _ => Refused::Malformed,
    })?;
    bytes.clear();
    message(&mut bytes, b'R', |to| {
        to.put_u32(12);
        to.put_slice(last.as_bytes());
    });
    message(&mut bytes, b'R', |to| to.put_u32(0));
    stream.write_all(&bytes).await.map_err(malformed)
}

/// The text of a client's first message, if it chose what was offered.
fn first_response(tag: u8, payload: &[u8]) -> Option<&str> {
    let (mechanism, rest) = wire::text(payload)?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let fits = tag == b'p' && mechanism == scram::PLAIN && u32::from_be_bytes(*length) as usize == rest.len();
    std::str::from_utf8(rest).ok().filter(|_| fits)
}

/// Reads until the other side has closed, and no more than a little.
pub(super) async fn drain(stream: &mut (impl tokio::io::AsyncRead + Unpin)) {
    let mut rest = [0; 256];
    let _ = timeout(std::time::Duration::from_secs(5), stream.read(&mut rest)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn startup(of: &[(&str, &str)]) -> Startup {
        let parameters = of.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        Startup { minor: 0, parameters }
    }

    #[test]
    fn nothing_gets_around_the_rules_by_the_startup() {
        let good =
            wish(&startup(&[("user", "a"), ("application_name", "psql"), ("client_encoding", "UTF8")]))
                .unwrap();
        assert_eq!((good.user.as_str(), good.database.as_str()), ("a", "a"));
        assert_eq!(good.parameters, [("application_name".to_owned(), "psql".to_owned())]);
        for bad in [
            ("options", "-c default_transaction_read_only=off"),
            ("default_transaction_read_only", "off"),
            ("search_path", "evil"),
            ("replication", "database"),
            ("client_encoding", "SJIS"),
            ("Client_Encoding", "SJIS"),
            ("standard_conforming_strings", "off"),
            ("session_preload_libraries", "x"),
            ("role", "postgres"),
            ("USER", "b"),
        ] {
            assert!(matches!(wish(&startup(&[("user", "a"), bad])), Err(Refused::Parameter(_))), "{bad:?}");
        }
        assert!(matches!(wish(&startup(&[])), Err(Refused::NoUser)));
    }
}
