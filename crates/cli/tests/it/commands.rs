//! The other commands, and what all of them have in common: readable at eighty columns, no control characters
//! where nobody looks, JSON where it is asked for.

use crate::{each, site};
use serde_json::Value;
use std::fs;
use std::process::Stdio;

#[track_caller]
fn readable(text: &str, width: usize) {
    assert!(!text.is_empty());
    for line in text.lines() {
        assert!(line.chars().count() <= width, "{} columns: {line}", line.chars().count());
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
}

#[test]
fn help_fits() {
    let site = site();
    for args in [
        &["--help"][..],
        &["run", "--help"],
        &["run", "-h"],
        &["trace", "--help"],
        &["trace", "verify", "--help"],
        &["trace", "export", "--help"],
        &["key", "--help"],
        &["init", "--help"],
        &["doctor", "--help"],
        &["escape", "--help"],
    ] {
        let done = site.call(args).env("COLUMNS", "80").exits(0);
        readable(&done.out(), 100);
        assert!(done.err().is_empty());
    }
    assert_eq!(site.call(&["--version"]).exits(0).out(), "cofferdam 0.1.0\n");
    let done = site.call(&[]).exits(2);
    assert!(done.err().contains("Usage:"), "{}", done.err());
}

#[test]
fn the_commands_are_these() {
    let help = site().call(&["--help"]).env("COLUMNS", "80").exits(0).out();
    insta::assert_snapshot!(help, @r"
    Run AI agents in sandboxes and leave a trace that can be proved

    Usage: cofferdam [OPTIONS] <COMMAND>

    Commands:
      run          Run a command in a sandbox and record it
      replay       Run one recorded session again, from its recorded responses
      trace        List, read, verify and move traces
      key          Show, renew and trust signing keys
      secret       Keep secrets that the inside uses and never sees
      policy       Check, explain and test policy files
      approve      Answer requests that wait for a person
      session      Make, see, use and change sessions that live
      conflict     See and take what a commit left out, because it was changed
                   outside as well
      mcp          Be an MCP server whose tools are a sandbox; or put one that is
                   there into a sandbox
      record       Run a suite and store its traces as the baseline
      gate         Run a suite, compare it with its baseline, and say pass, fail or
                   review
      compare      Compare two traces, or two directories of them, without running
                   anything
      verify       Check a gate's signed result
      step         Tell of a workflow's steps, inside a session
      pool         Keep sandboxes prepared, so that a session begins sooner
      image        Take in, list and remove images for the roots of sandboxes
      volume       Make, list and remove directories that sessions share and that
                   outlive them
      usage        Tell what sessions that stay have used, in all or second by
                   second
      serve        Serve sandboxes to programs: E2B's SDKs, and REST
      apikey       Make, list and revoke the keys of the service
      tenant       Tell of the tenants of the service
      eval         Compute an expression over JSON that keeps to a schema; it can do
                   nothing else
      doctor       Tell what this host can enforce, and the fix for each no
      escape       Try to get out of a sandbox in every way we know, and tell what
                   was blocked
      init         Write a starting set-up for the agent found here
      completions  Print completions for a shell
      man          Print the manual page, or that of one command, as in `man session
                   exec`

    Options:
          --home <DIR>  State directory [default: $COFFERDAM_HOME, else the user's
                        data directory]
          --json        Print data as JSON
      -q, --quiet       Say nothing that is not asked for
      -v, --verbose     Say more
      -h, --help        Print help
      -V, --version     Print version
    ");
}

#[test]
fn doctor_tells_what_works_and_how_to_fix_the_rest() {
    each(|site| {
        let done = site.call(&["doctor"]).exits(0);
        // A path of the host's control groups may be longer than a line.
        let told: String =
            done.out().lines().filter(|line| !line.contains("/sys/")).map(|l| format!("{l}\n")).collect();
        readable(&told, 80);
        let told: Value = serde_json::from_str(&site.call(&["doctor", "--json"]).exits(0).out()).unwrap();
        assert_eq!(told["works"], true);
        for row in told["tiers"].as_array().unwrap().iter().chain(told["facts"].as_array().unwrap()) {
            let ok = row["works"].as_bool().or(row["ok"].as_bool()).unwrap();
            assert!(ok || !row["fix"].as_str().unwrap().is_empty(), "{row}");
            assert!(!row["detail"].as_str().unwrap().is_empty(), "{row}");
        }
        let kvm = told["facts"].as_array().unwrap().iter().find(|row| row["name"] == "kvm").unwrap();
        let mut look = site.command("sh");
        look.args(["-c", "test -r /dev/kvm && test -w /dev/kvm"]);
        let opens = cofferdam_testkit::finish(&mut look).code() == 0;
        assert_eq!(kvm["works"].as_bool().or(kvm["ok"].as_bool()), Some(opens), "{kvm}");
    });
}

#[test]
fn the_public_key_is_shown_and_the_private_one_is_not() {
    each(|site| {
        let shown = site.call(&["key", "show"]).exits(0).out();
        assert!(shown.starts_with("-----BEGIN PUBLIC KEY-----\n"), "{shown}");
        assert_eq!(site.call(&["key", "show"]).exits(0).out(), shown);
        let rotated = site.call(&["key", "rotate"]).exits(0);
        readable(&rotated.out(), 100);
        assert_ne!(site.call(&["key", "show"]).exits(0).out(), shown);
    });
}

#[test]
fn completions_and_the_manual_are_printed() {
    let site = site();
    for shell in ["bash", "zsh", "fish"] {
        assert!(site.call(&["completions", shell]).exits(0).out().contains("cofferdam"));
    }
    assert!(site.call(&["man"]).exits(0).out().contains(".TH cofferdam 1"));
    let page = site.call(&["man", "session", "exec"]).exits(0).out();
    assert!(page.contains(".TH cofferdam-session-exec 1") && page.contains("\\-\\-detach"), "{page}");
    assert!(site.call(&["man", "nonesuch"]).exits(2).err().contains("`nonesuch`"));
    site.call(&["completions", "nonesuch"]).exits(2);
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let site = site();
    site.run(&["true"]).exits(0);
    for args in [&["completions", "bash"][..], &["man"], &["trace", "export", "latest"]] {
        let mut command = site.call(args).command();
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let done = child.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && err.is_empty(), "{args:?}: {:?} {err}", done.status);
    }
}

#[test]
fn a_state_directory_of_someone_else_is_refused() {
    each(|site| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(site.state(), fs::Permissions::from_mode(0o777)).unwrap();
        let done = site.run(&["true"]).exits(125);
        assert!(done.err().contains("chmod"), "{}", done.err());
        let done = site.call(&["trace", "ls"]).exits(2);
        assert!(done.err().contains("chmod"), "{}", done.err());
        fs::set_permissions(site.state(), fs::Permissions::from_mode(0o700)).unwrap();
        let done = site.call(&["--home", "/proc/nowhere", "trace", "ls"]).exits(2);
        assert!(done.err().contains("/proc/nowhere"), "{}", done.err());
    });
}

#[test]
fn an_error_is_json_where_json_is_asked_for() {
    let site = site();
    let done = site.call(&["trace", "show", "nonesuch", "--json"]).exits(2);
    let told: Value = serde_json::from_str(done.err().trim()).unwrap();
    assert_eq!(told["error"]["kind"], "error");
    assert!(told["error"]["message"].as_str().unwrap().contains("nonesuch"));
    assert!(site.call(&["trace", "ls", "--json"]).exits(0).out().trim() == "[]");
    let done = site.call(&["trace", "ls", "--nonesuch", "--json"]).exits(2);
    let told: Value = serde_json::from_str(done.err().trim()).unwrap();
    assert_eq!((told["error"]["kind"].as_str(), told["exit"].as_i64()), (Some("usage"), Some(2)));
    assert!(told["error"]["message"].as_str().unwrap().contains("--nonesuch"));
}

#[test]
fn only_what_passes_a_code_through_answers_125() {
    let site = site();
    for args in
        [&["run", "--nonesuch"][..], &["session", "exec", "--nonesuch"], &["mcp", "wrap", "--nonesuch"]]
    {
        site.call(args).exits(125);
    }
    for args in
        [&["gate", "run", "--nonesuch"][..], &["mcp", "unpin", "nobody"], &["trace", "show", "run", "-x"]]
    {
        site.call(args).exits(2);
    }
}

#[test]
fn what_a_session_has_used_is_found_by_its_name_too() {
    let site = site();
    let id = site.call(&["session", "create", "--name", "used"]).exits(0).out();
    site.call(&["session", "exec", "used", "--", "true"]).exits(0);
    let told = |name: &str| site.call(&["usage", name, "--json"]).exits(0).out();
    let by_id: Value = serde_json::from_str(&told(id.trim())).unwrap();
    assert_eq!(by_id["total"]["session"].as_str(), Some(id.trim()));
    assert!(told("used").contains(id.trim()));
    site.call(&["session", "kill", "used"]).exits(0);
    assert!(told(&id[..18]).contains(id.trim()));
    assert!(site.call(&["usage", "nonesuch"]).exits(2).err().contains("nonesuch"));
}
