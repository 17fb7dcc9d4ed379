'use strict';
/**
 * Runs functions as the native half orders, and keeps their values.
 *
 * A call is begun natively and answers with a word: wait, run an attempt, done, or "take the orders". Functions run here, their
 * promises are awaited here, and how they ended is told natively; the value itself never leaves JavaScript. What wakes a
 * call from elsewhere (a timer, the server) arrives as news, once for all calls.
 */
const native = require('./native.js');
const { made, messageOf, ownParts, thrown, CancelledError, ResilError, RetryExhaustedError } = require('./errors.js');
const { Context } = require('./context.js');
const { beginHere } = require('./inside.js');
const { calls, kept, listeners } = require('./kept.js');
const { startLoad } = require('./loads.js');
const { endTurn } = require('./turn.js');

// As it was when this was loaded, whatever a test puts in its place.
const { queueMicrotask } = globalThis;

const WAIT = 0;
const RUN = 1;
const DONE = 2;
const FAILED = 4;
const QUICK = 5;
const TOLD = 6;
const LENT = 7;
const FIRST_IS_DONE = (1 << 3) | DONE;

/** Where the native half puts verdicts: how many, then of each its key and its numbers; or the numbers of one. */
const OF_A_CALL = 10;
const tray = new Float64Array(1 + 256 * OF_A_CALL);
/** How a function is run and judged: what differs between policies, batches and stored results. */
class Shape {
  /** What the function is called with. */
  run(call, context, detail) { return call.fn(context); }
  /** What is told natively about a value: nothing, or its bytes. */
  settle(call, id, value) { return native.settleOk(call.key, id); }
  /** What an error means to each layer. */
  classes(call, error) { return NO_CLASSES; }
  /** What is made of a value of the native half; of numbers, from where on. */
  value(what, from) { return what; }
  /** Whether functions work under a lease: their signals are aborted once it is given back. */
  get isLeased() { return false; }
  /** How an error that is final is recorded. */
  recorded(call, error) { return undefined; }
  /** Whether a shutdown of this client gives such calls up. Others are given up natively. */
  isOf(client) { return false; }
}
const NO_CLASSES = [];

/** One call under way. */
class Call {
  constructor(shape, fn, signal) {
    this.shape = shape;
    this.fn = fn;
    this.signal = signal;
    this.key = -1;
    this.running = undefined;
    this.ended = undefined;
    this.started = 0;
    this.lastOwn = undefined;
    this.isOver = false;
    this.onAbort = undefined;
    this.onOver = undefined;
    this.promise = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
  }

  /** Takes over a call that was begun with this word. */
  adopt(word) {
    this.key = word >>> 3;
    calls[this.key] = this;
    if (this.signal !== undefined) {
      this.onAbort = () => this.cancel(this.signal.reason);
      this.signal.addEventListener('abort', this.onAbort, { once: true });
    }
    const code = word & 7;
    if (code === RUN) this.start(1, undefined);
    else if (code !== WAIT) this.takeOrders();
    return this.promise;
  }

  /** Takes over a call whose first attempt brought this value, and which is not done with that. */
  goOnAfterValue(word, context, value, next) {
    this.takeOver(word >>> 3, context, value, false);
    this.follow(next);
    return this.promise;
  }

  /** The same of one that threw. */
  goOnAfterError(word, context, error) {
    const attempt = this.takeOver(word >>> 3, context, error, true);
    this.settledWith(1, attempt, undefined, error, true, false);
    return this.promise;
  }

  /** Takes over from the short way, which ended with this error; `say` tells it. From here on there is a key, unless this was all. */
  goOnAfterShort(context, error, say) {
    const attempt = this.takeOver(-1, context, error, true);
    let word;
    try {
      word = this.tell(attempt, error, (classes, own) => say(classes, messageOf(attempt.settled), own));
    } catch (raised) {
      this.fail(thrown(raised));
      return this.promise;
    }
    if ((word & 7) === FAILED) {
      this.fail(attempt.settled);
      return this.promise;
    }
    this.key = word >>> 3;
    calls[this.key] = this;
    if ((word & 7) === RUN) this.start(2, undefined);
    else if ((word & 7) !== WAIT) this.takeOrders();
    return this.promise;
  }

  takeOver(key, context, settled, isError) {
    this.key = key;
    if (key >= 0) calls[key] = this;
    this.started = 1;
    const attempt = { context, isAborted: false, isEnded: false, settled, isError };
    this.running = new Map([[1, attempt]]);
    return attempt;
  }

  /** Judges an error and says it. A judge that throws is the error then. */
  tell(attempt, error, say) {
    const own = ownParts(error);
    if (own !== undefined) {
      this.lastOwn = error;
      return say(NO_CLASSES, own);
    }
    let classes;
    try {
      classes = this.shape.classes(this, error);
    } catch (raised) {
      attempt.settled = raised;
      classes = NO_CLASSES;
    }
    return say(classes, undefined);
  }

  /** Does what a later word says. */
  follow(word) {
    if (this.isOver) return;
    const id = word >>> 3;
    switch (word & 7) {
      case WAIT: return;
      case RUN: this.start(id, undefined); return;
      case DONE: this.succeed(this.valueOf(id)); return;
      case FAILED: this.fail(this.errorOf(id)); return;
      default: this.takeOrders();
    }
  }

  takeOrders() {
    const [orders, answer] = native.takeOrders(this.key);
    this.obey(orders, answer);
  }

  /** One of its functions asks whether it is still waited for. */
  look() {
    if (this.isOver) return;
    const news = native.look(this.key);
    if (news !== null) this.obey(...news);
  }

  obey(orders, answer) {
    let aborted;
    for (const [kind, id, detail] of orders) {
      if (kind === 0) this.start(id, detail);
      else if (kind === 2) this.warn(id);
      else (aborted ??= []).push(id);
    }
    if (answer === undefined) {
      for (const id of aborted ?? []) this.abort(id, undefined);
      return;
    }
    // The key is somebody else's from here on.
    this.isOver = true;
    if (calls[this.key] === this) calls[this.key] = undefined;
    const [kind, what] = answer;
    let failure;
    if (kind === 1) {
      try {
        failure = this.failureOf(what);
      } catch (raised) {
        failure = raised;
      }
    }
    for (const id of aborted ?? []) this.abort(id, failure);
    if (kind === 0) this.succeed(this.valueOf(what));
    else if (kind === 1) this.fail(failure);
    else this.succeed(this.shape.value(what, 0));
  }

  start(id, detail) {
    if (this.shape.isLeased) this.releaseEnded();
    this.started += 1;
    this.lastOwn = undefined;
    const context = new Context(detail?.attempt ?? this.started, detail?.fence, () => this.look());
    const attempt = { context, isAborted: false, isEnded: false, settled: undefined, isError: false };
    (this.running ??= new Map()).set(id, attempt);
    let promise;
    try {
      promise = this.shape.run(this, context, detail);
    } catch (error) {
      this.settledWith(id, attempt, undefined, error, true, true);
      return;
    }
    if (promise !== null && (typeof promise === 'object' || typeof promise === 'function') && typeof promise.then === 'function') {
      Promise.resolve(promise).then(
        (value) => this.settledWith(id, attempt, value, undefined, false, false),
        (error) => this.settledWith(id, attempt, undefined, error, true, false),
      );
    } else {
      this.settledWith(id, attempt, promise, undefined, false, true);
    }
  }

  /** An attempt ended. `isEarly`: inside of the orders that started it, which have to be obeyed first. */
  settledWith(id, attempt, value, error, isError, isEarly) {
    if (isEarly) {
      queueMicrotask(() => this.settledWith(id, attempt, value, error, isError, false));
      return;
    }
    if (attempt.isAborted || this.isOver) return;
    endTurn();
    attempt.isEnded = true;
    attempt.settled = isError ? error : value;
    attempt.isError = isError;
    let word;
    try {
      word = isError ? this.settleError(id, error) : this.shape.settle(this, id, value);
    } catch (raised) {
      // What the user gave to judge or to write it threw: that is the error then.
      attempt.settled = raised;
      attempt.isError = true;
      word = native.settleFailed(this.key, id, NO_CLASSES, messageOf(raised), undefined, undefined, undefined);
    }
    this.follow(word);
  }

  settleError(id, error) {
    const own = ownParts(error);
    if (own !== undefined) {
      this.lastOwn = error;
      return native.settleFailed(this.key, id, NO_CLASSES, messageOf(error), own, undefined, undefined);
    }
    const classes = this.shape.classes(this, error);
    const recorded = this.shape.recorded(this, error);
    return native.settleFailed(this.key, id, classes, messageOf(error), undefined, recorded, undefined);
  }

  /** Of an attempt that brought a value which is none: this is its error. */
  failAttempt(id, error) {
    const attempt = this.running?.get(id);
    if (attempt === undefined) return;
    attempt.settled = error;
    attempt.isError = true;
  }

  valueOf(id) { return this.running?.get(id)?.settled; }
  errorOf(id) { return this.running?.get(id)?.settled; }

  /** The error that a native failure is. */
  failureOf(failure) {
    if (failure.attempt !== undefined) return this.errorOf(failure.attempt);
    if (failure.kept !== undefined) return kept.get(failure.kept);
    if (failure.recorded !== undefined) return this.shape.revive(this, failure.recorded);
    if (failure.error !== undefined) {
      // One of ours that the function threw is that very object.
      return this.lastOwn?.code === failure.error.code ? this.lastOwn : made(failure.error);
    }
    const last = this.failureOf(failure.last);
    const message = `all ${failure.attempts} attempts failed; the last: ${messageOf(last)}`;
    const retryAfterMs = last instanceof ResilError ? last.retryAfterMs : undefined;
    return new RetryExhaustedError(message, { code: 'RETRY_EXHAUSTED', attempts: failure.attempts, cause: last, retryAfterMs });
  }

  /** Nobody waits for this attempt any more. */
  abort(id, failure) {
    const attempt = this.running?.get(id);
    if (attempt === undefined || attempt.isAborted) return;
    attempt.isAborted = true;
    this.running.delete(id);
    const reason = failure instanceof ResilError ? failure : abandoned();
    Context.abort(attempt.context, reason);
  }

  /** What this attempt works under is lost; it is still waited for. */
  warn(id) {
    const attempt = this.running?.get(id);
    if (attempt !== undefined) Context.abort(attempt.context, lostReason());
  }

  cancel(reason) {
    this.giveUp(new CancelledError('the caller gave up', { code: 'CANCELLED', cause: reason }));
  }

  /** Nobody waits for it any more, because of `error`. */
  giveUp(error) {
    if (this.isOver) return;
    this.isOver = true;
    const [orders, forgotten] = native.cancelCall(this.key);
    for (const number of forgotten) kept.delete(number);
    for (const [, id] of orders) this.abort(id, error);
    this.fail(error);
  }

  succeed(value) {
    this.over();
    this.resolve(value);
    if (this.shape.isLeased) this.releaseEnded();
  }

  fail(error) {
    this.over();
    this.reject(error);
    if (this.shape.isLeased) this.releaseEnded();
  }

  /** Attempts that ended worked under a lease that is given back, or is another attempt's. */
  releaseEnded() {
    for (const attempt of this.running?.values() ?? []) if (attempt.isEnded) Context.release(attempt.context);
  }

  over() {
    this.isOver = true;
    if (calls[this.key] === this) calls[this.key] = undefined;
    if (this.onAbort !== undefined) this.signal.removeEventListener('abort', this.onAbort);
    this.onOver?.();
  }
}

function abandoned() {
  return new CancelledError('nobody waits for this attempt any more', { code: 'CANCELLED' });
}

function lostReason() {
  return made({ code: 'LOCK_LOST', message: 'what this works under was lost' });
}

/** Everything that came in from elsewhere. */
function onWake() {
  endTurn();
  const others = native.readNews(tray);
  const count = tray[0];
  for (let at = 1; at <= count * OF_A_CALL; at += OF_A_CALL) {
    const call = calls[tray[at]];
    call?.succeed(call.shape.value(tray, at + 1));
  }
  for (const [kind, number, what, answer] of others) {
    switch (kind) {
      case 0: calls[number]?.obey(what, answer); break;
      case 1: startLoad(number, what); break;
      case 2: {
        const listener = listeners.get(number);
        const target = listener?.target.deref();
        if (target === undefined) listeners.delete(number);
        else target[listener.method](what);
        break;
      }
      default: kept.delete(number);
    }
  }
}

native.openThread(onWake);

const OURS = new Shape();

/** Waits for something of the native half that runs no function. `begin` gives its first word. */
function ours(signal, begin) {
  return through(OURS, undefined, signal, begin);
}

/** Runs `fn` as `shape` says. Whatever is wrong at once is a rejection, too; what is there at once is no promise. */
function through(shape, fn, signal, begin) {
  if (signal?.aborted) return Promise.reject(new CancelledError('the caller gave up', { code: 'CANCELLED', cause: signal.reason }));
  endTurn();
  let word;
  try {
    word = beginHere(begin);
  } catch (raised) {
    return Promise.reject(thrown(raised));
  }
  return word === TOLD ? shape.value(tray, 0) : new Call(shape, fn, signal).adopt(word);
}

module.exports = { Call, Shape, ours, tray, through, FIRST_IS_DONE, LENT, QUICK, RUN, WAIT };
