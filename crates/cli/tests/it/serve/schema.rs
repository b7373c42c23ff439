//! The document, taken at its word by a program that nobody here has written: schemathesis makes requests from it, and
//! requests that it forbids, and holds the answers to it.

use super::Service;
use cofferdam_testkit::{Server, finish};

/// Everything that the document allows has to be taken: 400 is for what it forbids, and for nothing else. What it cannot say, of a
/// policy's text, a suite's path and the names of hosts, is answered with 422; so is an idempotency key that was used before.
const CONFIG: &str = r#"
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "401", "403", "404", "409", "422", "429"]
"#;

/// As both kinds of keys: what one may not ask, the other does. The stream of a trace that goes on has no end, and is
/// tried elsewhere.
#[test]
fn every_answer_is_one_that_the_document_allows() {
    let Some(server) = Server::shared() else { return };
    let service = Service::with(Some("[limits]\nrate = 100000\n"));
    let config = service.site.write("schemathesis.toml", CONFIG);
    for (key, examples) in [(&service.api_key, "8"), (&service.admin_key, "3")] {
        let mut command = service.site.command("python3");
        command.env("PYTHONPATH", server.packages()).env("PYTHONDONTWRITEBYTECODE", "1");
        command.args(["-c", "from schemathesis.cli import schemathesis; schemathesis()", "--config-file"]);
        command.arg(&config).arg("run").arg(format!("{}/v1/openapi.json", service.url));
        command.args(["--header", &format!("Authorization: Bearer {key}"), "--max-examples", examples]);
        command.args(["--exclude-operation-id", "streamTrace", "--phases", "coverage,fuzzing,stateful"]);
        command.args(["--generation-deterministic", "--no-color"]);
        command.args(["--suppress-health-check", "all", "--continue-on-failure", "--no-shrink"]);
        let told = finish(&mut command).exits(0).out();
        // It was there, and it asked: nothing is passed for want of questions.
        assert!(told.contains("Tested: 42"), "{told}");
    }
    service.api("GET", "/v1/sessions", None).is(200);
}
