/** A shop in Node: Express, and the middleware for `Idempotency-Key`. What it does is in `src/shop.rs`. */

import { createRequire } from "node:module";

// Its packages are those of the SDK.
const require = createRequire(new URL("../../sdk-node/package.json", import.meta.url));
const express = require("express");
const { connect } = require("./lib/index.js");
const { idempotency } = require("./lib/express.js");

const client = await connect(process.argv[2]);
let made = 0;

const app = express().disable("x-powered-by").disable("etag");
app.get("/made", (request, response) => response.send(String(made)));
app.use(idempotency({ client, name: "shop", tenant: (request) => request.headers["x-user"] ?? "", required: true }));
app.use(express.raw({ type: () => true }));
app.post("/*path", (request, response) => {
  made += 1;
  const status = Number(request.headers["x-status"] ?? 201);
  response.status(status).set({ "content-type": "application/octet-stream", "x-shop": "node", "x-odd": 'gr\xfcn, "2"', "set-cookie": ["a=1", "b=2"] });
  response.send(status === 204 ? Buffer.alloc(0) : Buffer.from(request.body ?? []));
});

const server = app.listen(0, "127.0.0.1", () => process.stdout.write(`${server.address().port}\n`));
