//! The registry of tools: what it names is there, and nothing else of the host's programs.

use crate::live::Hall;
use crate::{each, site};
use cofferdam_testkit::{Mode, Site};
use serde_json::Value;

const SHELL: &str =
    "[[tool]]\nname = \"shell\"\nreason = \"runs scripts\"\nprograms = [\"sh\", \"cat\", \"ls\", \"test\"]\n";

fn registry(site: &Site, text: &str) -> String {
    site.write(site.home().join("tools.toml"), text).to_string_lossy().into_owned()
}

#[test]
fn only_named_programs_exist() {
    each(|site| {
        let tools = registry(site, SHELL);
        let script = "ls /usr/bin /usr/sbin /usr/local/bin | cat; env; python3 -c 1; echo end";
        let done = site.sh(script).with(&["--tools", &tools]).exits(0);
        let names: Vec<_> = done.out().split_whitespace().map(str::to_owned).collect();
        assert!(names.iter().any(|name| name == "cat") && names.last().unwrap() == "end", "{names:?}");
        assert!(!names.iter().any(|name| name == "env" || name.starts_with("python")), "{names:?}");
        assert!(done.err().contains("env: not found"), "{}", done.err());
        let report = &site.bodies("enforcement")[0];
        let line =
            report["controls"].as_array().unwrap().iter().find(|line| line["name"] == "programs").unwrap();
        assert_eq!(line["state"], "enforced", "{line}");
        assert!(line["value"]["names"].as_array().unwrap().contains(&"/usr/bin/cat".into()), "{line}");
        // The control: without a registry all of them are there.
        site.sh("env > /dev/null && ls /usr/bin/env").exits(0);
        // What is covered is not to be written, and what is not named not to be had by its path.
        let done = site.sh("echo x > /usr/bin/made").with(&["--tools", &tools]).done();
        assert!(done.code() != 0 && done.err().contains("ead-only"), "{}", done.err());
        site.run(&["/usr/bin/env"]).with(&["--tools", &tools]).exits(127);
    });
}

#[test]
fn paths_are_shown_as_the_tool_says() {
    each(|site| {
        for dir in ["shown", "cache", "other"] {
            site.write(site.root().join(dir).join("file"), "word");
        }
        let root = site.root().display();
        let text = format!("{SHELL}read = [\"{root}/shown\"]\nwrite = [\"{root}/cache\"]\n");
        let tools = registry(site, &text);
        let script = format!(
            "cat {root}/shown/file {root}/cache/file; echo new > {root}/cache/new; \
             echo x > {root}/shown/new; cat {root}/other/file"
        );
        let done = site.sh(&script).with(&["--tools", &tools]).done();
        assert_eq!(done.out(), "wordword", "{}", done.err());
        assert!(site.root().join("cache/new").exists() && !site.root().join("shown/new").exists());
        assert!(done.err().contains("other/file"), "{}", done.err());
    });
}

#[test]
fn a_mistake_is_told_before_anything_runs() {
    let site = site();
    for (text, said) in [
        ("[[tool]]\nname = \"x\"\nreason = \"r\"\nprogams = []\n", "did you mean `programs`"),
        (
            "[[tool]]\nname = \"x\"\nreason = \"r\"\nprograms = [\"nope-nope\"]\n",
            "there is no program `nope-nope`",
        ),
        ("[[tool]]\nname = \"x\"\nreason = \"r\"\nhosts = [\"a b\"]\n", "tools.toml"),
    ] {
        let tools = registry(&site, text);
        let done = site.run(&["true"]).with(&["--tools", &tools]).exits(125);
        assert!(done.err().contains(said), "{}", done.err());
    }
    let done = site.run(&["true"]).with(&["--tools", "/no/such/file"]).exits(125);
    assert!(done.err().contains("/no/such/file"), "{}", done.err());
}

/// What leaves is what the tools may reach: a policy can narrow it, and does not widen it.
#[test]
fn egress_derives_from_it() {
    let site = site();
    let text = format!(
        "{SHELL}hosts = [\"tools.example.com\"]\n[[tool]]\nname = \"curl\"\nreason = \"fetches\"\nprograms = [\"curl\"]\n"
    );
    let tools = registry(&site, &text);
    let fetch = |flags: &[&str], url: &str| {
        let flags = [&["--tools", &tools][..], flags].concat();
        site.run(&["curl", "-sS", "-m", "20", url]).with(&flags).done();
        site.bodies("egress.decided").pop().map(|fact| (fact["effect"].clone(), fact["rule"].clone()))
    };
    let denied = Some((Value::from("deny"), Value::Null));
    assert_eq!(fetch(&[], "http://tools.example.com/"), Some(("allow".into(), "tool-shell".into())));
    assert_eq!(fetch(&[], "http://other.example.com/"), denied);
    let policy = "[[rule]]\nid = \"wide\"\nreason = \"r\"\neffect = \"allow\"\nhost = [\"*.example.com\"]\npaths = [\"/ok\"]\n";
    let policy = site.write(site.home().join("p.toml"), policy).to_string_lossy().into_owned();
    let with = &["--policy", policy.as_str()];
    assert_eq!(fetch(with, "http://tools.example.com/ok").unwrap().0, "allow");
    assert_eq!(fetch(with, "http://tools.example.com/").unwrap().0, "deny");
    assert_eq!(fetch(with, "http://other.example.com/ok").unwrap().0, "deny");
}

#[test]
fn a_debugger_may_trace_where_its_manifest_says() {
    const TRACE: &str = "import ctypes, sys\nsys.exit(0 if ctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0 else 7)";
    let site = site();
    let text = "[[tool]]\nname = \"py\"\nreason = \"r\"\nprograms = [\"python3\"]\n";
    let without = registry(&site, text);
    site.run(&["python3", "-c", TRACE]).with(&["--tools", &without]).exits(7);
    let with = registry(&site, &format!("{text}syscalls = [\"tracing\"]\n"));
    site.run(&["python3", "-c", TRACE]).with(&["--tools", &with]).exits(0);
    let report = &site.bodies("enforcement")[0];
    let line = report["controls"].as_array().unwrap().iter().find(|line| line["name"] == "seccomp").unwrap();
    assert_eq!(line["state"], "weaker", "{line}");
}

/// Rules about commands hold for the commands that are started, as they do when a trace is judged later.
#[test]
fn rules_about_commands_hold_live() {
    let site = site();
    let policy = "[[rule]]\nid = \"no-rm\"\nreason = \"nothing is removed\"\neffect = \"deny\"\nexec = \"rm **\"\n\
                  [[rule]]\nid = \"rest\"\nreason = \"all else\"\neffect = \"allow\"\nexec = \"**\"\n";
    let policy = site.write(site.home().join("p.toml"), policy).to_string_lossy().into_owned();
    site.write("file", "x");
    let done = site.run(&["rm", "file"]).with(&["--policy", &policy]).exits(125);
    assert!(done.err().contains("no-rm") && done.err().contains("nothing is removed"), "{}", done.err());
    assert_eq!(site.bodies("blocked")[0]["argv"], serde_json::json!(["rm", "file"]));
    assert!(site.work().join("file").exists());
    site.run(&["cat", "file"]).with(&["--policy", &policy]).exits(0);
    // A policy that says nothing of commands forbids none.
    let silent = site.write(site.home().join("s.toml"), "").to_string_lossy().into_owned();
    site.run(&["cat", "file"]).with(&["--policy", &silent]).exits(0);
    let hall = Hall(&site);
    hall.create(&["--name", "s", "--policy", &policy]);
    let done = hall.call(&["exec", "s", "--", "rm", "file"]).exits(125);
    assert!(done.err().contains("no-rm"), "{}", done.err());
    hall.call(&["exec", "s", "--", "cat", "file"]).exits(0);
    hall.asks(&["kill", "s"]);
}

#[test]
fn a_session_that_lives_gets_other_tools_from_the_next_command_on() {
    each(|site| {
        let hall = Hall(site);
        let tools = registry(site, SHELL);
        hall.create(&["--name", "s", "--tools", &tools]);
        hall.does("s", "echo kept > made; ! command -v env");
        let more = format!("{SHELL}[[tool]]\nname = \"env\"\nreason = \"r\"\nprograms = [\"env\"]\n");
        let more = site.write(site.home().join("more.toml"), more).to_string_lossy().into_owned();
        let done = hall.call(&["tools", "set", "s", &more]).done();
        if site.mode == Mode::Range {
            assert!(done.code() != 0 && done.err().contains("several inside users"), "{}", done.err());
            hall.asks(&["kill", "s"]);
            return;
        }
        assert_eq!(done.code(), 0, "{}", done.err());
        hall.does("s", "cat made && command -v env");
        hall.asks(&["tools", "set", "s", &tools]);
        hall.does("s", "cat made && ! command -v env");
        let wrong =
            site.write(site.home().join("wrong.toml"), "[[tool]]\nname = 7\n").to_string_lossy().into_owned();
        assert!(hall.call(&["tools", "set", "s", &wrong]).exits(2).err().contains("wrong.toml:2"));
        hall.does("s", "cat made && ! command -v env");
        hall.asks(&["kill", "s"]);
        assert_eq!(site.read("made"), "kept\n");
    });
}

/// Rules about files hold for what is kept, as they do when a trace is judged later.
#[test]
fn rules_about_files_hold_for_what_is_kept() {
    each(|site| {
        let work = site.work();
        let policy = format!(
            "[[rule]]\nid = \"src\"\nreason = \"the code\"\neffect = \"allow\"\n\
             file = {{ path = \"{0}/**\", access = [\"write\", \"delete\"] }}\n\
             [[rule]]\nid = \"no-ci\"\nreason = \"the pipeline is ours\"\neffect = \"deny\"\n\
             file = {{ path = \"{0}/ci/**\", access = [\"write\", \"delete\"] }}\n",
            work.display()
        );
        let policy = site.write(site.home().join("p.toml"), policy).to_string_lossy().into_owned();
        site.write("ci/build.yml", "before");
        site.write("ci/gone.yml", "before");
        let script = "echo x > ci/build.yml; rm ci/gone.yml; mkdir -p ci/new/deep; echo x > ci/new/deep/f; echo x > kept";
        let done = site.sh(script).with(&["--policy", &policy]).exits(0);
        assert!(
            done.err().contains("not kept: ci/build.yml") && done.err().contains("no-ci"),
            "{}",
            done.err()
        );
        assert_eq!((site.read("ci/build.yml"), site.read("ci/gone.yml")), ("before".into(), "before".into()));
        assert!(!work.join("ci/new").exists() && site.read("kept") == "x\n");
        let skipped = &site.bodies("changes.decided")[0]["skipped"];
        assert!(skipped.as_array().unwrap().len() >= 3, "{skipped}");
        // A policy that says nothing of files forbids none.
        let silent = site.write(site.home().join("s.toml"), "").to_string_lossy().into_owned();
        site.sh("echo x > ci/build.yml").with(&["--policy", &silent]).exits(0);
        assert_eq!(site.read("ci/build.yml"), "x\n");
    });
    let site = site();
    let hall = Hall(&site);
    let policy = "[[rule]]\nid = \"none\"\nreason = \"nothing is written\"\neffect = \"deny\"\nfile = { path = \"/**\", access = [\"write\"] }\n";
    let policy = site.write(site.home().join("p.toml"), policy).to_string_lossy().into_owned();
    hall.create(&["--name", "s", "--policy", &policy]);
    hall.does("s", "echo x > made");
    let done = hall.call(&["commit", "s"]).exits(2);
    assert!(done.err().contains("made is not to be kept") && done.err().contains("none"), "{}", done.err());
    hall.asks(&["rollback", "s"]);
    hall.asks(&["kill", "s"]);
    assert!(!site.work().join("made").exists());
}
