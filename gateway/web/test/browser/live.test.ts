// Live, and honest when it is not: events, cuts, an outage of Redis, an outage of the gateway, slow and empty servers.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { FakeGateway } from "../fake/server";
import { World } from "../fake/world";
import { Chromium } from "./chromium";

let browser: Chromium;
before(async () => {
  browser = await Chromium.start();
});
after(() => browser.stop());

const row = (name: string): string => `tbody tr:has-text("${name}") .badge`;

test("a transition shows without reload, and survives a cut", async () => {
  const fake = new FakeGateway();
  const watched = await browser.page(await fake.start());
  const { page } = watched;
  await watched.withoutPolling();
  await watched.go("#/circuits");
  await page.locator(".connection.live").waitFor();
  fake.world.change("resil:policy:{inventory}", "open", "consecutive-failures");
  await page.locator(row("inventory"), { hasText: "open" }).waitFor();
  fake.cutStreams();
  fake.world.change("resil:policy:{inventory}", "half-open", "open-time-over");
  await page.locator(row("inventory"), { hasText: "half-open" }).waitFor();
  await page.locator(".connection.live").waitFor();
  const streams = fake.requests.filter((each) => each.path === "/api/events");
  assert.ok(streams.at(-1)?.lastEventId !== undefined, "it resumes where it was");
  watched.clean("live");
  await page.close();
  await fake.stop();
});

test("while Redis is away the last reply stays, stale", async () => {
  const fake = new FakeGateway();
  const watched = await browser.page(await fake.start());
  const { page } = watched;
  await watched.go("#/locks");
  await page.locator(".connection.live").waitFor();
  await page.locator("tbody tr").first().waitFor();
  fake.setRedis(true);
  await page.locator(".banner", { hasText: "The gateway has lost Redis" }).waitFor();
  await page.locator(".stale-note", { hasText: "Redis cannot be reached" }).waitFor();
  assert.equal(await page.locator("tbody tr").count(), 3);
  await watched.axe("stale");
  await page.goto(`${watched.base}/#/bulkheads`);
  await page.locator(".problem", { hasText: "Redis cannot be reached" }).waitFor();
  await watched.axe("broken");
  fake.setRedis(false);
  await page.locator("tbody tr").first().waitFor();
  await page.locator(".banner").waitFor({ state: "detached" });
  watched.clean("redis");
  await page.close();
  await fake.stop();
});

test("a gateway that is gone is reported, and found again", async () => {
  const fake = new FakeGateway();
  const watched = await browser.page(await fake.start());
  const { page } = watched;
  await watched.go("#/circuits");
  await page.locator(".connection.live").waitFor();
  await page.locator("tbody tr").first().waitFor();
  const port = await fake.stop();
  await page.locator(".connection.reconnecting").waitFor();
  await page.locator(".connection.disconnected").waitFor({ timeout: 15_000 });
  await page.locator(".banner", { hasText: "Disconnected" }).waitFor();
  assert.ok((await page.locator("tbody tr").count()) > 0, "what was read stays");
  await page.locator(".stale").first().waitFor();
  const again = new FakeGateway();
  await again.start(port);
  await page.evaluate(() => dispatchEvent(new Event("online")));
  await page.locator(".connection.live").waitFor({ timeout: 15_000 });
  await page.locator(".stale").first().waitFor({ state: "detached" });
  assert.deepEqual(watched.foreign, []);
  await page.close();
  await again.stop();
});

test("a session that comes before the first frame is shown", async () => {
  const fake = new FakeGateway();
  const watched = await browser.page(await fake.start());
  const { page } = watched;
  // Frames and timers wait until the session is there, as they do when a machine is busy.
  await page.addInitScript(() => {
    const [frame, timer, get] = [globalThis.requestAnimationFrame, globalThis.setTimeout, globalThis.fetch];
    let go = (): void => undefined;
    const there = new Promise<void>((done) => (go = done));
    globalThis.requestAnimationFrame = (run) => (void there.then(() => frame(run)), 0);
    globalThis.setTimeout = ((run: () => void, ms: number) => (void there.then(() => timer(run, ms)), 0)) as unknown as typeof setTimeout;
    globalThis.fetch = async (...asked) => {
      const reply = await get(...asked);
      if (asked[0] === "/api/session") timer(go, 200);
      return reply;
    };
  });
  await watched.go("#/circuits");
  await page.locator("tbody tr").first().waitFor();
  watched.clean("session");
  await page.close();
  await fake.stop();
});

test("a slow server shows loading, an empty one nothing", async () => {
  const fake = new FakeGateway(new World(Date.now(), true));
  const watched = await browser.page(await fake.start());
  const { page } = watched;
  const go = fake.hold("/api/circuits");
  await page.goto(`${watched.base}/#/circuits`);
  await page.locator("h1", { hasText: "Circuits" }).waitFor();
  await page.locator(".skeleton").first().waitFor();
  await watched.axe("loading");
  assert.equal(await page.locator(".skeleton").count(), 1, "it still loads");
  go();
  await page.locator(".empty", { hasText: "No circuits yet" }).waitFor();
  for (const view of ["", "limits", "locks", "bulkheads", "work", "policies", "ledgers", "alerts", "audit", "health"]) {
    await watched.go(`#/${view}`);
    await watched.settled();
    await page.locator(".empty").first().waitFor();
    await watched.axe(`empty ${view}`);
  }
  watched.clean("empty");
  await page.close();
  await fake.stop();
});

test("a problem of one list is shown with its request", async () => {
  const fake = new FakeGateway();
  const watched = await browser.page(await fake.start());
  const { page } = watched;
  fake.faults.fail.set("/api/audit", { status: 429, code: "RATE_LIMIT_EXCEEDED", detail: "This client asks too often." });
  await watched.go("#/audit");
  await page.locator(".problem", { hasText: "asks too often" }).waitFor();
  assert.match((await page.locator(".problem").textContent()) ?? "", /RATE_LIMIT_EXCEEDED · request [0-9a-f]+/);
  fake.faults.fail.clear();
  await page.getByRole("button", { name: "Try again" }).press("Enter");
  await page.locator("tbody tr").first().waitFor();
  watched.clean("problem");
  await page.close();
  await fake.stop();
});
