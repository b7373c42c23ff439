//! Scorers that are WebAssembly modules, compiled from C by Debian's clang against its own WASI library: what a user's
//! toolchain makes, polite and hostile.

use super::{add, judged_for_its_tone, result, scripts, session};
use crate::site;
use cofferdam_testkit::{Site, program};
use serde_json::{Value, json};
use std::process::Command;

/// Says what is rude. It reads all of the question, and speaks C's standard output.
const TONE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
    size_t size = 0, room = 1 << 16;
    char *question = malloc(room);
    size_t n;
    while ((n = fread(question + size, 1, room - size - 1, stdin)) > 0)
        if ((size += n) + 1 >= room) question = realloc(question, room *= 2);
    question[size] = 0;
    if (argc != 1 || strcmp(argv[0], "tone") || !strstr(question, "\"version\":1")) return 9;
    int rude = strstr(question, "idiot") != NULL;
    printf("{\"outcome\": \"%s\", \"score\": %.1f, \"reasons\": [%s]}\n", rude ? "fail" : "pass", rude ? 0.0 : 1.0,
           rude ? "{\"text\": \"it calls someone an idiot\", \"act\": 0}" : "");
    return 0;
}
"#;

/// Looks for a file, the environment, the time and a way out; tells what it found.
const SNEAKS: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
extern char **environ;
int main(void) {
    int found = 0;
    if (fopen("/etc/passwd", "r") || fopen("suite.toml", "r") || open(".", O_RDONLY) >= 0) found |= 1;
    if (fopen("left", "w")) found |= 2;
    if (environ && environ[0]) found |= 4;
    if (time(NULL) > 1000000) found |= 8;
    printf("{\"outcome\": \"review\", \"reasons\": [{\"text\": \"found %d\"}]}\n", found);
    return 0;
}
"#;

fn main_of(body: &str) -> String {
    format!(
        "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\nint main(void) {{ {body} return 0; }}\n"
    )
}

fn compile(site: &Site, name: &str, text: &str, flags: &[&str]) {
    site.write(format!("{name}.c"), text);
    let clang = Command::new(program("clang").unwrap())
        .args(["--target=wasm32-wasi", "-O1", "-Wno-everything", "-o"])
        .arg(format!("{name}.wasm"))
        .arg(format!("{name}.c"))
        .args(flags)
        .current_dir(site.work())
        .output()
        .unwrap();
    assert!(clang.status.success(), "{name}: {}", String::from_utf8_lossy(&clang.stderr));
}

fn sha256(site: &Site, name: &str) -> String {
    let sum = Command::new("sha256sum").arg(name).current_dir(site.work()).output().unwrap();
    String::from_utf8(sum.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

#[test]
fn a_module_decides_as_a_program_does() {
    let site = site();
    scripts(&site, &[("polite", "echo hello"), ("other", "echo hello")]);
    compile(&site, "tone", TONE, &[]);
    let digest = sha256(&site, "tone.wasm");
    add(&site, &format!("[[scorer]]\nname = \"tone\"\nwasm = \"tone.wasm\"\nsha256 = \"{digest}\"\n"));
    let entries = judged_for_its_tone(&site);
    // what was asked is on record with the module that was, and the module is in the evidence
    let asked: Value = serde_json::from_str(&site.read("gate-out/asked/polite.1.json")).unwrap();
    assert_eq!(asked["scorers"][0]["module"], json!(digest));
    assert!(entries.lines().any(|entry| entry == "inputs/scorers/tone.wasm"), "{entries}");
}

#[test]
fn a_module_that_misbehaves_in_any_way_is_for_review() {
    let site = site();
    scripts(&site, &[("a", "echo hello")]);
    let modules = [
        ("hangs", "volatile int i = 0; for (;;) i++;", "it had not answered after"),
        (
            "bomb",
            "static char *volatile keep; for (;;) { keep = malloc(1 << 20); if (!keep) abort(); keep[0] = 1; }",
            "bytes of memory",
        ),
        ("deep", "", "its calls went deeper than its stack"),
        ("floods", "for (;;) puts(\"so much to say\");", "is longer than"),
        (
            "traps",
            "fputs(\"no such model\", stderr); fflush(stderr); __builtin_trap();",
            "and says `no such model`",
        ),
        (
            "crashes",
            "fputs(\"no such model\", stderr); exit(3);",
            "it ended with code 3 and says `no such model`",
        ),
        ("nonsense", "puts(\"looks good to me\");", "is not the JSON that is asked for"),
        ("mute", "", "is not the JSON that is asked for"),
        ("reasonless", "puts(\"{\\\"outcome\\\": \\\"fail\\\"}\");", "it says `fail` without a reason"),
        ("outside", "*(volatile int *)0xfffffff0 = 1;", "out of bounds"),
    ];
    for (name, body, _) in modules {
        let mut text = main_of(body);
        if name == "deep" {
            text = "static int (*volatile next)(int);\nstatic int f(int n) { return next(n + 1) ^ n; }\nint main(void) { next = f; return f(1); }\n".into();
        }
        compile(&site, name, &text, &[]);
        add(
            &site,
            &format!(
                "[[scorer]]\nname = \"{name}\"\nwasm = \"{name}.wasm\"\ntimeout = \"2s\"\nmemory = \"8M\"\n"
            ),
        );
    }
    compile(&site, "sneaks", SNEAKS, &[]);
    add(&site, "[[scorer]]\nname = \"sneaks\"\nwasm = \"sneaks.wasm\"\n");
    site.call(&["record", "suite.toml", "-q"]).exits(0);
    site.call(&["gate", "suite.toml", "-q"]).exits(3);
    let reasons = session(&result(&site), "a")["reasons"].to_string();
    for (name, _, expected) in modules {
        assert!(reasons.contains(expected), "{name}: {reasons}");
    }
    assert!(reasons.contains("the scorer `sneaks` says: found 0"), "{reasons}");
    assert!(!site.work().join("left").exists());
}

#[test]
fn what_is_no_module_for_this_is_told_before_anything_runs() {
    let site = site();
    scripts(&site, &[("a", "echo hello")]);
    site.call(&["record", "suite.toml", "-q"]).exits(0);
    compile(&site, "tone", TONE, &[]);
    let calls_out = "extern void outside(void);\nint main(void) { outside(); return 0; }\n";
    compile(&site, "calls", calls_out, &["-Wl,--allow-undefined"]);
    compile(&site, "library", "int add(int a) { return a + 1; }\n", &["-mexec-model=reactor"]);
    site.write("text.wasm", "(module)");
    let suite = site.read("suite.toml");
    let other = "0".repeat(64);
    for (table, expected) in [
        ("wasm = \"calls.wasm\"".to_owned(), "it imports `env.outside`"),
        ("wasm = \"library.wasm\"".to_owned(), "it exports no function `_start`"),
        ("wasm = \"text.wasm\"".to_owned(), "it is no WebAssembly module"),
        ("wasm = \"none.wasm\"".to_owned(), "there is no file `none.wasm` beside the suite"),
        (format!("wasm = \"tone.wasm\"\nsha256 = \"{other}\""), "is not the module that the suite names"),
        ("wasm = \"tone.wasm\"\nsha256 = \"abc\"".to_owned(), "`scorer.sha256`: `abc` is not a SHA-256"),
        (
            "wasm = \"tone.wasm\"\nsecret = \"x\"".to_owned(),
            "`scorer.secret`: nothing leaves a command or a module",
        ),
        (
            "wasm = \"tone.wasm\"\ncommand = [\"true\"]".to_owned(),
            "give `command`, `url` or `wasm`, one of them",
        ),
        (format!("command = [\"true\"]\nsha256 = \"{other}\""), "`scorer.sha256` is of a module"),
    ] {
        site.write("suite.toml", format!("{suite}[[scorer]]\nname = \"one\"\n{table}\n"));
        let done = site.call(&["gate", "suite.toml", "-q"]).done();
        assert!(done.err().contains(expected), "{table}: {}", done.err());
        assert!(!matches!(done.code(), 0 | 1 | 3), "{table}: {}", done.code());
    }
}
