//! An exchange as it stands on record: heads and bodies as the sandbox saw them, with the times of their parts, so
//! that it can be served again.

use crate::body::{Capture, Room};
use cofferdam_model::{AnswerRecorded, Ending, ExchangeRecorded, NotRecorded, Outgoing, Record};

/// A request's head.
pub(crate) struct Request {
    scheme: String,
    pub(crate) host: String,
    port: u16,
    method: String,
    pub(crate) path: String,
    query: Option<String>,
    headers: Vec<(String, String)>,
}

impl Request {
    pub(crate) fn of(request: &Outgoing<'_>) -> Self {
        Self {
            scheme: request.scheme.to_owned(),
            host: request.host.to_owned(),
            port: request.port,
            method: request.method.to_owned(),
            path: request.path.to_owned(),
            query: request.query.map(str::to_owned),
            headers: texts(request.headers),
        }
    }

    /// How the body is encoded.
    pub(crate) fn coding(&self) -> String {
        header(&self.headers, "content-encoding").to_owned()
    }
}

/// An answer on its way.
pub(crate) struct Answering {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Capture,
    pub(crate) first_us: u64,
}

impl Answering {
    pub(crate) fn new(status: u16, headers: &[(&str, &[u8])], first_us: u64, room: &Room) -> Self {
        let mut body = Capture::new(room);
        body.begin();
        Self { status, headers: texts(headers), body, first_us }
    }

    pub(crate) fn coding(&self) -> &str {
        header(&self.headers, "content-encoding")
    }
}

fn texts(headers: &[(&str, &[u8])]) -> Vec<(String, String)> {
    headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), String::from_utf8_lossy(value).into_owned()))
        .collect()
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> &'a str {
    headers.iter().find(|(held, _)| held.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
}

/// The fact to tell, with the bodies kept.
pub(crate) fn recorded(
    request: &Request,
    sent: &mut Capture,
    answer: Option<&mut Answering>,
    ending: Ending,
    without_bodies: bool,
    record: &dyn Record,
) -> Result<ExchangeRecorded, NotRecorded> {
    let keep = |body: &mut Capture| if without_bodies { Ok(None) } else { body.keep(record) };
    let body = keep(sent)?;
    let answer = match answer {
        None => None,
        Some(answer) => Some(AnswerRecorded {
            status: answer.status,
            body: keep(&mut answer.body)?,
            first_us: answer.first_us,
            parts: if without_bodies { Vec::new() } else { answer.body.parts() },
            headers: answer.headers.clone(),
        }),
    };
    Ok(ExchangeRecorded {
        scheme: request.scheme.clone(),
        host: request.host.clone(),
        port: request.port,
        method: request.method.clone(),
        path: request.path.clone(),
        query: request.query.clone(),
        headers: request.headers.clone(),
        body,
        answer,
        ending,
        without_bodies: if without_bodies { WITHOUT.to_owned() } else { String::new() },
    })
}

pub(crate) const WITHOUT: &str = "the policy keeps no bodies of this host";
