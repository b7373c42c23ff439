// Templates over an image, by the SDK for JavaScript.
import assert from "node:assert"
import { Sandbox, Template } from "e2b"

const template = Template()
  .fromImage("app")
  .runCmd("echo installed > /usr/installed", { user: "root" })
  .setEnvs({ KIND: "built" })
await Template.build(template, "over-image-js")
const sandbox = await Sandbox.create("over-image-js", { timeoutMs: 120_000 })
const done = await sandbox.commands.run("cat /usr/installed /etc/release; echo $KIND $GREETING")
assert.equal(done.stdout, "installed\nsecond\nbuilt hello\n")
await sandbox.kill()
