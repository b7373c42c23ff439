//! E2B's published SDKs, unmodified, against a service of ours: what they find in a sandbox. The scripts beside this
//! file are written against the SDKs alone; each asserts by itself.

mod langgraph;

use cofferdam_testkit::{Image, Mode, PATIENCE, Registry, SEARCH_PATH, Server, Site, finish, needs_root};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Runs a script and leaves without taking the interpreter down: threads of the SDK's own transport sometimes abort it
/// then, when all has been done and asserted. An assertion that fails still ends it with its traceback.
pub(crate) const TO_ITS_END: &str = "import os, runpy, sys; sys.argv = sys.argv[1:]; \
    runpy.run_path(sys.argv[0], run_name='__main__'); sys.stdout.flush(); os._exit(0)";

/// A service, for as long as a test lasts.
struct Service {
    child: Child,
    url: String,
    key: String,
}

impl Service {
    fn start(site: &Site) -> Self {
        Self::start_with(site, &[])
    }

    fn start_with(site: &Site, flags: &[&str]) -> Self {
        let errors = File::create(site.root().join("serve.log")).unwrap();
        let mut command = site.command(site.binary());
        command.args(["serve", "--listen", "127.0.0.1:0", "--json"]).args(flags);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said = || std::fs::read_to_string(site.root().join("serve.log")).unwrap_or_default();
        let told: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no service: {}", said()));
        // The key is told on the first start only.
        let text = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
        Self { child, url: text("url"), key: text("api_key") }
    }

    /// A script of this directory, with these SDKs at hand and pointed here.
    fn run(&self, packages: &Path, script: &str) {
        self.run_with(packages, script, &[]);
    }

    fn run_with(&self, packages: &Path, script: &str, env: &[(&str, &str)]) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/sdk").join(script);
        let python = script.extension().is_some_and(|end| end == "py");
        // Node finds packages beside the script that asks for them.
        let dir = tempfile::tempdir().unwrap();
        let mut command = if python {
            let mut command = Command::new("python3");
            command.args(["-c", TO_ITS_END]).arg(&script);
            command
        } else {
            std::os::unix::fs::symlink(packages.join("node_modules"), dir.path().join("node_modules"))
                .unwrap();
            let copy = dir.path().join(script.file_name().unwrap());
            std::fs::copy(&script, &copy).unwrap();
            let mut command = Command::new("node");
            command.arg(copy);
            command
        };
        command.env_clear().env("PATH", SEARCH_PATH).env("HOME", dir.path()).current_dir(dir.path());
        command.env("PYTHONPATH", packages).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("E2B_API_KEY", &self.key).env("E2B_API_URL", &self.url).env("E2B_SANDBOX_URL", &self.url);
        command.env("E2B_VOLUME_API_URL", &self.url).envs(env.iter().copied());
        finish(&mut command).exits(0);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM);
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let _ = (self.child.kill(), self.child.wait());
    }
}

/// The SDKs, where they are installed.
fn packages() -> Option<PathBuf> {
    let packages = Server::shared()?.packages().to_owned();
    packages.join("e2b").is_dir().then_some(packages)
}

/// As root, where sandboxes have several users without further ado.
fn with_sdk(script: &str, check: impl Fn(&Site)) {
    let Some(packages) = packages() else { return };
    if !needs_root("a service for several users") {
        return;
    }
    let site = Site::new(Mode::Root, env!("CARGO_BIN_EXE_cofferdam"));
    let service = Service::start(&site);
    service.run(&packages, script);
    drop(service);
    check(&site);
}

#[test]
fn commands_by_the_python_sdk() {
    with_sdk("commands.py", |site| {
        // On record as if anyone else had asked.
        let ran = |text: &str| {
            site.traces().iter().any(|id| {
                let events = std::fs::read_to_string(site.events_file(id)).unwrap_or_default();
                events.lines().any(|line| line.contains("exec.started") && line.contains(text))
            })
        };
        assert!(ran("echo to-be-recorded"));
        assert!(!ran("echo never-asked-for"));
    });
}

#[test]
fn files_by_the_python_sdk() {
    with_sdk("files.py", |site| {
        let asked: Vec<Value> = site
            .traces()
            .iter()
            .flat_map(|id| {
                let events = std::fs::read_to_string(site.events_file(id)).unwrap_or_default();
                let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
                events.filter(|event| event["kind"] == "file.asked").collect::<Vec<_>>()
            })
            .collect();
        let of = |op: &str, path: &str| {
            asked.iter().find(|event| event["body"]["op"] == op && event["body"]["path"] == path)
        };
        let written = of("write", "/home/user/a.txt").expect("the write is on record");
        // Of "hello".
        let digest = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        assert!(written["body"]["digest"].as_str().unwrap().ends_with(digest), "{written}");
        assert_eq!((&written["body"]["size"], &written["body"]["user"]), (&5.into(), &"user".into()));
        assert!(of("move", "/home/user/a.txt").is_some() && of("remove", "/home/user/dir").is_some());
        assert!(of("make-dir", "/home/user/dir/sub").is_some());
    });
}

#[test]
fn sudo_by_the_python_sdk() {
    with_sdk("sudo.py", |site| {
        let all: Vec<Value> = site
            .traces()
            .iter()
            .flat_map(|id| {
                let events = std::fs::read_to_string(site.events_file(id)).unwrap_or_default();
                events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>()
            })
            .collect();
        let asked = |event: &&Value| event["kind"] == "exec.started" && event["body"]["by"] == "sudo";
        let one = |argv: &[&str]| {
            all.iter().filter(asked).find(|event| event["body"]["argv"] == serde_json::json!(argv))
        };
        let started = one(&["sh", "-c", "exit 7"]).expect("what sudo starts is on record");
        assert_eq!(
            (&started["body"]["user"], &started["body"]["cwd"]),
            (&"root".into(), &"/home/user".into())
        );
        assert_eq!(one(&["id", "-un"]).unwrap()["body"]["user"], "user");
        let ended =
            all.iter().find(|event| event["kind"] == "exec.exited" && event["parent"] == started["seq"]);
        assert_eq!(ended.expect("and so is its end")["body"]["exit"]["code"], 7);
        assert!(one(&["no-such-program"]).is_some());
        assert!(one(&["ls", "never-asked-for"]).is_none());
    });
}

/// Where the operator does not want it there is none.
#[test]
fn a_service_without_sudo() {
    let Some(packages) = packages() else { return };
    if !needs_root("a service for several users") {
        return;
    }
    let site = Site::new(Mode::Root, env!("CARGO_BIN_EXE_cofferdam"));
    let config = site.write("serve.toml", "[e2b]\nsudo = false\n");
    Service::start_with(&site, &["--config", config.to_str().unwrap()]).run(&packages, "no_sudo.py");
}

#[test]
fn the_life_of_sandboxes_by_the_python_sdk() {
    with_sdk("lifecycle.py", |_| {});
}

#[test]
fn the_life_of_sandboxes_by_the_sdk_for_javascript() {
    with_sdk("lifecycle.mjs", |_| {});
}

/// With matplotlib and pandas, which the machine need not have.
#[test]
fn charts_by_the_python_sdk() {
    let Some(packages) = packages() else { return };
    if !needs_root("a service for several users") {
        return;
    }
    let inside = packages.join("inside/charts");
    assert!(inside.is_dir(), "{} is missing: `cargo xtask test` installs it", inside.display());
    let site = Site::new(Mode::Root, env!("CARGO_BIN_EXE_cofferdam"));
    let service = Service::start(&site);
    service.run_with(&packages, "charts.py", &[("TEST_INSIDE", inside.to_str().unwrap())]);
}

#[test]
fn the_asynchronous_sdk() {
    with_sdk("asynchronous.py", |_| {});
}

#[test]
fn the_code_interpreter_by_the_python_sdk() {
    with_sdk("interpreter.py", |_| {});
}

#[test]
fn a_context_is_begun_once_however_slowly() {
    with_sdk("interpreter_begun.py", |_| {});
}

#[test]
fn the_sdks_for_javascript() {
    with_sdk("javascript.mjs", |_| {});
}

#[test]
fn templates_are_built_by_the_python_sdk() {
    with_sdk("template.py", |_| {});
}

/// What the service has, and what a registry has that the operator names.
#[test]
fn templates_are_built_over_images() {
    let Some(packages) = packages() else { return };
    if !needs_root("a service for several users") {
        return;
    }
    let site = Site::new(Mode::Root, env!("CARGO_BIN_EXE_cofferdam"));
    let layout = Image::shared().layout();
    site.call(&["image", "import", layout.to_str().unwrap(), "--name", "app"]).exits(0);
    let of_daemon = site.root().join("of-daemon");
    let order = |words: &[&str]| finish(Command::new(words[0]).args(&words[1..])).exits(0);
    order(&["cp", "-r", layout.to_str().unwrap(), of_daemon.to_str().unwrap()]);
    order(&["umoci", "config", "--image", &format!("{}:1", of_daemon.display()), "--config.user", "daemon"]);
    site.call(&["image", "import", of_daemon.to_str().unwrap(), "--name", "of-daemon"]).exits(0);
    let registry = Registry::start(Image::shared());
    let config = site.write("serve.toml", format!("[e2b]\nregistries = [\"{}\"]\n", registry.address));
    let service = Service::start_with(&site, &["--config", config.to_str().unwrap()]);
    let listed = site.call(&["image", "ls", "--json"]).exits(0).out();
    let listed: Vec<serde_json::Value> = serde_json::from_str(&listed).unwrap();
    let digests: Vec<&str> = listed.iter().filter_map(|image| image["digest"].as_str()).collect();
    let given = [("TEST_REGISTRY", registry.address.as_str()), ("TEST_DIGESTS", &digests.join(" "))];
    service.run_with(&packages, "image.py", &given);
    service.run(&packages, "image.mjs");
}

/// What a tenant may take of the disk by it is the operator's to say.
#[test]
fn images_that_builds_fetch_are_bounded() {
    let Some(packages) = packages() else { return };
    if !needs_root("a service for several users") {
        return;
    }
    let site = Site::new(Mode::Root, env!("CARGO_BIN_EXE_cofferdam"));
    let registry = Registry::start(Image::shared());
    let mut key = String::new();
    let listed = || -> Vec<Value> {
        serde_json::from_str(&site.call(&["image", "ls", "--json"]).exits(0).out()).unwrap()
    };
    let mut run = |space: &str, image: &str, expected: &str| {
        let text = format!("[e2b]\nregistries = [\"{}\"]\nimage-space = \"{space}\"\n", registry.address);
        let config = site.write("serve.toml", text);
        let mut service = Service::start_with(&site, &["--config", config.to_str().unwrap()]);
        match key.is_empty() {
            true => key.clone_from(&service.key),
            false => service.key.clone_from(&key),
        }
        let address = registry.address.as_str();
        let given = [("TEST_REGISTRY", address), ("TEST_IMAGE", image), ("TEST_EXPECTED", expected)];
        service.run_with(&packages, "image_space.py", &given);
        drop(service);
        listed().len()
    };
    const APP: &str = "team/app:1";
    assert_eq!(run("100K", APP, "e2b.image-space"), 0, "what is too much leaves nothing");
    // Once and again: it is there already, and takes no more.
    assert_eq!(run("1G", APP, ""), 1);
    let first = listed()[0].clone();
    let enough = (first["bytes"].as_u64().unwrap() + 100_000).to_string();
    assert_eq!(run(&enough, APP, ""), 1);
    // Another one has no room while templates begin with the first, nor while somebody may be about to use that.
    let layout = site.root().join("other");
    let order = |words: &[&str]| finish(Command::new(words[0]).args(&words[1..])).exits(0);
    order(&["cp", "-r", Image::shared().layout().to_str().unwrap(), layout.to_str().unwrap()]);
    let tagged = format!("{}:1", layout.display());
    order(&["umoci", "config", "--image", &tagged, "--config.user", "daemon"]);
    let to = format!("docker://{}/team/other:1", registry.address);
    let copy = ["skopeo", "copy", "--insecure-policy", "--dest-tls-verify=false"];
    order(&[&copy[..], &[&format!("oci:{tagged}"), &to]].concat());
    const OTHER: &str = "team/other:1";
    let used = |ago: u64| {
        let lock = site.state().join("images").join(first["digest"].as_str().unwrap()).join("lock");
        let then = std::time::SystemTime::now() - std::time::Duration::from_secs(ago);
        File::open(lock).unwrap().set_modified(then).unwrap();
    };
    used(3600);
    assert_eq!(run(&enough, OTHER, "e2b.image-space"), 1, "templates begin with it");
    let kept = site.call(&["session", "snapshots", "--json"]).exits(0).out();
    for snapshot in serde_json::from_str::<Vec<Value>>(&kept).unwrap() {
        site.call(&["session", "snapshots", "--rm", snapshot["name"].as_str().unwrap()]).exits(0);
    }
    // Who holds a place removes from it.
    drop(crate::live::Hall(&site));
    used(0);
    assert_eq!(run(&enough, OTHER, "e2b.image-space"), 1, "it was used just now");
    used(3600);
    assert_eq!(run(&enough, OTHER, ""), 1, "what nobody uses made room");
    assert_ne!(listed()[0]["digest"], first["digest"]);
}

/// The newest, and each of the older ones that the documentation names: its packages alone are at hand.
#[test]
fn every_version_of_the_sdks_that_is_promised() {
    let Some(packages) = packages() else { return };
    if !needs_root("a service for several users") {
        return;
    }
    let site = Site::new(Mode::Root, env!("CARGO_BIN_EXE_cofferdam"));
    let service = Service::start(&site);
    let listed =
        std::fs::read_dir(packages.join("older")).expect("older SDKs: `cargo xtask test` installs them");
    let mut older: Vec<PathBuf> = listed.map(|entry| entry.unwrap().path()).collect();
    older.sort();
    let docs = include_str!("../../../../../docs/e2b.md");
    for dir in &older {
        let name = dir.file_name().unwrap().to_string_lossy().into_owned();
        let node = name.starts_with("node-");
        let version = name.rsplit('-').next().unwrap();
        assert!(docs.contains(version), "{name} is tried and not told of");
        service.run(dir, if node { "core.mjs" } else { "core.py" });
    }
    assert_eq!(older.len(), 5);
    service.run(&packages, "core.py");
    service.run(&packages, "core.mjs");
}

/// Names below the service's domain, by a name server, with TLS: the way that needs no address to be told.
#[test]
fn by_domain_with_certificates_and_websockets() {
    let Some(packages) = packages() else { return };
    if !needs_root("a name server of its own") {
        return;
    }
    let site = Site::new(Mode::Root, env!("CARGO_BIN_EXE_cofferdam"));
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/sdk/domain");
    let dir = tempfile::tempdir().unwrap();
    for name in ["world.py", "client.py", "client.mjs", "echo.py"] {
        std::fs::copy(scripts.join(name), dir.path().join(name)).unwrap();
    }
    std::os::unix::fs::symlink(packages.join("node_modules"), dir.path().join("node_modules")).unwrap();
    let mut command = site.command("unshare");
    command.args(["--mount", "--net", "--", "python3"]).arg(dir.path().join("world.py"));
    command.arg(site.binary()).arg(site.state()).arg(&packages);
    command.arg(dir.path().join("client.py")).arg(dir.path().join("client.mjs"));
    finish(&mut command).exits(0);
}

#[test]
fn volumes_by_the_python_sdk() {
    with_sdk("volumes.py", |_| {});
}

#[test]
fn what_no_sdk_would_send_is_refused() {
    with_sdk("wire.py", |_| {});
}

/// A service of a plain user's, with sub-ids.
#[test]
fn a_plain_user_serves_as_well() {
    let Some(packages) = packages() else { return };
    if !needs_root("another user") {
        return;
    }
    let site = Site::new(Mode::Range, env!("CARGO_BIN_EXE_cofferdam"));
    Service::start(&site).run(&packages, "plain.py");
}
