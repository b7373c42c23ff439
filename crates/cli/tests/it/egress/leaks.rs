//! Nothing that a session leaves behind holds a secret, in any writing: not the state directory with vault, traces and
//! logs, not an exported trace, not what was printed, not the work dir, not the file system of the inside.

use super::python::{SEARCH, pattern};
use super::{staged, staged_once};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

/// All the ways in which a value is usually written, by name.
fn writings(value: &str) -> BTreeMap<&'static str, Vec<u8>> {
    let base64 = |skip: usize| {
        // What of an encoding depends on the value alone, wherever it stands in a text.
        let text = STANDARD.encode([&b"xx"[..skip], value.as_bytes()].concat());
        let text = text.trim_end_matches('=').as_bytes();
        text[[0, 2, 3][skip]..text.len() - 2].to_vec()
    };
    // Without the end, which depends on what follows.
    let most = |text: String| text.as_bytes()[..(text.len() - 4).min(40)].to_vec();
    let each = |form: fn(u8) -> String| value.bytes().map(form).collect::<String>().into_bytes();
    BTreeMap::from([
        ("raw", value.into()),
        ("backwards", value.chars().rev().collect::<String>().into()),
        ("base64", base64(0)),
        ("base64, one later", base64(1)),
        ("base64, two later", base64(2)),
        ("base64 of a user", most(STANDARD.encode(format!("{value}:")))),
        ("base64 for URLs", most(URL_SAFE_NO_PAD.encode(value))),
        ("hex", each(|byte| format!("{byte:02x}"))),
        ("HEX", each(|byte| format!("{byte:02X}"))),
        ("percent", each(|byte| format!("%{byte:02X}"))),
        ("UTF-16", value.encode_utf16().flat_map(u16::to_le_bytes).collect()),
    ])
}

/// What of `value` is found in a tree, as `path: writing`.
pub(crate) fn found_in(dir: &Path, value: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(found_in(&entry.path(), value));
        } else if kind.is_file() {
            let bytes = fs::read(entry.path()).unwrap();
            found.extend(found_in_bytes(&entry.path().display().to_string(), &bytes, value));
        }
    }
    found
}

/// In the bytes as they are, and in all that is compressed in them.
fn found_in_bytes(name: &str, bytes: &[u8], value: &str) -> Vec<String> {
    let holds = |sought: &[u8]| memchr::memmem::find(bytes, sought).is_some();
    let mut found: Vec<String> = writings(value)
        .iter()
        .filter(|(_, sought)| holds(sought))
        .map(|(how, _)| format!("{name}: {how}"))
        .collect();
    for at in memchr::memmem::find_iter(bytes, &[0x28, 0xb5, 0x2f, 0xfd]) {
        let mut plain = Vec::new();
        // By chance these bytes may stand for something else.
        if zstd::Decoder::new(&bytes[at..])
            .is_ok_and(|frame| frame.single_frame().read_to_end(&mut plain).is_ok())
        {
            found.extend(found_in_bytes(&format!("{name}, unpacked"), &plain, value));
        }
    }
    found
}

/// Everything that a server can do with a secret that it was sent, printed and kept.
const BUSY: &str = r#"
set -e
for way in json fields location split gzip base64 hex error; do
    for as in "-H Authorization:\ Bearer\ $KEY" "-u $KEY:" "-H x-api-key:$KEY"; do
        for version in --http1.1 --http2; do
            eval curl -sS -i --compressed $version $as https://api.corp.example/echo/$way
        done
    done
done | tee answers
curl -sS -d "{\"prompt\": \"say hello\"}" -H "Authorization: Bearer $KEY" https://api.openai.com/v1/chat/completions
env > environment
"#;

#[test]
fn nothing_that_is_left_holds_a_secret() {
    staged(|stage| {
        let done = stage.sh(BUSY).with(&["-v"]).exits(0);
        assert!(done.out().contains("HTTP/1.1 500") && done.out().contains("HTTP/2 201"), "{}", done.out());
        assert_eq!(stage.used("api.corp.example").len(), 48);
        let scrubbed: u64 =
            stage.site.bodies("egress.ended").iter().map(|body| body["scrubbed"].as_u64().unwrap_or(0)).sum();
        assert!(scrubbed >= 48, "{scrubbed}");
        let bundle = stage.site.home().join("bundle");
        let out = bundle.to_str().unwrap();
        stage.site.call(&["trace", "export", "latest", "--format", "bundle", "--out", out]).exits(0);
        let mut found = found_in(stage.site.root(), &stage.real);
        found.extend(found_in_bytes("stdout", &done.stdout, &stage.real));
        found.extend(found_in_bytes("stderr", &done.stderr, &stage.real));
        assert!(found.is_empty(), "{found:#?}");
        // What it is looked for is what would be found: the placeholder is everywhere that the value is not.
        let placeholder = stage.site.read("environment");
        let placeholder = placeholder.lines().find_map(|line| line.strip_prefix("KEY=")).unwrap();
        let printed = found_in_bytes("stdout", &done.stdout, placeholder).join("\n");
        for how in ["raw", "base64", "base64, one later", "base64, two later", "hex", "percent"] {
            assert!(printed.lines().any(|line| line == format!("stdout: {how}")), "{how}: {printed}");
        }
        let kept = found_in(stage.site.root(), placeholder).join("\n");
        for place in ["work/answers: raw", ".zst, unpacked: raw", "bundle, unpacked, unpacked: raw"] {
            assert!(kept.lines().any(|line| line.ends_with(place)), "{place}: {kept}");
        }
    });
}

/// The search finds each writing of a value that was put where it looks.
#[test]
fn the_search_finds_every_writing() {
    staged_once(|stage| {
        let canary = super::fresh_value();
        for (how, bytes) in writings(&canary) {
            let path = stage.site.write("planted/canary", [b"before ", &bytes[..], b" after"].concat());
            let found = found_in(stage.site.root(), &canary);
            assert!(found.contains(&format!("{}: {how}", path.display())), "{how}: {found:?}");
        }
        let text = STANDARD.encode(format!("{{\"a\": \"{canary}\"}}"));
        assert!(!found_in_bytes("", text.as_bytes(), &canary).is_empty());
    });
}

/// All files that the inside can read and that are its own.
#[test]
fn the_file_system_of_the_inside_holds_no_secret() {
    staged(|stage| {
        let program = format!(
            "{SEARCH}
import subprocess
auth = 'Authorization: Bearer ' + os.environ['KEY']
subprocess.run(['curl', '-sS', '-o', '/tmp/echoed', '-H', auth, 'https://api.corp.example/echo/json'], check=True)
def files(pattern):
    sought, found = re.compile(pattern.encode()), []
    for root in ['/tmp', '/var/tmp', '/run', '/.cofferdam', '/dev/shm', os.environ['HOME'], os.getcwd(), '/proc/self', '/proc/1']:
        for path, below, names in os.walk(root):
            below[:] = [name for name in below if not path.startswith('/proc') or name in ('fd', 'task', 'map_files')]
            for name in names:
                try:
                    if os.path.isfile(os.path.join(path, name)) and sought.search(open(os.path.join(path, name), 'rb').read(1 << 24)):
                        found.append(os.path.join(path, name))
                except OSError:
                    pass
    return found
print('/tmp/echoed' in files(escaped(os.environ['KEY'])), files(os.environ['SOUGHT']))
"
        );
        let sought = format!("SOUGHT={}", pattern(&stage.real));
        assert_eq!(stage.python(&program).with(&["--env", &sought]).exits(0).out(), "True []\n");
        assert_eq!(stage.used("api.corp.example").len(), 1);
    });
}

/// The process that holds the values leaves no core, whoever takes it.
#[test]
fn the_process_outside_is_kept_out_of_dumps() {
    staged_once(|stage| {
        let running = super::streams::ticking(stage);
        let of = |file: &str| {
            fs::read_to_string(format!("/proc/{}/{file}", running.pid().as_raw_nonzero())).unwrap()
        };
        let limits = of("limits");
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
        assert_eq!(of("coredump_filter").trim(), "00000000");
        running.signal(Signal::TERM);
        running.finish();
    });
}
