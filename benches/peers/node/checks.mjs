/**
 * Rate limit checks per second from 64 tasks of one process, on 10,000 keys drawn at random, each granted. Ours on a server with
 * the module, the others on one without it. Every verdict is looked at.
 */
import Redis from 'ioredis';
import { RateLimiterRedis } from 'rate-limiter-flexible';
import { connect, perMinute } from 'resil';
import { bar, inTurns, median, ratio, table } from './turns.mjs';

const TASKS = 64;
const KEYS = 10_000;
const LIMIT = 1_000_000;
const BAR = 1.5;

/** The usual script: one number, the theoretical arrival time in microseconds. ARGV: emission interval, burst, cost. */
const GCRA = `
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local interval, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now)
local new_tat = tat + interval * cost
local allow_at = new_tat - interval * burst
if allow_at > now then
  return {0, math.floor((now - (tat - interval * burst)) / interval), math.ceil((allow_at - now) / 1000), math.ceil((tat - now) / 1000)}
end
redis.call('SET', KEYS[1], string.format('%.0f', new_tat), 'PX', math.ceil((new_tat - now) / 1000) + 1)
return {1, math.floor((now - allow_at) / interval), 0, math.ceil((new_tat - now) / 1000)}
`;

function scripted(client) {
  client.defineCommand('gcra', { numberOfKeys: 1, lua: GCRA });
  const interval = 60_000_000 / LIMIT;
  return async (key) => (await client.gcra(key, interval, LIMIT, 1))[0] === 1;
}

/** Checks per second, and the CPU time of this process for each. */
async function checksPerSecond(check, ms) {
  const before = process.cpuUsage();
  const started = performance.now();
  const end = started + ms;
  let count = 0;
  const task = async (seed) => {
    let state = seed;
    while (performance.now() < end) {
      state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
      if (!(await check(`user:${(state >>> 8) % KEYS}`))) throw new Error('a check was refused');
      count += 1;
    }
  };
  await Promise.all(Array.from({ length: TASKS }, (_, number) => task(number + 1)));
  const { user, system } = process.cpuUsage(before);
  return { rate: (count * 1_000) / (performance.now() - started), cpuUs: (user + system) / count };
}

export async function checks({ ours, plain, rounds, ms }) {
  const client = await connect(ours);
  const limiter = client.limiter('bench', perMinute(LIMIT));
  const [one, auto, raw, flexible] = [new Redis(plain), new Redis(plain, { enableAutoPipelining: true }), new Redis(ours), new Redis(plain)];
  const byFlexible = new RateLimiterRedis({ storeClient: flexible, points: LIMIT, duration: 60, keyPrefix: 'flexible' });
  const ways = {
    'resil: limiter.check': async (key) => (await limiter.check(key)).isGranted,
    'ioredis + Lua GCRA': scripted(one),
    'rate-limiter-flexible': async (key) => (await byFlexible.consume(key)).remainingPoints >= 0,
    'ioredis + Lua GCRA, auto-pipelining': scripted(auto),
    'ioredis, RES.GCRA by hand': async (key) => (await raw.call('RES.GCRA', `raw:${key}`, LIMIT, '60s'))[0] === 1,
  };
  for (const way of Object.values(ways)) await checksPerSecond(way, Math.min(ms, 500)); // warm
  const cpu = Object.fromEntries(Object.keys(ways).map((name) => [name, []]));
  const found = await inTurns(Object.fromEntries(Object.entries(ways).map(([name, way]) => [name, async () => {
    const { rate, cpuUs } = await checksPerSecond(way, ms);
    cpu[name].push(cpuUs);
    return rate;
  }])), rounds);
  await client.shutdown(1_000);
  for (const redis of [one, auto, raw, flexible]) redis.disconnect();

  const [us, ...others] = Object.keys(ways);
  const rows = Object.keys(ways).map((name) => [name, Math.round(median(found[name])).toLocaleString('en'), median(cpu[name]).toFixed(1), name === us ? '' : `${ratio(found, us, name).toFixed(2)}x`]);
  const bars = others.slice(0, 2).map((peer) => {
    const times = ratio(found, us, peer);
    return bar(`checks per second from ${TASKS} tasks at least ${BAR}x ${peer}`, `${times.toFixed(2)}x`, times >= BAR);
  });
  return { title: `Limiter checks per second, ${TASKS} tasks`, table: table(['', 'checks/s', 'CPU µs of the client', 'rate, ours beside it'], rows), bars };
}
