//! A browser inside, driven by Playwright and Puppeteer as they are published: what they ask of it is judged before
//! it hears of it, and on record.

use crate::BINARY;
use cofferdam_testkit::{Call, Mode, Server, Site, eventually, is_root};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const SHOP: &str = r#"
import http.server, ssl, subprocess, sys
at = sys.argv[1]
subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
    "-keyout", at + "/key.pem", "-out", at + "/cert.pem", "-days", "2", "-subj", "/CN=shop.example",
    "-addext", "subjectAltName=DNS:shop.example,DNS:other.example", "-addext", "basicConstraints=critical,CA:FALSE"],
    check=True, stderr=subprocess.DEVNULL)
PAGES = {
    "/": b"""<!doctype html><title>Shop</title><link rel=icon href="data:,"><h1>Shop</h1>
<form method=post action="/done"><label>Name <input id=name name=name></label>
<label>Password <input type=password name=pw id=pw></label>
<label>Size <select id=size name=size><option value=s>Small<option value=l>Large</select></label>
<input type=checkbox id=agree name=agree aria-label="I agree"><button>Buy now</button></form>
<a id=dl download href="/file">Get the list</a> <button id=al onclick="alert('Sure?')">Ask</button>
<button id=away onclick="location.href='https://other.example/steal?cart=1'">Go away</button><p id=total>Total 42</p>""",
    "/done": b"<!doctype html><title>Done</title><link rel=icon href=data:,><p>Thank you</p>",
    "/file": b"one,two\n",
    "/steal": b"<!doctype html><title>Other</title>",
}
class Shop(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.do_GET()
    def do_GET(self):
        path = self.path.split("?")[0]
        body = PAGES.get(path)
        self.send_response(200 if body else 404)
        self.send_header("content-type", "text/csv" if path == "/file" else "text/html; charset=utf-8")
        if path == "/file": self.send_header("content-disposition", "attachment; filename=list.csv")
        self.send_header("content-length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shop)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(at + "/cert.pem", at + "/key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
"#;

const RULES: &str = r#"
[[rule]]
id = "shop"
reason = "the shop is its work"
effect = "allow"
host = ["shop.example", "other.example"]

[[rule]]
id = "drive"
reason = "what the agent does there"
effect = "allow"
browser = "*"
host = "shop.example"

[[rule]]
id = "empty"
reason = "a page before it goes anywhere"
effect = "allow"
browser = "*"
when = "args.url == '' || args.url == 'about:blank'"

[[rule]]
id = "no-cookies"
reason = "sessions of people are not its business"
effect = "deny"
browser = "cookies"
"#;

const PLAYWRIGHT: &str = r#"
const { chromium } = require('playwright-core');
(async () => {
  const browser = await chromium.connectOverCDP(process.env.COFFERDAM_CDP_URL);
  const context = browser.contexts()[0];
  const page = await context.newPage();
  await page.goto('https://shop.example/');
  await page.getByLabel('Name').fill('Ada');
  await page.locator('#pw').fill('hunter22!');
  await page.locator('#size').selectOption('l');
  await page.getByLabel('I agree').check();
  await page.locator('#name').pressSequentially(' L');
  await page.locator('#name').press('End');
  console.log(await page.locator('#total').textContent());
  console.log(await page.evaluate(() => document.title));
  page.once('dialog', (dialog) => dialog.accept());
  await page.locator('#al').click();
  const [download] = await Promise.all([page.waitForEvent('download'), page.locator('#dl').click()]);
  console.log(download.suggestedFilename(), await download.failure());
  console.log((await page.screenshot()).length > 0);
  console.log(await page.goto('https://other.example/steal').catch((error) => error.message.split('\n')[0]));
  console.log(await context.cookies().catch((error) => error.message.split('\n')[0]));
  await page.getByRole('button', { name: 'Buy now' }).click();
  await page.waitForURL('**/done');
  console.log(await page.title());
  await browser.close();
})().catch((error) => { console.error(error); process.exit(1); });
"#;

const PUPPETEER: &str = r#"
const puppeteer = require('puppeteer-core');
(async () => {
  const at = process.argv[2] ? { browserWSEndpoint: process.argv[2] } : { browserURL: process.env.COFFERDAM_CDP_URL };
  const browser = await puppeteer.connect(at);
  const page = await browser.newPage();
  await page.goto('https://shop.example/');
  await page.type('#name', 'Bob');
  await page.type('#pw', 'letmein99');
  await page.select('#size', 'l');
  await page.click('#agree');
  console.log(await page.$eval('#total', (e) => e.textContent));
  console.log(await page.$eval('#pw', (e) => e.value));
  await page.click('#away');
  await new Promise((done) => setTimeout(done, 500));
  console.log(page.url() === 'https://other.example/steal?cart=1');
  await page.goto('https://shop.example/');
  await Promise.all([page.waitForNavigation(), page.click('form button')]);
  console.log(await page.title());
  await browser.close();
})().catch((error) => { console.error(error); process.exit(1); });
"#;

struct Shop(Child);

impl Drop for Shop {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

struct Stage<'s> {
    site: &'s Site,
    modules: String,
    shop: Option<Shop>,
}

fn staged(modes: &[Mode], test: impl Fn(&mut Stage<'_>)) {
    let Some(server) = Server::shared() else { return };
    for &mode in modes {
        eprintln!("mode {mode:?}");
        let site = Site::new(mode, BINARY);
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", SHOP]).arg(site.root()).stdout(Stdio::piped());
        let mut shop = command.spawn().unwrap();
        let mut port = String::new();
        BufReader::new(shop.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let upstream = |host: &str| {
            let port = port.trim();
            format!("[[upstream]]\nhost = \"{host}\"\nconnect = \"127.0.0.1:{port}\"\nca = \"cert.pem\"\n")
        };
        let policy = format!("{}{}{RULES}", upstream("shop.example"), upstream("other.example"));
        fs::write(site.root().join("policy.toml"), policy).unwrap();
        let modules = server.packages().join("node_modules").to_str().unwrap().to_owned();
        test(&mut Stage { site: &site, modules, shop: Some(Shop(shop)) });
    }
}

fn one_mode() -> Mode {
    if is_root() { Mode::Root } else { Mode::Single }
}

impl<'s> Stage<'s> {
    fn flags(&self, call: Call<'s>) -> Call<'s> {
        let policy = self.site.root().join("policy.toml").to_str().unwrap().to_owned();
        let (mount, path) = (format!("{0}:{0}:ro", self.modules), format!("NODE_PATH={}", self.modules));
        call.with(&[
            "--browser",
            "--policy",
            &policy,
            "--mount",
            &mount,
            "--env",
            &path,
            "--changes",
            "discard",
        ])
    }

    fn node(&self, program: &str) -> Call<'s> {
        self.site.write("agent.js", program);
        self.flags(self.site.run(&["node", "agent.js"]))
    }

    /// What was asked of the browser and what pages did, a line each, without what a library says to itself.
    fn told(&self) -> Vec<String> {
        let args = |body: &Value| -> Value {
            body["args"]["text"].as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
        };
        let events = self.site.events();
        events
            .iter()
            .filter_map(|event| {
                let body = &event["body"];
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                match event["kind"].as_str()? {
                    "browser.acted" if matches!(body["action"].as_str(), Some("read" | "evaluate")) => None,
                    "browser.acted" => {
                        let args = args(body);
                        let element = match args["name"].as_str() {
                            Some(name) => format!(" {} `{name}`", text(&args["role"])),
                            None => String::new(),
                        };
                        let with = ["text", "key", "values", "accept"]
                            .iter()
                            .filter(|name| !args[**name].is_null() && args[**name] != "")
                            .map(|name| format!(" {name}={}", args[*name]))
                            .collect::<String>();
                        let url = text(&args["url"]);
                        let line = format!(
                            "{} {}{element}{with} {url}",
                            text(&body["effect"]),
                            text(&body["action"])
                        );
                        Some(line.trim_end().to_owned())
                    }
                    "browser.seen" if body["what"] != "opened" && body["what"] != "closed" => {
                        let detail =
                            if body["what"] == "navigated" { String::new() } else { text(&body["detail"]) };
                        let effect =
                            body["effect"].as_str().map(|effect| format!("{effect} ")).unwrap_or_default();
                        Some(
                            format!("[{effect}{} {} {detail}]", text(&body["what"]), text(&body["url"]))
                                .replace(" ]", "]"),
                        )
                    }
                    _ => None,
                }
            })
            .collect()
    }
}

#[test]
fn playwright_is_judged_recorded_and_replayed() {
    let modes: &[Mode] = if is_root() { &[Mode::Root, Mode::Single] } else { &[Mode::Single] };
    staged(modes, |stage| {
        let done = stage.node(PLAYWRIGHT).exits(0);
        let out = done.out();
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[..4], ["Total 42", "Shop", "list.csv null", "true"], "{out}");
        assert!(lines[4].contains("cofferdam: navigate is denied"), "{out}");
        assert!(lines[5].contains("sessions of people are not its business"), "{out}");
        assert_eq!(lines[6], "Done");
        // Nothing was fetched that nobody asked for: no dictionary for the fields that were filled in.
        let asked = stage.site.bodies("egress.decided");
        assert!(asked.iter().all(|body| body["host"].as_str().unwrap().ends_with(".example")), "{asked:#?}");
        insta::allow_duplicates! {
        insta::assert_snapshot!(stage.told().join("\n"), @r##"
        allow open
        allow navigate https://shop.example/
        [navigated https://shop.example/]
        allow fill textbox `Name` text="Ada" https://shop.example/
        allow fill textbox `Password` text="[masked]" https://shop.example/
        allow select combobox `Size` values=["l"] https://shop.example/
        [changed  {"name":"Size","role":"combobox","selector":"#size","value":"l"}]
        allow click checkbox `I agree` https://shop.example/
        [changed  {"name":"I agree","role":"checkbox","selector":"#agree","value":"true"}]
        allow type textbox `Name` text=" " https://shop.example/
        allow press textbox `Name` key="End" https://shop.example/
        allow click button `Ask` https://shop.example/
        [dialog https://shop.example/ alert: Sure?]
        allow dialog accept=true https://shop.example/
        allow click link `Get the list` https://shop.example/
        [allow download https://shop.example/file list.csv]
        allow screenshot https://shop.example/
        deny navigate https://other.example/steal
        deny cookies
        allow click button `Buy now` https://shop.example/
        [navigated https://shop.example/done]
        "##);
                }
        let id = stage.site.traces().pop().unwrap();
        let trace = fs::read_to_string(stage.site.events_file(&id)).unwrap();
        let browser: String = trace.lines().filter(|line| line.contains("\"kind\":\"browser.")).collect();
        assert!(!browser.contains("hunter22"), "a password is on record");
        stage.site.call(&["trace", "verify", "latest"]).exits(0);
        stage.shop = None;
        let again = {
            let path = format!("NODE_PATH={}", stage.modules);
            stage.site.call(&["replay", "latest", "--env", &path]).done()
        };
        assert_eq!(again.out(), out, "{}", again.err());
    });
}

#[test]
fn puppeteer_types_and_a_page_does_not_get_away() {
    staged(&[one_mode()], |stage| {
        let out = stage.node(PUPPETEER).exits(0).out();
        assert_eq!(out, "Total 42\nletmein99\nfalse\nDone\n");
        insta::assert_snapshot!(stage.told().join("\n"), @r##"
        allow open
        allow navigate https://shop.example/
        [navigated https://shop.example/]
        allow type textbox `Name` text="B" https://shop.example/
        allow type textbox `Password` text="[masked]" https://shop.example/
        allow select combobox `Size` values=["l"] https://shop.example/
        [changed  {"name":"Size","role":"combobox","selector":"#size","value":"l"}]
        allow click checkbox `I agree` https://shop.example/
        [changed  {"name":"I agree","role":"checkbox","selector":"#agree","value":"true"}]
        allow click button `Go away` https://shop.example/
        [deny navigated https://other.example/steal?cart=1]
        allow navigate https://shop.example/
        [navigated https://shop.example/]
        allow click button `Buy now` https://shop.example/
        [navigated https://shop.example/done]
        "##);
        let trace = fs::read_to_string(stage.site.events_file(&stage.site.traces().pop().unwrap())).unwrap();
        let browser: String = trace.lines().filter(|line| line.contains("\"kind\":\"browser.")).collect();
        assert!(!browser.contains("letmein99"), "a password is on record");
        assert_eq!(stage.site.bodies("browser.started")[0]["own_sandbox"], false);
    });
}

#[test]
fn an_agent_outside_drives_a_session_that_stays() {
    staged(&[one_mode()], |stage| {
        let create = stage.flags(stage.site.call(&["session", "create", "--nested", "--json"]));
        let created: Value = serde_json::from_str(&create.exits(0).out()).unwrap();
        let id = created["session"].as_str().unwrap().to_owned();
        let shown: Value =
            serde_json::from_str(&stage.site.call(&["session", "show", "--json", &id]).exits(0).out())
                .unwrap();
        let url = shown["browser"].as_str().unwrap();
        stage.site.write("agent.js", PUPPETEER);
        let mut node = stage.site.command("/usr/bin/node");
        let done = node.args(["agent.js", url]).env("NODE_PATH", &stage.modules).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        // Whoever does not know the address finds nothing.
        let (port, _) = url.strip_prefix("ws://").unwrap().split_once('/').unwrap();
        let mut curl = stage.site.command("/usr/bin/curl");
        let found = curl
            .args(["-s", "-o", "/dev/null", "-w", "%{http_code}"])
            .arg(format!("http://{port}/json/version"));
        assert_eq!(String::from_utf8_lossy(&found.output().unwrap().stdout), "404");
        stage.site.call(&["session", "kill", &id]).exits(0);
        eventually("the session is over", || (stage.site.bodies("session.ended").len() == 1).then_some(()));
        assert_eq!(stage.site.bodies("browser.started")[0]["own_sandbox"], true);
        assert!(stage.told().iter().any(|line| line.starts_with("allow click button `Buy now`")));
    });
}

#[test]
fn a_browser_that_dies_is_told_and_pages_do_not_drive_it() {
    staged(&[one_mode()], |stage| {
        let script = r#"
curl -s -o /dev/null -w '%{http_code} ' "$COFFERDAM_CDP_URL/json/version"
curl -s -o /dev/null -w '%{http_code} ' -H 'Origin: https://evil.example' "$COFFERDAM_CDP_URL/json/version"
curl -s -o /dev/null -w '%{http_code}\n' -H 'Host: evil.example' "$COFFERDAM_CDP_URL/json/version"
kill -9 $(pgrep -o chromium)
until curl -s "$COFFERDAM_CDP_URL/json/version" | grep 'the browser is gone'; do sleep 0.1; done
"#;
        let out = stage.flags(stage.site.sh(script)).exits(0).out();
        assert!(out.starts_with("200 403 403\n"), "{out}");
        assert!(out.contains("signal 9"), "{out}");
        assert_eq!(stage.site.bodies("browser.ended").len(), 1);
    });
}
