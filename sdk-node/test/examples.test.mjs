/**
 * Every example keeps its promises: in memory, on a real server, and as the program that a newcomer runs.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { Servers } from '../../tests/harness/servers.mjs';

const BOUND = { timeout: 120_000 };
const here = path.dirname(fileURLToPath(import.meta.url));
const examples = path.resolve(here, '../../examples/node');

/** What `npm install` would do there, with what is installed here. */
function install() {
  const modules = path.join(examples, 'node_modules');
  mkdirSync(modules, { recursive: true });
  for (const [name, place] of [['resil', path.resolve(here, '..')], ['express', path.resolve(here, '../node_modules/express')], ['pg', path.resolve(here, '../node_modules/pg')]]) {
    if (!existsSync(path.join(modules, name))) symlinkSync(place, path.join(modules, name), 'dir');
  }
}

const judges = {
  payments(seen) {
    assert.deepEqual([seen.outcomes.length, seen.replays, seen.paymentsAfterDuplicates], [100, 99, 1], 'one of them pays');
    assert.ok(seen.outcomes.every(({ value }) => value.number === 1 && value.cents === 700));
    assert.equal(seen.mismatch, 'IDEMPOTENCY_MISMATCH');
    assert.equal(seen.refusedFences.length, 1, 'one write was refused');
    assert.ok(seen.refusedFences[0][0] < seen.refusedFences[0][1]);
    assert.ok(['LOCK_LOST', 'StaleFence'].includes(seen.outcome), `who slept over its lease has not paid: ${seen.outcome}`);
    assert.deepEqual([seen.meanwhile.replayed, seen.meanwhile.value.cents], [false, 500]);
    assert.deepEqual([seen.sleeperAgain.replayed, seen.sleeperAgain.value.cents], [false, 900], 'it is paid under a new lease');
    assert.deepEqual([seen.afterCrash.attempt, seen.afterCrash.replayed], [2, false]);
    assert.deepEqual([seen.payments, seen.balance], [4, 100_000 - 700 - 500 - 900 - 300]);
  },
  http_api(seen) {
    assert.deepEqual(seen.free.map(({ status }) => status), [200, 200, 200, 200, 200, 429, 429], 'five a minute, from any process');
    assert.ok(seen.pro.every(({ status }) => status === 200));
    seen.free.forEach(({ status, headers }, index) => {
      assert.equal(headers['ratelimit-policy'], '"free";q=5;w=60');
      assert.equal(headers['x-ratelimit-remaining'], String(Math.max(4 - index, 0)));
      assert.equal('retry-after' in headers, status === 429, 'only who is refused learns when');
    });
    assert.match(seen.free[5].body, /RATE_LIMIT_EXCEEDED/);
    assert.deepEqual([seen.withoutKey.status, seen.first.status, seen.whileRunning.status], [400, 201, 409]);
    assert.ok('retry-after' in seen.whileRunning.headers);
    assert.deepEqual([seen.again.status, seen.again.body], [201, seen.first.body], 'the first reply again');
    assert.deepEqual([seen.first.headers['idempotency-replayed'], seen.again.headers['idempotency-replayed']], [undefined, 'true']);
    assert.deepEqual([seen.otherBody.status, seen.shipped], [422, 1]);
  },
  order_service(seen) {
    assert.deepEqual(seen.charged, [...Array(20).keys()].map((order) => 100 + order), 'each once');
    assert.equal(seen.dead.length, 1);
    assert.match(seen.dead[0], /JSON/);
  },
  slow_store(seen) {
    const isTea = (cents) => (product) => product.name === 'tea' && product.cents === cents;
    assert.deepEqual([seen.first.length, seen.loadsFirst], [1_000, 1]);
    assert.ok(seen.first.every(isTea(420)));
    assert.ok(seen.stale === 100 || seen.staleTookMs >= 300, `nobody waits: ${seen.stale}, ${seen.staleTookMs}`);
    assert.equal(seen.loadsStale, 1, 'one loads it anew');
    assert.ok(seen.afterCommit.every(isTea(450)));
    assert.deepEqual([seen.unknown, seen.loadsUnknown], [200, 1]);
    assert.ok(isTea(450)(seen.servedWhileDown));
    assert.deepEqual([seen.failed, seen.loadsWhileDown], [200, 2], 'one load of each product');
  },
};

describe('examples', () => {
  let servers;
  before(install);
  after(() => servers?.close());
  for (const [example, judge] of Object.entries(judges)) {
    const program = path.join(examples, `${example}.mjs`);
    for (const place of ['memory', 'server']) {
      test(`${example} keeps its promises, ${place}`, BOUND, async () => {
        const url = place === 'memory' ? 'memory://' : (await (servers ??= new Servers()).start()).url;
        const { story } = await import(pathToFileURL(program));
        judge(await story(url));
      });
    }
    test(`a newcomer runs ${example} without a server`, BOUND, async () => {
      const { RESIL_URL, ...env } = process.env;
      const { stdout } = await promisify(execFile)(process.execPath, [program], { env, timeout: 100_000 });
      assert.ok(stdout.split('\n').length >= 5, `it tells a story: ${stdout}`);
    });
  }

  test('an outbox is worked off while its database restarts', BOUND, async () => {
    servers ??= new Servers();
    const [server, postgres] = [await servers.start(), await servers.postgres()];
    const { story } = await import(pathToFileURL(path.join(examples, 'order_service.mjs')));
    const seen = await story(server.url, { postgres: postgres.url, restart: () => postgres.restart() });
    judges.order_service(seen);
    assert.ok(seen.connections >= 2, 'it was away, and came back by itself');
  });

  test('orders go through an outbox and a broker that restarts', BOUND, async () => {
    servers ??= new Servers();
    const [server, postgres, rabbit] = [await servers.start(), await servers.postgres(), await servers.rabbit()];
    const { story } = await import(pathToFileURL(path.join(examples, 'order_service.mjs')));
    const restart = async (queue) => {
      for (const name of [queue, `${queue}.dead`]) await rabbit.waitUntilRegistered(name);
      await rabbit.restart();
    };
    const seen = await story(server.url, { postgres: postgres.url, rabbit: rabbit.url, restart });
    judges.order_service(seen);
    assert.ok(seen.connections >= 2, 'the broker was away, and the worker came back by itself');
  });
});
