'use strict';
/**
 * The local tier once more, as JavaScript has it: to go to the native half for a hit costs ten times as much as the hit.
 *
 * The native tier decides. A value comes from there, with the epoch in which it was there and the time that is left to it. It is served only
 * while the epoch is the same, which is seen in memory that both halves share, and until that time is over, counted from before it was asked
 * for. The native half changes the epoch with whatever empties its tier, in part or as a whole: with every invalidation here and every one that
 * is heard of, when it hears no more (the connection was lost) and when it hears again, and when the client closes.
 *
 * Every caller gets a value of its own. Text, numbers and booleans nobody can change; of all else the JSON is kept, and read for each hit, unless
 * the values of the cache are frozen.
 */
const { performance } = require('node:perf_hooks');
const { listensToCalls } = require('./telemetry.js');

// Captured when this was loaded: a test may replace it.
const now = performance.now.bind(performance);

class LocalTier {
  constructor(inner, serializer, freezes) {
    this.inner = inner;
    this.serializer = serializer;
    this.freezes = freezes;
    this.size = inner.localSize();
    this.epoch = inner.epoch();
    this.answered = inner.answered();
    this.sharesMemory = sharesMemory(inner, this.epoch);
    this.entries = new Map();
    /** All entries are of this epoch. */
    this.keptIn = 0;
  }

  /** What is kept for this key, or undefined. */
  find(key) {
    const entry = this.entries.get(key);
    if (entry === undefined || listensToCalls()) return undefined;
    const moment = now();
    // Last: what is invalidated from here on is invalidated while it is served.
    if (moment >= entry.until || Atomics.load(this.epoch, 0) !== this.keptIn) return undefined;
    // Nobody else writes it.
    this.answered[0] += 1;
    return entry;
  }

  /** What the native tier has, which is kept from now on; or undefined. */
  look(key) {
    if (listensToCalls()) return undefined;
    const asked = now();
    const seen = this.inner.glance(key);
    if (seen === null) return undefined;
    const text = seen.value.toString('utf8');
    let value;
    try {
      value = this.serializer.read(seen.value);
    } catch {
      // Another program wrote it: it is loaded anew.
      return undefined;
    }
    if (this.freezes) frozen(value);
    const isShared = this.freezes || typeof value !== 'object';
    const entry = { value, text: isShared ? undefined : text, until: asked + seen.leftMs, seenAt: asked, ageMs: seen.ageMs };
    if (seen.leftMs > 0 && this.sharesMemory) this.keep(key, entry, seen.epoch);
    return entry;
  }

  keep(key, entry, epoch) {
    if (epoch !== this.keptIn) {
      this.entries.clear();
      this.keptIn = epoch;
    }
    this.entries.delete(key);
    if (this.entries.size >= this.size) this.entries.delete(this.entries.keys().next().value);
    this.entries.set(key, entry);
  }
}

/** Where memory cannot be shared, as in Electron, an array is a copy, and says nothing of the epoch: then nothing is kept here. */
function sharesMemory(inner, epoch) {
  const before = Atomics.load(epoch, 0);
  inner.endEpoch();
  return Atomics.load(epoch, 0) !== before;
}

/** The value of an entry, for one caller. */
function valueOf(entry) {
  return entry.text === undefined ? entry.value : JSON.parse(entry.text);
}

function ageOf(entry) {
  return entry.ageMs + (now() - entry.seenAt);
}

/** Deeply. What JSON brings is a tree. */
function frozen(value) {
  if (typeof value === 'object' && value !== null) {
    Object.freeze(value);
    for (const key of Object.keys(value)) frozen(value[key]);
  }
  return value;
}

module.exports = { LocalTier, ageOf, frozen, valueOf };
