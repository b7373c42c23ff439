//! The server's side until it is ready: TLS that is verified, the proof that we have the password (and that the server
//! has it too), the settings that the rules stand on.

use super::scram::{self, ScramError};
use super::wire::{SSL_REQUEST, error_field, message, put_text, read_message, startup, text};
use super::{Refused, Visit, Wish, broken, dial};
use crate::postgres::cancel::random;
use crate::rescue::Failure;
use crate::rules::Rules;
use crate::stream::Io;
use crate::swap::state::Entry;
use bytes::{BufMut, BytesMut};
use cofferdam_policy::SqlTerms;
use cofferdam_vault::Plain;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Until it is ready a server has little to say.
const MAX_MESSAGE: usize = 64 << 10;
const MAX_PARAMETERS: usize = 256;
const SIGN_IN_TIME: Duration = Duration::from_secs(20);

pub(super) struct Server<'a> {
    pub(super) visit: &'a Visit,
    pub(super) rules: &'a Rules,
    pub(super) wish: &'a Wish,
    pub(super) terms: SqlTerms,
}

/// A server that waits for the first statement.
pub(super) struct Opened {
    pub(super) stream: Box<dyn Io>,
    /// What it told of itself.
    pub(super) parameters: Vec<(String, String)>,
    pub(super) pid: u32,
    pub(super) secret: Vec<u8>,
}

/// A connection to the server, and what binds a sign-in to it.
pub(super) async fn connect(visit: &Visit, rules: &Rules) -> Result<(Box<dyn Io>, Option<Vec<u8>>), Failure> {
    let (host, route) = (&visit.host, visit.route(rules));
    let dialer = visit.session.pool.dialer();
    let mut tcp = dialer.tcp(&route).await.map_err(dial)?;
    if rules.policy().upstream(host).is_some_and(|upstream| upstream.plain) {
        return Ok((Box::new(tcp), None));
    }
    let ask = async {
        tcp.write_all(&[&8u32.to_be_bytes()[..], &SSL_REQUEST.to_be_bytes()].concat()).await?;
        tcp.read_u8().await
    };
    let answer =
        timeout(SIGN_IN_TIME, ask).await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
    if answer.map_err(broken(host))? != b'S' {
        return Err(Refused::NoTls(host.clone()).into());
    }
    let stream = dialer.tls_over(&route, tcp).await.map_err(dial)?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let binding = certificate.and_then(|certificate| scram::end_point(certificate));
    Ok((Box::new(stream), binding))
}

impl Server<'_> {
    pub(super) async fn open(&self, entry: &Entry) -> Result<Opened, Failure> {
        let (stream, binding) = connect(self.visit, self.rules).await?;
        let host = &self.visit.host;
        let signed = timeout(SIGN_IN_TIME, self.sign_in(stream, binding, &entry.plain)).await;
        signed.unwrap_or_else(|_| Err(Refused::Broken(host.clone()).into()))
    }

    /// What the session begins with; a client can only go back to it.
    fn parameters(&self) -> Vec<(String, String)> {
        let mut all = vec![
            ("user".to_owned(), self.wish.user.clone()),
            ("database".to_owned(), self.wish.database.clone()),
        ];
        all.extend(self.wish.parameters.iter().filter(|(name, _)| !FORCED.contains(&name.as_str())).cloned());
        // How text is divided into words must be what the parser takes it for.
        all.push(("client_encoding".to_owned(), "UTF8".to_owned()));
        all.push(("standard_conforming_strings".to_owned(), "on".to_owned()));
        if self.terms.read_only {
            all.push(("default_transaction_read_only".to_owned(), "on".to_owned()));
        }
        if self.terms.names_tables {
            all.push(("search_path".to_owned(), "public, pg_temp".to_owned()));
        }
        all
    }

    async fn sign_in(
        &self,
        mut stream: Box<dyn Io>,
        binding: Option<Vec<u8>>,
        password: &Arc<Plain>,
    ) -> Result<Opened, Failure> {
        let host = &self.visit.host;
        let failed = broken(host);
        stream.write_all(&startup(&self.parameters())).await.map_err(&failed)?;
        let offered = self.authentication(&mut stream).await?;
        let (code, rest) = offered.split_first_chunk::<4>().ok_or(Refused::Broken(host.clone()))?;
        let asked = match u32::from_be_bytes(*code) {
            10 => None,
            0 => Some("it asks for none"),
            3 => Some("it wants the password itself"),
            5 => Some("it uses md5"),
            _ => Some("it uses another method"),
        };
        let mechanisms: Vec<&str> =
            rest.split(|byte| *byte == 0).filter_map(|m| std::str::from_utf8(m).ok()).collect();
        let binding = binding.filter(|_| mechanisms.contains(&scram::BOUND));
        let mechanism = if binding.is_some() { scram::BOUND } else { scram::PLAIN };
        if let Some(asked) =
            asked.or((!mechanisms.contains(&mechanism)).then_some("it knows no SCRAM-SHA-256"))
        {
            return Err(Refused::Method { host: host.clone(), asked }.into());
        }
        self.prove(&mut stream, mechanism, binding, password).await?;
        self.ready(stream).await
    }

    /// The next message of the sign-in; an error of the server's own ends it.
    async fn authentication(&self, stream: &mut Box<dyn Io>) -> Result<Vec<u8>, Failure> {
        loop {
            let (tag, payload) = read_message(stream, MAX_MESSAGE).await.map_err(broken(&self.visit.host))?;
            match tag {
                b'R' => return Ok(payload),
                b'N' => {}
                b'E' => return Err(self.refused(&payload)),
                _ => return Err(Refused::Broken(self.visit.host.clone()).into()),
            }
        }
    }

    fn refused(&self, payload: &[u8]) -> Failure {
        let field =
            |letter| error_field(payload, letter).unwrap_or_default().chars().take(300).collect::<String>();
        let (code, message) = (field(b'C'), field(b'M'));
        let message = self.visit.session.coffer.cover(&message);
        Refused::Server { host: self.visit.host.clone(), code, message }.into()
    }

    async fn prove(
        &self,
        stream: &mut Box<dyn Io>,
        mechanism: &'static str,
        binding: Option<Vec<u8>>,
        password: &Arc<Plain>,
    ) -> Result<(), Failure> {
        let host = &self.visit.host;
        let bad = |source: ScramError| Failure::from(Refused::Scram { host: host.clone(), source });
        let expects = |payload: Vec<u8>, wanted: u32| match payload.split_first_chunk::<4>() {
            Some((code, rest)) if u32::from_be_bytes(*code) == wanted => {
                String::from_utf8(rest.to_vec()).map_err(|_| bad(ScramError::Malformed))
            }
            _ => Err(bad(ScramError::Malformed)),
        };
        let client = scram::Client::new(&random::<18>()?, binding.as_deref());
        let first = client.first();
        let mut bytes = BytesMut::new();
        message(&mut bytes, b'p', |to| {
            put_text(to, mechanism);
            to.put_u32(first.len() as u32);
            to.put_slice(first.as_bytes());
        });
        stream.write_all(&bytes).await.map_err(broken(host))?;
        let server_first = expects(self.authentication(stream).await?, 11)?;
        // As much work as the server wants: not on a thread that carries others.
        let password = Arc::clone(password);
        let work = tokio::task::spawn_blocking(move || client.answer(password.reveal(), &server_first));
        let (last, expected) = work.await.map_err(|_| bad(ScramError::Malformed))?.map_err(bad)?;
        bytes.clear();
        message(&mut bytes, b'p', |to| to.put_slice(last.as_bytes()));
        stream.write_all(&bytes).await.map_err(broken(host))?;
        expected.check(&expects(self.authentication(stream).await?, 12)?).map_err(bad)?;
        expects(self.authentication(stream).await?, 0).map(drop)
    }

    async fn ready(&self, mut stream: Box<dyn Io>) -> Result<Opened, Failure> {
        let host = &self.visit.host;
        let gone = || Failure::from(Refused::Broken(host.clone()));
        let (mut parameters, mut key) = (Vec::new(), None);
        loop {
            let (tag, payload) = read_message(&mut stream, MAX_MESSAGE).await.map_err(broken(host))?;
            match tag {
                b'Z' => break,
                b'E' => return Err(self.refused(&payload)),
                b'S' if parameters.len() < MAX_PARAMETERS => {
                    parameters.push(parameter(&payload).ok_or_else(gone)?)
                }
                b'K' => {
                    let (pid, secret) = payload.split_first_chunk::<4>().ok_or_else(gone)?;
                    key = Some((u32::from_be_bytes(*pid), secret.to_vec()));
                }
                b'N' => {}
                _ => return Err(gone()),
            }
        }
        let told =
            |name: &str| parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        for (setting, wanted) in [("client_encoding", "UTF8"), ("standard_conforming_strings", "on")] {
            if told(setting) != Some(wanted) {
                return Err(Refused::Setting { host: host.clone(), setting }.into());
            }
        }
        if self.terms.read_only {
            self.is_read_only(&mut stream).await?;
        }
        let (pid, secret) = key.ok_or_else(gone)?;
        Ok(Opened { stream, parameters, pid, secret })
    }

    /// Not what was asked for counts, but what the server says it is.
    async fn is_read_only(&self, stream: &mut Box<dyn Io>) -> Result<(), Failure> {
        let host = &self.visit.host;
        let mut bytes = BytesMut::new();
        message(&mut bytes, b'Q', |to| put_text(to, "SHOW default_transaction_read_only"));
        stream.write_all(&bytes).await.map_err(broken(host))?;
        let mut holds = false;
        loop {
            let (tag, payload) = read_message(stream, MAX_MESSAGE).await.map_err(broken(host))?;
            match tag {
                b'D' => holds = payload.ends_with(b"\0\0\0\x02on"),
                b'Z' => break,
                _ => {}
            }
        }
        let setting = "default_transaction_read_only";
        if holds { Ok(()) } else { Err(Refused::Setting { host: host.clone(), setting }.into()) }
    }
}

/// Set by us, whatever the client wishes.
const FORCED: &[&str] =
    &["client_encoding", "standard_conforming_strings", "default_transaction_read_only", "search_path"];

pub(super) fn parameter(payload: &[u8]) -> Option<(String, String)> {
    let (name, rest) = text(payload)?;
    let (value, rest) = text(rest)?;
    rest.is_empty().then(|| (name.to_owned(), value.to_owned()))
}
