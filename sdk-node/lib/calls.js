'use strict';
/**
 * Runs functions when the native half says so, and keeps their values.
 *
 * A call begins natively, which replies with a word: wait, run an attempt, done, or "take the events". Functions run here, and
 * their outcomes go to the native half; values never leave JavaScript. What wakes a call from elsewhere (a timer, the server)
 * arrives as events, once for all calls.
 *
 * Stack traces keep the caller's frames: V8 follows a promise to the function that awaits it, through `await` and through a `then` with the two
 * functions of a promise. So each attempt is an async function, and settles the promise of its call by such a `then`.
 */
const native = require('./native.js');
const { asError, besides, made, messageOf, ownParts, thrown, CancelledError, ResilError, RetryExhaustedError, TimeoutError } = require('./errors.js');
const { Context } = require('./context.js');
const { beginHere } = require('./inside.js');
const { keep, kept, listeners } = require('./kept.js');

// Captured when this was loaded: a test may replace it.
const { queueMicrotask } = globalThis;

/** Words: a code, and above it the number of the call that began, or of an attempt. */
const CODE_BITS = 3;
const CODE = 7;
const WAIT = 0;
const RUN = 1;
const DONE = 2;
const FAILED = 3;

/** Kinds of events, and how many values each has. */
const START = 0;
const ABORT = 1;
const WARN = 2;
const END_ATTEMPT = 3;
const END_FAILURE = 4;
const END_VALUE = 5;
const NOTIFY = 6;
const OF_AN_EVENT = 4;

const NO_CLASSES = [];

/** Calls under way, by their numbers. */
const calls = new Map();

/** How a function is run and its errors are judged: what differs between policies, batches, loads and stored results. */
class Shape {
  /** Calls the function. */
  run(call, context, detail) { return call.fn(context); }
  /** The bytes of a value that is stored. */
  bytes(call, value) { return undefined; }
  /** What an error means to each layer. */
  classes(call, error) { return NO_CLASSES; }
  /** What a value means to each layer, if it is a failure to any. */
  unfit(call, value) { return undefined; }
  /** What the caller gets for a value of the native half. */
  value(what) { return what; }
  /** Whether functions work under a lease: their signals are aborted once it is released. */
  get isLeased() { return false; }
  /** The bytes of an error that is final. */
  recorded(call, error) { return undefined; }
  /** The parts of an error of ours, which the native half judges itself. */
  ownParts(error) { return ownParts(error); }
  /** The number under which an error is kept for others. */
  keep(error) { return undefined; }
  /** Whether an error says that the function was cut short, so that nobody knows what it did. */
  isCutShort(error) { return false; }
  /** Why the signal of an attempt is aborted that nobody waits for. */
  abandoned() { return new CancelledError('nobody waits for this attempt any more', { code: 'CANCELLED' }); }
}

/** A load of a cache: a call of nobody, because it goes on when the caller who started it gives up. */
class LoadShape extends Shape {
  run(call, context) { return call.fn.loader(call.fn.key, context); }
  bytes(call, value) { return call.fn.write(value); }
  keep(error) { return keep(error); }
  abandoned() { return new TimeoutError('the load took too long', { code: 'TIMEOUT' }); }
}

const PLAIN = new Shape();
const LOAD = new LoadShape();

/** One call under way. */
class Call {
  constructor(shape, fn, signal) {
    this.shape = shape;
    this.fn = fn;
    this.signal = signal;
    this.number = 0;
    this.attempts = [];
    this.started = 0;
    this.lastOwn = undefined;
    this.isOver = false;
    this.failure = undefined;
    this.onAbort = undefined;
    this.promise = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
  }

  /** Takes over a call that began with this word. */
  adopt(word) {
    this.number = word >>> CODE_BITS;
    calls.set(this.number, this);
    if (this.signal !== undefined && !this.watch()) return this.promise;
    const code = word & CODE;
    if (code === RUN) this.start(1, undefined);
    else if (code !== WAIT) obey(native.takeEvents());
    return this.promise;
  }

  /** Hears of the caller's signal. One that cannot be listened to ends the call: it could not be given up. */
  watch() {
    this.onAbort = () => this.cancel(reasonOf(this.signal));
    try {
      this.signal.addEventListener('abort', this.onAbort, { once: true });
      return true;
    } catch (raised) {
      this.cancel(raised);
      return false;
    }
  }

  /** Does what a later word says. */
  follow(word) {
    const attempt = word >>> CODE_BITS;
    switch (word & CODE) {
      case WAIT: return;
      case RUN: this.start(attempt, undefined); return;
      case DONE: this.succeed(this.settledOf(attempt)); return;
      case FAILED: this.fail(this.settledOf(attempt)); return;
      default: obey(native.takeEvents());
    }
  }

  start(id, detail) {
    if (this.isOver) return;
    if (this.shape.isLeased) this.releaseEnded();
    this.started += 1;
    this.lastOwn = undefined;
    const context = new Context(detail?.attempt ?? this.started, detail?.fence ?? undefined, () => this.look());
    const attempt = { context, isAborted: false, isEnded: false, settled: undefined };
    this.attempts[id] = attempt;
    this.run(id, attempt, detail).then(this.resolve, this.reject);
  }

  /** Runs an attempt. The call ends with what this returns or throws, if it ends with this attempt; else this never ends. */
  async run(id, attempt, detail) {
    let isEarly = true;
    let word = WAIT;
    try {
      const running = this.shape.run(this, attempt.context, detail);
      isEarly = false;
      attempt.settled = await running;
      if (!attempt.isAborted && !this.isOver) word = this.settleValue(id, attempt);
    } catch (error) {
      // Not inside of the events that started it: those come first.
      if (isEarly) await undefined;
      if (!attempt.isAborted && !this.isOver) word = this.settleError(id, attempt, error);
    }
    if (word >>> CODE_BITS === id && (word & CODE) === DONE) {
      this.over();
      return attempt.settled;
    }
    if (word >>> CODE_BITS === id && (word & CODE) === FAILED) {
      this.over();
      throw attempt.settled;
    }
    this.follow(word);
    return new Promise(() => {});
  }

  settleValue(id, attempt) {
    const bytes = this.shape.bytes(this, attempt.settled);
    let classes;
    try {
      classes = this.shape.unfit(this, attempt.settled);
    } catch (raised) {
      // A judge of the user that throws: that is the error then, for nobody to judge.
      attempt.isEnded = true;
      attempt.settled = asError('onResult', raised);
      return native.settleFailed(this.number, id, NO_CLASSES, messageOf(attempt.settled), undefined, undefined, this.shape.keep(attempt.settled), false);
    }
    attempt.isEnded = true;
    return native.settle(this.number, id, bytes, classes);
  }

  settleError(id, attempt, error) {
    attempt.isEnded = true;
    attempt.settled = error;
    const own = this.shape.ownParts(error);
    let classes = NO_CLASSES;
    let recorded;
    if (own === undefined) {
      try {
        classes = this.shape.classes(this, error);
        recorded = this.shape.recorded(this, error);
      } catch (raised) {
        // A judge of the user that throws: that is the error then, and what it was to judge is its cause.
        attempt.settled = besides('a function that judges errors', raised, error);
        classes = NO_CLASSES;
      }
    } else {
      this.lastOwn = error;
    }
    return native.settleFailed(this.number, id, classes, messageOf(attempt.settled), own, recorded, this.shape.keep(attempt.settled), this.shape.isCutShort(error));
  }

  /** One of its functions asks whether somebody still waits for it. */
  look() {
    if (!this.isOver) obey(native.look(this.number), true);
  }

  /** The value or the error of an attempt. */
  settledOf(id) { return this.attempts[id]?.settled; }

  /** The error that a native failure is. */
  failureOf(failure) {
    if (failure.attempt !== undefined) return this.settledOf(failure.attempt);
    if (failure.kept !== undefined) return kept.get(failure.kept);
    if (failure.recorded !== undefined) return this.shape.revive(this, failure.recorded);
    if (failure.error !== undefined) {
      // An error of ours that the function threw is that very object.
      return this.lastOwn?.code === failure.error.code ? this.lastOwn : made(failure.error);
    }
    const last = this.failureOf(failure.last);
    const message = `all ${failure.attempts} attempts failed; the last: ${messageOf(last)}`;
    const retryAfterMs = last instanceof ResilError ? last.retryAfterMs : undefined;
    return new RetryExhaustedError(message, { code: 'RETRY_EXHAUSTED', attempts: failure.attempts, cause: last, retryAfterMs });
  }

  /** Nobody waits for this attempt any more. `reason`: the parts of an error, if the native half knows. */
  abort(id, reason) {
    const attempt = this.attempts[id];
    if (attempt === undefined || attempt.isAborted) return;
    attempt.isAborted = true;
    this.attempts[id] = undefined;
    if (this.failure instanceof ResilError) Context.abort(attempt.context, this.failure);
    else Context.abort(attempt.context, reason ? made(reason) : this.shape.abandoned());
  }

  /** What this attempt works under is lost; its result still counts. */
  warn(id) {
    const attempt = this.attempts[id];
    if (attempt !== undefined) Context.abort(attempt.context, made({ code: 'LOCK_LOST', message: 'what this works under was lost' }));
  }

  cancel(reason) {
    if (this.isOver) return;
    this.isOver = true;
    this.failure = cancelled(reason);
    obey(native.cancelCall(this.number));
    this.fail(this.failure);
  }

  succeed(value) {
    this.over();
    this.resolve(value);
  }

  fail(error) {
    this.failure = error;
    this.over();
    this.reject(error);
  }

  /** Attempts that ended worked under a lease that is released, or that another attempt has. */
  releaseEnded() {
    for (const attempt of this.attempts) if (attempt?.isEnded) Context.release(attempt.context);
  }

  over() {
    this.isOver = true;
    calls.delete(this.number);
    if (this.onAbort !== undefined) unwatch(this.signal, this.onAbort);
    if (this.shape.isLeased) this.releaseEnded();
  }
}

/** A signal of the user's making may throw. */
function reasonOf(signal) {
  try {
    return signal.reason;
  } catch (raised) {
    return raised;
  }
}

function unwatch(signal, onAbort) {
  try {
    signal.removeEventListener('abort', onAbort);
  } catch {
    // Nothing happens any more when it is called.
  }
}

function cancelled(reason) {
  return new CancelledError('the caller gave up', { code: 'CANCELLED', cause: reason });
}

function ofLoad(number, detail) {
  const call = new Call(LOAD, kept.get(detail.kept), undefined);
  call.number = number;
  calls.set(number, call);
  call.promise.catch(() => {});
  return call;
}

function begin(number, id, detail) {
  const call = calls.get(number) ?? (detail?.kept ? ofLoad(number, detail) : undefined);
  call?.start(id, detail);
}

function notify(number, what) {
  const listener = listeners.get(number);
  const target = listener?.target.deref();
  if (target === undefined) listeners.delete(number);
  else {
    try {
      target[listener.method](what);
    } catch (error) {
      // As from any listener of the event loop: nobody above caught it. The remaining events are still delivered.
      process.nextTick(() => { throw error; });
    }
  }
}

/** Does what the native half says. `isInside`: inside of a function, so that nothing starts before that function goes on. */
function obey(events, isInside = false) {
  const aborted = [];
  for (let at = 0; at < events.length; at += OF_AN_EVENT) {
    const [kind, number, what, detail] = events.slice(at, at + OF_AN_EVENT);
    const call = calls.get(number);
    switch (kind) {
      case START:
        if (isInside) queueMicrotask(() => begin(number, what, detail));
        else begin(number, what, detail);
        break;
      // When it is known how the call ended: that is the reason.
      case ABORT: aborted.push([call, what, detail]); break;
      case WARN: call?.warn(what); break;
      case END_ATTEMPT: call?.succeed(call.settledOf(what)); break;
      case END_FAILURE: if (call !== undefined) end(call, () => { throw call.failureOf(what); }); break;
      case END_VALUE: if (call !== undefined) end(call, () => call.shape.value(what)); break;
      case NOTIFY: notify(number, what); break;
      default: kept.delete(number);
    }
  }
  for (const [call, id, reason] of aborted) call?.abort(id, reason);
}

/** Ends a call with what `make` returns or throws: functions of the user may be asked. */
function end(call, make) {
  let value;
  try {
    value = make();
  } catch (error) {
    call.fail(error);
    return;
  }
  call.succeed(value);
}

/** What a listener has not heard yet, at the end of the process. */
function notifications(listener) {
  const events = native.receive();
  return events.filter((_, at) => at % OF_AN_EVENT === 2 && events[at - 2] === NOTIFY && events[at - 1] === listener);
}

native.openThread(() => obey(native.receive()));

/** Runs `fn` as `shape` says. `beginning` begins it natively; what is wrong at once is a rejection, too. */
function through(shape, fn, signal, beginning) {
  let word;
  try {
    if (signal?.aborted) return Promise.reject(cancelled(reasonOf(signal)));
    word = beginHere(beginning);
  } catch (raised) {
    return Promise.reject(thrown(raised));
  }
  return new Call(shape, fn, signal).adopt(word);
}

/** Waits for something of the native half that calls no function. */
function run(signal, beginning) {
  return through(PLAIN, undefined, signal, beginning);
}

module.exports = { Shape, notifications, run, through };
