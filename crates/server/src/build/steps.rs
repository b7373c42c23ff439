//! The steps of a build, one after the other, each in the sandbox.

use super::{Adds, Build, Failed, file_name, files};
use crate::app::App;
use crate::sandbox::Sandbox;
use bytes::Bytes;
use cofferdam_api::e2b::{BuildRequest, BuildStep};
use cofferdam_engine::inside::{FileProblem, Inside, InsideError, ProcessSpec};
use cofferdam_engine::{Heard, OutputStream};
use cofferdam_model::Exit;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// One step may take so long.
const STEP: Duration = Duration::from_secs(3600);
/// Where steps are that say nothing else, whoever runs them.
const HOME: &str = "/home/user";
const ARCHIVE: &str = "/tmp/.build-files.tar";

/// Puts what an archive has at `$2` to `$3`, for `$4`, with the mode `$5` if that is given. Not every `tar` of an image
/// sees by itself that it is compressed.
const COPY: &str = r#"set -e
place=$(mktemp -d)
tar -xf "$1" -C "$place" 2>/dev/null || gzip -dc < "$1" | tar -xf - -C "$place"
cd "$place"
set -f; pattern=$2; set +f
count=0; for found in $pattern; do count=$((count+1)); done
if [ -d "./$pattern" ]; then mkdir -p "$3"; cp -a "./$pattern"/. "$3"; made=$3
elif [ "$count" -gt 1 ] || [ "${3%/}" != "$3" ] || [ -d "$3" ]; then
  mkdir -p "$3"; for found in $pattern; do cp -a "./$found" "$3"; done; made=$3
else mkdir -p "$(dirname "$3")"; for found in $pattern; do cp -a "./$found" "$3"; done; made=$3; fi
chown -R "$4:" "$made"
if [ -n "$5" ]; then chmod -R "$5" "$made"; fi
cd /; rm -rf "$place" "$1"
"#;

struct Steps<'a> {
    inside: Inside,
    build: &'a Build,
    adds: Adds,
}

pub(super) async fn run(
    app: &App,
    sandbox: &Sandbox,
    build: &Build,
    asked: BuildRequest,
) -> Result<Adds, Failed> {
    let gone = || ("the sandbox of the build is gone".to_owned(), None);
    let session = sandbox.session().ok_or_else(gone)?;
    let inside = app.house.inside(&session, format!("build {}", build.id)).ok_or_else(gone)?;
    let adds = Adds { start: asked.start_cmd, ready: asked.ready_cmd, ..sandbox.record().adds.clone() };
    let mut steps = Steps { inside, build, adds };
    for (at, step) in asked.steps.iter().enumerate() {
        let number = (at + 1).to_string();
        build.say("info", Some(&number), format!("{} {}", step.r#type, step.args.join(" ")));
        let file = step.files_hash.as_ref().map(|hash| files(app).join(file_name(&build.tenant, hash)));
        steps.step(step, file, &number).await.map_err(|message| (message, Some(number)))?;
    }
    Ok(steps.adds)
}

impl Steps<'_> {
    async fn step(&mut self, step: &BuildStep, file: Option<PathBuf>, number: &str) -> Result<(), String> {
        let arg = |at: usize| step.args.get(at).map(String::as_str).unwrap_or_default();
        let user = |at: usize| step.args.get(at).filter(|user| !user.is_empty()).cloned();
        match step.r#type.as_str() {
            "RUN" => {
                let argv = ["/bin/bash", "-l", "-c", arg(0)].map(str::to_owned).into();
                let who = user(1).or_else(|| self.adds.user.clone());
                let failed = |why: String| format!("failed to run command '{}': {why}", arg(0));
                self.command(argv, who, number).await.map_err(failed)
            }
            "ENV" => {
                for pair in step.args.chunks(2) {
                    let [name, value] = pair else { return Err("ENV: a name without a value".into()) };
                    if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                        return Err(format!("ENV: `{name}` cannot be set"));
                    }
                    self.adds.env.insert(name.clone(), value.clone());
                }
                Ok(())
            }
            "WORKDIR" => {
                let argv = ["mkdir", "-p", "--", arg(0)].map(str::to_owned).into();
                self.command(argv, self.adds.user.clone(), number).await?;
                self.adds.workdir = Some(arg(0).to_owned());
                Ok(())
            }
            "USER" => {
                self.inside.account(arg(0)).await.map_err(|error| unknown(arg(0), &error))?;
                self.adds.user = Some(arg(0).to_owned());
                Ok(())
            }
            "COPY" => {
                let file = file.ok_or("COPY: no files were sent for it")?;
                self.upload(&file).await?;
                let owner = user(2).or_else(|| self.adds.user.clone()).unwrap_or_else(|| "user".into());
                let target = self.placed(arg(1));
                let argv = ["/bin/bash", "-c", COPY, "copy", ARCHIVE, arg(0), &target, &owner, arg(3)];
                self.command(argv.map(str::to_owned).into(), Some("root".into()), number).await
            }
            other => Err(format!("there is no step `{other}`: use COPY, RUN, ENV, WORKDIR or USER")),
        }
    }

    /// Relative ones are of the work dir.
    fn placed(&self, path: &str) -> String {
        let dir = self.adds.workdir.as_deref().unwrap_or(HOME);
        let slash = if path.ends_with('/') { "/" } else { "" };
        format!("{}{slash}", Path::new(dir).join(path.trim_end_matches('/')).display())
    }

    async fn upload(&self, file: &Path) -> Result<(), String> {
        let outside = |error: std::io::Error| format!("the files that were sent: {error}");
        let inside = |error: InsideError| format!("the files in the sandbox: {error}");
        let root = self.inside.account("root").await.map_err(inside)?;
        let mut from = tokio::fs::File::open(file).await.map_err(outside)?;
        let mut to = self.inside.write(Path::new(ARCHIVE), &root, None).await.map_err(inside)?;
        let mut buffer = vec![0; 256 << 10];
        loop {
            match from.read(&mut buffer).await.map_err(outside)? {
                0 => break,
                count => to.write(Bytes::copy_from_slice(&buffer[..count])).await.map_err(inside)?,
            }
        }
        to.finish().await.map(drop).map_err(inside)
    }

    async fn command(&self, argv: Vec<String>, user: Option<String>, number: &str) -> Result<(), String> {
        let name = user.unwrap_or_else(|| "user".into());
        let who = self.inside.account(&name).await.map_err(|error| unknown(&name, &error))?;
        let cwd = self.adds.workdir.clone().unwrap_or_else(|| HOME.to_owned());
        let spec = ProcessSpec {
            argv,
            env: self.adds.env.clone(),
            cwd: Some(cwd.into()),
            who: Some(who),
            timeout: Some(STEP),
            ..ProcessSpec::default()
        };
        let (_, mut attached) = self.inside.start(spec).await.map_err(|error| error.to_string())?;
        while let Some(heard) = attached.next().await {
            match heard {
                Heard::Started { .. } => {}
                Heard::Output { stream, piece } => {
                    let level = if stream == OutputStream::Stderr { "warn" } else { "info" };
                    for line in String::from_utf8_lossy(piece.bytes()).lines() {
                        self.build.say(level, Some(number), line.to_owned());
                    }
                }
                Heard::Ended(end) => {
                    return match &end.exit {
                        Ok(Exit::Code(0)) => Ok(()),
                        Ok(Exit::Code(code)) => Err(format!("command failed: exit status {code}")),
                        Ok(Exit::TimedOut) => Err("command failed: its time was over".into()),
                        Ok(other) => Err(format!("command failed: {other:?}")),
                        Err(reason) => Err(format!("command failed: {reason}")),
                    };
                }
            }
        }
        Err("command failed: the sandbox is gone".into())
    }
}

fn unknown(name: &str, error: &InsideError) -> String {
    match error {
        InsideError::File { kind: FileProblem::NoAccount } => {
            format!("command failed: unauthenticated: invalid username: '{name}'")
        }
        error => error.to_string(),
    }
}
