//! What a sandbox may reach, and what is put into its requests on the way, by the published SDK.

use super::Service;
use cofferdam_testkit::Server;

const SCRIPT: &str = r#"
from e2b import Sandbox, Secret

URL = "https://api.corp.example/thing"
def get(sandbox, *more):
    words = " ".join(more)
    return sandbox.commands.run(f"curl -s -o /dev/null -w '%{{http_code}}' {words} {URL}").stdout

closed = Sandbox.create(timeout=120)
assert get(closed) == "403", "nothing is reached that was not allowed"
closed.update_network({"allow_out": ["api.corp.example"]})
assert get(closed) == "401", "reached, without a key"
closed.update_network({})
assert get(closed) == "403", "what is left out is cleared"
closed.kill()

Secret.create(name="model", value="VALUE", metadata={"hosts": "api.corp.example"})
assert "VALUE" not in str(Secret.list())
lent = Sandbox.create(timeout=120, network={
    "allow_out": ["api.corp.example"],
    "rules": {"api.corp.example": [{"transform": {"headers": {"Authorization": "Bearer ${e2b.secrets.model}"}}}]},
})
assert get(lent) == "200", "the key is put in outside"
assert "VALUE" not in lent.commands.run("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'").stdout
lent.kill()
print("done")
"#;

#[test]
fn rules_and_secrets_hold_outside_of_the_sandbox() {
    let Some(server) = Server::shared() else { return };
    let value = "sk-proj-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGH";
    server.admit(value);
    let dir = tempfile::tempdir().unwrap();
    let floor = dir.path().join("floor.toml");
    std::fs::write(&floor, server.upstreams()).unwrap();
    let service = Service::with(Some(&format!("[e2b]\npolicy = \"{}\"\n", floor.display())));
    let done = service.program("python3", &SCRIPT.replace("VALUE", value)).unwrap();
    assert_eq!(done.exits(0).out().trim(), "done");
    let log = std::fs::read_to_string(service.site.state().with_extension("log")).unwrap();
    assert!(!log.contains(value) && !log.contains(&service.api_key), "nothing secret is logged");
}
