'use strict';
/**
 * Signals that are right at the moment they are read.
 *
 * A loss arrives on another thread, and JavaScript learns of it when its event loop turns. A function that keeps the loop busy, or a
 * process that was stopped, would read a signal of before. So the signal itself looks, natively and without waiting, whenever
 * somebody reads it.
 */
const abortedOf = Object.getOwnPropertyDescriptor(AbortSignal.prototype, 'aborted').get;
const reasonOf = Object.getOwnPropertyDescriptor(AbortSignal.prototype, 'reason').get;

/** The signal of `controller`; `look` aborts the controller if there is a reason to. */
function lookingSignal(controller, look) {
  const { signal } = controller;
  const isAborted = () => {
    if (!abortedOf.call(signal)) look();
    return abortedOf.call(signal);
  };
  Object.defineProperties(signal, {
    aborted: { configurable: true, get: isAborted },
    reason: { configurable: true, get: () => (isAborted() ? reasonOf.call(signal) : undefined) },
    throwIfAborted: { configurable: true, value: () => { if (isAborted()) throw reasonOf.call(signal); } },
  });
  return signal;
}

module.exports = { lookingSignal };
