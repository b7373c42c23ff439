//! Container images, made by other programs from what this machine has: one static busybox, so that no network is
//! needed. Two layers, the second of which takes something of the first away.

use crate::mode::is_root;
use crate::{SEARCH_PATH, program};
use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

pub struct Image {
    dir: TempDir,
    /// Removes the directory when this program ends: one that is shared by all tests is never dropped.
    _cleaner: Child,
}

fn order(dir: &Path, words: &[&str]) {
    let (name, rest) = words.split_first().unwrap();
    let path = program(name).unwrap_or_else(|| panic!("{name} is missing: apt-get install {name}"));
    let mut command = Command::new(path);
    command.args(rest).current_dir(dir).env_clear().env("PATH", SEARCH_PATH).env("HOME", dir);
    let done = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{words:?}: {said}");
}

impl Image {
    /// The image of this test program.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Image> = OnceLock::new();
        SHARED.get_or_init(Self::make)
    }

    fn make() -> Self {
        let dir = tempfile::Builder::new().prefix("cofferdam-image-").tempdir().unwrap();
        let at = dir.path();
        fs::set_permissions(at, Permissions::from_mode(0o755)).unwrap();
        let mut cleaner = Command::new("sh");
        cleaner.args(["-c", "cat >/dev/null; rm -rf -- \"$0\""]).arg(at).stdin(Stdio::piped());
        let cleaner = cleaner.spawn().unwrap();
        let rootless: &[&str] = if is_root() { &[] } else { &["--rootless"] };
        order(at, &["umoci", "init", "--layout", "layout"]);
        order(at, &["umoci", "new", "--image", "layout:1"]);
        order(at, &[&["umoci", "unpack"], rootless, &["--image", "layout:1", "bundle"]].concat());
        let root = at.join("bundle/rootfs");
        first(&root);
        order(at, &["umoci", "repack", "--image", "layout:1", "bundle"]);
        // What is changed from now on is another layer.
        fs::remove_dir_all(at.join("bundle")).unwrap();
        order(at, &[&["umoci", "unpack"], rootless, &["--image", "layout:1", "bundle"]].concat());
        fs::remove_file(root.join("etc/gone")).unwrap();
        fs::remove_dir_all(root.join("usr/share/emptied")).unwrap();
        fs::create_dir(root.join("usr/share/emptied")).unwrap();
        fs::write(root.join("usr/share/emptied/new"), "new\n").unwrap();
        fs::write(root.join("etc/release"), "second\n").unwrap();
        order(at, &["umoci", "repack", "--image", "layout:1", "bundle"]);
        let config: &[&str] = &[
            "umoci",
            "config",
            "--image",
            "layout:1",
            "--config.env",
            "PATH=/bin:/opt/bin",
            "--config.env",
            "GREETING=hello",
            "--config.workingdir",
            "/srv/app",
            "--config.user",
            "root",
            "--config.cmd",
            "/bin/sh",
            "--config.cmd",
            "-c",
            "--config.cmd",
            "pwd; echo $GREETING; cat /etc/release",
        ];
        order(at, config);
        order(at, &["chmod", "-R", "a+rX", "layout"]);
        fs::remove_dir_all(at.join("bundle")).unwrap();
        for (name, to) in
            [("docker.tar", "docker-archive:docker.tar:app:1"), ("oci.tar", "oci-archive:oci.tar:1")]
        {
            order(at, &["skopeo", "copy", "--insecure-policy", "oci:layout:1", to]);
            fs::set_permissions(at.join(name), Permissions::from_mode(0o644)).unwrap();
        }
        Self { dir, _cleaner: cleaner }
    }

    /// An OCI layout.
    pub fn layout(&self) -> PathBuf {
        self.dir.path().join("layout")
    }

    /// What `docker save` would have written.
    pub fn docker_archive(&self) -> PathBuf {
        self.dir.path().join("docker.tar")
    }

    pub fn oci_archive(&self) -> PathBuf {
        self.dir.path().join("oci.tar")
    }
}

/// What the first layer holds.
fn first(root: &Path) {
    for dir in ["bin", "etc", "opt/bin", "usr/share/emptied", "srv/app", "root", "var/lib"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    let busybox = program("busybox").expect("busybox is missing: apt-get install busybox-static");
    fs::copy(&busybox, root.join("bin/busybox")).unwrap();
    let applets = Command::new(&busybox).arg("--list").output().unwrap().stdout;
    for applet in
        String::from_utf8(applets).unwrap().lines().filter(|name| !name.contains('/') && *name != "busybox")
    {
        symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
    bash(root);
    for (path, text) in [
        ("etc/release", "first\n"),
        ("etc/gone", "gone\n"),
        ("usr/share/emptied/old", "old\n"),
        ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\ndaemon:x:2:2::/:/bin/false\n"),
        ("etc/group", "root:x:0:\ndaemon:x:2:\n"),
        ("etc/shadow", "root:!::0:::::\n"),
    ] {
        fs::write(root.join(path), text).unwrap();
    }
    fs::set_permissions(root.join("etc/shadow"), Permissions::from_mode(0o600)).unwrap();
    fs::write(root.join("opt/bin/own-tool"), "#!/bin/sh\necho own tool\n").unwrap();
    fs::write(root.join("opt/bin/raise"), "#!/bin/sh\nid -u\n").unwrap();
    fs::set_permissions(root.join("opt/bin/own-tool"), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(root.join("opt/bin/raise"), Permissions::from_mode(0o4755)).unwrap();
}

/// The SDKs start everything by bash; it comes with the libraries that it asks for.
fn bash(root: &Path) {
    let listed = Command::new("ldd").arg("/bin/bash").output().unwrap().stdout;
    let listed = String::from_utf8(listed).unwrap();
    let words = listed.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    for file in words.chain(["/bin/bash"]) {
        let to = root.join(file.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&to);
        fs::copy(file, &to).unwrap();
    }
}

/// Debian's `docker-registry` on loopback, with the image as `team/app:1`.
pub struct Registry {
    pub address: String,
    process: Child,
    _dir: TempDir,
}

impl Registry {
    pub fn start(image: &Image) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let config = format!(
            "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {address}\n",
            dir.path().join("data").display()
        );
        fs::write(dir.path().join("config.yml"), config).unwrap();
        let path =
            program("docker-registry").expect("docker-registry is missing: apt-get install docker-registry");
        let process = Command::new(path)
            .arg("serve")
            .arg(dir.path().join("config.yml"))
            .env_clear()
            .env("HOME", dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let registry = Self { address, process, _dir: dir };
        crate::eventually("the registry", || std::net::TcpStream::connect(&registry.address).ok());
        let to = format!("docker://{}/team/app:1", registry.address);
        order(
            image.dir.path(),
            &["skopeo", "copy", "--insecure-policy", "--dest-tls-verify=false", "oci:layout:1", &to],
        );
        registry
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
