//! A session that runs: statements are judged on their way, answers find the statement that they belong to, and whatever
//! takes the leave away ends it in words.
//!
//! A statement that is refused is replaced by one that the server cannot parse, with a mark in it; the server's error is
//! replaced by ours. So a refusal comes in its turn, and what follows it (a transaction that fails, a pipeline that is
//! skipped) is the server's own doing.

use super::judge::{Cleared, No};
use super::ledger::{Full, Ledger, Names, Prepared};
use super::outside::{Opened, parameter};
use super::walk::{Piece, Walk};
use super::wire::{Told, error_field, head, message, put_text, text};
use super::{Refused, Visit, Wish};
use crate::exchange::{Exchange, Side};
use crate::http::upgrade::Broken;
use crate::rescue::Failure;
use crate::rules::Rules;
use crate::stream::Io;
use bytes::{BufMut, BytesMut};
use cofferdam_model::{Body, Ending, SqlEnded};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const BUFFER: usize = 16 << 10;
/// A statement, or anything else that is looked at.
const MAX_TEXT: usize = 1 << 20;
/// Values and rows.
const MAX_DATA: usize = 16 << 20;
/// Stands in the place of what was refused.
const MARK: &str = "cofferdam_refused_";

pub(super) struct Link<'a> {
    pub(super) visit: &'a Visit,
    pub(super) rules: Arc<Rules>,
    pub(super) wish: Wish,
    pub(super) exchange: Arc<Exchange>,
}

/// What the two directions share.
struct Shared {
    ledger: Mutex<Ledger>,
    /// Tells this connection's marks from those that someone else wrote.
    mark: String,
}

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Full> for Broken {
    fn from(_: Full) -> Self {
        refused(Refused::TooLong(MAX_TEXT))
    }
}

fn refused(why: impl Into<Failure>) -> Broken {
    Broken::Refused(Box::new(why.into()))
}

impl Link<'_> {
    pub(super) async fn carry(&self, client: &mut Box<dyn Io>, opened: Opened) -> Result<(), Failure> {
        let Opened { stream, parameters, pid, secret } = opened;
        let key = self.visit.session.cancels.put(self.visit, (pid, secret), self.exchange.parent())?;
        let mut bytes = BytesMut::new();
        for (name, value) in &parameters {
            message(&mut bytes, b'S', |to| {
                put_text(to, name);
                put_text(to, value);
            });
        }
        key.write(&mut bytes);
        message(&mut bytes, b'Z', |to| to.put_u8(b'I'));
        if client.write_all(&bytes).await.is_err() {
            return Ok(());
        }
        let mark: String = super::cancel::random::<8>()?.iter().map(|byte| format!("{byte:02x}")).collect();
        let shared = Shared { ledger: Mutex::default(), mark: format!("{MARK}{mark}_") };
        let (mut from_client, mut to_client) = tokio::io::split(client);
        let (mut from_server, mut to_server) = tokio::io::split(stream);
        let mut walk = Walk::default();
        // Whichever side ends first ends the session.
        let done = tokio::select! {
            done = self.up(&mut from_client, &mut to_server, &shared) => done,
            done = self.down(&mut from_server, &mut to_client, &shared, &mut walk) => done,
        };
        match done {
            Ok(()) => self.exchange.end(Ending::Complete),
            Err(Broken::Refused(failure)) => self.exchange.stop(&failure),
            Err(Broken::Cut) => {}
            Err(Broken::Io(Side::Up)) => self.exchange.end(Ending::ClientGone),
            Err(Broken::Io(Side::Down)) => self.exchange.end(Ending::UpstreamFailed),
        }
        if self.exchange.is_cut() && walk.is_between() {
            let why = self.exchange.detail().map(str::to_owned).unwrap_or_else(|| {
                let ending = self.exchange.ending().unwrap_or(Ending::Refused);
                Failure::Cut(ending).to_string()
            });
            let told = Told { fatal: true, code: "57P01", message: format!("cofferdam: {why}"), hint: None };
            bytes.clear();
            told.write(&mut bytes);
            let _ = to_client.write_all(&bytes).await;
        }
        let _ = to_client.shutdown().await;
        let _ = to_server.shutdown().await;
        Ok(())
    }

    async fn up<R, W>(&self, from: &mut R, to: &mut W, shared: &Shared) -> Result<(), Broken>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let failed = |_| Broken::Io(Side::Up);
        let (mut held, mut out) = (BytesMut::with_capacity(BUFFER), BytesMut::new());
        let mut upward = Upward { link: self, shared, names: Names::default(), skips: false };
        loop {
            while let Some(length) = whole(&held)? {
                let message = held.split_to(length);
                upward.message(&message, &mut out).await?;
            }
            if !out.is_empty() {
                self.exchange.count(Side::Up, out.len());
                self.write(to, &mut out, Side::Up).await?;
            }
            held.reserve(BUFFER);
            let n = tokio::select! {
                biased;
                () = self.exchange.until_cut(Side::Up) => return Err(Broken::Cut),
                n = from.read_buf(&mut held) => n.map_err(failed)?,
            };
            if n == 0 {
                return Ok(());
            }
        }
    }

    async fn down<R, W>(
        &self,
        from: &mut R,
        to: &mut W,
        shared: &Shared,
        walk: &mut Walk,
    ) -> Result<(), Broken>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let failed = |_| Broken::Io(Side::Down);
        let (mut held, mut out) = (BytesMut::with_capacity(BUFFER), BytesMut::new());
        loop {
            while let Some(piece) = walk.next(&mut held).map_err(failed)? {
                match piece {
                    Piece::Pass(bytes) => out.extend_from_slice(&bytes),
                    Piece::Whole(tag, bytes) => self.answered(tag, &bytes, shared, &mut out)?,
                }
            }
            if !out.is_empty() {
                self.exchange.count(Side::Down, out.len());
                self.write(to, &mut out, Side::Down).await?;
            }
            held.reserve(BUFFER);
            let n = tokio::select! {
                biased;
                () = self.exchange.until_cut(Side::Down) => return Err(Broken::Cut),
                n = from.read_buf(&mut held) => n.map_err(failed)?,
            };
            if n == 0 {
                return Ok(());
            }
        }
    }

    async fn write<W: AsyncWrite + Unpin>(
        &self,
        to: &mut W,
        out: &mut BytesMut,
        side: Side,
    ) -> Result<(), Broken> {
        let sending = async {
            to.write_all_buf(out).await?;
            to.flush().await
        };
        tokio::select! {
            biased;
            () = self.exchange.until_cut(side) => Err(Broken::Cut),
            done = sending => done.map_err(|_| Broken::Io(side)),
        }
    }

    /// What tells how a statement ended, or what became of the session.
    fn answered(&self, tag: u8, bytes: &[u8], shared: &Shared, out: &mut BytesMut) -> Result<(), Broken> {
        let payload = bytes.get(5..).unwrap_or_default();
        let mut ledger = shared.ledger();
        match tag {
            b'C' | b'I' | b's' => {
                let tag = text(payload).filter(|_| tag == b'C').map_or("", |(tag, _)| tag);
                let rows = tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
                let fact = SqlEnded { tag: tag.chars().take(64).collect(), rows, error: String::new() };
                self.ended(ledger.ended(), fact)?;
            }
            b'E' => {
                let number = error_field(payload, b'M').and_then(|text| marked(text, &shared.mark));
                if let Some(told) = number.and_then(|number| ledger.refusal(number)) {
                    ledger.failed();
                    told.write(out);
                    return Ok(());
                }
                let error = error_field(payload, b'C').unwrap_or_default().chars().take(8).collect();
                self.ended(ledger.failed(), SqlEnded { tag: String::new(), rows: 0, error })?;
            }
            b'Z' => ledger.ready(),
            b'S' => {
                let changed = parameter(payload);
                let holds = |(name, value): &(String, String)| match name.as_str() {
                    "client_encoding" => value == "UTF8",
                    "standard_conforming_strings" => value == "on",
                    _ => true,
                };
                if !changed.as_ref().is_some_and(holds) {
                    let host = self.visit.host.clone();
                    return Err(refused(Refused::Setting {
                        host,
                        setting: "client_encoding and standard_conforming_strings",
                    }));
                }
            }
            // No sign-in and no key comes in the midst of a session.
            other => return Err(refused(Refused::Message(char::from(other)))),
        }
        out.extend_from_slice(bytes);
        Ok(())
    }

    fn ended(&self, seq: Option<u64>, fact: SqlEnded) -> Result<(), Broken> {
        let Some(seq) = seq else { return Ok(()) };
        match self.visit.session.record.append(Some(seq), &Body::SqlEnded(fact)) {
            Ok(_) => Ok(()),
            Err(error) => Err(refused(error)),
        }
    }
}

/// The number behind a mark.
fn marked(text: &str, mark: &str) -> Option<u64> {
    let at = text.find(mark)? + mark.len();
    let digits = text.get(at..)?;
    digits[..digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len())].parse().ok()
}

/// The length of the message that stands whole at the start; none if more must come first.
fn whole(held: &[u8]) -> Result<Option<usize>, Broken> {
    let Some(found) = head(held) else { return Ok(None) };
    let (tag, length) = found.map_err(|_| refused(Refused::Malformed))?;
    let most = if matches!(tag, b'B' | b'd') { MAX_DATA } else { MAX_TEXT };
    if length > most {
        return Err(refused(Refused::TooLong(most)));
    }
    Ok((held.len() >= 5 + length).then_some(5 + length))
}

/// The client's messages, one after the other.
struct Upward<'a> {
    link: &'a Link<'a>,
    shared: &'a Shared,
    names: Names,
    /// Something was refused: all up to the next `Sync` does not happen.
    skips: bool,
}

impl Upward<'_> {
    async fn message(&mut self, bytes: &[u8], out: &mut BytesMut) -> Result<(), Broken> {
        let tag = bytes.first().copied().unwrap_or_default();
        let malformed = || refused(Refused::Malformed);
        if self.skips && !matches!(tag, b'S' | b'Q' | b'F' | b'X') {
            return Ok(());
        }
        let payload = bytes.get(5..).unwrap_or_default();
        if matches!(tag, b'Q' | b'P' | b'B' | b'd' | b'F')
            && let Err(leak) =
                self.link.visit.session.coffer.check_data(payload, &self.link.visit.destination())
        {
            return self.leak(tag, leak.into(), out);
        }
        match tag {
            b'Q' => {
                let (sql, _) = text(payload).ok_or_else(malformed)?;
                self.query(sql, out).await?;
                return Ok(());
            }
            b'P' => {
                let (name, rest) = text(payload).ok_or_else(malformed)?;
                let (sql, types) = text(rest).ok_or_else(malformed)?;
                return self.parse(name, sql, types, out).await;
            }
            b'B' => {
                let (portal, rest) = text(payload).ok_or_else(malformed)?;
                let (statement, _) = text(rest).ok_or_else(malformed)?;
                self.names.bind(portal, statement)?;
            }
            b'E' => {
                let (portal, _) = text(payload).ok_or_else(malformed)?;
                self.execute(portal)?;
            }
            b'C' => {
                let (kind, name) = payload.split_first().ok_or_else(malformed)?;
                let (name, _) = text(name).ok_or_else(malformed)?;
                self.names.close(*kind, name);
            }
            b'S' => {
                self.skips = false;
                self.shared.ledger().sync()?;
            }
            // Calls a function by its number, which tells nothing.
            b'F' => {
                let message =
                    "cofferdam: the fast path of functions is not carried: call it by SELECT".to_owned();
                self.refuse_query(Told { fatal: false, code: "42501", message, hint: None }, out)?;
                return Ok(());
            }
            b'D' | b'H' | b'X' | b'd' | b'c' | b'f' => {}
            other => return Err(refused(Refused::Message(char::from(other)))),
        }
        out.extend_from_slice(bytes);
        Ok(())
    }

    async fn query(&mut self, sql: &str, out: &mut BytesMut) -> Result<(), Broken> {
        self.skips = false;
        match self.link.judge(sql).await {
            Ok(cleared) => {
                let mut ledger = self.shared.ledger();
                cleared.events.iter().try_for_each(|(seq, _)| ledger.run(*seq))?;
                ledger.sync()?;
                drop(ledger);
                let text = cleared.canonical.clone();
                self.prepare(cleared)?;
                message(out, b'Q', |to| put_text(to, text.as_deref().unwrap_or(sql)));
                Ok(())
            }
            Err(No::Refused(told)) => self.refuse_query(told, out),
            Err(No::Fatal(failure)) => Err(refused(failure)),
        }
    }

    /// By `PREPARE`.
    fn prepare(&mut self, cleared: Cleared) -> Result<(), Broken> {
        for (name, at) in cleared.prepares {
            let events = cleared.events.get(at).cloned().into_iter().collect();
            self.names.prepare(&name, Prepared { events, spent: true })?;
        }
        Ok(())
    }

    async fn parse(&mut self, name: &str, sql: &str, types: &[u8], out: &mut BytesMut) -> Result<(), Broken> {
        match self.link.judge(sql).await {
            Ok(Cleared { canonical, events, prepares: _ }) => {
                self.names.prepare(name, Prepared { events, spent: false })?;
                message(out, b'P', |to| {
                    put_text(to, name);
                    put_text(to, canonical.as_deref().unwrap_or(sql));
                    to.put_slice(types);
                });
                Ok(())
            }
            Err(No::Refused(told)) => self.refuse_parse(told, out),
            Err(No::Fatal(failure)) => Err(refused(failure)),
        }
    }

    /// What runs is on record: its own decision the first time, one more each time after.
    fn execute(&mut self, portal: &str) -> Result<(), Broken> {
        let Some(prepared) = self.names.portal(portal) else { return Ok(()) };
        let mut prepared = prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let again = std::mem::replace(&mut prepared.spent, true);
        for (seq, fact) in &mut prepared.events {
            if again {
                fact.again = true;
                *seq = self.link.record(fact).map_err(refused)?;
            }
            self.shared.ledger().run(*seq)?;
        }
        Ok(())
    }

    fn refuse_query(&mut self, told: Told, out: &mut BytesMut) -> Result<(), Broken> {
        let mut ledger = self.shared.ledger();
        let number = ledger.refuse(told);
        ledger.sync()?;
        message(out, b'Q', |to| put_text(to, &format!("{}{number}", self.shared.mark)));
        Ok(())
    }

    fn refuse_parse(&mut self, told: Told, out: &mut BytesMut) -> Result<(), Broken> {
        self.skips = true;
        let number = self.shared.ledger().refuse(told);
        message(out, b'P', |to| {
            put_text(to, "");
            put_text(to, &format!("{}{number}", self.shared.mark));
            to.put_u16(0);
        });
        Ok(())
    }

    /// A credential where none belongs: told, recorded, and not sent.
    fn leak(&mut self, tag: u8, failure: Failure, out: &mut BytesMut) -> Result<(), Broken> {
        let visit = self.link.visit;
        // In the midst of data nothing can be replaced.
        if tag == b'd' {
            return Err(refused(failure));
        }
        let from = (visit.via, visit.program.as_deref());
        visit.session.tell_refused(&failure, from, visit.destination(), String::new());
        let told = Told { fatal: false, ..super::told(&failure) };
        match tag {
            b'Q' | b'F' => self.refuse_query(told, out),
            _ => self.refuse_parse(told, out),
        }
    }
}
