'use strict';
/**
 * What JavaScript keeps under numbers, because a number is the cheapest thing to hand over.
 */

/** Calls under way, by their keys. */
const calls = [];
/** Loaders that were not started yet, and errors that several calls share, by their numbers. */
const kept = new Map();
let lastKept = 0;
/** Who is told of events, by their numbers: held weakly, so that listening keeps nothing alive. */
const listeners = new Map();
let lastListener = 0;

function nextNumber(last, taken) {
  let number = last;
  do number = (number + 1) >>> 0; while (taken.has(number));
  return number;
}

function keep(value) {
  lastKept = nextNumber(lastKept, kept);
  kept.set(lastKept, value);
  return lastKept;
}

function listen(target, method) {
  lastListener = nextNumber(lastListener, listeners);
  listeners.set(lastListener, { target: new WeakRef(target), method });
  return lastListener;
}

module.exports = { calls, keep, kept, listen, listeners };
