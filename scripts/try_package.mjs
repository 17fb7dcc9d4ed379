/** What `scripts/node package` runs in an empty folder: the package is there, by import and by require, and works. */

import assert from "node:assert/strict";
import { createRequire } from "node:module";

import * as imported from "resil";

const required = createRequire(import.meta.url)("resil");
assert.equal(required.connect, imported.connect, "import and require give two packages");
assert.equal(required.ResilError, imported.ResilError, "instanceof would depend on how it was loaded");

const client = await imported.connect("memory://");
const api = client.limiter("api", { limit: 2, period: "60s" });
const verdicts = [];
for (let n = 0; n < 3; n += 1) verdicts.push((await api.check("ann")).isGranted);
assert.deepEqual(verdicts, [true, true, false]);
const guard = await client.lock("stock").acquire();
assert.ok(guard.fence > 0n);
await guard.release();
assert.equal(await client.breaker("bank").call(() => 4), 4);
await assert.rejects(imported.connect("nonsense://"), (error) => error instanceof imported.ResilError);
