'use strict';
/**
 * Which locks a piece of work is inside of, by its async context: asking for one of them again is granted at once.
 *
 * The context goes wherever the work goes, into callbacks and promises. What still runs after the lock was let go of is inside of
 * nothing: the native half looks.
 */
const { AsyncLocalStorage } = require('node:async_hooks');
const { setTimeout } = require('node:timers');
const native = require('./native.js');
const { lookQuickly } = require('./telemetry.js');
const { traceparent } = require('./trace.js');

/** In use only while somebody is inside, and a moment longer: it makes every promise of the process dearer. */
const storage = new AsyncLocalStorage();
const REST_AFTER_MS = 100;
let insiders = 0;
/** Somebody comes to look whether it is still in use. */
let isWatched = false;
const NONE = [];

/** Runs `work` inside of what is `held`, natively. */
async function inside(held, work) {
  insiders += 1;
  try {
    return await storage.run([...(storage.getStore() ?? NONE), held], work);
  } finally {
    leave();
  }
}

function leave() {
  insiders -= 1;
  if (insiders > 0 || isWatched) return;
  isWatched = true;
  setTimeout(rest, REST_AFTER_MS).unref();
}

function rest() {
  isWatched = false;
  if (insiders === 0) storage.disable();
}

/** Begins a call where this is: inside of locks, and in a trace. */
function beginHere(begin) {
  lookQuickly();
  const held = insiders === 0 ? undefined : storage.getStore();
  const trace = traceparent();
  if (held === undefined && trace === undefined) return begin();
  native.enterScope(held ?? NONE, trace);
  try {
    return begin();
  } finally {
    // A call may be refused before it begins.
    native.leaveScope();
  }
}

module.exports = { beginHere, inside };
