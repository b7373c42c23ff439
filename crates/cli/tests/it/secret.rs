//! `cofferdam secret`: what goes in does not come out, whatever is asked, damaged or killed on the way.

use crate::{each, site};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use cofferdam_testkit::{Done, Site, finish};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const FIRST: &str = "sk_live_4eC39HqLyjWDarjtT1zdp7dcFIRST";
const SECOND: &str = "sk_live_9aB8cD7eF6gH5iJ4kL3mN2oSECOND";

const STRIPE: &[&str] = &["secret", "add", "stripe", "--for", "api.stripe.com", "--as", "basic"];

fn json(done: &Done) -> Value {
    serde_json::from_str(&done.out()).unwrap_or_else(|error| panic!("{error}: {}{}", done.out(), done.err()))
}

fn listed(site: &Site) -> Vec<Value> {
    json(&site.call(&["secret", "ls", "--json"]).exits(0)).as_array().unwrap().clone()
}

/// Every usual way to write a value down.
fn forms(value: &str) -> Vec<(&'static str, Vec<u8>)> {
    let hex: String = value.bytes().map(|b| format!("{b:02x}")).collect();
    let mut forms = vec![
        ("raw", value.as_bytes().to_vec()),
        ("hex", hex.clone().into_bytes()),
        ("upper hex", hex.to_uppercase().into_bytes()),
        ("percent", value.bytes().map(|b| format!("%{b:02X}")).collect::<String>().into_bytes()),
        ("reversed", value.bytes().rev().collect()),
        ("utf-16", value.encode_utf16().flat_map(u16::to_le_bytes).collect()),
    ];
    // Of each alignment, the characters that only the value decides.
    for (lead, skip) in [(0, 0), (1, 2), (2, 3)] {
        let padded = [&vec![b' '; lead], value.as_bytes()].concat();
        for (name, text) in [("base64", STANDARD.encode(&padded)), ("base64url", URL_SAFE.encode(&padded))] {
            let text = text.trim_end_matches('=').as_bytes();
            forms.push((name, text[skip..text.len() - 2].to_vec()));
        }
    }
    forms
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// Where a value is written down below a directory.
fn found(dir: &Path, value: &str) -> Vec<String> {
    let holds = |bytes: &[u8], form: &[u8]| bytes.windows(form.len()).any(|window| window == form);
    let forms = forms(value);
    let in_file = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap();
        let names = forms.iter().filter(|(_, form)| holds(&bytes, form)).map(|(name, _)| *name);
        names.map(|name| format!("{name} in {}", path.display())).collect::<Vec<_>>()
    };
    files_below(dir).iter().flat_map(in_file).collect()
}

#[test]
fn a_value_goes_in_and_is_nowhere_to_be_read() {
    each(|site| {
        let mut said = String::new();
        let mut call = |args: &[&str], input: &str| {
            let done = site.call(args).env("STRIPE_KEY", SECOND).input(input).exits(0);
            said.push_str(&format!("{}{}", done.out(), done.err()));
        };
        call(STRIPE, &format!("{FIRST}\n"));
        call(&["secret", "add", "two", "--from", "env:STRIPE_KEY", "--for", "*.example.com", "--json"], "");
        call(&["secret", "ls"], "");
        call(&["secret", "ls", "--json", "-v"], "");
        call(&["secret", "rotate", "stripe", "--from", "env:STRIPE_KEY"], "");
        call(&["secret", "rotate", "stripe", "--from", "-", "--json"], FIRST);
        call(&["secret", "init", "--key", "file"], "");
        call(&["secret", "revoke", "two"], "");
        for value in [FIRST, SECOND] {
            assert_eq!(found(&site.state(), value), [] as [&str; 0]);
            assert!(
                forms(value).iter().all(|(_, form)| !said.contains(&*String::from_utf8_lossy(form))),
                "{said}"
            );
        }
        // The search finds each form where it is.
        for (name, form) in forms(FIRST) {
            fs::write(site.state().join("planted"), [b"xx".as_slice(), &form, b"yy"].concat()).unwrap();
            assert!(found(&site.state(), FIRST).iter().any(|hit| hit.starts_with(name)), "{name}");
        }
        for file in ["vault.sealed", "vault.key"] {
            assert_eq!(fs::metadata(site.state().join(file)).unwrap().mode() & 0o7777, 0o600, "{file}");
        }
    });
}

#[test]
fn secrets_are_told_without_their_values() {
    let site = site();
    let done = site.call(&["secret", "ls"]).exits(0);
    assert!(done.out().is_empty() && done.err().contains("secret add"), "{}", done.err());
    let done = site.call(STRIPE).with(&["--program", "/usr/bin/curl"]).input(FIRST).exits(0);
    insta::assert_snapshot!(done.out(), @r"
    added stripe: stored; inside, $STRIPE holds a placeholder
      for  api.stripe.com
      as   basic

      cofferdam run --policy FILE --secret stripe -- CMD
    ");
    let added = &listed(&site)[0];
    assert_eq!(
        (&added["name"], &added["env"], &added["source"]),
        (&"stripe".into(), &"STRIPE".into(), &"stdin".into())
    );
    assert_eq!(added["places"], serde_json::json!(["basic"]));
    assert_eq!((added["generation"].as_u64(), added["live"].as_bool()), (Some(1), Some(false)));
    assert!(added["fingerprint"].as_str().is_some_and(|print| print.len() == 8));
    let shown = site.call(&["secret", "ls"]).exits(0).out();
    for part in ["stripe  $STRIPE  from stdin", "for   api.stripe.com", "as    basic", "by    /usr/bin/curl"]
    {
        assert!(shown.contains(part), "{shown}");
    }
    assert_eq!(site.call(&["secret", "revoke", "stripe"]).exits(0).out().lines().count(), 1);
    assert!(site.call(&["secret", "ls"]).exits(0).out().contains("revoked 2"));
    let again = site.call(&["secret", "rotate", "stripe"]).input(FIRST).exits(2);
    assert!(again.err().contains("that was revoked"), "{}", again.err());
    assert_eq!(json(&site.call(&["secret", "rm", "stripe", "--json"]).exits(0))["name"], "stripe");
    assert!(listed(&site).is_empty());
}

#[test]
fn sources_presets_and_variables() {
    let site = site();
    let file = site.write("key", format!("{FIRST}\n"));
    let check = |name: &str, flags: &[&str], env: &str, hosts: &[&str]| {
        let call = site.call(&["secret", "add", name, "--json"]).with(flags).env("MY_VAR", FIRST);
        let told = json(&call.exits(0));
        assert_eq!(told["env"], env, "{told}");
        assert_eq!(told["hosts"], serde_json::json!(hosts), "{told}");
        told
    };
    check("a", &["--from", "env:MY_VAR", "--for", "A.example."], "MY_VAR", &["a.example"]);
    check(
        "b",
        &["--from", &format!("file:{}", file.display()), "--for", "a.example", "b.example"],
        "B",
        &["a.example", "b.example"],
    );
    check("c", &["--from", "cmd:cat key", "--for", "a.example", "--env", "OTHER"], "OTHER", &["a.example"]);
    let told =
        check("d", &["--from", "env:MY_VAR", "--env", "D", "--preset", "openai"], "D", &["api.openai.com"]);
    assert!(told["remarks"][0].as_str().unwrap().contains("does not look like a key of openai"), "{told}");
    let told = check(
        "e",
        &["--from", "cmd:cat key", "--live", "--preset", "stripe"],
        "STRIPE_API_KEY",
        &["api.stripe.com", "files.stripe.com"],
    );
    assert_eq!(
        (&told["live"], &told["source"], &told["fingerprint"]),
        (&true.into(), &"cmd:cat".into(), &Value::Null)
    );
    assert_eq!(told["remarks"], serde_json::json!([]));
}

#[test]
fn a_value_on_the_command_line_is_refused_and_not_repeated() {
    let site = site();
    for args in [
        &["secret", "add", "x", FIRST, "--for", "a.example"][..],
        &["secret", "add", "x", "--from", FIRST, "--for", "a.example"],
        &["secret", "add", "x", "--from", "value:sk_live_x", "--for", "a.example"],
        &["secret", "rotate", "x", FIRST],
    ] {
        let done = site.call(args).input(SECOND).exits(2);
        assert!(done.err().contains("history") && !done.err().contains("sk_live"), "{}", done.err());
    }
    assert!(listed(&site).is_empty());
}

#[test]
fn mistakes_are_named_with_the_way_out() {
    let site = site();
    let check = |flags: &[&str], input: &str, says: &str| {
        let done = site.call(&["secret", "add", "x", "--json"]).with(flags).input(input).exits(2);
        let told: Value = serde_json::from_str(done.err().trim()).unwrap();
        let message = told["error"]["message"].as_str().unwrap();
        assert!(message.contains(says), "{message}");
    };
    check(&[], FIRST, "--for");
    check(&["--for", "https://a.example/x"], FIRST, "--for a.example");
    check(&["--for", "*.com"], FIRST, "strangers");
    check(&["--for", "169.254.169.254"], FIRST, "metadata");
    check(&["--for", "a.example", "--as", "sigv4"], FIRST, "no `aws_access_key_id` in it");
    check(&["--preset", "aws"], FIRST, "credentials file of AWS");
    check(&["--for", "a.example", "--as", "sigv4", "bearer"], FIRST, "declare no other place");
    check(&["--for", "a.example", "--scope", "s3"], FIRST, "leave out --scope");
    check(&["--for", "a.example", "--as", "hmac:/nonexistent"], FIRST, "/nonexistent");
    check(&["--for", "a.example", "--as", "telnet"], FIRST, "bearer, basic, header:NAME");
    check(&["--for", "a.example", "--as", "ssh"], FIRST, "no private key of OpenSSH");
    check(&["--preset", "strip"], FIRST, "stripe");
    check(&["--for", "a.example", "--env", "PATH"], FIRST, "--env");
    check(&["--for", "a.example", "--live"], FIRST, "--live");
    check(&["--for", "a.example", "--from", "env:NOT_SET"], "", "`NOT_SET` is not set");
    check(&["--for", "a.example", "--from", "cmd:false"], "", "`false` ended");
    check(&["--for", "a.example"], "", "empty");
    check(&["--for", "a.example"], "two\nlines of it", "line break");
    for args in [&["secret", "rm", "nope"][..], &["secret", "revoke", "nope"], &["secret", "rotate", "nope"]]
    {
        assert!(site.call(args).input(FIRST).exits(2).err().contains("no secret `nope`"));
    }
    assert!(!site.state().join("vault.sealed").exists());
    site.call(&["secret", "init", "--key", "paper"]).exits(2);
}

#[test]
fn a_damaged_or_shared_vault_is_refused_and_kept() {
    let site = site();
    site.call(STRIPE).input(FIRST).exits(0);
    let path = site.state().join("vault.sealed");
    let sound = fs::read(&path).unwrap();
    for (bytes, says) in
        [(&b"something else\n"[..], "is not a vault"), (&sound[..sound.len() - 3], "left as it is")]
    {
        fs::write(&path, bytes).unwrap();
        for args in [&["secret", "ls"][..], &["secret", "rotate", "stripe"], &["secret", "init"]] {
            let done = site.call(args).input(SECOND).exits(2);
            assert!(done.err().contains(says), "{}", done.err());
        }
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
    fs::write(&path, &sound).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(site.call(&["secret", "ls"]).exits(2).err().contains("chmod 600"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(listed(&site).len(), 1);
}

#[test]
fn all_that_add_at_once_land() {
    each(|site| {
        let add = |n: usize| {
            let name = format!("s{n}");
            site.call(&["secret", "add", &name, "--for", "a.example"]).input(format!("{FIRST}{n}")).start()
        };
        let running: Vec<_> = (0..12).map(add).collect();
        running.into_iter().for_each(|running| drop(running.finish().exits(0)));
        let listed = listed(site);
        let prints: BTreeSet<_> = listed.iter().map(|entry| entry["fingerprint"].as_str().unwrap()).collect();
        assert_eq!((listed.len(), prints.len()), (12, 12));
    });
}

/// At whatever moment it is killed, the old value is there or the new one, and the next call works.
#[test]
fn a_killed_rotation_loses_nothing() {
    let site = site();
    let told = json(&site.call(STRIPE).with(&["--json"]).input(FIRST).exits(0));
    let first = told["fingerprint"].clone();
    let told = json(&site.call(&["secret", "rotate", "stripe", "--json"]).input(SECOND).exits(0));
    let both = [first, told["fingerprint"].clone()];
    let (mut last, mut killed) = (2, 0);
    for n in 0..40u64 {
        let value = if n % 2 == 0 { FIRST } else { SECOND };
        let running = site.call(&["secret", "rotate", "stripe"]).input(value).start();
        std::thread::sleep(Duration::from_micros(n * 500));
        running.signal(Signal::KILL);
        killed += usize::from(running.finish().code() == -9);
        let listed = listed(&site);
        assert!(both.contains(&listed[0]["fingerprint"]), "{listed:?}");
        let generation = listed[0]["generation"].as_u64().unwrap();
        assert!(generation == last || generation == last + 1, "{last} → {generation}");
        last = generation;
    }
    assert!(killed > 0, "none was killed while it worked");
    site.call(&["secret", "rotate", "stripe"]).input(FIRST).exits(0);
    assert_eq!(listed(&site)[0]["fingerprint"], both[0]);
}

#[test]
fn the_key_is_what_was_chosen() {
    each(|site| {
        let phrase = site.write("phrase", "correct horse battery staple\n");
        let wrong = site.write("wrong", "incorrect horse battery\n");
        site.call(STRIPE).input(FIRST).exits(0);
        let with =
            |args: &[&str], file: &Path| site.call(args).env("COFFERDAM_VAULT_PASSPHRASE_FILE", file).done();
        let told = json(&with(&["secret", "init", "--key", "passphrase", "--json"], &phrase).exits(0));
        assert_eq!((&told["key"], &told["before"]), (&"passphrase".into(), &"file".into()));
        assert!(!site.state().join("vault.key").exists());
        assert!(with(&["secret", "ls"], &phrase).exits(0).out().contains("stripe"));
        assert!(with(&["secret", "ls"], &wrong).exits(2).err().contains("this passphrase"));
        let change = |old: &Path, new: &Path| {
            let call = site.call(&["secret", "init", "--key", "passphrase"]);
            let call = call.env("COFFERDAM_VAULT_PASSPHRASE_FILE", old);
            call.env("COFFERDAM_VAULT_NEW_PASSPHRASE_FILE", new).exits(0);
        };
        change(&phrase, &wrong);
        assert!(with(&["secret", "ls"], &phrase).exits(2).err().contains("this passphrase"));
        change(&wrong, &phrase);
        // Without a terminal nobody can be asked.
        let done =
            finish(site.command("setsid").args(["-w"]).arg(site.binary()).args(["secret", "ls"])).exits(2);
        assert!(done.err().contains("COFFERDAM_VAULT_PASSPHRASE_FILE"), "{}", done.err());
        let done = with(&["secret", "init", "--key", "keyring"], &phrase);
        if done.code() == 0 {
            assert!(site.call(&["secret", "ls"]).exits(0).out().contains("stripe"));
            site.call(&["secret", "init", "--key", "file"]).exits(0);
        } else {
            // Refused here by a container: the vault is as it was.
            assert!(done.err().contains("keyring"), "{}", done.err());
            with(&["secret", "init", "--key", "file"], &phrase).exits(0);
        }
        assert!(site.call(&["secret", "ls"]).exits(0).out().contains("stripe"));
    });
}

/// Types at a terminal of its own, and prints all that it showed.
const PERSON: &str = r#"
import os, pty, sys
pid, keyboard = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:-1])
shown = b""
for typed in sys.argv[-1].split(","):
    while not shown.endswith(b": "):
        shown += os.read(keyboard, 65536)
    os.write(keyboard, typed.encode() + b"\n")
    shown += b"|"
try:
    while True:
        more = os.read(keyboard, 65536)
        if not more: break
        shown += more
except OSError:
    pass
sys.stdout.buffer.write(shown)
print("code", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

#[test]
fn what_is_typed_is_not_shown() {
    let site = site();
    let sit = |args: &[&str], typed: &str| {
        let mut command = site.command("python3");
        finish(command.args(["-c", PERSON]).arg(site.binary()).args(args).arg(typed)).exits(0).out()
    };
    let shown = sit(STRIPE, FIRST);
    assert!(
        shown.contains("value of stripe: |") && shown.contains("added stripe") && shown.ends_with("code 0\n"),
        "{shown}"
    );
    assert!(!shown.contains("sk_live"), "{shown}");
    let shown =
        sit(&["secret", "init", "--key", "passphrase"], "correct horse battery,correct horse battery");
    assert!(shown.ends_with("code 0\n") && !shown.contains("horse"), "{shown}");
    let shown = sit(&["secret", "ls"], "correct horse battery");
    assert!(shown.contains("api.stripe.com") && !shown.contains("horse"), "{shown}");
    let shown = sit(
        &["secret", "init", "--key", "passphrase"],
        "correct horse battery,one phrase here,another phrase",
    );
    assert!(shown.contains("differ") && shown.ends_with("code 2\n"), "{shown}");
}

#[test]
fn help_fits_and_tells_of_no_argument_for_a_value() {
    let site = site();
    for args in [&["secret", "--help"][..], &["secret", "add", "--help"], &["secret", "rotate", "--help"]] {
        let help = site.call(args).env("COLUMNS", "80").exits(0).out();
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
        assert!(!help.contains("[VALUE]"), "{help}");
    }
}
