/**
 * A job that failed, waits, is taken again and completes: RES.DLQ beside BullMQ. Measured is the CPU time of the server's main
 * thread per job, from the failure to the end. What comes before, that the source delivered it, is not counted on either side:
 * BullMQ's jobs were added and taken, ours come with FAIL.
 *
 * Both sides have one connection and as many calls under way at a time, once as the client sends them by itself, and once in its
 * pipelines (ioredis' enableAutoPipelining, for both). By itself it sends about 4 of our commands with a packet and about 10 of
 * BullMQ's, so that the first form counts packets too.
 *
 * Usage: node ledger.mjs OURS_PORT OURS_PID PLAIN_PORT PLAIN_PID ROUNDS JOBS. Prints JSON: microseconds per job, round by round.
 */
import { readFileSync } from 'node:fs';
import { Queue, Worker } from 'bullmq';
import Redis from 'ioredis';
import { inTurns } from './turns.mjs';

const AT_ONCE = 50;
const DELAY_MS = 100;
const DUE_MS = 700; // ours: full jitter up to 500 ms
const [oursPort, oursPid, plainPort, plainPid, rounds, jobs] = process.argv.slice(2).map(Number);
const payload = JSON.stringify({ order: 'x'.repeat(488) });

const cpuUs = (pid) => Number(readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ')[0]) / 1_000;
const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

/** Every item once, a few at a time; the CPU time that this took the server. */
async function each(pid, items, work) {
  const before = cpuUs(pid);
  let next = 0;
  await Promise.all(Array.from({ length: AT_ONCE }, async () => {
    while (next < items.length) {
      const item = items[next];
      next += 1;
      await work(item);
    }
  }));
  await sleep(2);
  return cpuUs(pid) - before;
}

function must(isSo, said) {
  if (!isSo) throw new Error(`not as expected: ${JSON.stringify(said)}`);
}

async function ours(redis) {
  await redis.flushall('SYNC');
  const ids = Array.from({ length: jobs }, (_, number) => `job-${String(number).padStart(10, '0')}`);
  const taken = [];
  let us = await each(oursPid, ids, async (id) => {
    const said = await redis.call('RES.DLQ', 'FAIL', 'ledger', id, 'ERROR', 'timeout', 'PAYLOAD', payload, 'TYPE', 'order');
    must(said[0] === 'RETRY', said);
  });
  await sleep(DUE_MS);
  us += await each(oursPid, ids, async (id) => {
    const said = await redis.call('RES.DLQ', 'TAKE', 'ledger', id, '30s');
    must(said[0] === 'TAKEN', said);
    taken.push(said[3][0]);
  });
  us += await each(oursPid, taken, async ([id, fence]) => {
    const said = await redis.call('RES.DLQ', 'DONE', 'ledger', id, fence);
    must(said[0] === 'DONE', said);
  });
  return us / jobs;
}

async function bullmq(redis, queue, worker) {
  await redis.flushall('SYNC');
  const numbers = Array.from({ length: jobs }, (_, number) => number);
  const options = { attempts: 5, backoff: { type: 'fixed', delay: DELAY_MS }, removeOnComplete: true };
  for (let from = 0; from < jobs; from += 1_000) {
    await queue.addBulk(numbers.slice(from, from + 1_000).map(() => ({ name: 'order', data: { payload }, opts: options })));
  }
  const take = async (into, number) => {
    const job = await worker.getNextJob(`token-${number}`, { block: false });
    must(job, 'no job');
    into.push([job, `token-${number}`]);
  };
  const [first, second] = [[], []];
  await each(plainPid, numbers, (number) => take(first, number));
  let us = await each(plainPid, first, ([job, token]) => job.moveToFailed(new Error('timeout'), token, false));
  must((await queue.getDelayedCount()) === jobs, 'they wait');
  await sleep(DELAY_MS + 100);
  us += await each(plainPid, numbers, (number) => take(second, number));
  us += await each(plainPid, second, ([job, token]) => job.moveToCompleted('done', token, false));
  must((await queue.getJobCountByTypes('wait', 'active', 'delayed', 'failed', 'completed')) === 0, 'they are gone');
  return us / jobs;
}

/** The two ways with such connections. */
async function ways(enableAutoPipelining) {
  const [redis, plain] = [new Redis(oursPort, { enableAutoPipelining }), new Redis(plainPort)];
  const connection = { host: '127.0.0.1', port: plainPort, enableAutoPipelining };
  const queue = new Queue('jobs', { connection });
  const worker = new Worker('jobs', null, { connection, autorun: false, skipStalledCheck: true, skipLockRenewal: true });
  await Promise.all([queue.waitUntilReady(), worker.waitUntilReady()]);
  return [() => ours(redis), () => bullmq(plain, queue, worker)];
}

const [[oursAlone, bullmqAlone], [oursPipelined, bullmqPipelined]] = [await ways(false), await ways(true)];
console.log(JSON.stringify(await inTurns({ oursAlone, bullmqAlone, oursPipelined, bullmqPipelined }, rounds)));
process.exit(0);
