//! What a template is built from: another template, an image that is here, or one of a registry that may be asked.

use super::{Build, fetched};
use crate::app::{App, State, blocking};
use crate::template::{self, FETCHED};
use cofferdam_api::e2b::{BuildRequest, ImageRegistry};
use cofferdam_engine::{EngineError, ImageAsked};
use cofferdam_model::{Digest, ImageName};
use std::fmt;

const BASE: &str = "base";
const SCHEME: &str = "docker://";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum From {
    Template(String),
    Image(Digest),
}

impl fmt::Display for From {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Template(name) => f.write_str(name),
            Self::Image(digest) => write!(f, "the image sha256:{digest}"),
        }
    }
}

/// What can be seen to be wrong before anything is done.
pub(super) fn check(app: &State, asked: &BuildRequest) -> Result<(), String> {
    let Some(image) = &asked.from_image else { return Ok(()) };
    if asked.from_template.is_some() {
        return Err("`fromImage` and `fromTemplate` do not go together: leave one out".into());
    }
    if asked.from_image_registry.as_ref().is_some_and(|registry| registry.r#type != "registry") {
        return Err("`fromImageRegistry`: only `registry`, with a name and a password, is understood".into());
    }
    if template::offered(app, image).is_some() {
        return Ok(());
    }
    let may = &app.config.e2b.registries;
    match reference(image) {
        Some((host, _)) if may.contains(&host) => Ok(()),
        Some((host, _)) => Err(format!(
            "`fromImage`: the registry {host} is not among those that may be asked here: name it in `e2b.registries`, or take the image in with `cofferdam image import`"
        )),
        None => Err(format!(
            "`fromImage`: there is no image `{image}` here: take it in with `cofferdam image import --name {image}`, or write {SCHEME}HOST/REPO:TAG"
        )),
    }
}

/// The host, and all of it as the engine takes it. A name whose first part is none of a host is of no registry.
fn reference(image: &str) -> Option<(String, String)> {
    let rest = image.strip_prefix(SCHEME).unwrap_or(image);
    let (host, _) = rest.split_once('/')?;
    let is_host = image.starts_with(SCHEME) || host.contains(['.', ':']) || host == "localhost";
    is_host.then(|| (host.to_owned(), format!("{SCHEME}{rest}")))
}

pub(super) async fn find(app: &App, build: &Build, asked: &BuildRequest) -> Result<From, String> {
    let Some(image) = asked.from_image.clone() else {
        return Ok(From::Template(asked.from_template.clone().unwrap_or_else(|| BASE.to_owned())));
    };
    if reference(&image).is_some() {
        build.say("info", None, format!("fetching {image}"));
    }
    let _turn = app.builds.fetching.acquire().await.map_err(|_| "the service is going down".to_owned())?;
    let registry = asked.from_image_registry.clone();
    let tenant = build.tenant.clone();
    let found = blocking(app, move |app| take(app, &tenant, &image, registry)).await;
    found.map(From::Image).map_err(|error| format!("`fromImage`: {error}"))
}

/// One that is offered here goes before one that is elsewhere; that is asked for each time, with the asker's own password.
fn take(
    app: &State,
    tenant: &str,
    image: &str,
    registry: Option<ImageRegistry>,
) -> Result<Digest, EngineError> {
    let gone = || EngineError::Declined(format!("the image `{image}` is gone"));
    let may = &app.config.e2b.registries;
    let (host, from) = match (template::offered(app, image), reference(image)) {
        (Some(found), _) => return Ok(found),
        // It may have been offered when it was asked for, and is of no registry that may be asked.
        (None, reference) => reference.filter(|(host, _)| may.contains(host)).ok_or_else(gone)?,
    };
    let name = fetched_name(&host, &from).ok_or_else(gone)?;
    let login = registry.map(|registry| format!("{}:{}", registry.username, registry.password));
    let asked = ImageAsked { from, name: Some(name), wanted: None, most: None, login };
    fetched::fetch(app, tenant, asked)
}

/// A name that nobody else gives, and that is offered to nobody: where the reference makes none, its digest does.
fn fetched_name(host: &str, from: &str) -> Option<ImageName> {
    let plain = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' { c } else { '-' };
    let host: String = host.to_ascii_lowercase().chars().map(plain).collect();
    let rest = from.trim_start_matches(SCHEME).split_once('/').map_or("", |(_, rest)| rest);
    let readable = format!("{FETCHED}{host}/{}", rest.split('@').next().unwrap_or_default());
    let plain = || format!("{FETCHED}{}", cofferdam_seal::digest(from.as_bytes()));
    readable.parse().or_else(|_| plain().parse()).ok()
}

#[cfg(test)]
mod tests {
    use super::{fetched_name, reference};
    use crate::template::FETCHED;

    #[test]
    fn what_was_fetched_has_a_name_of_its_own_whatever_it_is_called() {
        let hex = "0f".repeat(32);
        let long = "a".repeat(120);
        let mut seen = std::collections::BTreeSet::new();
        for image in [
            "reg.example.com/app:1".to_owned(),
            format!("reg.example.com/{long}"),
            format!("reg.example.com/{long}b"),
            format!("[::1]:5000/{hex}"),
            format!("123456789012.dkr.registry.region-southeast-1.example.com/{hex}"),
        ] {
            let (host, from) = reference(&image).unwrap();
            let name = fetched_name(&host, &from).unwrap();
            assert!(name.as_str().starts_with(FETCHED), "{image}: {name}");
            assert!(seen.insert(name), "{image}");
        }
    }

    #[test]
    fn names_are_told_from_references() {
        for (image, host) in [
            ("docker://reg.example.com/app:1", Some("reg.example.com")),
            ("reg.example.com/app", Some("reg.example.com")),
            ("localhost:5000/team/app", Some("localhost:5000")),
            ("docker://plain/app", Some("plain")),
            ("python:3.12", None),
            ("team/app:1", None),
        ] {
            assert_eq!(reference(image).map(|(host, _)| host).as_deref(), host, "{image}");
        }
    }
}
