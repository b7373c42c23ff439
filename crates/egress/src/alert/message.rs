//! What is told, in the words of each format.

use super::fold::Due;
use super::{House, Route, finding, send, syslog};
use cofferdam_policy::{Alarm, Alert, AlertFormat, AlertTo, Notice};
use serde::Serialize;

/// How grave something is, by the numbers of OCSF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    Low = 2,
    Medium = 3,
    High = 4,
}

impl Severity {
    fn of(notice: Notice) -> Self {
        match notice {
            Notice::Alarm(Alarm::SecretLeak | Alarm::PlaceholderMisused | Alarm::HostKey) => Self::High,
            Notice::Alarm(Alarm::Denied | Alarm::LargeTransfer) | Notice::Refused => Self::Low,
            Notice::Alarm(_) | Notice::Held => Self::Medium,
        }
    }
}

/// The alert as it is sent in `json`; the other formats are made of the same.
#[derive(Debug, Serialize)]
pub(super) struct Content<'a> {
    pub(super) alert: &'a str,
    /// Of this message; one that is sent again after an error has the same.
    pub(super) uid: String,
    /// Of what it is about; it stays while the same goes on.
    pub(super) group: String,
    pub(super) session: &'a str,
    pub(super) time: String,
    pub(super) about: &'static str,
    pub(super) summary: String,
    pub(super) cause: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) destination: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) request: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) program: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) credential: Option<&'a str>,
    pub(super) times: u64,
    pub(super) first: String,
    pub(super) last: String,
    /// Its number in the session's trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) event: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) approval: Option<Approval>,
    #[serde(skip)]
    pub(super) notice: Notice,
    #[serde(skip)]
    pub(super) severity: Severity,
    #[serde(skip)]
    pub(super) again: bool,
    #[serde(skip)]
    pub(super) times_ms: [u64; 3],
}

/// How to answer for a request that waits.
#[derive(Debug, Serialize)]
pub(super) struct Approval {
    pub(super) id: String,
    pub(super) until: String,
    pub(super) allow: String,
    pub(super) deny: String,
}

impl<'a> Content<'a> {
    pub(super) fn new(alert: &'a Alert, session: &'a str, due: &'a Due, number: u64, now_ms: u64) -> Self {
        let sighting = &due.sighting;
        let approval = sighting.held.map(|(id, until)| {
            let id = format!("{session}.{id}");
            let allow = format!("cofferdam approve allow {id}");
            let deny = format!("cofferdam approve deny {id}");
            Approval { id, until: rfc3339(until.saturating_mul(1000)), allow, deny }
        });
        let mut content = Self {
            alert: &alert.id,
            uid: format!("{session}.a{number}"),
            group: format!("{session}.{}.g{}", alert.id, due.group),
            session,
            time: rfc3339(now_ms),
            about: due.notice.name(),
            summary: String::new(),
            cause: &sighting.cause,
            destination: &sighting.destination,
            request: &sighting.request,
            detail: &sighting.detail,
            program: sighting.program.as_deref(),
            credential: sighting.credential.as_deref(),
            times: sighting.times,
            first: rfc3339(due.first_ms),
            last: rfc3339(due.last_ms),
            event: sighting.event,
            approval,
            notice: due.notice,
            severity: Severity::of(due.notice),
            again: due.again,
            times_ms: [now_ms, due.first_ms, due.last_ms],
        };
        content.summary = content.sentence();
        content
    }

    fn sentence(&self) -> String {
        let mut text = format!("{} in session {}:", self.about, self.session);
        for (word, part) in [(" ", self.request), (" to ", self.destination)] {
            if !part.is_empty() {
                text.push_str(&format!("{word}{part}"));
            }
        }
        text.push_str(&format!(" ({}", self.cause));
        if let Some(program) = self.program {
            text.push_str(&format!(", by {program}"));
        }
        text.push(')');
        if self.times > 1 {
            text.push_str(&format!(", {} times", self.times));
        }
        if !self.detail.is_empty() {
            text.push_str(&format!(": {}", self.detail));
        }
        text
    }

    fn format(&self, format: AlertFormat) -> String {
        let made = match format {
            AlertFormat::Json => serde_json::to_string(self),
            AlertFormat::Ocsf => serde_json::to_string(&finding::finding(self)),
            AlertFormat::Slack => serde_json::to_string(&serde_json::json!({ "text": self.chat() })),
        };
        // Texts and numbers always have a form in JSON.
        ascii(&made.unwrap_or_default())
    }

    /// The sentence, with what a chat would take for markup made harmless.
    fn chat(&self) -> String {
        let mut text = self.summary.clone();
        if let Some(approval) = &self.approval {
            text.push_str(&format!("\n{}\n{}", approval.allow, approval.deny));
        }
        text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
    }
}

/// JSON in which every receiver reads the same characters.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c.is_ascii() {
            true => text.push(c),
            false => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                text.push_str(&format!("\\u{unit:04x}"));
            }),
        }
    }
    text
}

pub(super) fn rfc3339(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(ms).unwrap_or_default().to_string()
}

/// Ready to be sent, as often as it takes.
pub(super) struct Message {
    bytes: Vec<u8>,
    seconds: u64,
}

impl Message {
    pub(super) fn new(alert: &Alert, house: &House, due: &Due, number: u64, now_ms: u64) -> Self {
        let content = Content::new(alert, &house.alerting.session, due, number, now_ms);
        let text = content.format(alert.format);
        let bytes = match &alert.to {
            AlertTo::Web { .. } => text.into_bytes(),
            AlertTo::File(_) => (text + "\n").into_bytes(),
            AlertTo::Tcp { .. } => syslog::counted(&syslog::line(&content, &house.hostname, &text)),
            AlertTo::Local(_) | AlertTo::Udp { .. } => {
                syslog::line(&content, &house.hostname, &text).into_bytes()
            }
        };
        Self { bytes, seconds: now_ms / 1000 }
    }

    pub(super) async fn send(&self, route: &Route, house: &House) -> Result<(), send::SendError> {
        match &route.alert.to {
            AlertTo::Web { host, port, target, tls } => {
                let tls = match (tls, &route.trust) {
                    (false, _) => None,
                    (true, Some(trust)) => Some(trust),
                    (true, None) => Some(house.trust.get()?),
                };
                let signature = route.key.as_ref().map(|key| {
                    let signed = [self.seconds.to_string().as_bytes(), b".", &self.bytes].concat();
                    send::signature(self.seconds, (house.alerting.sign)(key, &signed))
                });
                let post = send::Post { host, port: *port, target, trust: tls, signature };
                post.send(self.bytes.clone()).await
            }
            AlertTo::Local(path) => send::local(path, &self.bytes).await,
            AlertTo::Udp { host, port } => send::udp(host, *port, &self.bytes).await,
            AlertTo::Tcp { host, port } => send::tcp(host, *port, &self.bytes).await,
            AlertTo::File(path) => send::file(path.clone(), self.bytes.clone()).await,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::alert::Sighting;
    use cofferdam_policy::Policy;
    use serde_json::Value;

    pub(crate) fn alert(format: &str) -> Alert {
        let text = format!("[[alert]]\nid = \"ops\"\nto = \"https://h.example/\"\nformat = \"{format}\"");
        Policy::parse(&text).unwrap().alerts().next().unwrap().clone()
    }

    pub(crate) fn due(notice: Notice) -> Due {
        let sighting = Sighting {
            cause: "no-rule".into(),
            destination: "evil.example:8443".into(),
            request: "POST /up?a=<b>".into(),
            detail: "no rule allows it; „ask“".into(),
            program: Some("/usr/bin/curl".into()),
            credential: Some("stripe".into()),
            held: (notice == Notice::Held).then_some((4, 1_700_000_300)),
            event: Some(17),
            times: 12,
        };
        let (first_ms, last_ms) = (1_700_000_000_000, 1_700_000_009_500);
        Due { notice, sighting, group: 3, again: true, first_ms, last_ms }
    }

    pub(crate) fn content<'a>(alert: &'a Alert, due: &'a Due) -> Content<'a> {
        Content::new(alert, "s1", due, 9, 1_700_000_010_000)
    }

    fn told(format: &str, notice: Notice) -> (String, Value) {
        let (alert, due) = (alert(format), due(notice));
        let text = content(&alert, &due).format(alert.format);
        assert!(text.is_ascii() && !text.contains('\n'), "{text}");
        (text.clone(), serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn everything_that_is_known_is_told() {
        let (_, json) = told("json", Notice::Held);
        insta::assert_snapshot!(serde_json::to_string_pretty(&json).unwrap(), @r#"
    {
      "about": "held",
      "alert": "ops",
      "approval": {
        "allow": "cofferdam approve allow s1.4",
        "deny": "cofferdam approve deny s1.4",
        "id": "s1.4",
        "until": "2023-11-14T22:18:20Z"
      },
      "cause": "no-rule",
      "credential": "stripe",
      "destination": "evil.example:8443",
      "detail": "no rule allows it; „ask“",
      "event": 17,
      "first": "2023-11-14T22:13:20Z",
      "group": "s1.ops.g3",
      "last": "2023-11-14T22:13:29.5Z",
      "program": "/usr/bin/curl",
      "request": "POST /up?a=<b>",
      "session": "s1",
      "summary": "held in session s1: POST /up?a=<b> to evil.example:8443 (no-rule, by /usr/bin/curl), 12 times: no rule allows it; „ask“",
      "time": "2023-11-14T22:13:30Z",
      "times": 12,
      "uid": "s1.a9"
    }
    "#);
    }

    #[test]
    fn a_chat_gets_a_sentence_and_no_markup() {
        let (_, json) = told("slack", Notice::Held);
        insta::assert_snapshot!(json["text"].as_str().unwrap(), @r#"
    held in session s1: POST /up?a=&lt;b&gt; to evil.example:8443 (no-rule, by /usr/bin/curl), 12 times: no rule allows it; „ask“
    cofferdam approve allow s1.4
    cofferdam approve deny s1.4
    "#);
    }
}
