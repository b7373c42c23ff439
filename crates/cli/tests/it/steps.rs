//! What an agent tells of its own workflow from inside its sandbox: by `cofferdam step`, by plain HTTP, and by the
//! exporter of OpenTelemetry's own SDK.

use crate::BINARY;
use cofferdam_testkit::{Call, Mode, Server, Site, is_root};
use serde_json::{Value, json};
use std::fs;

const RULES: &str = r#"
[[rule]]
id = "deploys"
reason = "a person starts a deploy"
effect = "review"
step = "deploy-*"

[[rule]]
id = "never"
reason = "not from here"
effect = "deny"
step = "wipe"
"#;

struct Stage<'s> {
    site: &'s Site,
}

/// As root and as a plain user, with this policy.
fn staged(rules: &str, test: impl Fn(&Stage<'_>)) {
    let modes: &[Mode] = if is_root() { &[Mode::Root, Mode::Single] } else { &[Mode::Single] };
    for &mode in modes {
        eprintln!("mode {mode:?}");
        let site = Site::new(mode, BINARY);
        fs::write(site.root().join("policy.toml"), rules).unwrap();
        test(&Stage { site: &site });
    }
}

impl<'s> Stage<'s> {
    /// A script inside, which finds the program as `$COFFERDAM`.
    fn sh(&self, script: &str) -> Call<'s> {
        let (binary, policy) = (self.site.binary(), self.site.root().join("policy.toml"));
        let (binary, policy) = (binary.to_str().unwrap(), policy.to_str().unwrap());
        let (mount, env) = (format!("{binary}:{binary}:ro"), format!("COFFERDAM={binary}"));
        self.site.sh(script).with(&["--policy", policy, "--mount", &mount, "--env", &env])
    }

    fn told(&self) -> Vec<(String, Value)> {
        let events = self.site.events().into_iter();
        let of = |event: Value| (event["kind"].as_str().unwrap().to_owned(), event["body"].clone());
        events.map(of).filter(|(kind, _)| kind.starts_with("step.")).collect()
    }
}

#[test]
fn steps_are_told_by_the_program_inside() {
    // An empty policy lets nothing out, and opens the door.
    staged("", |stage| {
        let script = r#"
            set -e
            plan=$($COFFERDAM step start plan --input '{"goal": "refund"}')
            look=$($COFFERDAM step start look --parent "$plan" --id mine)
            $COFFERDAM step replan "ask a person" --parent "$look" --input '"no such charge"' >/dev/null
            $COFFERDAM step end "$look" --output '[1, 2.5]' >/dev/null
            $COFFERDAM step end "$plan" --error "gave up" >/dev/null
            echo $plan $look
            ! $COFFERDAM step end "$plan"
            ! $COFFERDAM step start x --input 'no json'
        "#;
        let done = stage.sh(script).exits(0);
        assert_eq!(done.out(), "step-1 mine\n");
        assert!(done.err().contains("id: this step is over already"), "{}", done.err());
        let told = stage.told();
        let kinds: Vec<&str> = told.iter().map(|(kind, _)| kind.as_str()).collect();
        assert_eq!(kinds, ["step.started", "step.started", "step.replanned", "step.ended", "step.ended"]);
        assert_eq!(told[0].1["input"], json!({ "text": r#"{"goal":"refund"}"# }));
        assert_eq!(told[1].1["parent"], "step-1");
        assert_eq!(told[3].1["output"], json!({ "text": "[1,2.5]" }));
        assert_eq!(told[4].1["error"], "gave up");
        stage.site.call(&["trace", "verify", "latest"]).exits(0);
        let shown = stage.site.call(&["trace", "show", "latest"]).exits(0).out();
        assert!(shown.contains("plan {\"goal\":\"refund\"}; it failed: gave up"), "{shown}");
    });
}

#[test]
fn steps_are_told_by_plain_http_and_what_is_wrong_is_named() {
    staged("", |stage| {
        let script = r#"
            post() { curl -sS -w ' %{http_code}\n' -d "$1" "$COFFERDAM_STEPS_URL" | tr -d '\n'; echo; }
            post '{"event": "start", "name": "a"}'
            post '{"event": "start", "name": 3}'
            post 'no json'
            curl -s -o /dev/null -w '%{http_code}\n' "${COFFERDAM_STEPS_URL%/v1/steps}/elsewhere"
            head -c 5000000 /dev/zero | curl -s -o /dev/null -w '%{http_code}\n' --data-binary @- "$COFFERDAM_STEPS_URL"
        "#;
        let out = stage.sh(script).exits(0).out();
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[0], r#"{"id":"step-1"} 201"#);
        assert!(lines[1].contains(r#""field":"name""#) && lines[1].ends_with("400"), "{out}");
        assert!(lines[2].contains(r#""field":"body""#) && lines[2].ends_with("400"), "{out}");
        assert_eq!(lines[3..], ["404", "413"]);
        assert_eq!(stage.told().len(), 1);
        // Nothing of it is traffic.
        assert!(stage.site.bodies("egress.decided").is_empty());
    });
}

#[test]
fn a_step_is_held_to_the_rules_about_it() {
    staged(RULES, |stage| {
        let done = stage.sh("$COFFERDAM step start think && $COFFERDAM step start wipe").exits(2);
        assert!(done.err().contains("denied by rule never: not from here"), "{}", done.err());
        for (word, code) in [("allow", 0), ("deny", 2)] {
            let mut running = stage.sh("$COFFERDAM step start deploy-eu --input '{\"v\": 7}'").start();
            let waiting = stage.site.held(&mut running);
            assert_eq!(waiting["request"]["url"], r#"deploy-eu {"v":7}"#);
            stage.site.call(&["approve", word, waiting["id"].as_str().unwrap()]).exits(0);
            running.finish().exits(code);
            assert_eq!(stage.site.bodies("approval.answered").len(), 1);
        }
    });
}

const EXPORTER: &str = r#"
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
tracer = provider.get_tracer("agent")
with tracer.start_as_current_span("invoke_agent desk", attributes={"gen_ai.operation.name": "invoke_agent"}):
    with tracer.start_as_current_span("execute_tool lookup") as span:
        span.set_attribute("gen_ai.operation.name", "execute_tool")
        span.set_attribute("gen_ai.tool.call.arguments", '{"charge": "ch_1"}')
        span.set_attribute("gen_ai.tool.call.result", "4200")
    try:
        with tracer.start_as_current_span("chat gpt"):
            raise ValueError("no answer")
    except ValueError:
        pass
print(provider.force_flush())
provider.shutdown()
"#;

#[test]
fn spans_of_opentelemetry_are_steps() {
    let Some(server) = Server::shared() else { return };
    staged("", |stage| {
        let packages = server.packages().display().to_string();
        let (mount, path) = (format!("{packages}:{packages}:ro"), format!("PYTHONPATH={packages}"));
        stage.site.write("agent.py", EXPORTER);
        for compression in ["none", "gzip"] {
            let coding = format!("OTEL_EXPORTER_OTLP_COMPRESSION={compression}");
            let done =
                stage.sh("python3 agent.py").with(&["--mount", &mount, "--env", &path, "--env", &coding]);
            let done = done.exits(0);
            assert_eq!((done.out().as_str(), done.err().as_str()), ("True\n", ""));
            let told = stage.told();
            let started: Vec<&Value> =
                told.iter().filter(|(kind, _)| kind == "step.started").map(|(_, body)| body).collect();
            let names: Vec<&str> = started.iter().map(|body| body["name"].as_str().unwrap()).collect();
            assert_eq!(names, ["invoke_agent desk", "execute_tool lookup", "chat gpt"]);
            assert_eq!(started[1]["parent"], started[0]["id"]);
            assert_eq!((&started[1]["sort"], &started[1]["via"]), (&json!("execute_tool"), &json!("otlp")));
            assert_eq!(started[1]["input"], json!({ "text": r#"{"charge":"ch_1"}"# }));
            let ended: Vec<&Value> =
                told.iter().filter(|(kind, _)| kind == "step.ended").map(|(_, body)| body).collect();
            assert_eq!(ended[1]["output"], json!({ "text": "\"4200\"" }));
            assert!(ended[2]["error"].as_str().unwrap().contains("no answer"), "{}", ended[2]);
        }
    });
}

/// Without a policy there is no way from inside to us, and that is said.
#[test]
fn without_a_policy_there_is_no_endpoint() {
    let site = crate::site();
    let binary = site.binary().to_str().unwrap().to_owned();
    let script = format!("echo \"${{COFFERDAM_STEPS_URL-none}}\"; {binary} step start x");
    let done = site.sh(&script).with(&["--mount", &format!("{binary}:{binary}:ro")]).exits(2);
    assert_eq!(done.out(), "none\n");
    assert!(done.err().contains("a session that has a policy"), "{}", done.err());
}

#[test]
fn steps_need_no_policy() {
    let site = crate::site();
    let script = r#"
        curl -s -d '{"event": "start", "name": "plan"}' "$COFFERDAM_STEPS_URL"
        curl -s -o /dev/null -w '%{http_code}' http://example.com/
    "#;
    // The door is there, and it leads nowhere else.
    let out = site.sh(script).with(&["--steps"]).exits(0).out();
    assert_eq!(out, "{\"id\":\"step-1\"}\n403");
    assert_eq!(site.bodies("step.started")[0]["name"], "plan");
}
