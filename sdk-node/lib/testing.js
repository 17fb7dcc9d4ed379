'use strict';
/**
 * For tests: a clock to drive, a script to play, and raw commands.
 */
const native = require('./native.js');
const { ask, ownParts, wrongType, ResilError } = require('./errors.js');
const given = require('./arguments.js');
const { run } = require('./calls.js');
const { behind } = require('./guard.js');
const { Client } = require('./client.js');
const { clockOf } = require('./policies.js');

class Clock {
  constructor(inner) {
    if (!(inner instanceof native.TestClock)) throw wrongType('Clock', 'made by Clock.driven() or Clock.system()', inner);
    behind(this, { _inner: inner });
  }

  static driven() { return new Clock(native.TestClock.driven()); }
  static system() { return new Clock(native.TestClock.system()); }

  get nowMs() { return this._inner.nowMs; }
  get nextWakeMs() {
    return this._inner.nextWakeMs ?? null;
  }

  advance(duration) {
    const json = given.duration('duration', duration);
    // Whatever began until now began before.
    ask(() => this._inner.advance(json));
  }
}

function said(client, words) {
  if (!(client instanceof Client)) throw wrongType('client', 'made by connect', client);
  if (!Array.isArray(words) || words.length === 0) throw wrongType('words', 'a list of words, the name of the command first', words);
  return words.map((word, at) => {
    if (typeof word === 'string') return given.text(`words[${at}]`, word);
    if (typeof word === 'number' || typeof word === 'bigint') return String(word);
    if (word instanceof Uint8Array) return Buffer.from(word.buffer, word.byteOffset, word.byteLength);
    throw wrongType(`words[${at}]`, 'text, bytes or a number', word);
  });
}

async function raw(client, words) {
  const all = said(client, words);
  return run(undefined, () => native.rawCommand(client._inner, all));
}

function rawAt(client, words, atUs) {
  const all = said(client, words);
  const instant = typeof atUs === 'number' && Number.isSafeInteger(atUs) ? BigInt(atUs) : atUs;
  if (typeof instant !== 'bigint') throw wrongType('atUs', 'a whole number of microseconds', atUs);
  return ask(() => native.rawCommandAt(client._inner, all, instant));
}

/** Refuses what no reply has. */
function ofAReply(at, value) {
  const isWhole = typeof value === 'bigint' || Number.isSafeInteger(value);
  if (!isWhole && typeof value !== 'string') throw wrongType(at, 'made of whole numbers, bigints, texts, null, lists and maps', value);
}

class Script {
  constructor(options) {
    const { clock } = given.only('options', options, ['clock']);
    behind(this, { _inner: native.Script.make(clockOf(clock)) });
  }

  reply(reply) {
    const json = given.json('reply', reply, ofAReply);
    ask(() => this._inner.reply(json));
    return this;
  }

  fail(error) {
    if (!(error instanceof ResilError)) throw wrongType('error', 'an error of Resil', error);
    this._inner.fail(ownParts(error));
    return this;
  }

  away() {
    this._inner.away();
    return this;
  }

  goAway() { this._inner.goAway(); }
  comeBack() { this._inner.comeBack(); }
  connect() { return new Client(this._inner.connect()); }
  get asked() { return this._inner.asked; }
  get left() { return this._inner.left; }
}

module.exports = { Clock, Script, raw, rawAt };
