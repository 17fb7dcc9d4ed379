'use strict';
/**
 * Loads: they belong to no call, because whoever asked first may give up while others wait. The native half says when one begins,
 * and when nobody waits for it any more.
 */
const native = require('./native.js');
const { Context } = require('./context.js');
const { messageOf, ownParts, TimeoutError } = require('./errors.js');
const { calls, keep, kept } = require('./kept.js');
const { endTurn } = require('./turn.js');

const NO_CLASSES = [];

/** One load: a function that was kept is started, and its value is given back as bytes. */
function startLoad(key, orders) {
  for (const [kind, id, detail] of orders) {
    if (kind === 0) {
      const load = kept.get(detail.kept);
      kept.delete(detail.kept);
      const running = { context: undefined, isAborted: false };
      running.context = new Context(1, undefined, () => { if (!running.isAborted && calls[key] === running && native.isLoadOver(key, id)) giveUp(running); });
      calls[key] = running;
      runLoad(key, id, load, running);
    } else {
      const running = calls[key];
      calls[key] = undefined;
      if (running !== undefined) giveUp(running);
    }
  }
}

function giveUp(running) {
  running.isAborted = true;
  Context.abort(running.context, new TimeoutError('the load took too long', { code: 'TIMEOUT' }));
}

async function runLoad(key, id, load, running) {
  let bytes;
  try {
    bytes = load.write(await load.loader(load.key, running.context));
  } catch (error) {
    if (running.isAborted) return;
    calls[key] = undefined;
    endTurn();
    native.settleFailed(key, id, NO_CLASSES, messageOf(error), ownParts(error), undefined, keep(error));
    return;
  }
  if (running.isAborted) return;
  calls[key] = undefined;
  endTurn();
  native.settleBytes(key, id, bytes);
}

module.exports = { startLoad };
