// What every version of the SDK for JavaScript is asked for.
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'

const sandbox = await Sandbox.create({ timeoutMs: 120_000, metadata: { of: 'core' }, envs: { NAME: 'world' } })
const result = await sandbox.commands.run('echo "hello $NAME"; echo err >&2')
assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['hello world\n', 'err\n', 0])
await assert.rejects(sandbox.commands.run('exit 3'), (error) => error.exitCode === 3)
await assert.rejects(sandbox.commands.run('sleep 60', { timeoutMs: 1000 }), { name: 'TimeoutError' })
const handle = await sandbox.commands.run('sleep 1000', { background: true })
assert((await sandbox.commands.list()).some((process) => process.pid === handle.pid))
assert.equal(await sandbox.commands.kill(handle.pid), true)
await assert.rejects(handle.wait())
assert.equal(await sandbox.commands.kill(handle.pid), false)

await sandbox.files.write('dir/a.txt', 'text')
assert.equal(await sandbox.files.read('dir/a.txt'), 'text')
assert.deepEqual((await sandbox.files.list('dir')).map((entry) => entry.name), ['a.txt'])
assert.equal(await sandbox.files.exists('dir/b.txt'), false)
await sandbox.files.rename('dir/a.txt', 'made/b.txt')
await sandbox.files.remove('dir')
await assert.rejects(sandbox.files.read('dir/a.txt'), { name: /NotFoundError/ })

const listed = await Sandbox.list().nextItems()
assert(listed.some((one) => one.sandboxId === sandbox.sandboxId))
const info = await sandbox.getInfo()
assert.deepEqual(info.metadata, { of: 'core' })
await sandbox.setTimeout(300_000)
assert((await sandbox.getInfo()).endAt > info.endAt)
assert.equal(await sandbox.isRunning(), true)

const again = await Sandbox.connect(sandbox.sandboxId)
assert.equal(await again.files.read('made/b.txt'), 'text')
await (again.pause ?? again.betaPause).call(again)
const woken = await Sandbox.connect(sandbox.sandboxId)
assert.equal(await woken.files.read('made/b.txt'), 'text')
assert.equal(await Sandbox.kill(woken.sandboxId), true)
assert.equal(await Sandbox.kill(woken.sandboxId), false)
assert.equal(await woken.isRunning(), false)
