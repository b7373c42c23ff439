//! A secret as it is asked for: what the caller says, then what a preset knows, then what can be guessed.

use crate::credential::check_name;
use crate::placeholder::{ENOUGH_BITS, likeness};
use crate::sign::Document;
use crate::vault::SecretError;
use crate::{Credential, Declaration, Place, Plain, Preset, Scope, Source};
use std::fmt;

#[derive(Debug, Clone, Default)]
pub struct Draft {
    pub name: String,
    /// As [`Source::parse`] reads it; standard input if absent.
    pub from: Option<String>,
    /// Read the source for every session instead of storing the value.
    pub live: bool,
    /// Replace those of the preset, as do the places.
    pub hosts: Vec<String>,
    pub places: Vec<String>,
    pub preset: Option<String>,
    pub env: Option<String>,
    pub programs: Vec<String>,
    /// As [`Scope`] reads them.
    pub scopes: Vec<String>,
}

/// Something that the caller should know and that stops nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remark {
    Unlike { preset: &'static str, begins: &'static [&'static str] },
    FewBits(u32),
    StandIn,
    Same,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlike { preset, begins } => {
                write!(
                    f,
                    "the value does not look like a key of {preset}, which begins with {}",
                    begins.join(" or ")
                )
            }
            Self::FewBits(bits) => {
                write!(
                    f,
                    "a value of this shape leaves room for a placeholder of {bits} random bits, not {ENOUGH_BITS}"
                )
            }
            Self::StandIn => {
                f.write_str("the value is too short to be imitated: its placeholder is longer than it")
            }
            Self::Same => f.write_str("the value is the one that was stored before"),
        }
    }
}

/// What a draft says, checked, before any value is read.
pub(crate) struct Settled {
    pub(crate) credential: Credential,
    pub(crate) source: Source,
    pub(crate) preset: Option<&'static Preset>,
}

impl Draft {
    pub(crate) fn settle(self) -> Result<Settled, SecretError> {
        check_name(&self.name)?;
        let source = Source::parse(self.from.as_deref().unwrap_or("-"))?;
        if self.live && source == Source::Input {
            return Err(SecretError::LiveInput);
        }
        let preset = self.preset.as_deref().map(Preset::find).transpose()?;
        let mut hmac = None;
        let mut places: Vec<Place> = Vec::with_capacity(self.places.len());
        for place in &self.places {
            match place.split_once(':') {
                Some(("hmac", path)) => {
                    hmac = Some(Declaration::read(path)?);
                    places.push(Place::Hmac);
                }
                _ if place == "hmac" => return Err(SecretError::NoDeclaration),
                _ => places.push(place.parse()?),
            }
        }
        if let Some(minting) = places.iter().find(|place| place.mints()) {
            // What is sent are tokens, where tokens go; git sends them as passwords.
            let basic = (*minting == Place::GithubApp).then_some(Place::Basic);
            places.extend([Place::Bearer].into_iter().chain(basic));
        }
        let places = match (places.is_empty(), preset) {
            (false, _) => places,
            (true, Some(preset)) => preset.places(),
            (true, None) => vec![Place::Bearer],
        };
        let hosts = match preset {
            Some(preset) if self.hosts.is_empty() => {
                preset.hosts.iter().map(|host| (*host).to_owned()).collect()
            }
            _ => self.hosts,
        };
        let document = Document::of(&places);
        // A variable that holds keys of a provider is not the one that its clients read.
        let of_source = match &source {
            Source::Env(name) if document == Document::Line => Some(name.clone()),
            _ => document.default_env().map(str::to_owned),
        };
        let scopes = self.scopes.iter().map(|scope| scope.parse()).collect::<Result<Vec<Scope>, _>>()?;
        let env = self.env.or(of_source).or_else(|| preset.map(|preset| preset.env.to_owned()));
        let env = env.unwrap_or_else(|| Credential::default_env(&self.name));
        let credential =
            Credential { name: self.name, env, hosts, places, programs: self.programs, scopes, hmac }
                .checked()?;
        Ok(Settled { credential, source, preset })
    }
}

/// What is worth saying about a value.
pub(crate) fn remarks(value: &Plain, preset: Option<&'static Preset>) -> Vec<Remark> {
    let mut remarks = Vec::new();
    if let Some(preset) = preset.filter(|preset| !preset.fits(value)) {
        remarks.push(Remark::Unlike { preset: preset.name, begins: preset.begins });
    }
    let likeness = likeness(value);
    if !likeness.imitates {
        remarks.push(Remark::StandIn);
    } else if likeness.bits < ENOUGH_BITS {
        remarks.push(Remark::FewBits(likeness.bits));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(from: Option<&str>, preset: Option<&str>) -> Draft {
        Draft {
            name: "my-key".into(),
            from: from.map(Into::into),
            preset: preset.map(Into::into),
            hosts: if preset.is_none() { vec!["a.example".into()] } else { vec![] },
            ..Draft::default()
        }
    }

    fn check(draft: Draft, env: &str, hosts: &[&str], places: &str) {
        let credential = draft.settle().map_err(|error| error.to_string()).unwrap().credential;
        let written: Vec<String> = credential.places.iter().map(ToString::to_string).collect();
        assert_eq!((credential.env.as_str(), written.join(" ").as_str()), (env, places));
        assert_eq!(credential.hosts, hosts);
    }

    #[test]
    fn what_is_said_comes_before_what_is_known() {
        check(draft(None, None), "MY_KEY", &["a.example"], "bearer");
        check(draft(Some("env:X"), None), "X", &["a.example"], "bearer");
        let stripe = ["api.stripe.com", "files.stripe.com"];
        check(draft(None, Some("stripe")), "STRIPE_API_KEY", &stripe, "bearer basic");
        check(draft(Some("env:X"), Some("stripe")), "X", &stripe, "bearer basic");
        let said = Draft {
            env: Some("Y".into()),
            hosts: vec!["b.example".into()],
            places: vec!["basic".into()],
            ..draft(Some("env:X"), Some("stripe"))
        };
        check(said, "Y", &["b.example"], "basic");
    }

    #[test]
    fn a_mistake_is_found_before_a_value_is_read() {
        let check = |draft: Draft, part: &str| {
            let error = draft.settle().err().unwrap().to_string();
            assert!(error.contains(part), "{error}");
        };
        check(Draft { live: true, ..draft(None, None) }, "--live");
        check(Draft { preset: Some("nope".into()), ..draft(None, None) }, "no preset `nope`");
        check(Draft { places: vec!["telnet".into()], ..draft(None, None) }, "telnet");
        check(Draft { scopes: vec!["S3".into()], ..draft(None, None) }, "not a scope");
        check(Draft { hosts: vec![], ..draft(None, None) }, "--for");
        check(Draft { name: "a b".into(), ..draft(None, None) }, "a b");
    }

    #[test]
    fn remarks_on_a_value() {
        let of = |text: &str, preset| remarks(&Plain::new(text.into()), preset);
        let stripe = Preset::find("stripe").ok();
        assert_eq!(of("sk_live_4eC39HqLyjWDarjtT1zdp7dc", stripe), []);
        assert!(matches!(
            of("4eC39HqLyjWDarjtT1zdp7dc00000", stripe)[..],
            [Remark::Unlike { preset: "stripe", .. }]
        ));
        assert_eq!(of("hunter2hunter2", None), [Remark::StandIn]);
        assert_eq!(of("AKIAIOSFODNN7EXAMPLE", None), [Remark::FewBits(80)]);
    }
}
