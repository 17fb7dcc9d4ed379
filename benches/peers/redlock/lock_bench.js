// node-redlock, and RES.LOCK from the same client.
//
// Usage: lock_bench.js PORT WAY SECONDS CONTENDERS HOLD_MS. WAY is `peer`, `ours`, or `pairs`: both, uncontended, in turn.
// Prints one object in JSON, as lock_bench.py does. A contender is a connection of its own in one process. Redlock's
// defaults, but for this: it never gives up.

const Redis = require("ioredis");
const Redlock = require("redlock");

const SLICES = 20;
const LEASE_MS = 10_000;
const [port, way, seconds, contenders, holdMs] = process.argv.slice(2).map((word) => (isNaN(word) ? word : Number(word)));

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const nowMs = () => performance.now();

const WAYS = {
  peer(client) {
    const redlock = new Redlock([client], { retryCount: 1_000_000 });
    let lock;
    return {
      acquire: async () => { lock = await redlock.lock("redlock-contended", LEASE_MS); },
      release: () => lock.unlock(),
    };
  },
  ours(client, number) {
    const key = "node-contended", owner = `owner:${String(number).padStart(10, "0")}`;
    const expect = async (verdict, ...words) => {
      const said = await client.call("RES.LOCK", ...words);
      if (said[0] !== verdict) throw new Error(`the server answered ${said}`);
    };
    return {
      acquire: () => expect("GRANTED", "ACQUIRE", key, owner, "10s", "WAIT", "60s"),
      release: () => expect("RELEASED", "RELEASE", key, owner),
    };
  },
};

async function contend(way) {
  const clients = Array.from({ length: contenders }, () => new Redis(port));
  await Promise.all(clients.map((client) => client.ping()));
  const end = nowMs() + seconds * 1_000;
  const found = await Promise.all(clients.map(async (client, number) => {
    const { acquire, release } = way(client, number);
    let served = 0;
    const waits = [];
    for (let asked = nowMs(); asked < end; asked = nowMs()) {
      await acquire();
      const had = nowMs();
      waits.push(Math.round((had - asked) * 1_000));
      served += had < end ? 1 : 0;
      await pause(holdMs);
      await release();
    }
    return { served, waits };
  }));
  clients.forEach((client) => client.disconnect());
  return { served: found.map((one) => one.served), waits_us: found.flatMap((one) => one.waits) };
}

async function rate({ acquire, release }, ms) {
  const started = nowMs();
  let pairs = 0;
  for (; nowMs() - started < ms; pairs += 1) {
    await acquire();
    await release();
  }
  return (pairs * 1_000) / (nowMs() - started);
}

async function pairs() {
  const client = new Redis(port);
  const peer = WAYS.peer(client), ours = WAYS.ours(client, 0);
  await rate(peer, 100);
  await rate(ours, 100);
  const rates = { peer: [], ours: [] };
  for (let slice = 0; slice < SLICES; slice += 1) {
    rates.peer.push(await rate(peer, (seconds * 1_000) / SLICES / 2));
    rates.ours.push(await rate(ours, (seconds * 1_000) / SLICES / 2));
  }
  client.disconnect();
  return rates;
}

(way === "pairs" ? pairs() : contend(WAYS[way])).then((found) => console.log(JSON.stringify(found)));
