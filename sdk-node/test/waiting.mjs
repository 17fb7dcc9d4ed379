/** Waiting in tests: always bounded, never for a fixed time. */

const PATIENCE_MS = 10_000;

/** What never ends. */
export function never() {
  return new Promise(() => {});
}

/** One turn of the event loop. */
export function turn() {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Until something holds. */
export async function until(holds) {
  const end = Date.now() + PATIENCE_MS;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`it did not come to hold: ${holds}`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

/** The same promise, not waited for beyond reason. */
export async function settled(promise, patienceMs = PATIENCE_MS) {
  let timer;
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error('nothing came of it')), patienceMs); });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Keeps the thread busy: nothing else of JavaScript runs meanwhile. */
export function busy(ms) {
  const end = performance.now() + ms;
  while (performance.now() < end);
}
