use super::*;
use std::fs;
use tempfile::TempDir;

/// A machine with these programs, files of the work dir, files of the home and variables.
struct Machine {
    root: TempDir,
    variables: Vec<&'static str>,
}

fn machine(
    programs: &[&str],
    work: &[(&str, &str)],
    home: &[(&str, &str)],
    variables: &[&'static str],
) -> Machine {
    let root = TempDir::new().unwrap();
    let put = |below: &str, name: &str, text: &str| {
        let path = root.path().join(below).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for dir in ["bin", "work", "home"] {
        fs::create_dir(root.path().join(dir)).unwrap();
    }
    programs.iter().for_each(|name| put("bin", name, ""));
    work.iter().for_each(|(name, text)| put("work", name, text));
    home.iter().for_each(|(name, text)| put("home", name, text));
    Machine { root, variables: variables.to_vec() }
}

impl Machine {
    fn plan(&self, agent: Option<&str>, with: &[&str]) -> Result<Plan, InitError> {
        let wish = Wish {
            agent: agent.map(Into::into),
            with: with.iter().map(|name| (*name).to_owned()).collect(),
            out: self.root.path().join("work/cofferdam.toml"),
            ..Wish::default()
        };
        let (dir, home) = (self.root.path().join("work"), self.root.path().join("home"));
        let is_set = |name: &str| self.variables.contains(&name);
        let path = self.root.path().join("bin").into_os_string();
        Plan::make(&wish, &Around { dir: &dir, home: Some(&home), path, is_set: &is_set })
    }
}

/// The agent, and `service variable` of each key.
fn told(plan: &Plan) -> String {
    let keys: Vec<String> =
        plan.keys.iter().map(|key| format!("{} {}", key.service.name, key.variable)).collect();
    format!("{}: {}: {}", plan.agent.name, plan.agent.command.join(" "), keys.join(", "))
}

fn check(machine: &Machine, agent: Option<&str>, expected: &str) -> Plan {
    let plan = machine.plan(agent, &[]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(told(&plan), expected);
    plan
}

#[test]
fn the_nearest_agent_is_meant() {
    let both = machine(&["claude", "codex"], &[], &[], &[]);
    assert_eq!(check(&both, None, "claude: claude: anthropic ANTHROPIC_API_KEY").also, ["codex"]);
    check(&both, Some("codex"), "codex: codex: openai CODEX_API_KEY");
    check(&both, Some("claude-code"), "claude: claude: anthropic ANTHROPIC_API_KEY");
    // Codex reads a variable of its own, wherever the key comes from.
    let set = machine(&["codex"], &[], &[], &["OPENAI_API_KEY"]);
    let line = "cofferdam secret add openai --from env:OPENAI_API_KEY --preset openai --env CODEX_API_KEY";
    assert_eq!(check(&set, None, "codex: codex: openai CODEX_API_KEY").keys[0].line(), line);
    let used = machine(&["claude", "codex"], &[(".codex/config.toml", "")], &[], &[]);
    check(&used, None, "codex: codex: openai CODEX_API_KEY");
    // A project in which an agent is used, against a project that is one.
    let project = machine(&["claude", "python3"], &[("pyproject.toml", ""), ("main.py", "")], &[], &[]);
    check(&project, None, "claude: claude: anthropic ANTHROPIC_API_KEY");
    let agent = machine(&["claude", "python3"], &[("requirements.txt", "openai"), ("main.py", "")], &[], &[]);
    check(&agent, None, "python: python3 main.py: openai OPENAI_API_KEY");
    let node = machine(
        &["claude"],
        &[("package.json", r#"{"dependencies": {"openai": "4"}, "scripts": {"start": "x"}}"#)],
        &[],
        &[],
    );
    check(&node, None, "node: npm start: openai OPENAI_API_KEY");
    assert!(!node.plan(None, &[]).unwrap().agent.installed);
}

#[test]
fn an_agent_that_is_not_known_or_not_there() {
    let bare = machine(&[], &[], &[], &[]);
    for (agent, part) in
        [(Some("claud"), "`claud` is no agent"), (None, "found no agent"), (Some("python"), "init -- CMD")]
    {
        let error = bare.plan(agent, &[]).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let error = bare.plan(Some("x"), &[]).unwrap_err().to_string();
    for name in ["claude", "codex", "gemini-cli", "aider", "opencode", "python", "node"] {
        assert!(error.contains(name), "{error}");
    }
    let plan = check(&bare, Some("opencode"), "opencode: opencode: ");
    assert!(!plan.agent.installed);
    let error = bare.plan(Some("claude"), &["strip"]).unwrap_err().to_string();
    assert!(error.contains("--with strip") && error.contains("stripe"), "{error}");
}

#[test]
fn an_installed_agent_gets_what_it_needs_and_no_more() {
    let keys = ["ANTHROPIC_API_KEY", "GH_TOKEN", "STRIPE_KEY", "AWS_SECRET_ACCESS_KEY"];
    let all = machine(&["claude", "aider"], &[], &[], &keys);
    let plan = check(&all, Some("claude"), "claude: claude: anthropic ANTHROPIC_API_KEY, github GH_TOKEN");
    let left: Vec<_> = plan.left.iter().map(|left| (left.variable.as_str(), left.service)).collect();
    assert_eq!(left, [("STRIPE_KEY", Some("stripe")), ("AWS_SECRET_ACCESS_KEY", None)]);
    let plan = all.plan(Some("claude"), &["stripe", "slack"]).unwrap();
    assert!(
        told(&plan).ends_with("github GH_TOKEN, slack SLACK_BOT_TOKEN, stripe STRIPE_KEY"),
        "{}",
        told(&plan)
    );
    // The work dir's own file is the project's word on what it uses.
    let project = machine(&["claude"], &[(".env", "STRIPE_KEY=sk_live_x\n")], &[], &["ANTHROPIC_API_KEY"]);
    check(&project, None, "claude: claude: anthropic ANTHROPIC_API_KEY, stripe STRIPE_KEY");
    check(&machine(&["aider"], &[], &[], &["GROQ_API_KEY"]), None, "aider: aider: groq GROQ_API_KEY");
}

#[test]
fn a_program_of_the_users_gets_the_keys_it_was_started_with() {
    let own = machine(
        &["python3"],
        &[("agent.py", "import openai\n")],
        &[],
        &["STRIPE_KEY", "GITHUB_TOKEN", "GH_TOKEN"],
    );
    let plan = check(
        &own,
        None,
        "python: python3 agent.py: github GITHUB_TOKEN, openai OPENAI_API_KEY, stripe STRIPE_KEY",
    );
    let lines: Vec<String> = plan.keys.iter().map(Key::line).collect();
    assert_eq!(
        lines,
        [
            "cofferdam secret add github --from env:GITHUB_TOKEN --preset github",
            "cofferdam secret add openai --preset openai",
            "cofferdam secret add stripe --from env:STRIPE_KEY --preset stripe",
        ]
    );
    assert_eq!(plan.left[0].variable, "GH_TOKEN");
}

#[test]
fn known_files_of_the_home() {
    let home = [
        (".codex/auth.json", r#"{"OPENAI_API_KEY": "sk-real-value", "tokens": null}"#),
        (".config/gh/hosts.yml", "github.com:\n  oauth_token: gho_real_value\n"),
        (".npmrc", "//registry.npmjs.org/:_authToken=npm_real_value\n"),
    ];
    let machine = machine(&["codex", "gh"], &[], &home, &[]);
    let plan = check(&machine, None, "codex: codex: github GITHUB_TOKEN, openai CODEX_API_KEY");
    assert_eq!(plan.keys[0].line(), "cofferdam secret add github --from 'cmd:gh auth token' --preset github");
    let plan = machine.plan(None, &["npm"]).unwrap();
    assert!(plan.keys[1].line().contains("--from 'cmd:sed -n s/^..registry.npmjs.org.:_authToken=//p "));
    assert!(!format!("{plan:?}").contains("real"), "{plan:?}");
}

#[test]
fn names_of_the_files() {
    let check = |out: &str, policy: &str| assert_eq!(beside(Path::new(out)), Path::new(policy));
    check("cofferdam.toml", "policy.toml");
    check("sub/cofferdam.toml", "sub/policy.toml");
    check("codex.toml", "codex.policy.toml");
}
