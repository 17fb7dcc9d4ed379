// The fake gateway, lively, to look at in a browser.

import { FakeGateway } from "./server";

const gateway = new FakeGateway();
gateway.lively();
console.error(`fake gateway: ${await gateway.start(Number(process.argv[2] ?? 0))}`);
setInterval(() => undefined, 60_000);
