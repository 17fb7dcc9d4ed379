'use strict';
/**
 * Connecting, and the handle from which everything is made.
 */
require('./symbols.js');
const native = require('./native.js');
const { ask } = require('./errors.js');
const given = require('./arguments.js');
const { notifications, run } = require('./calls.js');
const { behind } = require('./guard.js');
const { listenAt, NOTICES } = require('./kept.js');
const { clockOf } = require('./policies.js');
const { storedPolicies } = require('./stored_policies.js');
const handles = require('./handles.js');

class Client {
  constructor(inner) { behind(this, { _inner: inner }); }

  health() {
    const { since, ...health } = JSON.parse(ask(() => this._inner.health()));
    return since === undefined ? health : { ...health, since: new Date(since) };
  }

  async waitReady(within) {
    given.atMost('waitReady', arguments, 1);
    const span = given.optionalDuration('within', within);
    await run(undefined, () => this._inner.waitReady(span));
  }

  get policies() { return storedPolicies(this._inner); }

  get isShuttingDown() { return this._inner.isShuttingDown; }

  async shutdown(deadline) {
    given.atMost('shutdown', arguments, 1);
    const span = given.optionalDuration('deadline', deadline);
    const [json, isClean] = await run(undefined, () => this._inner.shutdown(span));
    const { unreleased, ...report } = JSON.parse(json);
    return { ...report, unreleased: unreleased.map(([name, reason]) => ({ name, reason })), isClean: isClean === 'true' };
  }

  async [Symbol.asyncDispose]() { await this.shutdown(); }
}

/** How many arguments a method takes that makes something of a name and options. */
const ARGUMENTS_MOST = 2;

for (const [name, make] of handles.flatMap(({ made = {} }) => Object.entries(made))) {
  Client.prototype[name] = function (...said) {
    given.atMost(name, said, make.most ?? ARGUMENTS_MOST);
    return make(this._inner, ...said);
  };
}

/**
 * A server that is away is no error, and a mistyped host looks the same: each time there is one warning, and one when it is back. The same
 * of brokers. A message that died, and an attempt that outlived its ticket, are a warning each.
 */
function noticed({ address, reason, refused, back, outlived, tookMs, source, worker, id, deaths }) {
  let said = [`the server at ${address} is away (${reason}): until it is back, whenAway decides what happens to calls`, 'RESIL_AWAY'];
  if (refused !== undefined) said = [`the server at ${address} refuses a command: ${refused}`, 'RESIL_REFUSED'];
  if (back !== undefined) said = [`the server at ${back} is back`, 'RESIL_BACK'];
  if (outlived !== undefined) {
    said = [`an attempt under the policy ${outlived} took ${Math.round(tookMs)} ms, longer than its ticket lasts: it was not counted, and its place was free meanwhile; `
      + 'timeout.attempt, timeout.total or sharedBulkhead.lease of the policy say how long an attempt may take', 'RESIL_OUTLIVED'];
  }
  if (source !== undefined) {
    said = back === undefined
      ? [`${source}: the broker ${address} is away, and is tried again: ${reason}`, 'RESIL_AWAY']
      : [`${source}: the broker ${back} is back`, 'RESIL_BACK'];
  }
  if (worker !== undefined && deaths === undefined) said = [`${worker}: the ledger refuses the message ${id}, which stays with its source: ${reason}`, 'RESIL_NOT_RECORDED'];
  else if (worker !== undefined) said = [`${worker}: the message ${id} is dead (${reason}, deaths: ${deaths}); the ledger has its error`, 'RESIL_DEAD'];
  return Object.assign(new Error(said[0]), { name: 'ResilWarning', code: said[1] });
}
listenAt(NOTICES, { tell: (what) => process.emitWarning(noticed(what)) }, 'tell');
// A short script ends before its event loop turns again: the warning that waits is shown all the same, and without a next turn.
process.once('exit', () => notifications(NOTICES).forEach((what) => process.emit('warning', noticed(what))));

async function connect(url, options) {
  given.atMost('connect', arguments, 2);
  given.text('url', url);
  const { clock, signal, ...settings } = given.options('options', options);
  const json = given.settings('options', settings);
  const behindClock = clockOf(clock);
  const connected = run(given.signal(signal), () => native.connect(url, json, behindClock));
  return new Client(await connected.catch((error) => { throw given.knowing(['name', 'clock', 'signal'], error); }));
}

module.exports = { Client, connect };
