//! `cofferdam init`: the first ten minutes of somebody who has an agent and keys. What is written works as it is
//! printed, and no value is in it.

use crate::{each, site};
use cofferdam_testkit::{Done, SEARCH_PATH, Site};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const STRIPE: &str = "sk_live_4eC39HqLyjWDarjtT1zdp7dcINIT";
const GITHUB: &str = "ghp_0123456789abcdefghijklmnopqrstuvINIT";

fn json(done: &Done) -> Value {
    serde_json::from_str(&done.out()).unwrap_or_else(|error| panic!("{error}: {}{}", done.out(), done.err()))
}

/// A program of the machine's, on a search path of the test's own.
fn install(site: &Site, name: &str) -> String {
    let path = site.write(site.root().join("bin").join(name), "#!/bin/sh\necho \"the agent ran with $*\"\n");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{SEARCH_PATH}", site.root().join("bin").display())
}

fn holds(dir: &Path, value: &str) -> bool {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).any(|path| match path.is_dir() {
        true => holds(&path, value),
        false => fs::read(&path).unwrap().windows(value.len()).any(|window| window == value.as_bytes()),
    })
}

#[test]
fn what_is_told_to_a_stranger() {
    let site = site();
    site.write("agent.py", "import os\n");
    site.write("requirements.txt", "openai\n");
    let call = site.call(&["init"]).env("STRIPE_KEY", STRIPE).env("AWS_SECRET_ACCESS_KEY", "x");
    let done = call.exits(0);
    insta::assert_snapshot!(done.out(), @r"
    Found a Python program (requirements.txt): python3 agent.py

    Keys, by name; no value is told or kept:
      openai       $OPENAI_API_KEY not seen, and needed
      stripe       $STRIPE_KEY of your environment

    Seen, and not given to it:
      AWS_SECRET_ACCESS_KEY: its requests are signed, and not set up here: see
        docs/secrets.md

    Files:
      new        cofferdam.toml
      new        policy.toml

    What may leave; everything else is denied, and told when the run ends:
      allow   openai-models: the list of models is no secret
      allow   openai-calls: the agent thinks here, with the models that were agreed
              on
      allow   openai-answers: reading an answer again, or stopping it
      deny    openai-no-tuning: files, training and administration are not an
              agent's business
      allow   stripe-read: the agent looks up charges, customers and invoices
      allow   stripe-small-refund: up to 50.00 the agent decides
      review  stripe-large-refund: money leaves
      review  refund-tool: the same limit where the agent calls a tool for it
      allow   refund-tool-small: up to 50.00 the agent decides

    Next:
      cofferdam secret add openai --preset openai
      cofferdam secret add stripe --from env:STRIPE_KEY --preset stripe
      cofferdam policy test policy.toml
      cofferdam run --spec cofferdam.toml
      cofferdam trace show latest

    Inside, the variables hold placeholders that are worth nothing elsewhere. Your
    files are read-only but for this directory, whose changes you are asked about.
    ");
    assert!(done.err().is_empty(), "{}", done.err());
}

#[test]
fn no_value_is_told_or_written_unless_the_vault_is_to_have_it() {
    each(|site| {
        site.write("agent.py", "import stripe\n");
        let dotenv = site.write(site.root().join("elsewhere"), "");
        site.write(".env", format!("# keys\nexport GITHUB_TOKEN='{GITHUB}'\n"));
        let call = |args: &[&str]| site.call(args).env("STRIPE_KEY", STRIPE).exits(0);
        let mut said = String::new();
        for args in
            [&["init"][..], &["init", "--json"], &["init", "--force", "-v"], &["init", "--add-secrets"]]
        {
            let done = call(args);
            said += &format!("{}{}", done.out(), done.err());
        }
        fs::remove_file(site.work().join(".env")).unwrap();
        for value in [STRIPE, GITHUB] {
            assert!(!said.contains(value), "{said}");
            assert!(!holds(&site.work(), value) && !holds(&site.state(), value));
        }
        // The search finds one that is there.
        fs::write(&dotenv, STRIPE).unwrap();
        assert!(holds(site.root(), STRIPE));
        let listed = json(&site.call(&["secret", "ls", "--json"]).exits(0));
        let told: Vec<_> = listed.as_array().unwrap().iter().map(|one| (&one["name"], &one["env"])).collect();
        assert_eq!(
            told,
            [(&json!("github"), &json!("GITHUB_TOKEN")), (&json!("stripe"), &json!("STRIPE_KEY"))]
        );
    });
}

#[test]
fn the_printed_lines_do_what_add_secrets_does() {
    let site = site();
    site.write("agent.py", "");
    site.write(".env", format!("GITHUB_TOKEN={GITHUB}\n"));
    let told = json(&site.call(&["init", "--json"]).env("STRIPE_KEY", STRIPE).exits(0));
    for key in told["keys"].as_array().unwrap() {
        let line =
            key["line"].as_str().unwrap().replace("cofferdam ", &format!("{} ", site.binary().display()));
        let mut shell = site.command("sh");
        let output = shell.args(["-c", &line]).env("STRIPE_KEY", STRIPE).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty(), "a remark: {}", String::from_utf8_lossy(&output.stderr));
    }
    let prints = |site: &Site| {
        let listed = json(&site.call(&["secret", "ls", "--json"]).exits(0));
        listed.as_array().unwrap().iter().map(|one| one["env"].clone()).collect::<Vec<_>>()
    };
    let by_hand = prints(&site);
    let again = json(&site.call(&["init", "--json", "--add-secrets"]).env("STRIPE_KEY", STRIPE).exits(0));
    assert_eq!(again["keys"][0]["secret"], "there");
    for name in ["github", "stripe"] {
        site.call(&["secret", "rm", name]).exits(0);
    }
    let again = json(&site.call(&["init", "--json", "--add-secrets"]).env("STRIPE_KEY", STRIPE).exits(0));
    assert_eq!(
        (&again["keys"][0]["secret"], &again["keys"][1]["secret"]),
        (&json!("added"), &json!("added"))
    );
    assert_eq!(prints(&site), by_hand);
}

#[test]
fn a_key_that_cannot_be_added_is_told_and_counts() {
    let site = site();
    site.write("agent.py", "");
    let done = site.call(&["init", "--add-secrets"]).env("STRIPE_KEY", "short").exits(2);
    assert!(done.out().contains("not added:") && !done.out().contains("\"short\""), "{}", done.out());
    assert!(done.out().contains("cofferdam secret add stripe"), "{}", done.out());
}

#[test]
fn what_is_there_is_replaced_on_demand_only() {
    let site = site();
    site.write("agent.py", "");
    let states = |done: &Done| {
        let files = json(done)["files"].as_array().unwrap().clone();
        files.iter().map(|file| file["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(states(&site.call(&["init", "--json"]).exits(0)), ["new", "new"]);
    assert_eq!(states(&site.call(&["init", "--json"]).exits(0)), ["unchanged", "unchanged"]);
    site.write("policy.toml", "# mine\n");
    fs::remove_file(site.work().join("cofferdam.toml")).unwrap();
    let done = site.call(&["init"]).exits(2);
    assert!(
        done.err().contains("policy.toml is there already") && done.err().contains("--force"),
        "{}",
        done.err()
    );
    assert_eq!(site.read("policy.toml"), "# mine\n");
    assert!(!site.work().join("cofferdam.toml").exists());
    site.call(&["init", "--out", "other.toml"]).exits(0);
    assert!(site.read("other.toml").contains("policy = \"other.policy.toml\""));
    assert_eq!(states(&site.call(&["init", "--json", "--force"]).exits(0)), ["new", "replaced"]);
}

#[test]
fn agents_are_found_and_run() {
    each(|site| {
        let path = install(site, "claude");
        let call = |args: &[&str]| {
            site.call(args)
                .env("PATH", &path)
                .env("ANTHROPIC_API_KEY", "sk-ant-api03-0123456789abcdefghijklmnop")
        };
        let told = json(&call(&["init", "--json", "--add-secrets"]).env("STRIPE_KEY", STRIPE).exits(0));
        assert_eq!((&told["agent"]["name"], &told["agent"]["installed"]), (&json!("claude"), &json!(true)));
        assert_eq!(told["left"][0]["variable"], "STRIPE_KEY");
        assert_eq!(told["keys"].as_array().unwrap().len(), 1);
        call(&["policy", "test", "policy.toml"]).exits(0);
        let bin = format!("{0}:{0}", site.root().join("bin").display());
        let run = ["run", "--spec", "cofferdam.toml", "--changes", "discard", "--mount", &bin];
        assert_eq!(call(&run).exits(0).out(), "the agent ran with \n");
        let words =
            call(&run).with(&["--", "sh", "-c", "echo $ANTHROPIC_API_KEY; cat policy.toml"]).done().out();
        assert!(
            words.starts_with("sk-ant-api03-") && !words.contains("0123456789") && words.lines().count() == 1,
            "{words}"
        );
    });
}

#[test]
fn an_agent_that_is_not_known() {
    let site = site();
    for (args, part) in [
        (&["init", "no-such-agent"][..], "no-such-agent"),
        (&["init", "claude", "--with", "strip"], "stripe"),
        (&["init"], "cofferdam init -- CMD"),
    ] {
        let done = site.call(args).exits(2);
        assert!(done.err().contains(part) && done.out().is_empty(), "{}", done.err());
        assert_eq!(fs::read_dir(site.work()).unwrap().count(), 0);
    }
    let done = site.call(&["init", "no-such-agent"]).exits(2);
    for name in ["claude", "codex", "gemini-cli", "aider", "opencode", "python", "node"] {
        assert!(done.err().contains(name), "{}", done.err());
    }
    let done = site.call(&["init", "codex"]).exits(0);
    assert!(done.out().contains("`codex` is not installed"), "{}", done.out());
    let done = site.call(&["init", "--out", "sh.toml", "--", "sh", "-c", "exit 6"]).exits(0);
    assert!(done.out().contains("cofferdam run --spec sh.toml"), "{}", done.out());
    site.call(&["run", "--spec", "sh.toml", "--changes", "discard"]).exits(6);
}

/// The files lie in the work dir, which is the inside's to change.
#[test]
fn no_session_changes_the_rules_of_the_next() {
    each(|site| {
        let script = "for file in policy.toml cofferdam.toml ours; do echo mine > $file; done; mv ours cofferdam.toml; echo x > ours";
        site.call(&["init", "--", "sh", "-c", script]).exits(0);
        let before = [site.read("cofferdam.toml"), site.read("policy.toml")];
        let done = site.run(&[]).with(&["--spec", "cofferdam.toml", "--changes", "keep"]).exits(0);
        assert!(done.err().contains("not kept: policy.toml"), "{}", done.err());
        assert_eq!([site.read("cofferdam.toml"), site.read("policy.toml")], before);
        assert_eq!(site.read("ours"), "x\n");
    });
}

#[test]
fn a_denial_is_told_with_the_rule_that_would_allow_it() {
    each(|site| {
        let script = "import urllib.request, urllib.error\n\
            for url in ['https://one.example/a?q=1', 'https://one.example/a', 'http://169.254.169.254/x'] + [f'https://h{n}.example/' for n in range(4)]:\n\
            \x20   try: urllib.request.urlopen(url)\n\
            \x20   except urllib.error.HTTPError as error: print(error.code)\n";
        site.write("agent.py", script);
        site.call(&["init"]).exits(0);
        let run = |flags: &[&str]| {
            site.run(&[]).with(&["--spec", "cofferdam.toml", "--changes", "discard"]).with(flags).exits(0)
        };
        let done = run(&[]);
        assert_eq!(done.out(), "403\n".repeat(7));
        let err = done.err();
        for part in [
            "cofferdam: denied: GET https://one.example/a, 2 times (no rule allows it)\n",
            "cofferdam: to allow it, add to policy.toml:\n\n[[rule]]\n",
            "host = \"one.example\"\nmethods = [\"GET\"]\npaths = [\"/a\"]\n",
            "denied: GET /x to 169.254.169.254",
            "cofferdam: 3 more denied; all of it: cofferdam trace show ",
        ] {
            assert!(err.contains(part), "{part}: {err}");
        }
        assert_eq!(err.matches("denied: GET").count(), 3, "{err}");
        assert!(err.lines().all(|line| line.chars().count() <= 80), "{err}");
        assert_eq!(run(&["-q"]).err(), "");
        let aside: Value = serde_json::from_str(run(&["--json"]).err().lines().last().unwrap()).unwrap();
        assert_eq!(aside["denied"].as_array().unwrap().len(), 6);
        assert_eq!(aside["denied"][0]["times"], 2);
        // The rule that is told is one that works: the next denial is another.
        let rule = aside["denied"][0]["allow"].as_str().unwrap();
        site.write("policy.toml", format!("{}\n{rule}", site.read("policy.toml")));
        let done = run(&[]);
        assert!(!done.err().contains("one.example"), "{}", done.err());
    });
}

/// A page of the documentation.
fn page(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap()
}

/// Types these lines at one shell, and gives what each printed and how it ended.
fn typed(site: &Site, lines: &[&str]) -> Vec<(String, String)> {
    let script: String = lines.iter().map(|line| format!("{line}\necho \"@@ $?\"\n")).collect();
    let path = format!("{}:{SEARCH_PATH}", site.root().display());
    let mut shell = site.command("sh");
    let output = shell.args(["-c", &format!("exec 2>&1\n{script}")]).env("PATH", path).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let mut all = Vec::new();
    let mut text = String::new();
    for line in printed.lines() {
        match line.rsplit_once("@@ ") {
            Some((rest, code)) => all.push((std::mem::take(&mut text) + rest, code.to_owned())),
            None => text += &format!("{line}\n"),
        }
    }
    assert_eq!(all.len(), lines.len(), "{printed}");
    all
}

/// Every command of the walk-through runs, and prints what the page says it does.
#[test]
fn the_walk_through_holds() {
    let page = page("docs/first-run.md");
    let mut steps: Vec<(&str, Vec<&str>)> = Vec::new();
    for block in page.split("```console\n").skip(1) {
        for line in block.split("```").next().unwrap().lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push((command, Vec::new())),
                (None, Some((_, expected))) => expected.push(line),
                (None, None) => panic!("{line}"),
            }
        }
    }
    let lines: Vec<&str> = steps.iter().map(|(command, _)| *command).collect();
    assert!(lines.len() > 15, "{lines:?}");
    let site = site();
    for ((command, expected), (printed, code)) in steps.iter().zip(typed(&site, &lines)) {
        // The agent of the page fails when it is refused, and nothing waits or runs here.
        let ends = if command.contains("SESSION") {
            "2"
        } else if expected.contains(&"…") {
            "1"
        } else {
            "0"
        };
        assert_eq!(code, ends, "{command}: {printed}");
        assert!(!printed.contains("Usage:"), "{command}: {printed}");
        let mut rest = printed.lines();
        for line in expected.iter().filter(|line| **line != "…") {
            let start = line.strip_suffix('…');
            let fits = |told: &str| told == *line || start.is_some_and(|start| told.starts_with(start));
            assert!(rest.any(fits), "{command}: `{line}` is not in {printed}");
        }
    }
}

#[test]
fn the_sixty_seconds_hold() {
    let page = page("README.md");
    let block = page.split("## Sixty seconds").nth(1).unwrap().split("```").nth(1).unwrap();
    let lines: Vec<&str> = block.lines().filter(|line| line.starts_with("cofferdam ")).collect();
    assert!(lines.len() > 8, "{lines:?}");
    let site = site();
    site.write("agent.py", "print('hello')\n");
    for (line, (printed, code)) in lines.iter().zip(typed(&site, &lines)) {
        assert_eq!(code, "0", "{line}: {printed}");
    }
}
