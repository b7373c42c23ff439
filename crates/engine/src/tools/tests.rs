use super::*;
use cofferdam_policy::{Effect, Request};

fn parse(text: &str) -> Result<Toolbox, EngineError> {
    let whose = Whose { home: Some(Path::new("/root")), search: &[], only: None };
    Toolbox::parse(Path::new("tools.toml"), text, &whose)
}

fn check(text: &str, said: &str) {
    let error = parse(text).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains(said), "{text}: {error}");
}

#[test]
fn a_mistake_is_told_with_its_tool_and_field() {
    let tool = |rest: &str| format!("\n[[tool]]\nname = \"t\"\nreason = \"r\"\n{rest}");
    check(&tool("progams = []"), "did you mean `programs`");
    check(
        &tool("programs = [\"no-such-program\"]"),
        "tools.toml:3: tool `t`: `programs`: there is no program",
    );
    check(&tool("programs = [\"../sh\"]"), "neither a name nor an absolute path");
    check(&tool("programs = [\"/no/such/file\"]"), "is no file of this host");
    check(&tool("read = [\"data\"]"), "`read`: `data` is no absolute path");
    check(&tool("write = [\"/no/such/dir\"]"), "`write`: `/no/such/dir` is not there");
    check(&tool("syscalls = [\"mount\"]"), "unknown variant `mount`");
    check(&tool("hosts = [\"not a host\"]"), "tools.toml");
    check(&format!("{}{}", tool(""), tool("")), "tool `t` stands here a second time");
    check("[[tool]]\nname = \"t\"\n", "missing field `reason`");
}

#[test]
fn a_script_needs_its_interpreter() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    for line in ["#!/bin/sh\n", "#!/usr/bin/env -S sh\n"] {
        std::fs::write(&script, line).unwrap();
        let with = |more: &str| {
            parse(&format!(
                "[[tool]]\nname = \"t\"\nreason = \"r\"\nprograms = [\"{}\"{more}]",
                script.display()
            ))
        };
        assert!(with("").err().unwrap().to_string().contains("is a script for"));
        assert!(with(", \"sh\"").is_ok());
    }
}

#[test]
fn what_leaves_is_what_tools_may_reach() {
    let text = "[[tool]]\nname = \"git\"\nreason = \"clones\"\nprograms = [\"sh\"]\nhosts = [\"git.example.com\"]\nmethods = [\"GET\"]\n\
                [[tool]]\nname = \"debug\"\nreason = \"looks\"\nsyscalls = [\"tracing\"]\n";
    let toolbox = parse(text).unwrap();
    assert!(toolbox.tracing && !toolbox.nested);
    let (policy, _) = toolbox.derived.unwrap();
    let effect = |request: &str| Request::parse(request).unwrap().with(|action| policy.decide(action).effect);
    assert_eq!(effect("GET https://git.example.com/x"), Effect::Allow);
    assert_eq!(effect("POST https://git.example.com/x"), Effect::Deny);
    assert_eq!(effect("GET https://elsewhere.example.com/x"), Effect::Deny);
    for other in ["exec rm -rf /", "file write /etc/passwd", "file read /x/y/z"] {
        assert_eq!(effect(other), Effect::Allow, "{other}");
    }
    assert!(parse("[[tool]]\nname = \"t\"\nreason = \"r\"\n").unwrap().derived.is_none());
}

#[test]
fn one_tool_alone_can_be_taken() {
    let text = "[[tool]]\nname = \"a\"\nreason = \"r\"\nserver = [\"sh\", \"-c\", \"true\"]\n\
                [[tool]]\nname = \"b\"\nreason = \"r\"\nprograms = [\"env\"]\n";
    let only = |tool| {
        let whose = Whose { home: None, search: &[], only: Some(tool) };
        Toolbox::parse(Path::new("tools.toml"), text, &whose)
    };
    let one = only("a").unwrap();
    assert_eq!((one.programs.len(), one.server("a").unwrap().len(), one.server("b")), (1, 3, None));
    assert!(only("c").err().unwrap().to_string().contains("there are: a, b"));
}
