//! `cofferdam session cp`: files between here and a session. One side is `SESSION:PATH`.

use crate::output::{Failure, Output};
use cofferdam_engine::Engine;
use cofferdam_model::SessionId;
use serde_json::json;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

pub(super) fn run(
    engine: &Engine,
    from: &str,
    to: &str,
    user: Option<&str>,
    output: &Output,
) -> Result<u8, Failure> {
    let copied = match (remote(from), remote(to)) {
        (None, Some((session, path))) => {
            let session = engine.find_session(session)?;
            into(engine, &session, Path::new(from), Path::new(path), user)?
        }
        (Some((session, path)), None) => {
            let session = engine.find_session(session)?;
            out(engine, &session, Path::new(path), Path::new(to))?
        }
        _ => {
            let text = "one of the two is SESSION:PATH, the other is a path here, as in `cp notes.txt box:/home/user/`";
            return Err(Failure::Usage(text.into()));
        }
    };
    if output.json {
        output.value(&json!({ "files": copied }))?;
    }
    Ok(0)
}

/// `SESSION:PATH`. A path here that has a colon is written with a slash before it, as `./a:b`.
fn remote(text: &str) -> Option<(&str, &str)> {
    let (session, path) = text.split_once(':')?;
    let named = !session.is_empty() && !session.contains('/');
    named.then_some((session, path))
}

fn problem(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("{}: {error}", path.display()))
}

/// A place that ends in a slash is a directory that the file goes into.
fn below(place: &Path, name: &Path) -> Result<PathBuf, Failure> {
    let directory = place.as_os_str().as_encoded_bytes().ends_with(b"/") || place.as_os_str().is_empty();
    match (directory, name.file_name()) {
        (false, _) => Ok(place.to_owned()),
        (true, Some(name)) => Ok(place.join(name)),
        (true, None) => Err(Failure::Usage(format!("{} has no name of its own", name.display()))),
    }
}

fn absolute(path: PathBuf) -> Result<PathBuf, Failure> {
    match path.is_absolute() {
        true => Ok(path),
        false => {
            Err(Failure::Usage(format!("{}: a path in a session is absolute, as /tmp/x", path.display())))
        }
    }
}

fn into(
    engine: &Engine,
    session: &SessionId,
    from: &Path,
    to: &Path,
    user: Option<&str>,
) -> Result<u64, Failure> {
    let to = absolute(below(to, from)?)?;
    let meta = fs::metadata(from).map_err(|error| problem(from, &error))?;
    if !meta.is_dir() {
        let file = File::open(from).map_err(|error| problem(from, &error))?;
        engine.copy_in(session, &file, &to, user)?;
        return Ok(1);
    }
    engine.make_dir_in(session, &to, user)?;
    let mut copied = 0;
    let mut entries: Vec<PathBuf> = fs::read_dir(from)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .map_err(|error| problem(from, &error))?;
    entries.sort();
    for entry in entries {
        let kind = fs::symlink_metadata(&entry).map_err(|error| problem(&entry, &error))?.file_type();
        // Links are not followed out of what was named, and what is neither file nor directory stays.
        if kind.is_dir() || kind.is_file() {
            let place = to.join(entry.file_name().unwrap_or_default());
            copied += into(engine, session, &entry, &place, user)?;
        }
    }
    Ok(copied)
}

/// Into a file of our own that takes the place of what was there once all has come.
fn out(engine: &Engine, session: &SessionId, from: &Path, to: &Path) -> Result<u64, Failure> {
    let from = absolute(from.to_owned())?;
    let to = if to.is_dir() { to.join(from.file_name().unwrap_or_default()) } else { to.to_owned() };
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(".part~");
    let part = to.with_file_name(name);
    let file = File::create_new(&part).map_err(|error| problem(&part, &error))?;
    let copied = engine.copy_out(session, &from, &file);
    let done = copied
        .map_err(Failure::from)
        .and_then(|()| fs::rename(&part, &to).map_err(|error| problem(&to, &error)));
    if done.is_err() {
        let _ = fs::remove_file(&part);
    }
    done.map(|()| 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_side_is_named() {
        let check = |text: &str, expected: Option<(&str, &str)>| assert_eq!(remote(text), expected, "{text}");
        check("box:/tmp/x", Some(("box", "/tmp/x")));
        check("box:", Some(("box", "")));
        check("./a:b", None);
        check("/a:b", None);
        check(":x", None);
        check("plain", None);
        assert_eq!(below(Path::new("/tmp/"), Path::new("a/b.txt")).unwrap(), Path::new("/tmp/b.txt"));
        assert_eq!(below(Path::new("/tmp/c"), Path::new("a/b.txt")).unwrap(), Path::new("/tmp/c"));
        assert!(below(Path::new("/tmp/"), Path::new("..")).is_err());
    }
}
