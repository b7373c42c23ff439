//! The few pages by which clients find the way in: as a browser that listens would have them.

use super::Mediator;
use cofferdam_model::{OwnAnswer, OwnRequest};
use serde_json::{Value, json};
use std::net::IpAddr;

/// Where a client finds us, in its own words.
#[derive(Debug, Clone, Copy)]
pub struct Where<'a> {
    /// Host and port.
    pub authority: &'a str,
    /// Before every path; empty or `/something`.
    pub prefix: &'a str,
}

/// The name of the one browser.
const BROWSER: &str = "session";

impl Where<'_> {
    pub fn browser(&self) -> String {
        format!("ws://{}{}/devtools/browser/{BROWSER}", self.authority, self.prefix)
    }
}

impl Mediator {
    /// Whether a path is one of ours.
    pub fn is_own(path: &str) -> bool {
        path == "/json" || path.starts_with("/json/") || path.starts_with("/devtools/")
    }

    /// Why whoever asks must not: a page of the browser's, or a name that may lead elsewhere tomorrow.
    pub fn stranger(request: &OwnRequest<'_>) -> Option<OwnAnswer> {
        let no = |words: &str| Some(OwnAnswer::json(403, &json!({ "error": { "message": words } })));
        if request.origin.is_some() {
            return no("cofferdam: pages do not drive their own browser");
        }
        let host = request.host.unwrap_or_default();
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
        match name == "localhost" || name.parse::<IpAddr>().is_ok() {
            true => None,
            false => no("cofferdam: ask for this by its address, not by a name"),
        }
    }

    /// Nothing while the browser is coming up.
    pub fn page(&self, request: &OwnRequest<'_>, at: Where<'_>) -> Option<OwnAnswer> {
        if let Some(why) = self.why_gone() {
            let words = format!("cofferdam: the browser is gone: {why}");
            return Some(OwnAnswer::json(503, &json!({ "error": { "message": words } })));
        }
        let version = self.version.as_ref()?;
        let text = |name: &str| version.get(name).and_then(Value::as_str).unwrap_or_default();
        let answer = match (request.method, request.path.trim_end_matches('/')) {
            ("GET", "/json/version") => json!({
                "Browser": text("product"),
                "Protocol-Version": text("protocolVersion"),
                "User-Agent": text("userAgent"),
                "V8-Version": text("jsVersion"),
                "WebKit-Version": text("revision"),
                "webSocketDebuggerUrl": at.browser(),
            }),
            ("GET", "/json" | "/json/list") => self.pages(at),
            _ => {
                let words = "cofferdam: there are /json/version, /json/list and /devtools/browser/session; all else by the protocol";
                return Some(OwnAnswer::json(404, &json!({ "error": { "message": words } })));
            }
        };
        Some(OwnAnswer::json(200, &answer))
    }

    fn pages(&self, at: Where<'_>) -> Value {
        let pages = self.targets.iter().filter(|(_, target)| target.kind == "page");
        let one = |(id, target): (&String, &super::state::Target)| {
            json!({
                "id": id,
                "type": "page",
                "url": target.url,
                "webSocketDebuggerUrl": format!("ws://{}{}/devtools/page/{id}", at.authority, at.prefix),
            })
        };
        pages.map(one).collect()
    }
}
