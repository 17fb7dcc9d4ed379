'use strict';
/**
 * Which locks a piece of work is inside of, by its async context: asking for one of them again is granted at once.
 *
 * The context goes wherever the work goes, into callbacks and promises. What still runs after the lock was let go of is inside of
 * nothing: the native half looks.
 */
const { AsyncLocalStorage } = require('node:async_hooks');
const native = require('./native.js');

/** Made with the first lock around a function: it makes every promise of the process a little dearer. */
let storage;
const NONE = [];

/** Runs `work` inside of what is `held`, natively. */
function inside(held, work) {
  storage ??= new AsyncLocalStorage();
  return storage.run([...(storage.getStore() ?? NONE), held], work);
}

/** Begins a call where this is. */
function beginHere(begin) {
  const held = storage?.getStore();
  if (held === undefined) return begin();
  native.stepInside(held);
  try {
    return begin();
  } finally {
    // Of a call that was refused before it began.
    native.stepInside(NONE);
  }
}

module.exports = { beginHere, inside };
