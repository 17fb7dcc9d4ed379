'use strict';
/**
 * Turns of the event loop. Within one nothing comes in from outside, so guards that are in a rush count for themselves what
 * the native half lent them; here they bring it back.
 *
 * A turn ends when the loop gets to it, and early before anything that could notice: whoever asks the native half for
 * something else ends it first.
 */
// As they were when this was loaded: a test that puts a clock of its own in place of the timers does not stop calls.
const { setImmediate } = require('node:timers');

/** Who has something to bring back. */
let open = [];
let isComing = false;

/** This guard has. It is told by `_giveBack`, and when all have been by `_setDeadline`. */
function join(guard) {
  open.push(guard);
  if (isComing) return;
  isComing = true;
  setImmediate(onImmediate);
}

function onImmediate() {
  isComing = false;
  endTurn();
}

function endTurn() {
  if (open.length > 0) endAll();
}

function endAll() {
  const all = open;
  open = [];
  for (const guard of all) guard._giveBack();
  // Whoever is late already is told so, and may begin calls.
  for (const guard of all) guard._setDeadline();
}

module.exports = { endTurn, join };
