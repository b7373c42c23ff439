//! `[[upstream]]`: the operator's word on where a host is really reached. The inside still uses the real name.

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Upstream {
    /// In its one spelling.
    pub host: String,
    /// `HOST:PORT` to connect to.
    pub connect: String,
    /// A PEM file with the certificates to trust there; none for the usual ones.
    pub ca: Option<String>,
    /// A database there is spoken to without TLS.
    pub plain: bool,
    pub line: usize,
}
