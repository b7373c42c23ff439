// The SDK for JavaScript by domain alone.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { Sandbox } from '@e2b/code-interpreter'
import { WebSocket } from 'undici'

const sandbox = await Sandbox.create({ timeoutMs: 120_000 })
assert.equal((await sandbox.commands.run('echo by name')).stdout, 'by name\n')
await sandbox.files.write('a.txt', 'text')
assert.equal(await (await fetch(await sandbox.downloadUrl('a.txt'))).text(), 'text')
assert.equal((await sandbox.runCode('6 * 7')).text, '42')

const host = sandbox.getHost(3000)
assert.equal(host, `3000-${sandbox.sandboxId}.${process.env.E2B_DOMAIN}`)
await sandbox.files.write('echo.py', fs.readFileSync(path.join(import.meta.dirname, 'echo.py'), 'utf8'))
await new Promise((listens) => {
  sandbox.commands.run('python3 echo.py', { background: true, onStdout: (line) => line.includes('listens') && listens() })
})
assert.equal(await (await fetch(`https://${host}/there`)).text(), `GET /there for ${host}`)
const socket = new WebSocket(`wss://${host}/socket`)
socket.binaryType = 'arraybuffer'
const heard = await new Promise((done, failed) => {
  socket.onerror = (event) => failed(event.error ?? new Error('no socket'))
  socket.onopen = () => socket.send('hello')
  socket.onmessage = (event) => done(event.data)
})
assert.equal(heard, 'hello')
socket.close()
await sandbox.kill()
process.exit(0)
