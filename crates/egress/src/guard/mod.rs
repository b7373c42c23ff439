//! Looks for secrets in what leaves: texts with the shape of a key, private keys, tokens, card numbers, and long
//! random values under a telling name.
//!
//! What is looked for is a table ([`shapes`]); what is done about a class is the policy's word. The session's own
//! credentials are no business of it: [`crate::swap`] refuses those in any encoding, and their placeholders, made to
//! look like keys, are known here and let pass. It sees shapes, not meaning: who wants to hide a key from it can.

mod card;
mod random;
mod shapes;
mod stream;

use crate::scrub::CodingError;
use crate::scrub::coding::Decoder;
use bytes::Bytes;
use cofferdam_policy::{Class, GuardAction};
use http::HeaderMap;
use shapes::CARD;
use std::sync::Arc;
use stream::{LOOK_BACK, SHAPED};

const CARD_REASON: &str = "pays for anything with someone's money";

/// Something that looks like a secret, by its place in the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub shape: &'static str,
    pub class: Class,
    /// Why it matters, for who is asked.
    pub reason: &'static str,
    pub action: GuardAction,
    pub offset: u64,
    pub length: usize,
}

impl Finding {
    /// Within the text at hand, before the bytes that left are counted in.
    fn start(&self) -> usize {
        self.offset as usize
    }

    fn end(&self) -> usize {
        self.start() + self.length
    }
}

/// What may leave now, and what was found in it. After a finding that denies or holds, nothing of `bytes` leaves.
#[derive(Debug, Default)]
pub struct Passed {
    pub bytes: Bytes,
    pub findings: Vec<Finding>,
}

/// One body on its way out.
pub struct Guard {
    actions: Vec<(Class, GuardAction)>,
    /// Texts that look like keys and are none.
    known: Vec<Arc<str>>,
    /// A compressed body is read, and sent as it came.
    decoder: Option<Box<Decoder>>,
    /// The last bytes that left, to tell where a word begins.
    before: Vec<u8>,
    held: Vec<u8>,
    /// How many bytes have left.
    offset: u64,
}

impl Guard {
    /// None when every class may pass. `known` are the session's placeholders, `headers` those of the request.
    pub fn new(
        action: impl Fn(Class) -> Option<GuardAction>,
        known: Vec<Arc<str>>,
        headers: &HeaderMap,
    ) -> Result<Option<Self>, CodingError> {
        let actions: Vec<_> =
            Class::ALL.into_iter().filter_map(|class| Some((class, action(class)?))).collect();
        if actions.is_empty() {
            return Ok(None);
        }
        let decoder = Decoder::of(headers)?;
        let (before, held) = (Vec::new(), Vec::new());
        Ok(Some(Self { actions, known, decoder, before, held, offset: 0 }))
    }

    pub fn push(&mut self, chunk: Bytes) -> Result<Passed, CodingError> {
        let Some(decoder) = &mut self.decoder else { return Ok(self.join(chunk)) };
        let plain = decoder.push(&chunk)?;
        let found = self.join(plain.into());
        Ok(Passed { bytes: chunk, findings: strict(found.findings) })
    }

    /// The rest, when the body has ended.
    pub fn finish(&mut self) -> Passed {
        let rest = std::mem::take(&mut self.held);
        let passed = self.pass(rest.into(), true);
        if self.decoder.is_some() {
            return Passed { bytes: Bytes::new(), findings: strict(passed.findings) };
        }
        passed
    }

    /// What is found in a text that stands for itself, as the value of a field does. What should be taken out of it
    /// does not leave: a head is sent as it is or not at all.
    pub fn text(&mut self, text: &[u8]) -> Vec<Finding> {
        self.before.clear();
        let (mut findings, _) = self.look(text, true);
        findings.retain(|finding| !self.is_known(text, finding));
        strict(findings)
    }

    fn join(&mut self, chunk: Bytes) -> Passed {
        if self.held.is_empty() {
            return self.pass(chunk, false);
        }
        let mut text = std::mem::take(&mut self.held);
        text.extend_from_slice(&chunk);
        self.pass(text.into(), false)
    }

    fn pass(&mut self, mut text: Bytes, last: bool) -> Passed {
        let (mut findings, certain) = self.look(&text, last);
        findings.retain(|finding| !self.is_known(&text, finding));
        self.held = text.split_off(certain).into();
        let mut bytes = text;
        if findings.iter().any(|finding| finding.action == GuardAction::Redact) {
            bytes = redacted(&bytes, &findings);
        }
        for finding in &mut findings {
            finding.offset += self.offset;
        }
        self.offset += bytes.len() as u64;
        self.remember(&bytes);
        Passed { bytes, findings }
    }

    fn remember(&mut self, bytes: &[u8]) {
        let tail = bytes.get(bytes.len().saturating_sub(LOOK_BACK)..).unwrap_or_default();
        self.before.extend_from_slice(tail);
        let surplus = self.before.len().saturating_sub(LOOK_BACK);
        self.before.drain(..surplus);
    }

    /// What was found, by its place in this text, and how much of the text is decided.
    fn look(&mut self, text: &[u8], last: bool) -> (Vec<Finding>, usize) {
        // Without its table a guard that lets pass would be one that fails open.
        let Some(shaped) = SHAPED.as_ref() else { return (Vec::new(), 0) };
        let (spans, mut certain) = shaped.scan(&self.before, text, last);
        let shapes = spans.iter().map(|s| (s.shape.name, s.shape.class, s.shape.reason, s.start, s.end));
        let mut findings: Vec<_> = shapes.filter_map(|found| self.finding(found)).collect();
        if self.action(Class::Payment).is_some() {
            let (cards, before_card) = stream::cards(&self.before, text, last);
            certain = certain.min(before_card);
            let cards = cards.iter().map(|&(start, end)| (CARD, Class::Payment, CARD_REASON, start, end));
            findings.extend(cards.filter_map(|found| self.finding(found)));
        }
        // One that is not whole yet is looked at again when it is, so it may not be cut.
        let cut = findings.iter().filter(|f| f.end() > certain).map(Finding::start).min();
        certain = cut.map_or(certain, |start| start.min(certain));
        findings.retain(|finding| finding.end() <= certain);
        (findings, certain)
    }

    fn action(&self, class: Class) -> Option<GuardAction> {
        self.actions.iter().find(|(of, _)| *of == class).map(|(_, action)| *action)
    }

    fn finding(&self, found: (&'static str, Class, &'static str, usize, usize)) -> Option<Finding> {
        let (shape, class, reason, start, end) = found;
        let action = self.action(class)?;
        Some(Finding { shape, class, reason, action, offset: start as u64, length: end - start })
    }

    fn is_known(&self, text: &[u8], finding: &Finding) -> bool {
        let found = text.get(finding.start()..finding.end()).unwrap_or_default();
        self.known.iter().any(|known| found.windows(known.len().max(1)).any(|w| w == known.as_bytes()))
    }
}

/// What is compressed cannot be changed, so what should be taken out of it does not leave.
fn strict(mut findings: Vec<Finding>) -> Vec<Finding> {
    for finding in findings.iter_mut().filter(|finding| finding.action == GuardAction::Redact) {
        finding.action = GuardAction::Deny;
    }
    findings
}

/// The text with letters in the place of what is not to be sent: as many, so that its length stays true.
fn redacted(text: &[u8], findings: &[Finding]) -> Bytes {
    let mut text = text.to_vec();
    for finding in findings.iter().filter(|finding| finding.action == GuardAction::Redact) {
        if let Some(place) = text.get_mut(finding.start()..finding.end()) {
            place.fill(b'x');
        }
    }
    text.into()
}

#[cfg(test)]
mod tests;
