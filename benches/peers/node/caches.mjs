/**
 * A hit of a cache, beside what one would use instead: of the local tier beside lru-cache, both as caches that load (`get` and `fetch`), awaited
 * one after the other; and over the network beside a plain GET of ioredis, 64 callers with a key each, and one.
 */
import Redis from 'ioredis';
import { LRUCache } from 'lru-cache';
import { connect } from 'resil';
import { bar, inTurns, median, ratio, table } from './turns.mjs';

const CALLERS = 64;
const KEYS = 1_000;
const TTL_MS = 3_600_000;
const LOCAL_BAR = 1.2;
const NETWORK_BAR = 0.9;
/** What is kept: text, and what has to be made of JSON anew for each caller if it is not frozen. */
const TEXT = 'x'.repeat(100);
const USER = { id: 42, name: 'Ada', email: 'ada@example.org', roles: ['admin', 'owner'] };

const never = () => { throw new Error('it is cached'); };

async function nanosPerCall(get, keys, calls) {
  const before = process.cpuUsage();
  for (let turn = 0; turn < calls; turn += 1) await get(keys[turn % KEYS]);
  const { user, system } = process.cpuUsage(before);
  return ((user + system) * 1_000) / calls;
}

async function localHits({ rounds, calls }) {
  const client = await connect('memory://');
  const keys = Array.from({ length: KEYS }, (_, at) => `user:${at}`);
  const settings = { ttl: TTL_MS, localTtl: TTL_MS, localSize: 2 * KEYS };
  const lru = new LRUCache({ max: 2 * KEYS, ttl: TTL_MS, fetchMethod: never });
  // By default it reads the clock once for all gets of a millisecond.
  const exact = new LRUCache({ max: 2 * KEYS, ttl: TTL_MS, ttlResolution: 0, fetchMethod: never });
  const [texts, copies, frozen] = [client.cached('texts', settings), client.cached('copies', settings), client.cached('frozen', { ...settings, frozen: true })];
  for (const key of keys) {
    lru.set(key, TEXT);
    exact.set(key, TEXT);
    for (const [cache, value] of [[texts, TEXT], [copies, USER], [frozen, USER]]) await cache.get(key, () => value);
  }
  const ways = {
    'lru-cache: `await fetch`': (key) => lru.fetch(key),
    'lru-cache, `ttlResolution: 0`: it reads the clock for each hit, as ours': (key) => exact.fetch(key),
    'resil: `await get`, text': (key) => texts.get(key, never),
    'resil: `await get`, an object, `frozen`': (key) => frozen.get(key, never),
    'resil: `await get`, an object, a copy for each': (key) => copies.get(key, never),
  };
  for (const get of Object.values(ways)) await nanosPerCall(get, keys, calls);
  const found = await inTurns(Object.fromEntries(Object.entries(ways).map(([name, get]) => [name, () => nanosPerCall(get, keys, calls)])), rounds);
  await client.shutdown(0);
  const [theirs, , ...ours] = Object.keys(ways);
  return {
    rows: Object.keys(ways).map((name) => [name, median(found[name]).toFixed(0), name === theirs ? '' : `${ratio(found, name, theirs).toFixed(2)}x`]),
    bars: ours.slice(0, 2).map((name) => bar(`a local hit, ${name}: at most ${LOCAL_BAR}x lru-cache`, `${ratio(found, name, theirs).toFixed(2)}x`, ratio(found, name, theirs) <= LOCAL_BAR)),
  };
}

/** Hits per second. */
async function hitsPerSecond(get, callers, ms) {
  const started = performance.now();
  let count = 0;
  const caller = async (number) => {
    while (performance.now() - started < ms) {
      if ((await get(String(number))) !== TEXT) throw new Error('no hit');
      count += 1;
    }
  };
  await Promise.all(Array.from({ length: callers }, (_, number) => caller(number)));
  return (count * 1_000) / (performance.now() - started);
}

async function networkHits({ ours, plain, rounds, ms }) {
  const client = await connect(ours);
  const cache = client.cached('bench', { ttl: TTL_MS });
  const redis = new Redis(plain);
  for (let at = 0; at < CALLERS; at += 1) {
    await cache.set(String(at), TEXT);
    await redis.set(String(at), TEXT);
  }
  const all = {};
  for (const callers of [CALLERS, 1]) {
    all[`ioredis: GET, callers: ${callers}`] = () => hitsPerSecond((key) => redis.get(key), callers, ms);
    all[`resil: get, callers: ${callers}`] = () => hitsPerSecond((key) => cache.get(key, never), callers, ms);
  }
  for (const way of Object.values(all)) await way();
  const found = await inTurns(all, rounds);
  await client.shutdown(1_000);
  redis.disconnect();
  const rows = [];
  const bars = [];
  for (const callers of [CALLERS, 1]) {
    const [mine, its] = [`resil: get, callers: ${callers}`, `ioredis: GET, callers: ${callers}`];
    const times = ratio(found, mine, its);
    for (const name of [its, mine]) rows.push([name, Math.round(median(found[name])).toLocaleString('en'), name === mine ? `${times.toFixed(2)}x` : '']);
    bars.push(bar(`a hit over the network, callers: ${callers}: at least ${NETWORK_BAR}x a GET of ioredis`, `${times.toFixed(2)}x`, times >= NETWORK_BAR));
  }
  return { rows, bars };
}

export async function caches(setting) {
  const [local, network] = [await localHits(setting), await networkHits(setting)];
  const tables = [table(['a local hit', 'ns of CPU', 'beside lru-cache'], local.rows), table(['a hit over the network', 'hits/s', 'beside GET'], network.rows)];
  return { title: 'Hits of a cache', table: tables.join('\n\n'), bars: [...local.bars, ...network.bars] };
}
