/** A server that is away is no error. It is said, once. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import net from 'node:net';
import { test } from 'node:test';

import { connect } from 'resil';
import { settled, until } from './waiting.mjs';

/** A port where nobody listens. */
async function refusedPort() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  await new Promise((closed) => { server.close(closed); });
  return port;
}

test('a refused port gives one warning without the password', async () => {
  const warnings = [];
  const hear = (warning) => { if (warning.name === 'ResilWarning') warnings.push(warning); };
  process.on('warning', hear);
  const port = await refusedPort();
  const client = await connect(`redis://user:sEcReT@127.0.0.1:${port}`);
  await until(() => warnings.length > 0);
  // It is tried again about once a second.
  await assert.rejects(client.waitReady('2500ms'));
  process.off('warning', hear);
  assert.equal(warnings.length, 1);
  const [{ message, code }] = warnings;
  assert.ok(message.includes(`127.0.0.1:${port}`), message);
  assert.ok(/refused/i.test(message), message);
  assert.ok(!message.includes('sEcReT'), message);
  assert.equal(code, 'RESIL_AWAY');
  await client.shutdown(0);
});

test('the warning keeps no process alive', async () => {
  const port = await refusedPort();
  const script = `
    import { Worker } from 'node:worker_threads';
    import { connect } from 'resil';
    const client = await connect('redis://127.0.0.1:${port}');
    for (let at = 0; at < 6; at += 1) {
      const worker = new Worker("import('resil').then(({ connect }) => connect('redis://127.0.0.1:${port}')).then(() => { setInterval(() => {}, 1_000); })", { eval: true });
      setTimeout(() => worker.terminate(), 30 * at);
      await new Promise((gone) => worker.once('exit', gone));
    }
    console.log('done');`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], { cwd: new URL('.', import.meta.url), stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  child.stdout.on('data', (chunk) => { said += chunk; });
  child.stderr.on('data', (chunk) => { said += chunk; });
  const [code, signal] = await settled(once(child, 'exit'), 20_000);
  assert.deepEqual([code, signal], [0, null], said);
  assert.ok(said.includes('done') && said.includes('ResilWarning'), said);
});
