/**
 * Fake timers: those of Node's own test runner, and those that Jest and Vitest use. What Resil does goes on by the real time, unless a `clock` is given; then
 * it goes by that one alone. Each in a process of its own: the runner of these tests needs its timers.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mock, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { settled } from './waiting.mjs';

const scene = fileURLToPath(new URL('./fake_timers_scene.mjs', import.meta.url));

for (const [which, name] of [['node', 'mock.timers of node:test'], ['sinon', 'the fake timers of Jest and Vitest']]) {
  test(`calls end and clocks advance with ${name} in place`, { skip: which === 'node' && mock.timers === undefined && 'this Node has none' }, async () => {
    const child = spawn(process.execPath, [scene, which], { stdio: ['ignore', 'pipe', 'pipe'] });
    let [out, err] = ['', ''];
    child.stdout.on('data', (data) => { out += data; });
    child.stderr.on('data', (data) => { err += data; });
    const code = await settled(new Promise((resolve) => { child.on('close', resolve); }), 60_000).finally(() => child.kill('SIGKILL'));
    assert.deepEqual([code, out.trim()], [0, 'done'], err);
  });
}
