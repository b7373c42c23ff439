//! The page: one file that needs no network, says first what was decided and why, and then shows for each session
//! what the agent did before and what it does now, side by side. Written session by session, so that it costs no more
//! memory with many of them.

mod act;
mod claims;
mod json;
mod lanes;
mod session;
mod summary;
mod text;

use crate::Session;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_gate::GateResult;
use cofferdam_seal::digest;
use maud::{DOCTYPE, PreEscaped, html};
use std::io::{self, Write};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// More sessions than this are laid out as they come into view.
const MANY: u64 = 200;

/// A page under way.
pub struct Page<W> {
    out: W,
    /// Numbers sessions, so that every act has a name of its own to link to.
    written: usize,
}

impl<W: Write> Page<W> {
    pub fn begin(mut out: W, result: &GateResult) -> io::Result<Self> {
        let title = format!("{}: {}", result.outcome, result.suite.name);
        let head = html! {
            meta charset="utf-8";
            // Not even text that slipped through as markup could run, or call home.
            meta http-equiv="Content-Security-Policy" content=(policy());
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) }
            style { (PreEscaped(STYLE)) }
        };
        write!(out, "{}<html lang=\"en\"><head>{}</head><body>", DOCTYPE.0, head.0)?;
        out.write_all(summary::top(result).0.as_bytes())?;
        let many = if result.counts.sessions > MANY { " class=\"many\"" } else { "" };
        write!(out, "<main id=\"sessions\"{many}>")?;
        Ok(Self { out, written: 0 })
    }

    pub fn session(&mut self, session: &Session<'_>) -> io::Result<()> {
        self.written += 1;
        self.out.write_all(session::section(session, self.written).0.as_bytes())
    }

    pub fn end(mut self, result: &GateResult) -> io::Result<W> {
        let nothing = html! { p #nothing hidden { "No session is like that." } };
        write!(self.out, "{}</main>{}", nothing.0, summary::bottom(result).0)?;
        write!(self.out, "<script>{SCRIPT}</script></body></html>")?;
        Ok(self.out)
    }
}

fn policy() -> String {
    let script = STANDARD.encode(digest(SCRIPT.as_bytes()).as_bytes());
    format!("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{script}'; img-src data:")
}
