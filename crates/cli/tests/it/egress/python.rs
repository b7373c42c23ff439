//! Python's clients: the standard library, requests, httpx, aiohttp, and the SDKs of openai, anthropic and stripe with
//! the addresses that they come with. Afterwards the process looks through its own memory for the real value.

use super::{DIRECT, Stage, staged, staged_once};

/// Looks for what `SOUGHT` describes in all memory of this process. The description is a pattern that does not contain
/// what it matches, and neither does its compiled form.
pub(super) const SEARCH: &str = r#"
import os, re

def in_memory(pattern):
    sought, memory = re.compile(pattern.encode()), open("/proc/self/mem", "rb", 0)
    for line in open("/proc/self/maps"):
        span, mode, rest = line.split(" ", 2)
        if mode[0] != "r" or "[v" in rest:
            continue
        start, end = (int(word, 16) for word in span.split("-"))
        try:
            memory.seek(start)
            if sought.search(memory.read(end - start)):
                return True
        except OSError:
            pass
    return False

def escaped(text):
    return "".join(f"\\x{byte:02x}" for byte in text.encode())

def look():
    # What is there must be found, or the search proves nothing.
    print("memory", in_memory(escaped(os.environ["KEY"])), in_memory(os.environ["SOUGHT"]))
"#;

pub(super) fn pattern(value: &str) -> String {
    value.bytes().map(|byte| format!("\\x{byte:02x}")).collect()
}

#[track_caller]
fn check(stage: &Stage<'_>, program: &str, expected: &str) {
    let program = format!(
        "{SEARCH}\nkey = os.environ['KEY']\nauth = {{'Authorization': 'Bearer ' + key}}\n{program}\nlook()\n"
    );
    let sought = format!("SOUGHT={}", pattern(&stage.real));
    let out = stage.python(&program).with(&["--env", &sought]).exits(0).out();
    assert_eq!(out, format!("{expected}memory True False\n"));
}

#[test]
fn http_libraries() {
    staged(|stage| {
        let program = r#"
import asyncio, urllib.request, aiohttp, httpx, requests
url = "https://api.corp.example/"
print(urllib.request.urlopen(urllib.request.Request(url + "urllib", headers=auth)).status)
with requests.Session() as session:
    print(session.get(url + "requests", headers=auth).status_code, session.get(url + "requests", auth=("", key)).status_code)
print(httpx.get(url + "httpx", headers=auth).http_version, httpx.Client(http2=True).get(url + "httpx", headers=auth).http_version)
async def get(trust_env):
    async with aiohttp.ClientSession(trust_env=trust_env, headers=auth) as session:
        async with session.get(url + "aiohttp") as answer:
            return answer.status
print(asyncio.run(get(True)), asyncio.run(get(False)))
"#;
        check(stage, program, "200\n200 200\nHTTP/1.1 HTTP/2\n200 200\n");
        assert_eq!(stage.used("api.corp.example").len(), 7);
    });
}

#[test]
fn the_sdks_of_model_and_payment_providers_with_their_own_addresses() {
    staged(|stage| {
        let program = r#"
import anthropic, openai, stripe
ask = {"messages": [{"role": "user", "content": "ping"}]}
client = openai.OpenAI(api_key=key)
print(client.chat.completions.create(model="gpt-5", **ask).choices[0].message.content)
print(*(part.choices[0].delta.content for part in client.chat.completions.create(model="gpt-5", stream=True, **ask)))
print(anthropic.Anthropic(api_key=key).messages.create(model="claude", max_tokens=9, **ask).content[0].text)
stripe.api_key = key
print(stripe.Charge.list(limit=3).data[0].amount, stripe.Refund.create(charge="ch_1").id)
"#;
        check(stage, program, "pong\npo ng\npong\n700 re_1\n");
        assert_eq!(stage.used("api.openai.com").len(), 2);
        assert_eq!(stage.used("api.anthropic.com").len(), 1);
        assert_eq!(stage.used("api.stripe.com").len(), 2);
    });
}

/// The search finds a value that is really there, so not finding one means something.
#[test]
fn the_search_of_memory_finds_what_is_there() {
    staged_once(|stage| {
        let program = format!("{SEARCH}\nheld = bytes(reversed(os.environ['BACKWARDS'].encode()))\nlook()");
        let backwards: String = stage.real.chars().rev().collect();
        let env = [format!("SOUGHT={}", pattern(&stage.real)), format!("BACKWARDS={backwards}")];
        let call = stage.python(&program).with(&["--env", &env[0], "--env", &env[1]]);
        assert_eq!(call.exits(0).out(), "memory True True\n");
    });
}

/// A client that reads no proxy variables and brings its own authorities is carried all the same.
#[test]
fn authorities_that_a_library_brings_do_not_keep_it_out() {
    staged(|stage| {
        let script = format!(
            "cat > client.py <<'END'\n\
             import os, ssl, urllib.request, certifi\n\
             context = ssl.create_default_context(cafile=certifi.where())\n\
             asked = urllib.request.Request('https://api.corp.example/own', headers={{'x-api-key': os.environ['KEY']}})\n\
             print(urllib.request.urlopen(asked, context=context).status)\n\
             END\n\
             {DIRECT} python3 client.py"
        );
        assert_eq!(stage.sh(&script).exits(0).out(), "200\n");
        assert_eq!(stage.used("api.corp.example").len(), 1);
    });
}
