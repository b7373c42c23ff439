// The SDKs for JavaScript.
import assert from 'node:assert/strict'
import { Sandbox, FileNotFoundError } from 'e2b'
import { Sandbox as Interpreter } from '@e2b/code-interpreter'

const until = async (holds) => {
  for (let n = 0; n < 1200 && !holds(); n++) await new Promise((done) => setTimeout(done, 50))
  assert(holds())
}

const sandbox = await Sandbox.create({ timeoutMs: 120_000 })
const result = await sandbox.commands.run('echo out; echo err >&2')
assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['out\n', 'err\n', 0])
assert.equal((await sandbox.commands.run('id -un', { user: 'root' })).stdout, 'root\n')
await assert.rejects(sandbox.commands.run('exit 2'), (error) => error.exitCode === 2)
await assert.rejects(sandbox.commands.run('sleep 30', { timeoutMs: 1000 }), { name: 'TimeoutError' })

assert.equal((await sandbox.commands.run('sudo id -u; echo x | sudo tee /root/x; sudo -u user id -u')).stdout, '0\nx\n1000\n')
await assert.rejects(sandbox.commands.run('sudo sh -c "exit 3"'), (error) => error.exitCode === 3)

const handle = await sandbox.commands.run('read line; echo got $line', { background: true, stdin: true })
await sandbox.commands.sendStdin(handle.pid, 'hello\n')
assert.equal((await handle.wait()).stdout, 'got hello\n')
const sleeper = await sandbox.commands.run('sleep 1000', { background: true })
assert((await sandbox.commands.list()).some((process) => process.pid === sleeper.pid))
assert.equal(await sandbox.commands.kill(sleeper.pid), true)
await assert.rejects(sleeper.wait())
assert.equal(await sandbox.commands.kill(sleeper.pid), false)

await sandbox.files.write('a.txt', 'hello')
assert.equal(await sandbox.files.read('a.txt'), 'hello')
await sandbox.files.write('empty', '')
assert.equal(await sandbox.files.read('empty'), '')
await assert.rejects(sandbox.files.read('none'), FileNotFoundError)
assert.deepEqual((await sandbox.files.list('.')).map((entry) => entry.name), ['a.txt', 'empty'])
assert.equal(await sandbox.files.makeDir('d'), true)
assert.equal(await sandbox.files.makeDir('d'), false)
const events = []
const watch = await sandbox.files.watchDir('/home/user', (event) => events.push(event.type))
await sandbox.files.write('new', 'x')
await until(() => events.length >= 3)
assert.deepEqual(events, ['create', 'chmod', 'write'])
await watch.stop()
const signed = await fetch(await sandbox.downloadUrl('a.txt'))
assert.equal(await signed.text(), 'hello')

let seen = ''
const terminal = await sandbox.pty.create({
  cols: 80, rows: 24, onData: (data) => { seen += new TextDecoder().decode(data) },
})
await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('echo is-$((40+2)); exit\n'))
await terminal.wait()
assert(seen.includes('is-42'), seen)

assert.equal(await sandbox.kill(), true)
assert.equal(await sandbox.isRunning(), false)

const interpreter = await Interpreter.create({ timeoutMs: 120_000 })
const lines = []
const run = await interpreter.runCode('print("hé")\n6 * 7', { onStdout: (line) => { lines.push(line.line) } })
assert.deepEqual([run.text, run.logs.stdout, lines], ['42', ['hé\n'], ['hé\n']])
assert.equal((await interpreter.runCode('1/0')).error.name, 'ZeroDivisionError')
await interpreter.kill()
