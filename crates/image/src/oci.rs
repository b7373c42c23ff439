//! The documents of an image, as far as they are of use here.

use crate::error::ImageError;
use cofferdam_model::Digest;
use serde::Deserialize;
use std::collections::BTreeMap;

/// By which a name of the image's stands beside its manifest.
const REF_NAME: &str = "org.opencontainers.image.ref.name";
const DOCKER_NAME: &str = "io.containerd.image.name";

/// Of a document: an honest one has a few kilobytes.
pub(crate) const DOCUMENT: u64 = 4 << 20;

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Descriptor {
    #[serde(rename = "mediaType", default)]
    pub(crate) media_type: String,
    digest: String,
    pub(crate) size: u64,
    #[serde(default)]
    platform: Option<Platform>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Deserialize)]
struct Platform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Index {
    pub(crate) manifests: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

/// Either of the two, told apart by what it has: some say no type.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Document {
    Index(Index),
    Manifest(Manifest),
}

#[derive(Debug, Deserialize)]
pub(crate) struct Config {
    #[serde(default)]
    pub(crate) architecture: String,
    #[serde(default)]
    pub(crate) os: String,
    #[serde(default)]
    pub(crate) config: Option<Run>,
    pub(crate) rootfs: RootFs,
}

/// How the image is meant to be run.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Run {
    pub(crate) user: Option<String>,
    pub(crate) env: Option<Vec<String>>,
    pub(crate) entrypoint: Option<Vec<String>>,
    pub(crate) cmd: Option<Vec<String>>,
    pub(crate) working_dir: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RootFs {
    pub(crate) diff_ids: Vec<String>,
}

/// What stands in `manifest.json` of Docker's archives.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Saved {
    pub(crate) config: String,
    #[serde(default)]
    pub(crate) repo_tags: Option<Vec<String>>,
    pub(crate) layers: Vec<String>,
}

/// `sha256:…`: other kinds are not understood.
pub(crate) fn digest(text: &str) -> Result<Digest, ImageError> {
    let hex = text.strip_prefix("sha256:").and_then(|hex| hex.parse().ok());
    hex.ok_or_else(|| ImageError::Unknown(text.chars().take(100).collect()))
}

impl Descriptor {
    pub(crate) fn digest(&self) -> Result<Digest, ImageError> {
        digest(&self.digest)
    }

    pub(crate) fn of(digest: &Digest, size: u64) -> Self {
        let digest = format!("sha256:{digest}");
        Self { media_type: String::new(), digest, size, platform: None, annotations: None }
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let all = self.annotations.iter();
        all.flat_map(|all| [all.get(REF_NAME), all.get(DOCKER_NAME)]).flatten().map(String::as_str)
    }

    fn is_called(&self, wanted: &str) -> bool {
        self.names().any(|name| name == wanted || name.rsplit(':').next() == Some(wanted))
    }

    /// One that says nothing may be for this machine.
    fn is_for(&self, architecture: &str) -> bool {
        let fits = |platform: &Platform| {
            (platform.os.is_empty() || platform.os == "linux")
                && (platform.architecture.is_empty() || platform.architecture == architecture)
        };
        self.platform.as_ref().is_none_or(fits)
    }

    /// What only describes another: it has nothing that runs.
    fn is_attestation(&self) -> bool {
        self.platform.as_ref().is_some_and(|platform| platform.architecture == "unknown")
    }
}

/// What this machine is called by those who make images.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

impl Index {
    /// The one that was asked for, for this machine.
    pub(crate) fn choose(&self, wanted: Option<&str>) -> Result<&Descriptor, ImageError> {
        let all: Vec<&Descriptor> = self.manifests.iter().filter(|one| !one.is_attestation()).collect();
        let names = |all: &[&Descriptor]| {
            let names: Vec<&str> = all.iter().flat_map(|one| one.names()).take(20).collect();
            if names.is_empty() { "none has a name".to_owned() } else { names.join(", ") }
        };
        let called: Vec<&Descriptor> =
            all.iter().copied().filter(|one| wanted.is_none_or(|wanted| one.is_called(wanted))).collect();
        if let Some(wanted) = wanted.filter(|_| called.is_empty()) {
            return Err(ImageError::NoRef { wanted: wanted.to_owned(), have: names(&all) });
        }
        let fits: Vec<&Descriptor> =
            called.iter().copied().filter(|one| one.is_for(architecture())).collect();
        match fits.as_slice() {
            [one] => Ok(one),
            [] => {
                let have = called.iter().filter_map(|one| one.platform.as_ref());
                let have: Vec<String> =
                    have.map(|platform| format!("{}/{}", platform.os, platform.architecture)).collect();
                let wanted = format!("linux/{}", architecture());
                Err(ImageError::Platform { wanted, have: have.join(", ") })
            }
            // The same one under several names.
            [first, rest @ ..] if rest.iter().all(|one| one.digest == first.digest) => Ok(first),
            // Variants of one architecture stand in order of preference where they say what they are for.
            [first, ..]
                if wanted.is_none()
                    && fits.iter().all(|one| one.platform.is_some() && one.names().next().is_none()) =>
            {
                Ok(first)
            }
            several => Err(ImageError::Several(names(several))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(manifests: &str) -> Index {
        serde_json::from_str(&format!(r#"{{"manifests":[{manifests}]}}"#)).unwrap()
    }

    fn one(letter: char, platform: &str, name: &str) -> String {
        let digest = letter.to_string().repeat(64);
        let platform = match platform {
            "" => String::new(),
            arch => format!(r#","platform":{{"os":"linux","architecture":"{arch}"}}"#),
        };
        let name = match name {
            "" => String::new(),
            name => format!(r#","annotations":{{"{REF_NAME}":"{name}"}}"#),
        };
        format!(r#"{{"digest":"sha256:{digest}","size":1{platform}{name}}}"#)
    }

    fn chosen(manifests: &[String], wanted: Option<&str>) -> Result<char, String> {
        let index = index(&manifests.join(","));
        let found = index.choose(wanted).map_err(|error| error.to_string())?;
        Ok(found.digest.chars().nth(7).unwrap())
    }

    #[test]
    fn the_variant_of_this_machine_is_chosen() {
        let own = architecture();
        let other = if own == "amd64" { "arm64" } else { "amd64" };
        let both = [one('a', other, ""), one('b', own, ""), one('c', "unknown", "")];
        assert_eq!(chosen(&both, None), Ok('b'));
        assert_eq!(chosen(&[one('a', "", "")], None), Ok('a'));
        let said = chosen(&[one('a', other, "")], None).unwrap_err();
        assert!(said.contains(&format!("linux/{own}")) && said.contains(other), "{said}");
    }

    #[test]
    fn of_several_images_one_is_named() {
        let two = [one('a', "", "1.0"), one('b', "", "example.com/app:2.0")];
        assert!(chosen(&two, None).unwrap_err().contains("1.0, example.com/app:2.0"));
        assert_eq!(chosen(&two, Some("2.0")), Ok('b'));
        assert_eq!(chosen(&two, Some("1.0")), Ok('a'));
        assert!(chosen(&two, Some("3.0")).unwrap_err().contains("`3.0`"));
    }

    #[test]
    fn only_one_kind_of_digest_is_taken() {
        assert!(digest(&format!("sha256:{}", "0".repeat(64))).is_ok());
        for bad in ["", "sha256:", "sha512:00", "sha256:zz", &format!("sha256:{}/..", "0".repeat(64))] {
            assert!(digest(bad).is_err(), "{bad}");
        }
    }
}
