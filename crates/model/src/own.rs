//! Requests from inside that are meant for the proxy itself, as plain data: whoever serves them knows nothing of
//! what they mean, and whoever understands them listens nowhere.

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct OwnRequest<'a> {
    pub method: &'a str,
    pub path: &'a str,
    /// What stands before every path, where it came by a door of its own.
    pub prefix: &'a str,
    pub host: Option<&'a str>,
    /// The page that asks, where a browser's page does.
    pub origin: Option<&'a str>,
    pub content_type: Option<&'a str>,
    pub content_encoding: Option<&'a str>,
    pub body: &'a [u8],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnAnswer {
    pub status: u16,
    pub content_type: &'static str,
    pub body: Vec<u8>,
}

impl OwnAnswer {
    /// `value` is JSON.
    pub fn json(status: u16, value: &serde_json::Value) -> Self {
        Self { status, content_type: "application/json", body: format!("{value}\n").into_bytes() }
    }
}
