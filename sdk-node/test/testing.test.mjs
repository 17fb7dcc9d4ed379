/** What tests of services have: a script in place of a server. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { perSecond, BackendUnavailableError, InternalError, PermissionDeniedError } from 'resil';
import { Clock, Script } from 'resil/testing';

test('a script says what it heard, and remembers requests', async () => {
  const clock = Clock.driven();
  // granted, capacity, remaining, retry after, reset after
  const script = new Script({ clock }).reply([1, 10, 9, 0, 100]).reply([0n, 10, 0, 700, 1_000]);
  const limiter = script.connect().limiter('api', perSecond(10));
  assert.equal((await limiter.check('ann')).remaining, 9);
  assert.equal((await limiter.check('ann')).isGranted, false);
  assert.equal((await limiter.check('ann')).isGranted, false, 'within 700 ms nobody is asked');
  assert.equal(script.asked.length, 2);
  assert.equal(script.asked[0][1], 'resil:limit:api:{ann}');
  assert.equal(script.left, 0);
});

test('a script fails as scripted, and is then away', async () => {
  const script = new Script().fail(new PermissionDeniedError('not you')).away();
  const client = script.connect();
  const limiter = client.limiter('api', { ...perSecond(10), whenAway: 'closed' });
  await assert.rejects(limiter.check('ann'), PermissionDeniedError);
  await assert.rejects(limiter.check('ann'), BackendUnavailableError);
  await assert.rejects(limiter.check('ann'), BackendUnavailableError);
  assert.equal(client.health().overall, 'healthy');
  script.goAway();
  assert.notEqual(client.health().overall, 'healthy');
  script.comeBack();
  assert.equal(client.health().overall, 'healthy');
});

test('a reply the server would never send is refused', async () => {
  const client = new Script().reply('odd').connect();
  await assert.rejects(client.limiter('api', perSecond(10)).check('ann'), InternalError);
  assert.throws(() => new Script().reply([1.5]), /reply\[0\] must be made of/);
  assert.throws(() => new Script().reply({ a: { b: true } }), /reply\.a\.b must be made of/);
});
