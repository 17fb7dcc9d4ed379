'use strict';
/**
 * What JavaScript keeps under numbers, because a number is the cheapest thing to hand over.
 */

/** Loaders that were not started yet, and errors that several calls share, by their numbers. */
const kept = new Map();
let lastKept = 0;
/** The targets of events, by their numbers: held weakly, so that listening keeps nothing alive. */
const listeners = new Map();
/** Under this number the native half tells of servers that are away. */
const NOTICES = 0;
/** Under this one, of telemetry. */
const EVENTS = 1;
let lastListener = EVENTS;
/** Of targets that are gone nobody will say that their numbers are free. */
const gone = new FinalizationRegistry((number) => listeners.delete(number));

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
  const listener = { target: new WeakRef(target), method };
  listeners.set(lastListener, listener);
  gone.register(target, lastListener, listener);
  return lastListener;
}

/** There will be no more events with this number. */
function unlisten(number) {
  const listener = listeners.get(number);
  if (listener === undefined) return;
  listeners.delete(number);
  gone.unregister(listener);
}

/** `target` gets the events of a number of its own, for good. */
function listenAt(number, target, method) {
  listeners.set(number, { target: { deref: () => target }, method });
}

module.exports = { keep, kept, listen, listenAt, listeners, unlisten, EVENTS, NOTICES };
