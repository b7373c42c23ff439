//! A session as tools over HTTP, with the official Python SDK in both ways it has of saying hello, and by hand.

use super::{Answer, Service};
use cofferdam_testkit::{eventually, processes_with};
use serde_json::{Value, json};

/// At `/mcp` in both ways, and at a session that is there.
const CLIENT: &str = r#"
import asyncio, json, os, urllib.request, urllib.error
from mcp import Client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
url, key = os.environ["E2B_API_URL"], os.environ["E2B_API_KEY"]
def rest(method, path, body=None):
    request = urllib.request.Request(url + path, method=method, data=None if body is None else json.dumps(body).encode(),
        headers={"authorization": "Bearer " + key, "content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)
def sessions():
    return {one["id"] for one in rest("GET", "/v1/sessions")["sessions"] if one["state"] == "running"}
async def talk(path, mode, made):
    http = create_mcp_http_client(headers={"authorization": "Bearer " + key})
    before = sessions()
    async with Client(streamable_http_client(url + path, http_client=http), mode=mode) as client:
        tools = sorted(tool.name for tool in (await client.list_tools()).tools)
        assert tools == ["begin", "commit", "diff", "read_file", "rollback", "run", "write_file"], tools
        async def call(name, **arguments):
            answer = await client.call_tool(name, arguments)
            return answer.is_error, answer.content[0].text, answer.structured_content
        error, text, data = await call("run", command="echo out; echo err >&2; cat; exit 3", stdin="in")
        assert (error, data["exit_code"], data["stdout"], data["stderr"]) == (False, 3, "out\nin", "err\n"), data
        assert (await call("write_file", path="made/file", content="hello\n"))[2]["bytes"] == 6
        assert (await call("write_file", path="bytes", content="/wA=", encoding="base64"))[2]["bytes"] == 2
        assert (await call("read_file", path="bytes"))[0] and "base64" in (await call("read_file", path="bytes"))[1]
        assert (await call("read_file", path="bytes", encoding="base64"))[2]["content"] == "/wA="
        assert (await call("begin"))[2]["depth"] == 1
        await call("run", command="rm -r made")
        assert any(one["path"].endswith("made") for one in (await call("diff"))[2]["changes"])
        assert (await call("rollback"))[2]["depth"] == 0
        assert (await call("read_file", path="made/file", offset=1, limit=3))[2] == {"content": "ell", "encoding": "utf8", "next_offset": 4}
        error, text, _ = await call("commit")
        assert error and "no transaction is open" in text, text
        assert (await call("read_file", path="missing"))[0]
        assert (await call("run", command="sleep 100", timeout=1))[2]["exit_code"] == 124
        # Beside each other.
        both = await asyncio.gather(call("run", command="while [ ! -e go ]; do sleep 0.05; done; echo gone"), call("run", command="touch go; echo went"))
        assert [one[2]["stdout"] for one in both] == ["gone\n", "went\n"], both
        assert len(sessions() - before) == made, (before, sessions())
    assert sessions() == before, "what was made for it ended with it"
async def main():
    own = rest("POST", "/v1/sessions", {"timeout": 600})["id"]
    for mode in ("auto", "legacy"):
        await talk("/mcp", mode, 1)
        await talk("/mcp/" + own, mode, 0)
    print("all of it")
asyncio.run(main())
"#;

#[test]
fn clients_that_nobody_here_wrote_work_in_it() {
    let service = Service::new();
    let Some(done) = service.program("/usr/bin/python3", CLIENT) else { return };
    assert!(done.exits(0).out().contains("all of it"));
}

fn say(service: &Service, path: &str, key: &str, head: &str, message: &Value) -> Answer {
    let head = format!("authorization: Bearer {key}\r\ncontent-type: application/json\r\n{head}");
    service.send("POST", path, &head, message.to_string().as_bytes())
}

fn request(id: u32, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn run(id: u32, command: &str) -> Value {
    request(id, "tools/call", &json!({"name": "run", "arguments": {"command": command}}))
}

#[test]
fn who_does_not_keep_to_it_is_told_so() {
    let service = Service::new();
    let (key, ping) = (service.api_key.clone(), request(1, "ping", &json!({})));
    say(&service, "/mcp", "nobody's", "", &ping).is(401);
    let code = |answer: Answer| answer.json()["error"]["code"].clone();
    assert_eq!(code(service.api("POST", "/mcp", Some(json!([ping]))).is(400)), -32600);
    let not_json = service.send("POST", "/mcp", &format!("authorization: Bearer {key}\r\n"), b"{");
    assert_eq!(code(not_json.is(400)), -32700);
    say(&service, "/mcp", &key, "mcp-protocol-version: 1999-01-01\r\n", &ping).is(400);
    let form = format!("authorization: Bearer {key}\r\ncontent-type: text/plain\r\n");
    service.send("POST", "/mcp", &form, ping.to_string().as_bytes()).is(415);
    service.api("GET", "/mcp", None).is(405);
    service.api("DELETE", "/mcp", None).is(400);
    assert_eq!(code(say(&service, "/mcp", &key, "", &run(1, "true")).is(200)), -32600, "no session");
    say(&service, "/mcp", &key, "mcp-session-id: none-of-that-name\r\n", &ping).is(404);
    say(&service, "/mcp/none-of-that-name", &key, "", &ping).is(404);
    let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(say(&service, "/mcp", &key, "", &told).is(202).text, "");
    // Refused, it has made nothing.
    let old = request(
        1,
        "initialize",
        &json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "1999-01-01"}}),
    );
    assert_eq!(code(say(&service, "/mcp", &key, "", &old).is(200)), -32022);
    assert_eq!(service.api("GET", "/v1/sessions", None).json()["sessions"], json!([]));
}

#[test]
fn a_session_is_its_tenants_and_a_call_can_be_taken_back() {
    let service = Service::new();
    let hello = request(1, "initialize", &json!({"protocolVersion": "2025-11-25"}));
    let begun = say(&service, "/mcp", &service.api_key, "", &hello).is(200);
    let id = begun.head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().to_owned();
    let made = service.site.call(&["apikey", "create", "--tenant", "other", "--json"]).done().exits(0);
    let made: Value = serde_json::from_str(&made.out()).unwrap();
    let other = made["key"].as_str().unwrap();
    let named = format!("mcp-session-id: {id}\r\n");
    say(&service, "/mcp", other, &named, &run(2, "true")).is(404);
    say(&service, &format!("/mcp/{id}"), other, "", &run(2, "true")).is(404);
    let ending = format!("authorization: Bearer {other}\r\n{named}");
    service.send("DELETE", "/mcp", &ending, b"").is(404);
    let mark = crate::crash::mark(&service.site);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let command = format!("sh -c ': {mark}; sleep 1000; :'");
            say(&service, "/mcp", &service.api_key, &named, &run(7, &command)).is(200).json()
        });
        eventually("that it runs", || (!processes_with(&mark).is_empty()).then_some(()));
        let again = say(&service, "/mcp", &service.api_key, &named, &run(7, "true")).is(200).json();
        assert_eq!(again["error"]["code"], -32600, "{again}");
        // Another's word takes nothing back.
        let back = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
        say(&service, "/mcp", other, &named, &back).is(404);
        say(&service, "/mcp", &service.api_key, &named, &back).is(202);
        let told = slow.join().unwrap();
        assert_eq!(told["result"]["isError"], true, "{told}");
    });
    eventually("that it is ended", || processes_with(&mark).is_empty().then_some(()));
    let ran = say(&service, &format!("/mcp/{id}"), &service.api_key, "", &run(8, "echo on")).is(200).json();
    assert_eq!(ran["result"]["structuredContent"]["stdout"], "on\n");
    let trace = service.api("GET", &format!("/v1/sessions/{id}"), None).is(200).json()["trace"].clone();
    let ending = format!("authorization: Bearer {}\r\n{named}", service.api_key);
    service.send("DELETE", "/mcp", &ending, b"").is(204);
    say(&service, "/mcp", &service.api_key, &named, &run(9, "true")).is(404);
    let events =
        service.api("GET", &format!("/v1/traces/{}/events?kind=exec", trace.as_str().unwrap()), None);
    assert!(events.is(200).text.contains("echo on"), "it is on record");
}
