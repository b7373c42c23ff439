// The life of sandboxes by the SDK for JavaScript, and what of files, commands and terminals the other script leaves out.
import assert from 'node:assert/strict'
import { Sandbox, Secret, Template, Volume } from 'e2b'
import { Sandbox as Interpreter } from '@e2b/code-interpreter'

const until = async (holds) => {
  for (let n = 0; n < 1200 && !(await holds()); n++) await new Promise((done) => setTimeout(done, 50))
  assert(await holds())
}
const all = async (pages) => {
  const found = []
  while (pages.hasNext) found.push(...(await pages.nextItems()))
  return found
}
const ids = async (opts) => (await all(Sandbox.list(opts))).map((one) => one.sandboxId)

// Lists.
const first = await Sandbox.create({ timeoutMs: 300_000, metadata: { kind: 'listed' } })
const between = new Date()
const second = await Sandbox.create('code-interpreter-v1', { timeoutMs: 300_000, metadata: { kind: 'listed' } })
const both = [second.sandboxId, first.sandboxId]
const query = { metadata: { kind: 'listed' } }
assert.deepEqual(await ids({ query, limit: 1 }), both)
assert.deepEqual(await ids({ query, limit: 1, order: 'asc' }), [...both].reverse())
assert.deepEqual(await ids({ query: { startedAfter: between } }), both.slice(0, 1))
assert.deepEqual(await ids({ query: { template: 'base' } }), both.slice(1))
await first.pause()
assert.deepEqual(await ids({ query: { state: ['paused'] } }), both.slice(1))
await second.kill()
const sandbox = await Sandbox.connect(first.sandboxId, { timeoutMs: 300_000 })
const metrics = await sandbox.getMetrics()
assert(metrics.at(-1).memUsed > 0)

// Paused when its time is over, and woken by whoever asks.
const light = await Sandbox.create({ timeoutMs: 2_000, lifecycle: { onTimeout: 'pause', autoResume: true } })
await light.files.write('kept', '1')
await until(async () => (await light.getInfo()).state === 'paused')
assert.equal(await light.files.read('kept'), '1')
await light.kill()

// Snapshots and copies.
await sandbox.files.write('state', 'then')
const snapshot = await sandbox.createSnapshot({ name: 'then-js' })
await sandbox.files.write('state', 'now')
assert.deepEqual((await all(sandbox.listSnapshots())).map((one) => one.snapshotId), [snapshot.snapshotId])
const copy = await Sandbox.create('then-js', { timeoutMs: 60_000 })
assert.equal(await copy.files.read('state'), 'then')
await copy.kill()
assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false)
const forks = await sandbox.fork({ count: 2 })
assert.deepEqual(await Promise.all(forks.map((fork) => fork.files.read('state'))), ['now', 'now'])
await Promise.all(forks.map((fork) => fork.kill()))

// What it may reach.
await sandbox.updateNetwork({ allowOut: ['docs.example.com'], denyOut: ['0.0.0.0/0'] })
assert.deepEqual((await sandbox.getInfo()).network.allowOut, ['docs.example.com'])

// Commands: listened to again by their number; where, as whom and with what.
const slow = await sandbox.commands.run('read line; echo got $line', { background: true, stdin: true })
const heard = await sandbox.commands.connect(slow.pid)
await sandbox.commands.sendStdin(slow.pid, 'again\n')
assert.equal((await heard.wait()).stdout, 'got again\n')
const pieces = []
const ran = await sandbox.commands.run('pwd; echo $MINE; echo err >&2', {
  cwd: '/tmp', envs: { MINE: '2' }, onStdout: (piece) => { pieces.push(piece) }, onStderr: (piece) => { pieces.push(piece) },
})
assert.equal(ran.stdout, '/tmp\n2\n')
assert(pieces.join('').includes('err'))
const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: () => {} })
await sandbox.pty.resize(terminal.pid, { cols: 120, rows: 50 })
let seen = ''
const watching = await sandbox.pty.connect(terminal.pid, { onData: (data) => { seen += new TextDecoder().decode(data) } })
await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('stty size\n'))
await until(() => seen.includes('50 120'))
assert.equal(await sandbox.pty.kill(terminal.pid), true)
await assert.rejects(watching.wait())

// Files.
await sandbox.files.writeFiles([{ path: 'd/one', data: '1' }, { path: 'd/two', data: new Blob(['2']) }])
assert.equal(await sandbox.files.exists('d/one'), true)
const info = await sandbox.files.rename('d/one', 'd/deep/three')
assert.equal(info.path, '/home/user/d/deep/three')
assert.deepEqual((await sandbox.files.getInfo('d/two')).size, 1)
assert.deepEqual((await sandbox.files.list('d', { depth: 2 })).map((entry) => entry.name), ['deep', 'three', 'two'])
await sandbox.files.remove('d')
assert.equal(await sandbox.files.exists('d'), false)
await sandbox.files.write('noted', 'x', { metadata: { colour: 'blue' } })
assert.deepEqual((await sandbox.files.getInfo('noted')).metadata, { colour: 'blue' })
const big = new Uint8Array(3_000_000).map((_, at) => at % 251)
await sandbox.files.write('big', new Blob([big]).stream(), { useOctetStream: true })
let size = 0
for await (const piece of await sandbox.files.read('big', { format: 'stream' })) size += piece.length
assert.equal(size, big.length)
assert.deepEqual(await sandbox.files.read('big', { format: 'bytes' }), big)
await sandbox.files.write('packed', 'packs well '.repeat(10_000), { gzip: true })
assert.equal((await sandbox.files.read('packed', { gzip: true })).length, 110_000)
const part = await fetch(await sandbox.downloadUrl('big'), { headers: { Range: 'bytes=5-9' } })
assert.deepEqual([part.status, new Uint8Array(await part.arrayBuffer())], [206, big.slice(5, 10)])
const sent = await fetch(await sandbox.uploadUrl('sent'), { method: 'POST', body: 'by link', headers: { 'Content-Type': 'application/octet-stream' } })
assert.equal(sent.status, 200)
assert.equal(await sandbox.files.read('sent'), 'by link')
await sandbox.git.init('/home/user/repo')
await sandbox.git.configureUser('Ada', 'ada@example.com')
await sandbox.files.write('repo/file', '1')
await sandbox.git.add('/home/user/repo')
await sandbox.git.commit('/home/user/repo', 'first')
assert.deepEqual((await sandbox.git.status('/home/user/repo')).fileStatus, [])
await sandbox.kill()

// Secrets, volumes, templates.
await Secret.create('of-js', 'sk-value-of-js-0123456789', { metadata: { hosts: 'api.example.com' } })
assert.equal(await Secret.exists('of-js'), true)
assert.equal(await Secret.destroy('of-js'), true)
const volume = await Volume.create('of-js')
await volume.writeFile('/in.txt', 'from outside')
const mounted = await Sandbox.create({ timeoutMs: 60_000, volumeMounts: { '/data': volume } })
assert.equal((await mounted.commands.run('cat /data/in.txt; echo from inside > /data/out.txt')).stdout, 'from outside')
assert.equal(await volume.readFile('/out.txt'), 'from inside\n')
await mounted.kill()
assert.equal(await Volume.destroy(volume.volumeId), true)
const template = Template().fromTemplate('base').runCmd('echo built > made').setEnvs({ KIND: 'built' })
await Template.build(template, 'of-js')
const made = await Sandbox.create('of-js', { timeoutMs: 60_000 })
assert.equal((await made.commands.run('cat made; echo $KIND')).stdout, 'built\nbuilt\n')
await made.kill()

// Contexts of the interpreter.
const interpreter = await Interpreter.create({ timeoutMs: 120_000 })
const context = await interpreter.createCodeContext({ language: 'python', cwd: '/tmp' })
assert.equal((await interpreter.runCode('y = 1\nimport os; os.getcwd()', { context })).text, '/tmp')
await interpreter.restartCodeContext(context)
assert.equal((await interpreter.runCode('y', { context })).error.name, 'NameError')
await interpreter.removeCodeContext(context)
assert.equal((await interpreter.runCode('1 + 1', { language: 'js' })).text, '2')
assert.deepEqual((await interpreter.runCode('echo b', { language: 'bash' })).logs.stdout, ['b\n'])
await assert.rejects(interpreter.runCode('while True: pass', { timeoutMs: 1_000 }))
assert.equal((await interpreter.runCode('"free again"')).text, 'free again')
await interpreter.kill()
