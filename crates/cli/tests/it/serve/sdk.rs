//! E2B's control plane, asked by its published SDKs.

use super::Service;

const PYTHON: &str = r#"
from e2b import Sandbox, SandboxQuery, AuthenticationException, SandboxException

a = Sandbox.create(timeout=60, metadata={"a b": "c&d"}, envs={"FOO": "bar"})
b = Sandbox.create("code-interpreter-v1", timeout=60)
assert a.get_info().template_id == "base" and a.get_info().metadata == {"a b": "c&d"}
found = Sandbox.list(query=SandboxQuery(metadata={"a b": "c&d"})).next_items()
assert [s.sandbox_id for s in found] == [a.sandbox_id], found
pages = Sandbox.list(limit=1)
first, second = pages.next_items(), pages.next_items()
assert [first[0].sandbox_id, second[0].sandbox_id] == [b.sandbox_id, a.sandbox_id]
assert not pages.has_next

before = a.get_info().end_at
a.set_timeout(600)
assert a.get_info().end_at > before
a.set_timeout(100)
ends = a.get_info().end_at
Sandbox.connect(a.sandbox_id, timeout=5)
assert (ends - a.get_info().end_at).total_seconds() < 10, "connecting shortens nothing"
assert a.get_metrics()[-1].mem_used > 0

assert a.pause() and not a.pause()
assert a.get_info().state.value == "paused"
assert Sandbox.connect(a.sandbox_id).get_info().state.value == "running"

snapshot = a.create_snapshot()
c = Sandbox.create(snapshot.snapshot_id, timeout=60)
assert Sandbox.delete_snapshot(snapshot.snapshot_id) and not Sandbox.delete_snapshot(snapshot.snapshot_id)
d = a.fork()[0]
assert d.sandbox_id not in (a.sandbox_id, b.sandbox_id, c.sandbox_id)

a.update_network({"allow_out": ["docs.example.com"], "deny_out": ["0.0.0.0/0"]})
assert a.get_info().network["allow_out"] == ["docs.example.com"]
try:
    a.update_network({"allow_out": ["10.0.0.0/8"]})
    raise SystemExit("a range was taken")
except SandboxException as e:
    assert "ranges" in str(e), e

for s in (a, b, c, d):
    assert s.kill() and not s.kill()
try:
    Sandbox.create(api_key="e2b_00")
    raise SystemExit("a wrong key was taken")
except AuthenticationException:
    pass
print("done")
"#;

const NODE: &str = r#"
import { Sandbox, AuthenticationError } from 'e2b'
import assert from 'node:assert'

const a = await Sandbox.create({ timeoutMs: 60_000, metadata: { 'a b': 'c&d' } })
const b = await Sandbox.create('code-interpreter-v1', { timeoutMs: 60_000 })
const found = await Sandbox.list({ query: { metadata: { 'a b': 'c&d' } } }).nextItems()
assert.deepEqual(found.map((s) => s.sandboxId), [a.sandboxId])
await a.setTimeout(600_000)
assert.equal(await a.pause(), true)
assert.equal(await a.pause(), false)
assert.equal((await a.getInfo()).state, 'paused')
const again = await Sandbox.connect(a.sandboxId)
assert.equal((await again.getInfo()).state, 'running')
assert.equal(await a.kill(), true)
assert.equal(await a.kill(), false)
assert.equal(await b.kill(), true)
await assert.rejects(Sandbox.create({ apiKey: 'e2b_00' }), AuthenticationError)
console.log('done')
"#;

const ASYNC: &str = r#"
import asyncio
from e2b import AsyncSandbox

async def main():
    made = await asyncio.gather(*(AsyncSandbox.create(timeout=60) for _ in range(10)))
    assert len({s.sandbox_id for s in made}) == 10
    assert all(await asyncio.gather(*(s.kill() for s in made)))
    print("done")

asyncio.run(main())
"#;

/// What the documentation shows, as it stands there.
const DOCS: &str = include_str!("../../../../../docs/e2b.md");

fn examples(language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let blocks = DOCS.split(fence.as_str()).skip(1).filter_map(|rest| rest.split("```").next());
    blocks.map(str::to_owned).collect()
}

#[test]
fn the_examples_of_the_documentation() {
    let service = Service::new();
    let expected = [
        "hello world\n\nkept while it is paused\n",
        "42\n",
        "['0', '1', '2', '3', '4']\n",
        "hello\n\n",
        "0\nx\nuser\n\n",
        "42\n['42\\n']\n",
        "built\nbuilt\n\n",
    ];
    let python = examples("python");
    assert_eq!(python.len(), expected.len());
    for (example, expected) in python.iter().zip(expected) {
        let Some(done) = service.program("python3", example) else { return };
        assert_eq!(done.exits(0).out(), expected, "{example}");
    }
    for example in examples("js") {
        let Some(done) = service.program("node", &example) else { return };
        assert_eq!(done.exits(0).out(), "hello\n\ntext\n42\n", "{example}");
    }
}

fn check(program: &str, script: &str) {
    let service = Service::new();
    if let Some(done) = service.program(program, script) {
        assert_eq!(done.exits(0).out().trim(), "done");
    }
}

#[test]
fn the_python_sdk() {
    check("python3", PYTHON);
}

#[test]
fn the_python_sdk_many_at_once() {
    check("python3", ASYNC);
}

#[test]
fn the_javascript_sdk() {
    check("node", NODE);
}
