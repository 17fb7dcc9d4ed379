'use strict';
/**
 * For tests: a clock to drive, and raw commands.
 */
const native = require('./native.js');
const { ask, wrongType } = require('./errors.js');
const given = require('./arguments.js');
const { ours } = require('./calls.js');
const { behind } = require('./guard.js');
const { Client } = require('./client.js');
const { endTurn } = require('./turn.js');

class Clock {
  constructor(inner) {
    if (!(inner instanceof native.TestClock)) throw wrongType('Clock', 'made by Clock.driven() or Clock.system()', inner);
    behind(this, { _inner: inner });
  }

  static driven() { return new Clock(native.TestClock.driven()); }
  static system() { return new Clock(native.TestClock.system()); }

  get nowMs() { return this._inner.nowMs; }
  get nextWakeMs() {
    endTurn();
    return this._inner.nextWakeMs ?? null;
  }

  advance(span) {
    const json = given.span('span', span);
    // Whatever began until now began before.
    endTurn();
    ask(() => this._inner.advance(json));
  }
}

function said(client, words) {
  if (!(client instanceof Client)) throw wrongType('client', 'made by connect', client);
  if (!Array.isArray(words) || words.length === 0) throw wrongType('words', 'a list of words, the name of the command first', words);
  return words.map((word, at) => {
    if (typeof word === 'string') return word;
    if (typeof word === 'number' || typeof word === 'bigint') return String(word);
    if (word instanceof Uint8Array) return Buffer.from(word.buffer, word.byteOffset, word.byteLength);
    throw wrongType(`words[${at}]`, 'text, bytes or a number', word);
  });
}

async function raw(client, words) {
  const all = said(client, words);
  return ours(undefined, () => native.rawCommand(client._inner, all));
}

function rawAt(client, words, atUs) {
  const all = said(client, words);
  const instant = typeof atUs === 'number' && Number.isSafeInteger(atUs) ? BigInt(atUs) : atUs;
  if (typeof instant !== 'bigint') throw wrongType('atUs', 'a whole number of microseconds', atUs);
  return ask(() => native.rawCommandAt(client._inner, all, instant));
}

module.exports = { Clock, raw, rawAt };
