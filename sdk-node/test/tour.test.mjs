/**
 * The JavaScript in the README and in the pages of the Node SDK runs as it stands. Where a line logs something and a comment beside it says what, that
 * is what it logs; comments on lines of their own after the last one continue it.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const package_ = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');
const BOUND = { timeout: 60_000 };

function blocks(page) {
  const text = readFileSync(path.resolve(package_, page), 'utf8');
  return [...text.matchAll(/^```js\n(.*?)^```/gms)].map(([, code]) => code);
}

/** What the comments say is logged, line by line. */
function promised(code) {
  const said = [];
  for (const line of code.split('\n')) {
    const beside = line.match(/^\s*(?:await )?console\.log\(.*\);\s+\/\/ (.*)$/);
    // 'healthy' is logged without its quotes; what follows a colon explains.
    if (beside !== null) said.push(beside[1].replace(/^'(.*)'$/, '$1').replace(/: .*$/, ''));
    const alone = line.match(/^\/\/ (\d{3} .*)$/);
    if (alone !== null) said.push(alone[1]);
  }
  return said;
}

async function run(code) {
  // Where a program in the package would stand, so that `resil` is what is being tested.
  const child = spawn(process.execPath, ['--input-type=module', '-'], { cwd: package_, stdio: ['pipe', 'pipe', 'pipe'], timeout: 50_000 });
  const [out, problems] = [[], []];
  child.stdout.on('data', (chunk) => out.push(chunk));
  child.stderr.on('data', (chunk) => problems.push(chunk));
  child.stdin.end(code);
  const status = await new Promise((resolve) => { child.on('close', resolve); });
  return { status, out: Buffer.concat(out).toString(), problems: Buffer.concat(problems).toString() };
}

for (const page of ['../README.md', '../docs/sdk-node.md', '../docs/telemetry.md', '../docs/http.md', 'README.md']) {
  describe(page, () => {
    const all = blocks(page);
    test('there is something to run', () => assert.ok(all.length >= 1));
    all.forEach((code, index) => test(`block ${index + 1} runs, logs what it says, ends`, BOUND, async () => {
      const { status, out, problems } = await run(code);
      assert.equal(status, 0, problems);
      const lines = out.split('\n');
      for (const promise of promised(code)) assert.ok(lines.includes(promise), `"${promise}" is logged:\n${out}`);
    }));
  });
}
