//! What a key may sign for: `s3/eu-west-1`, `s3`, `*/eu-*`. A service and a region, each a name, or a beginning and `*`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Scope {
    service: String,
    region: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a scope: write SERVICE or SERVICE/REGION, as in `s3/eu-west-1`, with a `*` at the end of either"
)]
pub struct ScopeError(String);

/// Services whose answers are credentials: a key without a scope does not sign for them.
const MINTS: &[&str] = &["cognito-identity", "iam", "rolesanywhere", "signin", "sso", "sso-oauth", "sts"];

const MAX_NAME: usize = 64;

impl Scope {
    /// Whether one of the scopes covers this service and region; without any, every service but those that give
    /// out credentials.
    pub fn allow(scopes: &[Self], service: &str, region: &str) -> bool {
        match scopes {
            [] => !MINTS.contains(&service),
            scopes => scopes.iter().any(|scope| scope.covers(service, region)),
        }
    }

    /// A region may itself be a pattern, as in a set of regions: then all that it stands for has to be covered.
    fn covers(&self, service: &str, region: &str) -> bool {
        covers(&self.service, service) && covers(&self.region, region)
    }
}

fn covers(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

impl FromStr for Scope {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        let (service, region) = text.split_once('/').unwrap_or((text, "*"));
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b);
        let is_name = |name: &str| {
            let start = name.strip_suffix('*').unwrap_or(name);
            !name.is_empty() && name.len() <= MAX_NAME && start.bytes().all(fits)
        };
        match is_name(service) && is_name(region) {
            true => Ok(Self { service: service.to_owned(), region: region.to_owned() }),
            false => Err(ScopeError(text.chars().filter(|c| !c.is_control()).take(80).collect())),
        }
    }
}

impl TryFrom<String> for Scope {
    type Error = ScopeError;

    fn try_from(text: String) -> Result<Self, ScopeError> {
        text.parse()
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> Self {
        scope.to_string()
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(scopes: &[&str], service: &str, region: &str, expected: bool) {
        let parsed: Vec<Scope> = scopes.iter().map(|scope| scope.parse().unwrap()).collect();
        assert_eq!(Scope::allow(&parsed, service, region), expected, "{scopes:?} {service} {region}");
    }

    #[test]
    fn a_key_signs_for_what_its_scopes_cover() {
        check(&["s3/eu-west-1"], "s3", "eu-west-1", true);
        check(&["s3/eu-west-1"], "s3", "eu-west-2", false);
        check(&["s3/eu-west-1"], "sts", "eu-west-1", false);
        check(&["s3/eu-west-1"], "s3", "*", false);
        check(&["s3/eu-*"], "s3", "eu-west-1", true);
        check(&["s3/eu-*"], "s3", "eu-*", true);
        check(&["s3/eu-*"], "s3", "us-east-1", false);
        check(&["s3"], "s3", "*", true);
        check(&["dynamodb", "*/eu-west-1"], "sqs", "eu-west-1", true);
        check(&["dynamodb", "*/eu-west-1"], "sqs", "us-east-1", false);
    }

    #[test]
    fn credentials_are_not_given_out_unasked() {
        check(&[], "s3", "eu-west-1", true);
        check(&[], "sts", "eu-west-1", false);
        check(&[], "iam", "us-east-1", false);
        check(&["sts"], "sts", "eu-west-1", true);
        check(&["*"], "sts", "eu-west-1", true);
    }

    #[test]
    fn what_is_no_scope_is_refused() {
        for text in ["", "/", "s3/", "/eu-west-1", "S3", "s3/eu west", "s*3", "s3/a/b"] {
            assert!(text.parse::<Scope>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_scope_is_written_as_it_is_read(text in "[a-z0-9*/-]{0,12}") {
            if let Ok(scope) = text.parse::<Scope>() {
                prop_assert_eq!(scope.to_string().parse(), Ok(scope));
            }
        }
    }
}
