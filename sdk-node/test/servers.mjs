/** Where tests are run: in memory, and on a real server that the harness starts. */
import { after } from 'node:test';

import { connect } from 'resil';
import { Servers } from '../../tests/harness/servers.mjs';

let servers;
// Here, and not where it is started: inside of a test it would be the end of that test.
after(() => servers?.close());

/** A server of its own, gone when the tests of this file end. */
export async function startServer(options) {
  servers ??= new Servers();
  return servers.start(options);
}

/** A RabbitMQ of its own. */
export async function startRabbit() {
  servers ??= new Servers();
  return servers.rabbit();
}

/** A Postgres of its own. */
export async function startPostgres() {
  servers ??= new Servers();
  return servers.postgres();
}

/** Runs `body(client)` for `memory://` and for a server: the same promise on both. */
export function onBoth(test, sentence, body) {
  for (const place of ['in memory', 'on a server']) {
    test(`${sentence} (${place})`, async () => {
      const url = place === 'in memory' ? 'memory://' : (await shared()).url;
      const client = await connect(url);
      try {
        await body(client, `${place}:${sentence}:`);
      } finally {
        await client.shutdown(1_000);
      }
    });
  }
}

let common;
function shared() {
  return (common ??= startServer());
}
