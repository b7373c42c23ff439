//! The page of a result, used as people use it: in a browser, by mouse and by keyboard, on a desk, on a phone and on paper.

use super::Shop;
use crate::site;
use cofferdam_testkit::{Server, program};
use std::process::Command;

/// Copies of each session, so that there is something to look for.
const COPIES: usize = 15;

const DRIVE: &str = r##"
const { chromium } = require("playwright-core");
const assert = require("assert");
const [executablePath, file] = process.argv.slice(2);

(async () => {
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
  const open = async (width, colorScheme) => {
    const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme });
    page.on("console", (line) => assert.fail(line.text()));
    page.on("pageerror", (error) => assert.fail(error));
    page.on("request", (asked) => assert(asked.url().startsWith("file://" + file), asked.url()));
    await page.goto("file://" + file);
    return page;
  };
  const shown = (page) => page.locator(".session:visible").count();
  const focused = (page) => page.evaluate(() => document.activeElement.closest(".session")?.id ?? "");
  const row = (page) => page.evaluate(() => document.activeElement.className);

  const page = await open(1300, "light");
  const all = await shown(page);
  assert.strictEqual(all, 90);
  const first = await page.locator("header").innerText();
  assert(first.includes("15 of 90 sessions failed"), first);
  // What stopped fifteen sessions is told once, and in the first screen.
  const cause = page.locator(".causes button");
  assert.strictEqual(await cause.count(), 1);
  assert((await cause.innerText()).startsWith("15 ×"), await cause.innerText());
  assert((await cause.boundingBox()).y < 900);
  await cause.click();
  assert.strictEqual(await shown(page), 15);
  await cause.click();
  assert.strictEqual(await shown(page), all);

  for (const [name, count] of [["fail", 15], ["review", 0], ["pass", 75], ["all", 90]]) {
    const button = page.locator(`nav button[data-filter=${name}]`);
    await button.click();
    assert.strictEqual(await button.getAttribute("aria-pressed"), "true");
    assert.strictEqual(await shown(page), count, name);
    assert.strictEqual(await page.locator("#nothing").isVisible(), count === 0, name);
  }

  await page.keyboard.press("/");
  await page.keyboard.type("REFUND-small 07");
  await page.waitForFunction(() => document.getElementById("shown").textContent === "1 of 90 sessions are shown");
  assert.strictEqual(await shown(page), 1);
  await page.keyboard.press("Escape");
  assert.strictEqual(await shown(page), all);
  // A key that is typed into the search is not a command.
  assert.strictEqual(await page.inputValue("#search"), "");

  await page.keyboard.press("j");
  const one = await focused(page);
  assert(one.startsWith("session-refund-small"), one);
  await page.keyboard.press("n");
  assert((await row(page)).includes("difference"), await row(page));
  const before = await page.evaluate(() => document.activeElement.getBoundingClientRect().top);
  assert(before > 0 && before < 900, String(before));
  await page.keyboard.press("n");
  await page.keyboard.press("p");
  assert.strictEqual(await focused(page), one);
  await page.keyboard.press("j");
  const two = await focused(page);
  assert(two !== one && two.startsWith("session-refund-small"), two);
  await page.keyboard.press("k");
  assert.strictEqual(await focused(page), one);
  const isOpen = () => page.evaluate(() => document.activeElement.parentElement.open);
  const was = await isOpen();
  await page.keyboard.press("Enter");
  assert.strictEqual(await isOpen(), !was);

  // An address leads to what is folded away and filtered out.
  await page.locator("nav button[data-filter=fail]").click();
  await page.evaluate(() => { location.hash = "session-vague-03"; });
  await page.waitForFunction(() => document.getElementById("session-vague-03").open);
  assert(await page.locator("#session-vague-03").isVisible());

  // On paper: what failed is unfolded, whoever passed is a line.
  const paper = await open(1300, "dark");
  const unfolded = () => paper.evaluate(() => [...document.querySelectorAll(".session[open]")].map((s) => s.dataset.outcome));
  assert((await unfolded()).length < 15);
  assert((await paper.pdf({ format: "A4" })).length > 10000);
  assert.deepStrictEqual(await unfolded(), Array(15).fill("fail"));

  for (const [width, scheme] of [[1300, "dark"], [420, "light"], [420, "dark"], [320, "light"]]) {
    const narrow = await open(width, scheme);
    const wide = await narrow.evaluate(() => document.documentElement.scrollWidth);
    assert(wide <= width, `${wide} of ${width}`);
    const tones = await narrow.evaluate(() => ["color", "backgroundColor"].map((p) => getComputedStyle(document.body)[p]));
    const light = (tone) => tone.match(/\d+/g).slice(0, 3).reduce((sum, n) => sum + Number(n), 0) > 382;
    assert.strictEqual(light(tones[1]), scheme === "light", tones[1]);
    assert.notStrictEqual(light(tones[0]), light(tones[1]));
    await narrow.close();
  }
  await browser.close();
  console.log("done");
})().catch((error) => { console.error(error); process.exit(1); });
"##;

#[test]
fn filter_search_keys_and_paper_work_in_a_browser() {
    let Some(server) = Server::shared() else { return };
    let site = site();
    let shop = Shop::recorded(&site);
    shop.break_agent();
    shop.gate(&[]).exits(1);
    for (from, to) in [("baseline", "old"), ("gate-out/traces", "new")] {
        std::fs::create_dir(site.work().join(to)).unwrap();
        for entry in std::fs::read_dir(site.work().join(from)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let Some(id) = name.strip_suffix(".1.tar.zst") else { continue };
            for copy in 0..COPIES {
                let target = site.work().join(to).join(format!("{id}-{copy:02}.1.tar.zst"));
                std::fs::copy(&path, target).unwrap();
            }
        }
    }
    site.call(&["compare", "old", "new", "--out", "many", "-q"]).exits(1);
    let chromium = program("chromium").expect("chromium is missing: apt-get install chromium");
    let mut node = Command::new(program("node").unwrap());
    node.args(["-e", DRIVE, "--"]).arg("x").arg(chromium).arg(site.work().join("many/report.html"));
    node.env_clear().env("NODE_PATH", server.packages().join("node_modules")).env("HOME", site.home());
    let done = node.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(String::from_utf8_lossy(&done.stdout), "done\n", "{said}");
}
