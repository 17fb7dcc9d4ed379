/** Every conformance vector through the public face, in memory and on a server: same file, same verdicts. */
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';

import { connect } from 'resil';
import { raw, rawAt } from 'resil/testing';
import { startServer } from './servers.mjs';

/** 2100: whatever a vector stores, no clock of this machine expires any of it meanwhile. */
const BASE_US = 4_102_444_800_000_000n;
/** There are more; fewer were not found. */
const VECTORS_MIN = 190;

const folder = new URL('../../tests/vectors/', import.meta.url);
const vectors = readdirSync(folder).filter((name) => name.endsWith('.json') && name !== 'schema.json').sort().flatMap((file) => {
  const { spec_version: version, vectors: all } = JSON.parse(readFileSync(new URL(file, folder), 'utf8'));
  assert.equal(version, 1, `${file} is of a version this reader does not know`);
  return all.map((vector) => ({ file, ...vector }));
});

/** A map is its names and values in turn. */
function flat(value) {
  if (Array.isArray(value)) return value.map(flat);
  return typeof value === 'object' && value !== null ? Object.entries(value).flatMap(([name, of]) => [name, flat(of)]) : value;
}

/** Whether a reply is what is expected; what is to be bound by it is bound. */
function fits(expected, got, names) {
  if (Array.isArray(expected)) return Array.isArray(got) && expected.length === got.length && expected.every((part, at) => fits(part, got[at], names));
  if (typeof expected === 'object' && expected !== null) {
    names.set(expected.bind, got);
    return got !== null;
  }
  if (typeof expected === 'string' && expected.startsWith('$')) return isDeepStrictEqual(names.get(expected.slice(1)), got);
  return isDeepStrictEqual(expected, got);
}

async function play({ steps }, prefix, run) {
  const names = new Map();
  for (const step of steps) {
    const words = step.call.map((word) => {
      if (word.startsWith('key:')) return prefix + word.slice(4);
      return word.startsWith('$') ? String(names.get(word.slice(1))) : word;
    });
    let got;
    let failed;
    try {
      got = flat(await run(words, BASE_US + BigInt(step.at_us)));
    } catch (error) {
      failed = `${error.code} ${error.message}`;
    }
    const holds = step.error === undefined ? failed === undefined && fits(step.reply, got, names) : failed?.includes(step.error);
    if (!holds) return `${step.call.join(' ')} at ${step.at_us} us: got ${failed ?? show(got)}, not ${step.error ?? show(step.reply)}`;
  }
  return undefined;
}

const show = (value) => JSON.stringify(value, (_, part) => (typeof part === 'bigint' ? `${part}n` : part));

async function playAll(who, run) {
  const failures = [];
  const played = new Set();
  for (const [at, vector] of vectors.entries()) {
    assert.deepEqual(vector.needs, [], `${vector.name} needs something that nobody has`);
    assert.ok(vector.steps.length > 0, `${vector.name} says nothing`);
    const failure = await play(vector, `node:${at}:`, run);
    if (failure !== undefined) failures.push(`${vector.file}: ${vector.name}\n  ${failure}`);
    played.add(`${vector.file}: ${vector.name}`);
  }
  assert.equal(failures.length, 0, failures.join('\n'));
  assert.equal(played.size, vectors.length, 'two vectors of one file have the same name');
  assert.ok(played.size >= VECTORS_MIN, `only ${played.size} vectors were found`);
  tellWhatWasPlayed(who);
  return played.size;
}

/** For `scripts/played`, which looks that every runner of every language played every vector. */
function tellWhatWasPlayed(who) {
  const folder = process.env.RESIL_VECTORS_PLAYED;
  if (!folder) return;
  mkdirSync(folder, { recursive: true });
  writeFileSync(path.join(folder, `${who}.json`), JSON.stringify(vectors.map(({ file, name }) => [file, name])));
}

test('every vector holds in memory', async (context) => {
  const client = await connect('memory://');
  context.diagnostic(`${await playAll('node-memory', (words, atUs) => rawAt(client, words, atUs))} vectors`);
});

test('every vector holds on a server', async (context) => {
  const server = await startServer({ moduleArgs: ['test-clock', 'yes'] });
  const client = await connect(server.url);
  const run = async (words, atUs) => {
    await server.say('RES._CLOCK', String(atUs));
    return raw(client, words);
  };
  context.diagnostic(`${await playAll('node-server', run)} vectors`);
});
