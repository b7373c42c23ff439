//! An OpenSSH server of a test's own, on a port of this machine, that lets in a plain user with keys it was told of. What
//! it would forward, it may: that it does not is for others to prevent.

use crate::mode::is_root;
use crate::plain::{plain, run};
use crate::{Mode, eventually};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use tempfile::TempDir;

/// The name by which policies lead to it.
pub const SSH_HOST: &str = "git.internal";

/// Ends the server when its input ends, which it does with the test.
const KEEPER: &str = r#"
"$1" -D -e -f "$2/config" 2> "$2/log" &
server=$!
read end
kill $server
wait $server
"#;

/// Users' keys: each of the kinds, one that nobody knows, and one behind which a command is forced.
const KEYS: &[(&str, &[&str])] = &[
    ("agent", &["-t", "ed25519", "-N", ""]),
    ("p256", &["-t", "ecdsa", "-b", "256", "-N", ""]),
    ("p384", &["-t", "ecdsa", "-b", "384", "-N", ""]),
    ("rsa", &["-t", "rsa", "-b", "2048", "-N", ""]),
    ("forced", &["-t", "ed25519", "-N", ""]),
    ("stranger", &["-t", "ed25519", "-N", ""]),
    ("locked", &["-t", "ed25519", "-N", "a passphrase"]),
];

/// Makes a repository of three commits, and a bare one to push to.
const REPOSITORIES: &str = r#"
set -e
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example
mkdir -p acme other
git init -q -b main seed
cd seed
for n in 1 2 3; do
    echo "line $n" >> notes
    git add notes
    git commit -q -m "note $n"
done
cd ..
git clone -q --bare seed acme/site.git
git clone -q --bare seed acme/read.git
git clone -q --bare seed other/secret.git
for repo in acme/site.git acme/read.git; do
    git -C $repo config uploadarchive.allowUnreachable true
done
"#;

pub struct Sshd {
    dir: TempDir,
    port: u16,
    _keeper: Child,
}

impl Sshd {
    /// With a host key of this kind.
    pub fn start(host_key: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("cofferdam-ssh-").tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let (uid, gid) = Mode::Range.ids();
        if is_root() {
            chown(dir.path(), Some(uid), Some(gid)).unwrap();
        }
        for (name, flags) in KEYS {
            keygen(dir.path(), name, flags);
        }
        keygen(dir.path(), "host", &["-t", host_key, "-N", ""]);
        let repositories = dir.path().join("repositories");
        run(plain("mkdir").arg(&repositories));
        run(plain("sh").args(["-c", REPOSITORIES]).current_dir(&repositories));
        let sshd = crate::program("sshd").expect("sshd is missing: apt-get install openssh-server");
        admit(dir.path());
        // A port that is free may be somebody else's a moment later.
        for _ in 0..20 {
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            fs::write(dir.path().join("config"), config(dir.path(), port)).unwrap();
            fs::write(dir.path().join("log"), "").unwrap();
            if is_root() {
                chown(dir.path().join("log"), Some(uid), Some(gid)).unwrap();
            }
            let mut keeper = plain("sh");
            keeper.args(["-c", KEEPER, "keeper"]).arg(&sshd).arg(dir.path());
            keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut keeper = keeper.spawn().unwrap();
            let listens = eventually("sshd to say whether it listens", || {
                let log = fs::read_to_string(dir.path().join("log")).unwrap_or_default();
                let listens = log.contains("Server listening on");
                (listens || log.contains("Cannot bind any address")).then_some(listens)
            });
            if listens {
                return Self { dir, port, _keeper: keeper };
            }
            drop(keeper.stdin.take());
            keeper.wait().unwrap();
        }
        panic!("sshd finds no port: {}", fs::read_to_string(dir.path().join("log")).unwrap_or_default());
    }

    fn public(&self, name: &str) -> String {
        public(self.dir.path(), name)
    }

    /// A private key, by its name.
    pub fn key(&self, name: &str) -> String {
        fs::read_to_string(self.dir.path().join(name)).unwrap()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The user that it lets in, which is the one that it runs as.
    pub fn user() -> String {
        let done = plain("id").arg("-un").output().unwrap();
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    pub fn repositories(&self) -> PathBuf {
        self.dir.path().join("repositories")
    }

    /// What git says of one of the repositories, past everything.
    pub fn git(&self, repo: &str, args: &[&str]) -> String {
        let done = plain("git").arg("-C").arg(self.repositories().join(repo)).args(args).output().unwrap();
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    }

    /// What the server wrote of what it did.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// The fingerprint of its key, as another program tells it.
    pub fn fingerprint(&self) -> String {
        let done = plain("ssh-keygen").arg("-lf").arg(self.dir.path().join("host.pub")).output().unwrap();
        let text = String::from_utf8(done.stdout).unwrap();
        text.split_whitespace().nth(1).unwrap().to_owned()
    }

    /// The kind of its key and the key, as in a file of known hosts.
    pub fn host_key(&self) -> String {
        self.public("host").split_whitespace().take(2).collect::<Vec<_>>().join(" ")
    }

    /// The part of a policy that leads to it.
    pub fn upstream(&self) -> String {
        format!("[[upstream]]\nhost = \"{SSH_HOST}\"\nconnect = \"127.0.0.1:{}\"\n\n", self.port)
    }

    /// The part that says which key it has.
    pub fn known(&self) -> String {
        format!("[[known_host]]\nhost = \"{SSH_HOST}\"\nkey = \"{}\"\n\n", self.fingerprint())
    }
}

fn public(dir: &Path, name: &str) -> String {
    fs::read_to_string(dir.join(format!("{name}.pub"))).unwrap()
}

/// Who is let in: all but the stranger. Behind one key every command runs among the repositories, whatever is asked.
fn admit(dir: &Path) {
    let known = KEYS.iter().filter(|(name, _)| !matches!(*name, "stranger" | "forced"));
    let mut lines: String = known.map(|(name, _)| public(dir, name)).collect();
    let repositories = dir.join("repositories");
    let forced = format!("command=\"cd {} && eval $SSH_ORIGINAL_COMMAND\" ", repositories.display());
    lines.push_str(&format!("{forced}{}", public(dir, "forced")));
    fs::write(dir.join("authorized_keys"), lines).unwrap();
}

fn config(dir: &Path, port: u16) -> String {
    let dir = dir.display();
    format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {dir}/host\nPidFile none\n\
         AuthorizedKeysFile {dir}/authorized_keys\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nAcceptEnv *\nSubsystem sftp internal-sftp\nLogLevel DEBUG1\n\
         MaxStartups 100\nAllowAgentForwarding yes\nAllowTcpForwarding yes\nX11Forwarding yes\n"
    )
}

fn keygen(dir: &Path, name: &str, flags: &[&str]) {
    run(plain("ssh-keygen").args(["-q", "-C", "test", "-f"]).arg(dir.join(name)).args(flags));
}
