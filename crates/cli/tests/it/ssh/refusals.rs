//! What is not carried, asked for by OpenSSH itself against a server that would go along with all of it.

use super::{RULES, Stage, staged, staged_once};
use cofferdam_testkit::Sshd;

/// What the host must never have heard of.
fn nothing_reached_the_host(stage: &Stage<'_>) {
    assert!(!stage.sshd.log().contains("Accepted publickey"), "{}", stage.sshd.log());
}

#[test]
fn only_declared_commands_run() {
    staged(|stage| {
        let check = |script: &str, expected: &[&str]| {
            let done = stage.sh(script).done();
            let err = done.err();
            assert!(done.code() != 0, "{script}: {}", done.out());
            for part in expected {
                assert!(err.contains(part), "{script}: {part}: {err}");
            }
        };
        check(
            "ssh $HOST id",
            &["cofferdam: denied: no rule allows it", "ssh = \"exec\"", "command = \"id\""],
        );
        check("ssh $HOST 'echo up; id'", &["the command cannot be judged: `;` means something to a shell"]);
        check("ssh $HOST 'echo up && id'", &["`&`"]);
        check("ssh $HOST 'git-upload-pack /x; id'", &["`;`"]);
        check("ssh $HOST 'git-upload-pack $(id)'", &["`$`"]);
        check("ssh $HOST 'git-upload-pack --help'", &["path of a repository"]);
        check("ssh $HOST \"git-upload-pack '$REPOS/acme/../other/secret.git'\"", &["path of a repository"]);
        check(
            "git clone -q ssh://$HOST$REPOS/other/secret.git",
            &["no rule allows it", "Could not read from remote"],
        );
        nothing_reached_the_host(stage);
        let denied = stage.site.bodies("egress.decided");
        assert_eq!((denied[0]["effect"].as_str(), denied[0]["scheme"].as_str()), (Some("deny"), Some("ssh")));
    });
}

#[test]
fn what_may_be_read_is_not_written() {
    const SCRIPT: &str = r#"
set -e
git clone -q ssh://$HOST$REPOS/acme/read.git read
cd read && echo more >> notes && git commit -q -am more
! git push -q 2>&1
"#;
    staged_once(|stage| {
        let before = stage.sshd.git("acme/read.git", &["rev-parse", "main"]);
        let done = stage.sh(SCRIPT).exits(0);
        let out = done.out();
        assert!(
            out.contains("cofferdam: denied: no rule allows it") && out.contains("ssh = \"push\""),
            "{out}"
        );
        assert_eq!(stage.sshd.git("acme/read.git", &["rev-parse", "main"]), before);
    });
}

/// Each of these a server does that is not told otherwise, and this one is told to.
#[test]
fn shells_terminals_and_subsystems_are_refused_in_words() {
    staged_once(|stage| {
        let check = |script: &str, said: &str, recorded: &str| {
            let done = stage.sh(script).done();
            assert!(done.code() != 0 && done.err().contains(said), "{script}: {}", done.err());
            let refused = stage.refused("not-carried");
            assert!(
                refused.iter().any(|body| body["detail"].as_str().unwrap().contains(recorded)),
                "{script}: {refused:#?}"
            );
        };
        check("ssh $HOST < /dev/null", "cofferdam: a shell is not carried", "a shell");
        check("ssh -tt $HOST", "PTY allocation request failed", "a terminal");
        check("echo ls | sftp -b - $HOST", "the subsystem `sftp` is not carried", "the subsystem `sftp`");
        check(
            "echo x > f && scp -q f $HOST:/tmp/f",
            "the subsystem `sftp` is not carried",
            "the subsystem `sftp`",
        );
        let old = stage.sh("echo x > f && scp -O -q f $HOST:/tmp/f").done();
        assert!(old.code() != 0 && old.err().contains("no rule allows it"), "{}", old.err());
        nothing_reached_the_host(stage);
    });
}

/// The variable is not passed on, and the command runs all the same.
#[test]
fn variables_are_not_passed_on() {
    let rules = format!(
        "{RULES}\n[[rule]]\nid = \"env\"\nreason = \"to look\"\neffect = \"allow\"\nssh = \"exec\"\nhost = \"git.internal\"\ncommand = \"env\"\n"
    );
    staged_once(|stage| {
        stage.rules(&rules);
        let done = stage.sh("LC_ALL=C.UTF-8 SECRET_X=1 ssh -o SendEnv=SECRET_X $HOST env").exits(0);
        assert!(!done.out().contains("SECRET_X") && !done.out().contains("LC_ALL"), "{}", done.out());
        let refused = stage.refused("not-carried");
        assert_eq!(refused.len(), 1, "what every client sends is nothing to tell: {refused:#?}");
        assert!(refused[0]["detail"].as_str().unwrap().contains("the variable `SECRET_X`"));
        // The control: the server takes it from whoever reaches it otherwise.
        let mut outside = stage.site.command("ssh");
        let key = stage.site.write("control", stage.sshd.key("agent"));
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let (port, host) = (stage.sshd.port().to_string(), format!("{}@127.0.0.1", Sshd::user()));
        outside.args([
            "-F",
            "none",
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "SendEnv=SECRET_X",
            "-p",
            &port,
            "-i",
        ]);
        let done = cofferdam_testkit::finish(outside.arg(key).args([&host, "env"]).env("SECRET_X", "1"));
        assert!(done.out().contains("SECRET_X=1"), "{} {}", done.out(), done.err());
    });
}

#[test]
fn ports_agents_and_displays_are_not_forwarded() {
    const PORT_HERE: &str = r#"
ssh -L 127.0.0.1:7001:127.0.0.1:22 $HOST cat < hold > held 2> said & exec 9> hold
for n in $(seq 200); do
    python3 -c 'import socket; socket.create_connection(("127.0.0.1", 7001)).recv(1)' 2> /dev/null && break
    sleep 0.1
done
exec 9>&-
wait
cat said
"#;
    staged_once(|stage| {
        let here = stage.sh(&format!("mkfifo hold\n{PORT_HERE}")).done();
        assert!(here.out().contains("forwarding of a port is not carried"), "{} {}", here.out(), here.err());
        let there = stage.sh("ssh -o ExitOnForwardFailure=yes -R 7002:127.0.0.1:22 $HOST echo up").done();
        assert!(
            there.code() != 0 && there.err().contains("remote port forwarding failed"),
            "{}",
            there.err()
        );
        assert!(
            stage.refused("not-carried")[0]["detail"]
                .as_str()
                .unwrap()
                .contains("forwarding of a port there")
        );
        let agent =
            stage.sh("eval $(ssh-agent) > /dev/null; ssh -A $HOST echo up; kill $SSH_AGENT_PID").done();
        assert_eq!(agent.out(), "up\n", "{}", agent.err());
        assert!(
            stage.refused("not-carried")[0]["detail"].as_str().unwrap().contains("forwarding of an agent")
        );
        let tunnel = stage.sh("ssh -W 127.0.0.1:22 $HOST < /dev/null").done();
        assert!(
            tunnel.code() != 0 && tunnel.err().contains("forwarding of a port is not carried"),
            "{}",
            tunnel.err()
        );
        assert!(!stage.sshd.log().contains("direct-tcpip"), "{}", stage.sshd.log());
    });
}

/// Bytes that are no SSH, or that stop in the midst of it, end their own connection and nothing else.
#[test]
fn a_hostile_client_ends_alone() {
    const PROGRAM: &str = r#"
import os, socket, struct, sys
def connect():
    return socket.create_connection(("git.internal", 22), timeout=20)
def rest(s):
    data = b""
    try:
        while chunk := s.recv(65536):
            data += chunk
    except OSError:
        pass
    return data
for bytes in [b"SSH-2.0-x\r\n" + b"\xff" * 40, b"SSH-2.0-x\r\n" + struct.pack(">I", 12) + b"\x04\x15" + b"a" * 10,
              b"SSH-1.5-x\r\n", b"SSH-2.0-" + b"x" * 5000, b"SSH-2.0-x\r\n" + os.urandom(100000)]:
    s = connect()
    s.sendall(bytes)
    s.shutdown(socket.SHUT_WR)
    assert rest(s).startswith(b"SSH-2.0-"), bytes[:20]
print("done")
"#;
    staged_once(|stage| {
        assert_eq!(stage.run(&["python3", "-c", PROGRAM]).exits(0).out(), "done\n");
        assert_eq!(stage.sh("ssh $HOST echo up").exits(0).out(), "up\n");
    });
}
