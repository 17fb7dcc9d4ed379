/**
 * Rounds in which every way has its turn, each round beginning with another, so that all meet the same weather; and what is
 * made of them: medians, and medians of ratios of one round.
 */

export function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

export function percentile(numbers, percent) {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil((sorted.length * percent) / 100) - 1)];
}

/** `ways` is an object of functions that measure once. The numbers of each, round by round. */
export async function inTurns(ways, rounds) {
  const names = Object.keys(ways);
  const found = Object.fromEntries(names.map((name) => [name, []]));
  for (let round = 0; round < rounds; round += 1) {
    for (let turn = 0; turn < names.length; turn += 1) {
      const name = names[(turn + round) % names.length];
      found[name][round] = await ways[name]();
    }
    if (round === rounds - 1) process.stderr.write(`node: ${rounds} rounds\n`);
  }
  return found;
}

/** How many times as much `one` is as `other`: the median over rounds. */
export function ratio(found, one, other) {
  return median(found[one].map((number, round) => number / found[other][round]));
}

/** A table of Markdown. The first column is text, the others are numbers. */
export function table(head, rows) {
  const line = (cells) => `| ${cells.join(' | ')} |`;
  return [line(head), line(head.map((_, column) => (column === 0 ? '---' : '---:'))), ...rows.map(line)].join('\n');
}

/** A bar and whether it is met. */
export function bar(promise, measured, isMet) {
  return { promise, measured, verdict: isMet ? 'pass' : '**miss**' };
}
