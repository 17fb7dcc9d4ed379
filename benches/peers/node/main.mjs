/**
 * The Node SDK beside its peers, all in one process and one run.
 *
 * Usage: node main.mjs OURS_URL PLAIN_URL ROUNDS [part...]: a server with the module, one without, how many rounds;
 * parts are `policies`, `caches`, `checks`, `locks` and `telemetry`, all by default. Prints tables and bars in Markdown. BENCH_QUICK=1: does it run at all?
 */
import { caches } from './caches.mjs';
import { checks } from './checks.mjs';
import { locks } from './locks.mjs';
import { policies } from './policies.mjs';
import { telemetry } from './telemetry.mjs';
import { table } from './turns.mjs';

const [ours, plain, rounds, ...wanted] = process.argv.slice(2);
const quick = (process.env.BENCH_QUICK ?? '0') !== '0';
const setting = { ours, plain, rounds: Number(rounds) };
const parts = {
  // Short turns and many: what disturbs the machine disturbs all ways alike.
  policies: () => policies({ ...setting, rounds: setting.rounds * 3, calls: quick ? 1_000 : 5_000 }),
  caches: () => caches({ ...setting, rounds: setting.rounds * 3, calls: quick ? 5_000 : 20_000, ms: quick ? 100 : 400 }),
  checks: () => checks({ ...setting, rounds: setting.rounds * 2, ms: quick ? 200 : 700 }),
  locks: () => locks({ ...setting, ms: quick ? 500 : 4_000 }),
  // The last: what it sets up of OpenTelemetry stays.
  telemetry: () => telemetry({ ...setting, rounds: quick ? 3 : setting.rounds * 2, calls: quick ? 500 : 10_000 }),
};

const bars = [];
for (const [name, measure] of Object.entries(parts)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  const found = await measure();
  bars.push(...found.bars);
  console.log(`\n#### ${found.title}\n\n${found.table}`);
}
console.log(`\n#### Bars\n\n${table(['promise', 'measured', ''], bars.map(({ promise, measured, verdict }) => [promise, measured, verdict]))}`);
