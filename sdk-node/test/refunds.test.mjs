/**
 * What is given back after a failure is not given back to a client that hangs up: a limit could be evaded by that.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request as ask } from 'node:http';
import { test } from 'node:test';
import { connect, perMinute } from 'resil';
import { frameworks } from './middleware_apps.mjs';

for (const [framework, start] of Object.entries(frameworks)) {
  test(`${framework}: a client that hangs up gets nothing back`, { timeout: 60_000 }, async (t) => {
    const client = await connect('memory://');
    t.after(() => client.shutdown(1_000));
    const limiter = client.limiter('free', perMinute(3));
    let begin;
    const app = await start({
      tier: () => ({ limiter, key: 'ann' }), limits: { refund: (status) => status >= 500 },
      work: (body, run, request) => new Promise((respond) => { begin({ respond, socket: (request.raw ?? request).socket }); }),
    });
    t.after(() => app.close());
    for (let left = 2; left >= 0; left -= 1) {
      const begun = new Promise((resolve) => { begin = resolve; });
      const request = ask(app.url).on('error', () => {}).end();
      const { respond, socket } = await begun;
      const heard = once(socket, 'close');
      request.destroy();
      await heard;
      respond({ status: 503, body: '' });
      await new Promise((resolve) => { setImmediate(resolve); });
      assert.equal((await limiter.peek('ann')).remaining, left);
    }
    assert.equal((await fetch(app.url)).status, 429);
  });
}
