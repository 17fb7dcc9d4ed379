'use strict';
/**
 * The short way of nearly every call: it has leave, the function runs, it ends well.
 *
 * Leave comes from the native half: for one call, or in a rush for several, which are counted here until the turn ends (see
 * turn.js). A call whose function fails, or is not over in time, goes on as a Call of calls.js. Two forms of the same: a plain
 * `then` where nobody but the function ends the call, and a Quick where a timeout or a shutdown may.
 */
const native = require('./native.js');
const { Call, LENT, QUICK, WAIT } = require('./calls.js');
const { Context } = require('./context.js');
const { made, messageOf, thrown } = require('./errors.js');
const { calls } = require('./kept.js');
const { endTurn } = require('./turn.js');

/** End the turn and ask again. */
const AGAIN = 0xffffffff;

/** Asks for leave: the number of the loan, or, if the long way has begun, `~` of its first word. */
function ask(guard) {
  const ok = guard._ok;
  guard._ok = 0;
  let word = native.askLeave(guard._number, ok);
  if (word === AGAIN) {
    guard._forgetLoan();
    endTurn();
    word = native.askLeave(guard._number, 0);
    if (word === AGAIN) word = native.beginCall(guard._number);
  }
  switch (word & 7) {
    case LENT:
      guard._loan = word >>> 9;
      guard._leaves = (word >>> 3) & 63;
      guard._joinTurn();
      return guard._loan;
    case QUICK:
      guard._forgetLoan();
      return word >>> 9;
    default:
      guard._forgetLoan();
      return ~word;
  }
}

/** One of the leaves that were lent, or a question. */
function leave(guard) {
  if (guard._leaves === 0) return ask(guard);
  guard._leaves -= 1;
  return guard._loan;
}

/** It ended well: counted, if its loan is still open. */
function told(guard, loan) {
  if (guard._loan === loan) guard._ok += 1;
  else native.quickOk(loan);
}

/** It failed: it is over with that, or goes on. */
function goOn(guard, fn, loan, context, error) {
  return new Call(guard._shape, fn, undefined).goOnAfterShort(context, error, (classes, message, own) => {
    // After the judges, who are the user's: what went well until now comes first.
    endTurn();
    return native.quickFailed(loan, classes, message, own);
  });
}

function isPlain(promise) {
  return promise instanceof Promise && promise.constructor === Promise;
}

/** For guards that nothing else interrupts. */
function briefly(guard, fn) {
  let loan;
  try {
    loan = leave(guard);
  } catch (raised) {
    return Promise.reject(thrown(raised));
  }
  if (loan < 0) return new Call(guard._shape, fn, undefined).adopt(~loan);
  const context = new Context(1, undefined);
  let promise;
  try {
    promise = fn(context);
  } catch (error) {
    return goOn(guard, fn, loan, context, error);
  }
  if (!isPlain(promise)) promise = Promise.resolve(promise);
  return promise.then(
    (value) => {
      told(guard, loan);
      return value;
    },
    (error) => goOn(guard, fn, loan, context, error),
  );
}

/** All that are under way and may be ended by others, in no order. */
const running = [];

/** One call that a timeout or a shutdown may end before its function does. */
class Quick {
  constructor(guard, fn, loan) {
    this.guard = guard;
    this.fn = fn;
    this.loan = loan;
    this.context = new Context(1, undefined);
    this.isOver = false;
    this.deadline = undefined;
    this.at = running.push(this) - 1;
    this.resolve = undefined;
    this.reject = undefined;
  }

  succeed(value) {
    if (this.isOver) return;
    this.over();
    told(this.guard, this.loan);
    this.resolve(value);
  }

  fail(error) {
    if (this.isOver) return;
    this.over();
    this.resolve(goOn(this.guard, this.fn, this.loan, this.context, error));
  }

  /** It was not over in time. */
  late(error) {
    this.over();
    Context.abort(this.context, error);
    const call = new Call(this.guard._shape, this.fn, undefined);
    this.resolve(call.goOnAfterShort(this.context, error, () => native.quickOverdue(this.loan)));
  }

  /** Nobody waits for it any more. */
  giveUp(error) {
    this.over();
    Context.abort(this.context, error);
    native.quickAbandoned(this.loan);
    this.reject(error);
  }

  over() {
    this.isOver = true;
    const last = running.pop();
    if (last !== this) {
      running[this.at] = last;
      last.at = this.at;
    }
    this.deadline?.less();
  }
}

/** For guards that have a timeout, or belong to a client. */
function followed(guard, fn) {
  let loan;
  try {
    loan = leave(guard);
  } catch (raised) {
    return Promise.reject(thrown(raised));
  }
  if (loan < 0) return new Call(guard._shape, fn, undefined).adopt(~loan);
  const quick = new Quick(guard, fn, loan);
  if (guard._isTimed) guard._time(quick);
  const outcome = new Promise((resolve, reject) => {
    quick.resolve = resolve;
    quick.reject = reject;
  });
  let promise;
  try {
    promise = fn(quick.context);
  } catch (error) {
    quick.fail(error);
    return outcome;
  }
  if (!isPlain(promise)) promise = Promise.resolve(promise);
  promise.then((value) => quick.succeed(value), (error) => quick.fail(error));
  return outcome;
}

/** When calls of one guard and one turn are overdue. It waits for as long as one of them is under way. */
class Deadline {
  constructor(guard, all) {
    this.all = all;
    this.left = all.length;
    for (const quick of all) quick.deadline = this;
    const word = native.beginDeadline(guard._number);
    this.key = word >>> 3;
    calls[this.key] = this;
    if ((word & 7) !== WAIT) this.obey(...native.takeOrders(this.key));
  }

  less() {
    this.left -= 1;
    if (this.left > 0 || calls[this.key] !== this) return;
    calls[this.key] = undefined;
    native.endDeadline(this.key);
  }

  obey(orders, [, failure]) {
    calls[this.key] = undefined;
    for (const quick of this.all) {
      if (!quick.isOver) quick.late(made(failure.error));
    }
  }
}

/** A shutdown of this client gives up what is still in flight, with such an error. */
function cutOff(client, error) {
  const another = () => made({ code: error.code, message: messageOf(error) });
  for (const quick of running.filter(({ guard }) => guard._shape.isOf(client))) {
    if (!quick.isOver) quick.giveUp(another());
  }
  for (const call of calls.filter((each) => each instanceof Call && each.shape.isOf(client))) call.giveUp(another());
}

module.exports = { Deadline, briefly, cutOff, followed };
