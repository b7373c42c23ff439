//! Real clients and servers for the tests, from PyPI, npm and crates.io: pinned, and installed once into a directory of the
//! target directory, for the Python and Node of the system. Nothing of the machine's own packages is changed or used.

use crate::command::{self, CommandError};
use crate::workspace;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Tells the tests where they are.
pub(crate) const VARIABLE: &str = "COFFERDAM_TEST_PACKAGES";
const REQUIREMENTS: &str = "crates/testkit/src/python/requirements.txt";
const MANIFEST: &str = "crates/testkit/src/node/package.json";
/// Versions of SDKs that users still have, each with all that it needs and in a directory of its own: a list of
/// packages from PyPI, or a manifest for npm.
const OLDER: [&str; 2] = ["crates/testkit/src/python/older", "crates/testkit/src/node/older"];
/// What sandboxes are given to work with, each in a directory of its own: those of the tests need none of it.
const INSIDE: &str = "crates/testkit/src/python/inside";
/// A store that checks signatures, built from source: its package and version.
const STORE: (&str, &str) = ("s3s-fs", "0.14.1");
/// The Python that the tests use, whatever else the developer has.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[derive(Debug, thiserror::Error)]
pub(crate) enum VenvError {
    #[error(transparent)]
    Workspace(#[from] workspace::WorkspaceError),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("`{path}`: {source}; check its permissions and the disk")]
    File { path: PathBuf, source: io::Error },
    #[error("the test packages are not installed: run without --quick")]
    NotInstalled,
}

/// Where the packages are, after installing them if they are not there as listed.
pub(crate) fn provide(root: &Path, install: bool) -> Result<PathBuf, VenvError> {
    let dir = workspace::metadata(root)?.target_directory.join("test-packages");
    let requirements = root.join(REQUIREMENTS);
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| VenvError::File { path, source }
    };
    let manifest = root.join(MANIFEST);
    let mut wanted = fs::read(&requirements).map_err(failed(&requirements))?;
    wanted.extend(fs::read(&manifest).map_err(failed(&manifest))?);
    wanted.extend(format!("{}={}\n", STORE.0, STORE.1).bytes());
    let older = older(root)?;
    for list in &older {
        wanted.extend(fs::read(list).map_err(failed(list))?);
    }
    // Written last, so that a directory that has it is whole.
    let stamp = dir.join("installed");
    if fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        provide_inside(root, &dir, install)?;
        return Ok(dir);
    }
    if !install {
        return Err(VenvError::NotInstalled);
    }
    if dir.exists() {
        fs::remove_dir_all(&dir).map_err(failed(&dir))?;
    }
    command::stdout(&mut pip(&requirements, &dir))?;
    fs::copy(&manifest, dir.join("package.json")).map_err(failed(&dir))?;
    command::stdout(&mut npm(&dir))?;
    for list in &older {
        install_older(list, &dir.join("older"))?;
    }
    command::stdout(&mut store(&dir))?;
    fs::write(&stamp, wanted).map_err(failed(&stamp))?;
    provide_inside(root, &dir, install)?;
    Ok(dir)
}

/// Each by itself: a new one is no reason to install all the others again.
fn provide_inside(root: &Path, dir: &Path, install: bool) -> Result<(), VenvError> {
    for list in lists(root, &[INSIDE])? {
        let failed = |source| VenvError::File { path: list.clone(), source };
        let place = dir.join("inside").join(list.file_stem().unwrap_or_default());
        let (wanted, stamp) = (fs::read(&list).map_err(failed)?, place.join("installed"));
        if fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
            continue;
        }
        if !install {
            return Err(VenvError::NotInstalled);
        }
        if place.exists() {
            fs::remove_dir_all(&place).map_err(failed)?;
        }
        command::stdout(&mut pip(&list, &place))?;
        fs::write(&stamp, wanted).map_err(failed)?;
    }
    Ok(())
}

fn older(root: &Path) -> Result<Vec<PathBuf>, VenvError> {
    lists(root, &OLDER)
}

/// The lists in these directories, in order.
fn lists(root: &Path, dirs: &[&str]) -> Result<Vec<PathBuf>, VenvError> {
    let mut all = Vec::new();
    for dir in dirs.iter().map(|dir| root.join(dir)) {
        let entries = fs::read_dir(&dir).map_err(|source| VenvError::File { path: dir, source })?;
        all.extend(entries.flatten().map(|entry| entry.path()));
    }
    all.sort();
    Ok(all)
}

fn install_older(list: &Path, within: &Path) -> Result<(), VenvError> {
    let name = list.file_stem().unwrap_or_default().to_string_lossy();
    if list.extension().is_some_and(|end| end == "txt") {
        command::stdout(&mut pip(list, &within.join(name.as_ref())))?;
        return Ok(());
    }
    let dir = within.join(format!("node-{name}"));
    let failed = |source| VenvError::File { path: dir.clone(), source };
    fs::create_dir_all(&dir).map_err(failed)?;
    fs::copy(list, dir.join("package.json")).map_err(failed)?;
    command::stdout(&mut npm(&dir))?;
    Ok(())
}

/// Only files that are built already: nothing of a package runs while it is installed.
fn pip(requirements: &Path, dir: &Path) -> Command {
    let mut python = Command::new("python3");
    python.env("PATH", SYSTEM_PATH).env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    python.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--target"]);
    python.arg(dir).arg("--requirement").arg(requirements);
    python
}

/// The same.
fn npm(dir: &Path) -> Command {
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]);
    npm.arg("--prefix").arg(dir);
    npm
}

/// Beside the directory it is built in, which stays: the next time is quick.
fn store(dir: &Path) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args([
        "install",
        "--quiet",
        "--locked",
        "--debug",
        "--features",
        "binary",
        "--version",
        STORE.1,
        "--root",
    ]);
    cargo.arg(dir.join("s3s")).arg("--target-dir").arg(dir.with_file_name("test-store")).arg(STORE.0);
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_is_pinned() {
        let manifest = fs::read_to_string(workspace::root().join(MANIFEST)).unwrap();
        let listed = manifest.lines().skip_while(|line| !line.contains("dependencies")).skip(1);
        for line in listed.take_while(|line| line.contains(':')) {
            let version = line.rsplit('"').nth(1).unwrap();
            assert!(version.starts_with(|first: char| first.is_ascii_digit()), "{line}");
        }
        let lists = older(&workspace::root()).unwrap();
        assert!(lists.iter().any(|list| list.ends_with("e2b-2.7.0.json")));
        let lists = lists.into_iter().filter(|list| list.extension().is_some_and(|end| end == "txt"));
        let inside = super::lists(&workspace::root(), &[INSIDE]).unwrap();
        for list in lists.chain(inside).chain([workspace::root().join(REQUIREMENTS)]) {
            let text = fs::read_to_string(list).unwrap();
            assert!(text.lines().count() > 10);
            for line in text.lines() {
                assert!(line.split_once("==").is_some_and(|(_, version)| !version.is_empty()), "{line}");
            }
        }
    }

    #[test]
    fn nothing_of_a_package_runs_while_it_is_installed() {
        let line = command::line(&pip(Path::new("r.txt"), Path::new("d")));
        assert!(line.contains("--only-binary :all:") && line.contains("--no-deps"), "{line}");
        assert!(command::line(&npm(Path::new("d"))).contains("--ignore-scripts"));
    }
}
