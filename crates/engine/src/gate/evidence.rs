//! The evidence of a gate: one file with everything that its verdict rests on, made when the verdict is and made again
//! when someone lets it through.
//!
//! ```text
//! result/     what the gate wrote, and who approved
//! traces/     of the new version
//! baseline/   what it was compared with
//! inputs/     the suite and the policy
//! design/     what a sandbox is, what is guaranteed, and what became of attempts to get out
//! ```

use super::keys::{Keys, trusted};
use super::panel::ASKED;
use super::written::{APPROVAL, ARTIFACT, RESULT, SUMMARY, TRACES};
use super::{GateError, GateResult};
use crate::{Engine, EngineError};
use cofferdam_gate::{Approval, verify, verify_result};
use cofferdam_model::Digest;
use cofferdam_report::evidence::{
    Described, EvidenceError, Listed, Part, hashed, list, pack, read, read_list,
};
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read};
use std::path::{Path, PathBuf};

pub(super) const EVIDENCE: &str = "evidence.tar.zst";

/// What the gate writes, besides the traces.
const RESULTS: &[&str] = &[
    RESULT,
    ARTIFACT,
    APPROVAL,
    SUMMARY,
    "report.html",
    "junit.xml",
    "results.sarif",
    "metrics.json",
    "metrics.prom",
];
/// What is true of every session of this version.
const DESIGN: &[(&str, &str)] = &[
    ("design/sandbox.md", include_str!("../../../../docs/sandbox.md")),
    ("design/network.md", include_str!("../../../../docs/network.md")),
    ("design/security.md", include_str!("../../../../SECURITY.md")),
];

/// A file to be, and where it comes from.
struct Source {
    name: String,
    from: From,
}

enum From {
    File(PathBuf),
    Text(&'static str),
}

/// A sound bundle, and what it says.
#[derive(Debug)]
pub struct EvidenceChecked {
    pub described: Described,
    pub signers: Vec<Digest>,
    pub files: usize,
    pub result: GateResult,
    pub approval: Option<Approval>,
}

impl From {
    fn open(&self) -> io::Result<(u64, Box<dyn Read>)> {
        Ok(match self {
            Self::Text(text) => (text.len() as u64, Box::new(text.as_bytes())),
            Self::File(path) => {
                let file = File::open(path)?;
                (file.metadata()?.len(), Box::new(BufReader::new(file)))
            }
        })
    }
}

/// From a gate's output, and the files that it was made of (name from the suite's directory, and path).
pub(super) fn write(
    out: &Path,
    result: &GateResult,
    inputs: &[(String, PathBuf)],
    keys: &Keys,
) -> Result<(), GateError> {
    let Some(traces) = traces(out, result) else {
        // What is not whole is no evidence, and what was here is of another result.
        let _ = fs::remove_file(out.join(EVIDENCE));
        return Ok(());
    };
    let mut sources = results(out);
    sources.extend(asked(out, result));
    sources.extend(traces);
    let inputs =
        inputs.iter().map(|(name, path)| Source { name: name.clone(), from: From::File(path.clone()) });
    sources.extend(inputs);
    sources.extend(escape(keys));
    sources.extend(DESIGN.iter().map(|(name, text)| Source { name: (*name).into(), from: From::Text(text) }));
    packed(out, sources, result, keys)
}

/// Nothing if one of them is not there. Names may be those of a shard that another machine made: none leads elsewhere.
fn traces(out: &Path, result: &GateResult) -> Option<Vec<Source>> {
    let named = result.sessions.iter().flat_map(|session| session.attempts).filter_map(|one| one.trace);
    let source = |name: String| {
        let file = name.strip_prefix(TRACES)?.strip_prefix('/')?;
        let path = out.join(TRACES).join(file);
        let is_plain = fs::symlink_metadata(&path).is_ok_and(|found| found.is_file());
        (is_plain && !file.contains('/')).then(|| Source { name, from: From::File(path) })
    };
    named.map(|reference| source(reference.name)).collect()
}

/// What scorers and the judge said, as far as it is what the result names.
fn asked(out: &Path, result: &GateResult) -> Vec<Source> {
    let named = result.sessions.iter().filter_map(|session| session.asked);
    let source = |name: &String| {
        let file = name.strip_prefix(ASKED)?.strip_prefix('/').filter(|file| !file.contains('/'))?;
        let path = out.join(ASKED).join(file);
        let is_plain = fs::symlink_metadata(&path).is_ok_and(|found| found.is_file());
        is_plain.then(|| Source { name: format!("result/{name}"), from: From::File(path) })
    };
    named.filter_map(|material| source(&material.name)).collect()
}

/// What became of attempts to get out, if they were made on this machine with this version.
fn escape(keys: &Keys) -> Option<Source> {
    let path = keys.escape.clone()?;
    Some(Source { name: "design/escape.json".into(), from: From::File(path) })
}

/// What the bundles of shards hold of the suite, the policy and the baselines; each bundle is believed if its signer is.
pub(super) fn carried(
    engine: &Engine,
    dirs: &[PathBuf],
    keys: &Keys,
) -> Result<(tempfile::TempDir, Vec<(String, PathBuf)>), EngineError> {
    let mut believed = trusted(engine, &[])?;
    believed.push(keys.signer.public());
    let failed = |source| GateError::Write { path: std::env::temp_dir(), source };
    let room = tempfile::tempdir().map_err(failed)?;
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    for path in dirs.iter().map(|dir| dir.join(EVIDENCE)).filter(|path| path.is_file()) {
        let file = File::open(&path).map_err(|source| GateError::Read { path: path.clone(), source })?;
        let visited = read(
            BufReader::new(file),
            |text| Ok(read_list(text, &believed)?.0),
            |name, from| {
                let wanted = name.starts_with("inputs/") || name.starts_with("baseline/");
                if !wanted || found.iter().any(|(known, _)| known == name) {
                    return Ok(());
                }
                let copy = room.path().join(found.len().to_string());
                io::copy(from, &mut File::create(&copy)?)?;
                found.push((name.to_owned(), copy));
                Ok(())
            },
        );
        visited.map_err(|source| GateError::Evidence { path: path.clone(), source })?;
    }
    Ok((room, found))
}

fn results(out: &Path) -> Vec<Source> {
    let there = RESULTS.iter().filter(|name| out.join(name).is_file());
    there.map(|name| Source { name: format!("result/{name}"), from: From::File(out.join(name)) }).collect()
}

fn packed(out: &Path, mut sources: Vec<Source>, result: &GateResult, keys: &Keys) -> Result<(), GateError> {
    let path = out.join(EVIDENCE);
    let failed = |source| GateError::Write { path: path.clone(), source };
    sources.sort_by(|a, b| a.name.cmp(&b.name));
    sources.dedup_by(|a, b| a.name == b.name);
    let listed = sources.iter().map(|source| {
        let (_, content) = source.from.open()?;
        Ok(Listed { name: source.name.clone(), digest: hashed(content)? })
    });
    let listed: Vec<Listed> = listed.collect::<io::Result<_>>().map_err(failed)?;
    let about = (host(), crate::record::now_us());
    let list = list(&listed, result, (&about.0, about.1), (&keys.signer, &keys.nonces))?;
    let parts = sources.iter().map(|source| {
        let (size, content) = source.from.open()?;
        Ok(Part { name: source.name.clone(), size, content })
    });
    let file = tempfile::NamedTempFile::new_in(out).map_err(failed)?;
    let written = pack(BufWriter::new(file), list.as_bytes(), parts).map_err(failed)?;
    let file = written.into_inner().map_err(|error| failed(error.into_error()))?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(mode).map_err(failed)?;
    file.persist(&path).map_err(|error| failed(error.error))?;
    Ok(())
}

fn host() -> String {
    let kernel = rustix::system::uname();
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("Linux");
    format!("{}, {}", name.trim_matches('"'), kernel.release().to_string_lossy())
}

/// The same evidence with what is in the directory now: an approval, above all.
pub(super) fn renew(
    out: &Path,
    result: &GateResult,
    engine: &Engine,
    keys: &Keys,
) -> Result<(), EngineError> {
    let path = out.join(EVIDENCE);
    if !path.is_file() {
        return Ok(());
    }
    let mut believed = trusted(engine, &[])?;
    believed.push(keys.signer.public());
    let unsound = |source| GateError::Evidence { path: path.clone(), source };
    let room = tempfile::tempdir_in(out).map_err(|source| GateError::Write { path: path.clone(), source })?;
    let mut sources = results(out);
    let file = File::open(&path).map_err(|source| GateError::Read { path: path.clone(), source })?;
    let mut number = 0;
    let visited = read(
        BufReader::new(file),
        |text| Ok(read_list(text, &believed)?.0),
        |name, from| {
            let kept = name.strip_prefix("result/").is_none_or(|rest| rest.starts_with(ASKED));
            if !kept {
                return Ok(());
            }
            number += 1;
            let copy = room.path().join(number.to_string());
            io::copy(from, &mut File::create(&copy)?)?;
            sources.push(Source { name: name.to_owned(), from: From::File(copy) });
            Ok(())
        },
    );
    visited.map_err(unsound)?;
    Ok(packed(out, sources, result, keys)?)
}

impl Engine {
    /// Holds every file of a bundle against its signed list, and what is in it against itself.
    pub fn verify_evidence(&self, path: &Path, keys: &[PathBuf]) -> Result<EvidenceChecked, EngineError> {
        let keys = trusted(self, keys)?;
        let unsound = |source| GateError::Evidence { path: path.to_owned(), source };
        let file = File::open(path).map_err(|source| GateError::Read { path: path.to_owned(), source })?;
        let (mut about, mut held) = (None, std::collections::BTreeMap::new());
        let visited = read(
            BufReader::new(file),
            |text| {
                let (listed, described, signers) = read_list(text, &keys)?;
                about = Some((described, signers, listed.len()));
                Ok(listed)
            },
            |name, from| {
                if let Some(name) =
                    name.strip_prefix("result/").filter(|name| [RESULT, ARTIFACT, APPROVAL].contains(name))
                {
                    let mut bytes = Vec::new();
                    from.read_to_end(&mut bytes)?;
                    held.insert(name.to_owned(), bytes);
                }
                Ok(())
            },
        );
        visited.map_err(unsound)?;
        let missing = |name: &str| unsound(EvidenceError::Missing(format!("result/{name}")));
        let (described, signers, files) = about.ok_or_else(|| missing(RESULT))?;
        let artifact = held.get(ARTIFACT).ok_or_else(|| missing(ARTIFACT))?;
        let inside = |source| GateError::Unsound { path: path.join(ARTIFACT), source };
        let verified = verify(artifact, &keys).map_err(inside)?;
        let result =
            verify_result(&verified, held.get(RESULT).ok_or_else(|| missing(RESULT))?).map_err(inside)?;
        let approval = held.get(APPROVAL).map(|text| Approval::verify(text, artifact, &keys)).transpose();
        let approval =
            approval.map_err(|source| GateError::Approval { path: path.join(APPROVAL), source })?;
        Ok(EvidenceChecked {
            described,
            signers,
            files,
            result,
            approval: approval.map(|(approval, _)| approval),
        })
    }
}

/// Whether a file is a bundle, by its name.
pub fn is_evidence(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(".tar.zst"))
}

/// The names under which a bundle holds what a gate was made of.
pub(super) fn input(kind: &str, name: &str) -> String {
    format!("{kind}/{}", name.trim_start_matches("../").trim_start_matches('/'))
}
