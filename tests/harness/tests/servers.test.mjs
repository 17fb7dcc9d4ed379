/** What `servers.mjs` promises to the suites that use it. Needs a server, and no module. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { connect } from "node:net";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";

import { Refused, Servers } from "../servers.mjs";

const servers = new Servers();
after(() => servers.close());

const plainServer = { withoutModule: true };

test("a reply has the shape the server gave it", async () => {
  const server = await servers.start(plainServer);
  assert.equal(await server.say("SET", "text", "grün"), "OK");
  assert.equal(await server.say("SET", "bytes", Buffer.from([255, 0])), "OK");
  assert.deepEqual(await server.say("MGET", "text", "bytes", "nothing"), ["grün", Buffer.from([255, 0]), null]);
  assert.equal(await server.say("INCRBY", "n", 42), 42);
  await assert.rejects(server.say("LPUSH", "text", "x"), (error) => error instanceof Refused && /^WRONGTYPE /.test(error.message));
});

test("a killed server comes back where it was", async () => {
  const server = await servers.start({ ...plainServer, config: { appendonly: "yes", appendfsync: "always" } });
  const { url, pid, port } = server;
  await server.say("SET", "kept", "1");
  await server.kill();
  const [error] = await once(connect(port, "127.0.0.1"), "error");
  assert.equal(error.code, "ECONNREFUSED");
  await server.restart();
  assert.equal(server.url, url);
  assert.notEqual(server.pid, pid);
  assert.equal(await server.say("GET", "kept"), "1");
  await server.restartOrderly();
  assert.equal(await server.say("GET", "kept"), "1");
});

test("a paused server goes on when it is resumed", async () => {
  const server = await servers.start(plainServer);
  const socket = connect(server.port, "127.0.0.1");
  await once(socket, "connect");
  await server.pause();
  let heard = "";
  socket.setEncoding("utf8").on("data", (text) => (heard += text));
  socket.write("PING\r\n");
  // A reply would come within this time: another server replies in less.
  await (await servers.start(plainServer)).say("PING");
  assert.equal(heard, "");
  const answered = once(socket, "data", { signal: AbortSignal.timeout(10_000) });
  await server.resume();
  await answered;
  assert.equal(heard, "+PONG\r\n");
  socket.destroy();
});

test("a replica has what its primary has", async () => {
  const primary = await servers.start(plainServer);
  const replica = await primary.replica(plainServer);
  await primary.say("SET", "new", "1");
  await primary.waitForSync(replica);
  assert.equal(await replica.say("GET", "new"), "1");
  assert.match(await replica.log(), /replica/i);
});

test("an impossible request is an error, and the next works", async () => {
  await assert.rejects(servers.start({ ...plainServer, flavor: "nosuch" }), /nosuch/);
  await assert.rejects(servers.start({ moduleArg: [] }), /moduleArg/);
  const server = await servers.start(plainServer);
  await server.stop();
  await assert.rejects(server.say("PING"), /there is no server/);
});

test("a process that forgets to close ends its servers", async () => {
  const module = JSON.stringify(fileURLToPath(new URL("../servers.mjs", import.meta.url)));
  const forgetful = `import { Servers } from ${module};
    const server = await new Servers().start({ withoutModule: true });
    console.log(server.port);`;
  const child = execFile(process.execPath, ["--input-type=module", "-e", forgetful], { timeout: 30_000 });
  let port = "";
  child.stdout.on("data", (text) => (port += text));
  const [code] = await once(child, "close");
  assert.equal(code, 0);
  // The starter notices the end of its input a moment later.
  const deadline = Date.now() + 20_000;
  for (;;) {
    const socket = connect(Number(port), "127.0.0.1");
    const gone = await Promise.race([once(socket, "connect").then(() => false), once(socket, "error").then(() => true)]).catch(() => true);
    socket.destroy();
    if (gone) break;
    assert.ok(Date.now() < deadline, "the server outlived the process");
  }
});
