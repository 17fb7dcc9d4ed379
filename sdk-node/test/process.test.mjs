/** A process with Resil in it: it ends by itself, its threads are on their own, and nothing leaks. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';

import { connect } from 'resil';
import { startServer } from './servers.mjs';
import { settled } from './waiting.mjs';

const cwd = fileURLToPath(new URL('.', import.meta.url));

/** Runs a module of its own process: what it wrote, and how it ended. */
function run(source, { args = [], flags = [], patienceMs } = {}) {
  const child = spawn(process.execPath, [...flags, '--input-type=module', '-e', source, '--', ...args], { cwd, stdio: ['ignore', 'pipe', 'pipe'] });
  let out = '';
  let err = '';
  child.stdout.on('data', (data) => { out += data; });
  child.stderr.on('data', (data) => { err += data; });
  const ended = new Promise((resolve) => child.on('close', (code, signal) => resolve({ code, signal, out, err })));
  return settled(ended, patienceMs).catch((error) => { child.kill('SIGKILL'); throw error; });
}

const SETUP = `
import { bulkhead, connect, handleAll, perSecond, retry, timeout, wrap } from 'resil';
const client = await connect(process.argv[1] ?? 'memory://');
`;

for (const place of ['in memory', 'on a server']) {
  test(`a process with open client and lock ends (${place})`, async () => {
    const args = place === 'in memory' ? [] : [(await startServer()).url];
    const { code, out, err } = await run(`${SETUP}
      const breaker = client.breaker('b');
      breaker.on('transition', () => {});
      await breaker.call(() => 1);
      const guard = await client.lock('left').acquire();
      guard.on('lost', () => {});
      await client.limiter('l', perSecond(5)).check('a');
      await client.cached('c').get('k', () => 1);
      console.log('end');
    `, { args });
    assert.deepEqual([code, out.trim(), err], [0, 'end', '']);
  });
}

test('a process stays only while somebody awaits a reply', async () => {
  const { code, out } = await run(`${SETUP}
    let runs = 0;
    const value = await retry({ on: handleAll, initialBackoff: 30, jitter: 'none' }).call(() => { if (++runs < 3) throw new Error('x'); return runs; });
    console.log(value);
    await timeout(30).call(() => new Promise(() => {})).catch((error) => console.log(error.code));
    client.breaker('b').call(() => new Promise(() => {}));
  `);
  assert.deepEqual([code, out.trim()], [0, '3\nTIMEOUT'], 'a function that waits for nothing keeps nobody here');
});

test('a process ends after a rush, even with endless calls', async () => {
  const { code, out, err } = await run(`${SETUP}
    const guards = [client.breaker('b'), retry({ on: handleAll }), bulkhead({ maxConcurrentCalls: 50 }), wrap(client.breaker('c'), timeout(50))];
    for (const guard of guards) {
      for (let at = 0; at < 100; at += 1) await guard.call(async () => 1);
      guard.call(() => new Promise(() => {})).catch((error) => console.log(error.code));
    }
  `);
  assert.deepEqual([code, out.trim(), err], [0, 'TIMEOUT', '']);
});

test('a process can be ended in the middle of everything', async () => {
  const { code } = await run(`${SETUP}
    for (let at = 0; at < 100; at += 1) client.lock('x').untilAcquired().catch(() => {});
    retry({ on: handleAll }).call(() => { throw new Error('x'); }).catch(() => {});
    setTimeout(() => process.exit(7), 20);
  `);
  assert.equal(code, 7);
});

/** Every place where a function of the user's runs, with bye() in it. */
const CALLBACKS = {
  'a function under a breaker': "await client.breaker('b').call(() => bye())",
  'a function under a policy': "await client.policy('p', { timeout: { total: 1000 } }).call(async () => bye())",
  'a function under a lock': "await client.lock('l').call(() => bye())",
  'a function under a shared bulkhead': "await client.sharedBulkhead('s', 1).call(async () => { await null; bye(); })",
  'an idempotent run': "await client.idempotent('i').run('k', 'x', () => bye())",
  'a loader': "await client.cached('c').get('k', () => bye())",
  'an item of a batch': "await dispatcher(2).run([1, 2, 3], () => bye())",
  'a judge of errors': "await retry({ on: () => bye() }).call(() => { throw new Error('x'); })",
  'a fallback': "await fallback(() => bye()).call(() => { throw new Error('x'); })",
  'a listener of a loss': "const held = await client.lock('l', { lease: 300 }).acquire(); held.on('lost', () => bye()); await client.lock('l').breakLock(); await new Promise((resolve) => setTimeout(resolve, 5000))",
  'a listener of an abort': "await client.lock('l', { lease: 300 }).call(({ signal }) => { signal.addEventListener('abort', () => bye()); client.lock('l').breakLock(); return new Promise((resolve) => setTimeout(resolve, 5000)); })",
  'a signal that is read': "await client.lock('l', { lease: 100, watchdog: false }).call(({ signal }) => { signal.addEventListener('abort', () => bye()); const end = performance.now() + 150; while (performance.now() < end); void signal.aborted; })",
  'a listener of a transition': "const breaker = client.breaker('b', { consecutiveFailures: 1 }); breaker.on('transition', () => bye()); await breaker.call(() => { throw new Error('x'); }).catch(() => {}); await new Promise((resolve) => setTimeout(resolve, 5000))",
  'a serializer': "await client.idempotent('i', { serializer: { serialize: () => bye(), deserialize: () => 1 } }).run('k', 'x', () => 1)",
  'what remembers errors': "await client.idempotent('i', { remember: { isFinal: () => bye() } }).run('k', 'x', () => { throw new Error('x'); })",
  'a getter of the settings': "client.lock('l', { get lease() { return bye(); } })",
};

for (const [place, source] of Object.entries(CALLBACKS)) {
  test(`a process can end in ${place}`, async () => {
    const { code, signal, err } = await run(`import { connect, dispatcher, fallback, retry } from 'resil';
      const client = await connect('memory://');
      const bye = () => process.exit(7);
      ${source};`);
    assert.deepEqual([code, signal, err], [7, null, '']);
  });
}

test('a thread can end in each of them', { timeout: 120_000 }, async () => {
  const ends = { 'process.exit': 'process.exit(7)', error: "(() => { throw new Error('uncaught on purpose'); })()", outside: "(parentPort.postMessage('here'), Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0))" };
  for (const source of Object.values(CALLBACKS)) {
    for (const [how, end] of Object.entries(ends)) {
      const worker = new Worker(`
        const { parentPort } = require('node:worker_threads');
        const { connect, dispatcher, fallback, retry } = require('resil');
        const bye = () => ${end};
        (async () => {
          const client = await connect('memory://ends');
          const others = [client.lock('others').acquire(), client.lock('others').untilAcquired(), client.cached('others').get('k', () => new Promise(() => {}))];
          for (const other of others) other.catch(() => {});
          await others[0];
          ${source};
        })().catch(() => {}).finally(() => process.exit(7));
      `, { eval: true });
      const ended = new Promise((resolve) => { worker.once('exit', resolve); worker.on('error', () => {}); });
      if (how === 'outside') {
        await settled(Promise.race([new Promise((resolve) => worker.once('message', resolve)), ended]));
        await settled(worker.terminate());
      }
      await settled(ended);
    }
  }
  const client = await connect('memory://ends');
  assert.equal(await settled(client.lock('mine').call(async () => 'still here')), 'still here');
  await client.shutdown(0);
});

const WORKER = `
const { parentPort, workerData } = require('node:worker_threads');
const { connect, perHour, retry, handleAll } = require('resil');
(async () => {
  const client = await connect(workerData.url);
  const limiter = client.limiter('shared', perHour(10));
  let granted = 0;
  for (let at = 0; at < 10; at += 1) granted += (await limiter.check('all')).granted;
  const value = await retry({ on: handleAll, initialBackoff: 1 }).call(({ attempt }) => { if (attempt < 2) throw new Error('x'); return attempt; });
  const fence = await client.lock('one').call(async ({ fence }) => { await new Promise(setImmediate); return fence; });
  parentPort.postMessage({ granted, value, fence });
  if (workerData.hangs) client.lock('one').untilAcquired().then(() => client.lock('one').untilAcquired());
})();
`;

function inWorker(workerData) {
  const worker = new Worker(WORKER, { eval: true, workerData });
  const said = new Promise((resolve, reject) => { worker.once('message', resolve); worker.once('error', reject); });
  const ended = new Promise((resolve) => worker.once('exit', resolve));
  return { worker, said, ended };
}

test('threads share a named store, not their functions', async () => {
  const workers = Array.from({ length: 3 }, () => inWorker({ url: 'memory://threads' }));
  const said = await settled(Promise.all(workers.map((one) => one.said)));
  assert.equal(said.reduce((sum, one) => sum + one.granted, 0), 10);
  assert.ok(said.every((one) => one.value === 2));
  assert.equal(new Set(said.map((one) => one.fence)).size, 3, 'one at a time, each with a fence of its own');
  await settled(Promise.all(workers.map((one) => one.ended)));
});

test('a thread that ends in a wait takes nobody along', async () => {
  for (let round = 0; round < 5; round += 1) {
    const { worker, said } = inWorker({ url: `memory://ended${round}`, hangs: true });
    await settled(said);
    await settled(worker.terminate());
  }
});

/** What five thousand calls of a kind may leave behind in each of three rounds: not an object for each. */
const HEAP_GROWTH_MAX = 256 * 1024;
/** The same of the whole process, whose allocator takes pages by the megabyte. */
const RSS_GROWTH_MAX = 4 * 1024 * 1024;

test('a thread that ends in a rush returns its permits', async () => {
  const client = await connect('memory://rush');
  for (let round = 0; round < 3; round += 1) {
    const worker = new Worker(`
      const { parentPort } = require('node:worker_threads');
      const { bulkhead, connect, timeout, wrap } = require('resil');
      (async () => {
        const client = await connect('memory://rush');
        const guard = wrap(client.breaker('b'), bulkhead({ maxConcurrentCalls: 100 }), timeout(10_000));
        for (let at = 0; at < 100; at += 1) await guard.call(async () => 1);
        for (let at = 0; at < 50; at += 1) guard.call(() => new Promise(() => {})).catch(() => {});
        parentPort.postMessage('rushing');
      })();
    `, { eval: true });
    await settled(new Promise((resolve, reject) => { worker.once('message', resolve); worker.once('error', reject); }));
    await settled(worker.terminate());
    assert.equal(await client.breaker('b').call(async () => 'here'), 'here');
  }
  assert.equal((await settled(client.shutdown('5s'))).isClean, true);
});

test('a hundred thousand calls of one turn keep nothing', async () => {
  const { code, out, err } = await run(`${SETUP}
    const guard = wrap(client.breaker('b'), timeout(1000));
    const used = [];
    for (let at = 0; at < 150_000; at += 1) {
      await guard.call(async () => 1);
      if (at % 50_000 === 49_999) { globalThis.gc(); used.push(process.memoryUsage().heapUsed); }
    }
    console.log(used[2] - used[0]);
  `, { flags: ['--expose-gc'] });
  assert.equal(code, 0, err);
  assert.ok(Number(out) < HEAP_GROWTH_MAX, `${out} bytes of the heap`);
});

test('a quarter of a million calls leave nothing behind', { timeout: 240_000 }, async (context) => {
  const { code, out, err } = await run(`${SETUP}
    const CALLS = 5_000;
    const retries = retry({ on: handleAll, initialBackoff: 1, budget: null, maxAttempts: 2, jitter: 'none' });
    const never = client.cached('n', { ttl: 60_000 });
    const idempotent = client.idempotent('i', { keep: 1000 });
    const breaker = client.breaker('b', { consecutiveFailures: 0, failureRate: 0, slowCallRate: 100, slowCallDuration: 60_000 });
    const second = timeout(1000);
    const places = bulkhead({ maxConcurrentCalls: 3 });
    const chain = wrap(retries, client.breaker('chain'), places, second);
    const lock = client.lock('l');
    const limiter = client.limiter('m', perSecond(1));
    const controller = new AbortController();
    const kinds = {
      breaker: () => breaker.call(async () => 1),
      rush: () => chain.call(async () => 1),
      outlasting: () => chain.call(() => new Promise((resolve) => setImmediate(resolve))),
      bulkhead: () => places.call(async () => 1),
      failing: () => breaker.call(() => { throw new Error('x'); }).catch(() => {}),
      timeout: () => second.call(({ signal }) => signal.aborted),
      guards: () => timeout(1000).call(() => 1),
      signal: () => retries.call(() => 1, { signal: controller.signal }),
      refused: () => limiter.acquire('k').catch(() => {}),
      cached: () => never.get('k', () => 1),
      notFound: () => never.get('none', () => null),
      lock: async () => { await (await lock.acquire()).release(); },
      aborted: () => { const own = new AbortController(); const call = retries.call(() => new Promise(() => {}), { signal: own.signal }).catch(() => {}); own.abort(); return call; },
    };
    const settle = async () => { for (let at = 0; at < 5; at += 1) { globalThis.gc(); await new Promise((resolve) => setTimeout(resolve, 10)); } };
    for (const [name, call] of Object.entries(kinds)) {
      const sizes = [];
      for (let round = 0; round < 4; round += 1) {
        for (let at = 0; at < CALLS; at += 1) await call();
        await settle();
        const { rss, heapUsed, external } = process.memoryUsage();
        sizes.push([rss, heapUsed + external]);
      }
      // What is forgotten grows in every round; what the engine takes for itself does not.
      const least = (which) => Math.min(...sizes.slice(1).map((size, at) => size[which] - sizes[at][which]));
      console.log(name, least(0), least(1));
    }
  `, { flags: ['--expose-gc'], patienceMs: 220_000 });
  assert.equal(code, 0, err);
  const lines = out.trim().split('\n').map((line) => line.split(' '));
  assert.equal(lines.length, 13);
  for (const [name, rss, heap] of lines) {
    context.diagnostic(`${name}: ${(Number(rss) / 1024).toFixed(0)} KiB of the process, ${(Number(heap) / 1024).toFixed(0)} KiB of the heap`);
    assert.ok(Number(rss) < RSS_GROWTH_MAX, `${name} left ${rss} bytes of the process in every round`);
    assert.ok(Number(heap) < HEAP_GROWTH_MAX, `${name} left ${heap} bytes of the heap in every round`);
  }
});

test('a listener’s exception is uncaught, and others are notified', async () => {
  const { code, out, err } = await run(`${SETUP}
    process.on('uncaughtException', (error) => console.log('uncaught', error.message));
    const breakers = ['broken', 'well'].map((name) => client.breaker(name, { consecutiveFailures: 1 }));
    breakers[0].on('transition', () => { throw new Error('of mine'); });
    breakers[1].on('transition', ({ new: state }) => console.log('heard', state));
    for (const breaker of breakers) await breaker.call(() => { throw new Error('down'); }).catch(() => {});
    await new Promise((resolve) => setTimeout(resolve, 500));
    await client.shutdown();
  `);
  assert.equal(code, 0, err);
  assert.match(out, /uncaught of mine/);
  assert.match(out, /heard open/);
});
