//! Programs that people run: they work without knowing where they are.

use crate::{each, site};
use cofferdam_testkit::{Mode, needs_root, program};
use std::env;

#[test]
fn python_runs_with_threads_processes_and_temporary_files() {
    each(|site| {
        let script = "import subprocess, sys, tempfile, threading, multiprocessing\n\
            t = threading.Thread(target=lambda: open('from-thread', 'w').write('x')); t.start(); t.join()\n\
            with tempfile.NamedTemporaryFile() as f: f.write(b'x')\n\
            print(subprocess.check_output([sys.executable, '-c', 'print(6 * 7)']).decode().strip())\n\
            with multiprocessing.Pool(2) as pool: print(sum(pool.map(abs, [-1, -2])))\n";
        assert_eq!(site.run(&["python3", "-c", script]).exits(0).out(), "42\n3\n");
        assert_eq!(site.read("from-thread"), "x");
    });
}

#[test]
fn a_server_and_its_client_meet_on_the_sandboxs_own_loopback() {
    each(|site| {
        let script = "import socket, threading\n\
            s = socket.create_server(('127.0.0.1', 0))\n\
            threading.Thread(target=lambda: s.accept()[0].sendall(b'hello'), daemon=True).start()\n\
            print(socket.create_connection(s.getsockname()).recv(9).decode())\n";
        assert_eq!(site.run(&["python3", "-c", script]).exits(0).out(), "hello\n");
    });
}

#[test]
fn git_makes_a_commit() {
    assert!(program("git").is_some(), "git is missing: apt-get install git");
    each(|site| {
        let script = "set -e; git init -q .; git config user.name t; git config user.email t@example.org\n\
            echo text > file; git add file; git commit -qm first; git log --format=%s; git status --short";
        assert_eq!(site.sh(script).exits(0).out(), "first\n");
        assert!(site.work().join(".git/HEAD").is_file());
        // The kept repository is whole, and the next session goes on with it.
        let script =
            "set -e; echo more >> file; git commit -qam second; git fsck --strict; git log --format=%s";
        assert_eq!(site.sh(script).exits(0).out(), "second\nfirst\n");
    });
}

#[test]
fn node_runs() {
    if program("node").is_none() {
        return eprintln!("not tried: node is not here (apt-get install nodejs)");
    }
    each(|site| {
        let script = "require('fs').writeFileSync('made.txt', 'by node');\
            setTimeout(() => console.log(process.argv.length), 5)";
        assert_eq!(site.run(&["node", "-e", script]).exits(0).out(), "1\n");
        assert_eq!(site.read("made.txt"), "by node");
    });
}

#[test]
fn the_usual_tools_run() {
    each(|site| {
        let script = "set -e; seq 1 1000 | sort -rn | head -n 1; mkdir -p a/b; cp -r a c; tar cf t.tar a; \
            tar tf t.tar | wc -l; find . -name b | sort; ln -s a l; date > /tmp/now; test -s /tmp/now; \
            awk 'BEGIN { print 7 * 6 }'; sed -i s/x/y/ /dev/null 2>/dev/null || true; id -u; hostname || uname -n";
        let out = site.sh(script).exits(0).out();
        let uid = if site.mode == Mode::Single { site.mode.ids().0 } else { 1000 };
        assert_eq!(out, format!("1000\n2\n./a/b\n./c/b\n42\n{uid}\ncofferdam\n"));
    });
}

/// The toolchain of whoever runs the tests, which lies in a home as toolchains do.
#[test]
fn cargo_builds_a_crate_without_a_network() {
    if !needs_root("a toolchain in the home of this very user") {
        return;
    }
    let (Some(path), Some(home)) = (env::var_os("PATH"), env::var_os("HOME")) else {
        panic!("PATH and HOME are not set");
    };
    let site = site();
    site.write("Cargo.toml", "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    site.write("src/main.rs", "fn main() { println!(\"built inside\"); }\n");
    let call = site.sh("cargo build --offline -q && target/debug/tiny").env("PATH", path).env("HOME", home);
    assert_eq!(call.exits(0).out(), "built inside\n");
    assert!(site.work().join("target/debug/tiny").is_file());
}

#[test]
fn pip_tells_its_version() {
    let pip = || program("pip3").or_else(|| program("pip"));
    let path = env::var("PATH").unwrap_or_default();
    let site = site();
    let found = env::split_paths(&path).any(|dir| dir.join("pip").is_file() || dir.join("pip3").is_file());
    if !found && pip().is_none() {
        return eprintln!("not tried: pip is not here (apt-get install python3-pip)");
    }
    let home = env::var("HOME").unwrap_or_default();
    let call = site.sh("pip --version || pip3 --version").env("PATH", path).env("HOME", home);
    assert!(call.exits(0).out().starts_with("pip "));
}
