//! Who runs `true`, and how: each with the flags that come closest to what ours applies. One that is not
//! installed or refuses this host stays in the table with its own words.

use super::oci;
use crate::command;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) struct Contender {
    pub(crate) name: &'static str,
    argv: Result<Vec<String>, String>,
}

/// Where a run happens.
pub(crate) struct Ground {
    pub(crate) cofferdam: PathBuf,
    /// On a real disk, or a durable trace costs nothing.
    pub(crate) dir: PathBuf,
}

pub(crate) const OURS: &str = "cofferdam run";
pub(crate) const DURABLE: &str = "cofferdam run --durable";
pub(crate) const YARDSTICK: &str = "bwrap";

#[derive(Debug, thiserror::Error)]
pub(crate) enum ContenderError {
    #[error("`{line}` could not be started: {source}")]
    Start { line: String, source: io::Error },
    #[error(
        "`{line}` ended with {status}; it worked in the trial, so run the bench again on a quieter machine"
    )]
    Failed { line: String, status: std::process::ExitStatus },
}

impl Ground {
    pub(crate) fn work(&self) -> PathBuf {
        self.dir.join("work")
    }

    /// A command that cannot touch the user's own state.
    pub(crate) fn command(&self, argv: &[String]) -> Command {
        let mut command = Command::new(argv.first().map_or("true", String::as_str));
        command.args(argv.iter().skip(1)).current_dir(self.work());
        command.env("COFFERDAM_HOME", self.dir.join("state")).stdin(Stdio::null());
        command
    }

    pub(crate) fn cofferdam(&self, args: &[&str]) -> Vec<String> {
        let mut argv = vec![self.cofferdam.to_string_lossy().into_owned(), "run".to_owned()];
        argv.extend(args.iter().map(|arg| (*arg).to_owned()));
        argv
    }
}

impl Contender {
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.argv.as_ref().err().map(String::as_str)
    }

    pub(crate) fn line(&self) -> Option<String> {
        self.argv.as_ref().ok().map(|argv| argv.join(" "))
    }

    pub(crate) fn time(&self, ground: &Ground) -> Result<Duration, ContenderError> {
        let Ok(argv) = &self.argv else { return Ok(Duration::ZERO) };
        let mut command = ground.command(argv);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let started = Instant::now();
        let status = command.status();
        let took = started.elapsed();
        let line = argv.join(" ");
        let status = status.map_err(|source| ContenderError::Start { line: line.clone(), source })?;
        if status.success() { Ok(took) } else { Err(ContenderError::Failed { line, status }) }
    }

    /// Runs it once; whoever fails becomes a refusal in its own words.
    fn tried(mut self, ground: &Ground) -> Self {
        let Ok(argv) = &self.argv else { return self };
        let refusal = match ground.command(argv).output() {
            Err(error) => Some(error.to_string()),
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(last_words(&output.stderr, &output.status.to_string())),
        };
        if let Some(words) = refusal {
            self.argv = Err(words);
        }
        self
    }
}

fn last_words(stderr: &[u8], status: &str) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().rfind(|line| !line.trim().is_empty());
    line.map_or_else(|| status.to_owned(), |line| line.trim().to_owned())
}

/// All of them, tried once.
pub(crate) fn all(ground: &Ground) -> io::Result<Vec<Contender>> {
    let bundle = ground.dir.join("bundle");
    oci::write_bundle(&bundle, own_ids()?)?;
    let state = ground.dir.join("oci").to_string_lossy().into_owned();
    let oci = |runtime: &str| {
        words(&[runtime, "--root", &state, "run", "--bundle", &bundle.to_string_lossy(), "bench"])
    };
    let list = [
        ("plain spawn", "true", words(&["/bin/true"])),
        ("unshare", "unshare", words(UNSHARE)),
        (YARDSTICK, "bwrap", bwrap(&ground.work())),
        ("crun", "crun", oci("crun")),
        ("runc", "runc", oci("runc")),
        ("srt", "srt", words(&["srt", "true"])),
        (OURS, "true", ground.cofferdam(&["--", "true"])),
        (DURABLE, "true", ground.cofferdam(&["--durable", "--", "true"])),
    ];
    let contender = |(name, program, argv)| {
        let argv = if command::find(program).is_some() { Ok(argv) } else { Err("not installed".to_owned()) };
        Contender { name, argv }.tried(ground)
    };
    Ok(list.into_iter().map(contender).collect())
}

/// None for root.
fn own_ids() -> io::Result<Option<(u32, u32)>> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata("/proc/self")?;
    Ok((meta.uid() != 0).then(|| (meta.uid(), meta.gid())))
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

const UNSHARE: &[&str] = &[
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "--pid",
    "--net",
    "--ipc",
    "--uts",
    "--cgroup",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "/bin/true",
];

/// All namespaces, a read-only system, a private /tmp, the work dir writable. No seccomp filter, no
/// Landlock, no cgroup, no trace: bubblewrap has none of its own.
fn bwrap(work: &Path) -> Vec<String> {
    let mut argv =
        words(&["bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc"]);
    for name in ["bin", "sbin", "lib", "lib64"] {
        let path = format!("/{name}");
        match std::fs::read_link(&path) {
            Ok(target) => argv.extend(["--symlink".to_owned(), target.to_string_lossy().into_owned(), path]),
            Err(_) if Path::new(&path).exists() => argv.extend(["--ro-bind".to_owned(), path.clone(), path]),
            Err(_) => {}
        }
    }
    argv.extend(words(&["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]));
    let work = work.to_string_lossy();
    argv.extend(words(&["--bind", &work, &work, "--chdir", &work]));
    argv.extend(words(&["--die-with-parent", "--new-session", "--cap-drop", "ALL", "/bin/true"]));
    argv
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ground(dir: &Path) -> Ground {
        std::fs::create_dir_all(dir.join("work")).unwrap();
        Ground { cofferdam: "/no/such/cofferdam".into(), dir: dir.to_owned() }
    }

    #[test]
    fn who_cannot_run_stays_with_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let all = all(&ground(dir.path())).unwrap();
        let of = |name: &str| all.iter().find(|c| c.name == name).unwrap();
        assert_eq!(of("plain spawn").refusal(), None);
        assert!(of(OURS).refusal().is_some());
        assert!(of("plain spawn").time(&ground(dir.path())).is_ok());
    }

    #[test]
    fn last_words_are_the_last_that_say_something() {
        assert_eq!(last_words(b"a\nb\n\n", "exit status: 1"), "b");
        assert_eq!(last_words(b"\n", "exit status: 1"), "exit status: 1");
    }
}
