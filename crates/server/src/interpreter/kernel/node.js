// A JavaScript context: code in on stdin, what is to be shown out on descriptor 3. The evaluation is that of Node's own
// REPL: declarations stay, and `await` may stand at the top.
const fs = require("fs");
const repl = require("repl");
const readline = require("readline");
const util = require("util");
const { PassThrough, Writable } = require("stream");

const tell = (event) => fs.writeSync(3, JSON.stringify(event).replace(/[\u007f-\uffff]/g,
  (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0")) + "\n");
const nowhere = new Writable({ write(_chunk, _encoding, done) { done(); } });
const server = repl.start({ input: new PassThrough(), output: nowhere, prompt: "", terminal: false, useGlobal: true,
  ignoreUndefined: true });

const forms = (value) => {
  const found = {};
  if (value && typeof value === "object") {
    const html = typeof value._repr_html_ === "function" ? value._repr_html_() : undefined;
    if (html !== undefined) found.html = html;
    try { found.json = JSON.parse(JSON.stringify(value)); } catch { /* not everything can be */ }
  }
  found.text = typeof value === "string" ? value : util.inspect(value);
  return found;
};
globalThis.display = (value) => tell({ type: "result", ...forms(value), is_main_result: false });

let stop = null;
// Where the REPL catches what a cell throws, it would print it.
server._domain?.removeAllListeners("error");
server._domain?.on("error", (error) => { if (stop) stop(error); });
process.on("SIGINT", () => { if (stop) stop(new Error("interrupted")); });
process.on("uncaughtException", (error) => { if (stop) stop(error); });
process.on("unhandledRejection", (error) => { if (stop) stop(error); });

const run = (code) => new Promise((resolve, reject) => {
  stop = reject;
  server.eval(code.endsWith("\n") ? code : code + "\n", server.context, "cell", (error, value) =>
    (error ? reject(error.err ?? error) : resolve(value)));
});

// TypeScript as far as this Node can take its types away.
const plain = (code) => {
  try {
    return require("module").stripTypeScriptTypes?.(code) ?? code;
  } catch {
    return code;
  }
};

const queue = [];
let busy = false;
const next = async () => {
  if (busy || queue.length === 0) return;
  busy = true;
  const { code, envs } = queue.shift();
  const before = {};
  for (const [name, value] of Object.entries(envs ?? {})) {
    before[name] = process.env[name];
    process.env[name] = value;
  }
  try {
    const value = await run(plain(code));
    if (value !== undefined) tell({ type: "result", ...forms(value), is_main_result: true });
  } catch (error) {
    const known = error instanceof Error || (error && error.stack);
    tell({ type: "error", name: known ? error.name : "Error", value: known ? error.message : String(error),
      traceback: known ? String(error.stack) : String(error) });
  }
  stop = null;
  for (const [name, value] of Object.entries(before)) {
    if (value === undefined) delete process.env[name]; else process.env[name] = value;
  }
  tell({ type: "done" });
  busy = false;
  next();
};
readline.createInterface({ input: process.stdin }).on("line", (line) => { queue.push(JSON.parse(line)); next(); })
  .on("close", () => process.exit(0));
