/**
 * A lock that goes from hand to hand: 16 contenders, each with a connection of its own, in one process. Measured is how long
 * each waits from asking to holding. Redlock with its defaults, but that it never gives up.
 */
import Redis from 'ioredis';
import Redlock from 'redlock';
import { connect } from 'resil';
import { bar, inTurns, median, percentile, ratio, table } from './turns.mjs';

const CONTENDERS = 16;
const HOLD_MS = 2;
const LEASE_MS = 10_000;
const BAR = 0.1;
const RAW_BAR = 1.2;

async function contend(hands, ms) {
  const end = performance.now() + ms;
  const waits = [];
  await Promise.all(hands.map(async (acquire) => {
    for (let asked = performance.now(); asked < end; asked = performance.now()) {
      const release = await acquire();
      waits.push(performance.now() - asked);
      await new Promise((resolve) => { setTimeout(resolve, HOLD_MS); });
      await release();
    }
  }));
  return waits;
}

export async function locks({ ours, plain, rounds, ms }) {
  const clients = await Promise.all(Array.from({ length: CONTENDERS }, () => connect(ours)));
  const redis = Array.from({ length: CONTENDERS }, () => new Redis(plain));
  const raw = Array.from({ length: CONTENDERS }, () => new Redis(ours));
  const hands = {
    'resil: lock.acquire': clients.map((client) => {
      const lock = client.lock('bench', { lease: LEASE_MS, wait: '60s' });
      return async () => {
        const held = await lock.acquire();
        return () => held.release();
      };
    }),
    'RES.LOCK by ioredis': raw.map((client, owner) => async () => {
      await client.call('RES.LOCK', 'ACQUIRE', 'bench-raw', owner, LEASE_MS, 'WAIT', '60s');
      return () => client.call('RES.LOCK', 'RELEASE', 'bench-raw', owner);
    }),
    'node-redlock': redis.map((client) => {
      const redlock = new Redlock([client], { retryCount: 1_000_000 });
      return async () => {
        const held = await redlock.lock('bench-redlock', LEASE_MS);
        return () => held.unlock();
      };
    }),
  };
  const all = Object.fromEntries(Object.keys(hands).map((name) => [name, { p50: [], mean: [], served: [] }]));
  const ways = Object.fromEntries(Object.entries(hands).map(([name, each]) => [name, async () => {
    const waits = await contend(each, ms);
    all[name].p50.push(percentile(waits, 50));
    all[name].served.push((waits.length * 1_000) / ms);
    return percentile(waits, 99);
  }]));
  for (const each of Object.values(hands)) await contend(each, 300); // warm
  const found = await inTurns(ways, rounds);
  for (const client of clients) await client.shutdown(0);
  for (const client of [...redis, ...raw]) client.disconnect();
  const [us, same, peer] = Object.keys(hands);
  const rows = Object.keys(hands).map((name) => [
    name, median(found[name]).toFixed(1), median(all[name].p50).toFixed(1), median(all[name].served).toFixed(0), name === us ? '' : `${ratio(found, us, name).toFixed(3)}x`,
  ]);
  const bars = [[same, RAW_BAR], [peer, BAR]].map(([other, most]) => {
    const times = ratio(found, us, other);
    return bar(`p99 wait of ${CONTENDERS} contenders at most ${most}x ${other}`, `${times.toFixed(3)}x`, times <= most);
  });
  return { title: `A lock from hand to hand, ${CONTENDERS} contenders, held ${HOLD_MS} ms each`, table: table(['', 'p99 wait ms', 'p50 wait ms', 'held/s', 'ours beside it'], rows), bars };
}
