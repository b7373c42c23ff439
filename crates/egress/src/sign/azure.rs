//! Azure Storage's shared key (`SharedKey` of blobs, queues and files). The field names the account and not the key, so
//! what is ours is told by its signature: one that fits under the placeholder.

use super::aws::claim_pairs as pairs;
use super::{Sending, SignError, signature_fits};
use crate::swap::state::{Entry, State};
use crate::swap::{At, Destination, Refusal};
use cofferdam_vault::{Place, Plain, azure_signature};
use http::header::{AUTHORIZATION, HeaderValue};
use http::request::Parts;

const SCHEME: &str = "SharedKey ";

/// A signature taken off.
pub(crate) struct Taken {
    account: String,
}

/// What is signed besides the fields of its own, in this order.
const FIELDS: [&str; 11] = [
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
];

pub(super) fn take(
    state: &State,
    to: &Destination<'_>,
    head: &mut Parts,
) -> Result<Option<(usize, Taken)>, Refusal> {
    let value = head.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some((account, signature)) =
        value.and_then(|v| v.strip_prefix(SCHEME)).and_then(|v| v.split_once(':'))
    else {
        return Ok(None);
    };
    let text = to_sign(head, account);
    let made = |entry: &Entry| {
        entry.credential.places.contains(&Place::AzureSharedKey)
            && azure_signature(&Plain::new(entry.placeholder.as_bytes().to_vec()), text.as_bytes())
                .is_some_and(|ours| signature_fits(&ours, signature))
    };
    let Some(index) = state.entries.iter().position(made) else { return Ok(None) };
    let Some(entry) = state.entries.get(index) else { return Ok(None) };
    entry.permits(to, &At::Header("authorization".into()), Place::signs)?;
    let taken = Taken { account: account.to_owned() };
    head.headers.remove(AUTHORIZATION);
    Ok(Some((index, taken)))
}

impl Taken {
    pub(super) fn sign(&self, entry: &Entry, _: &Sending<'_>, head: &mut Parts) -> Result<(), SignError> {
        let text = to_sign(head, &self.account);
        let signature = azure_signature(&entry.plain, text.as_bytes()).ok_or(SignError::NoKey)?;
        let field = format!("{SCHEME}{}:{signature}", self.account);
        let mut value = HeaderValue::from_str(&field).map_err(|_| SignError::Malformed("the account"))?;
        value.set_sensitive(true);
        head.headers.insert(AUTHORIZATION, value);
        Ok(())
    }
}

fn to_sign(head: &Parts, account: &str) -> String {
    let field = |name: &str| {
        let values: Vec<&str> = head.headers.get_all(name).iter().filter_map(|v| v.to_str().ok()).collect();
        values.join(",")
    };
    let dated = head.headers.contains_key("x-ms-date");
    let mut lines = vec![head.method.to_string()];
    lines.extend(FIELDS.map(|name| match name {
        "content-length" => Some(field(name)).filter(|length| length != "0").unwrap_or_default(),
        "date" if dated => String::new(),
        name => field(name),
    }));
    let mut own: Vec<String> = head
        .headers
        .keys()
        .filter(|name| name.as_str().starts_with("x-ms-"))
        .map(|name| format!("{}:{}", name.as_str(), field(name.as_str()).trim()))
        .collect();
    own.sort_unstable();
    lines.extend(own);
    lines.push(format!("/{account}{}", head.uri.path()));
    let mut parameters: Vec<(String, String)> = Vec::new();
    for (name, value) in pairs(head.uri.query().unwrap_or_default()) {
        parameters.push((unescaped(&name).to_lowercase(), unescaped(&value)));
    }
    parameters.sort_unstable();
    let mut joined: Vec<(String, Vec<String>)> = Vec::new();
    for (name, value) in parameters {
        match joined.last_mut() {
            Some((last, values)) if *last == name => values.push(value),
            _ => joined.push((name, vec![value])),
        }
    }
    lines.extend(joined.into_iter().map(|(name, values)| format!("{name}:{}", values.join(","))));
    lines.join("\n")
}

fn unescaped(text: &str) -> String {
    super::unescaped(&text.replace('+', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of Azure's documentation of the shared key.
    #[test]
    fn the_documented_text() {
        let request = http::Request::builder()
            .method("GET")
            .uri("/mycontainer?restype=container&comp=metadata&timeout=20&include=snapshots&include=metadata")
            .header("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT")
            .header("x-ms-version", "2015-02-21")
            .header("content-length", "0");
        let head = request.body(()).unwrap().into_parts().0;
        assert_eq!(
            to_sign(&head, "myaccount"),
            "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2015-02-21\n/myaccount/mycontainer\ncomp:metadata\ninclude:metadata,snapshots\nrestype:container\ntimeout:20"
        );
    }
}
