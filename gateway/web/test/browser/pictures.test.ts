// Pictures of the dashboard. Every run keeps them in node_modules/.made/pictures; `scripts/web pictures` puts those of
// docs/gateway.md into docs/pictures.

import assert from "node:assert/strict";
import { mkdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { FakeGateway } from "../fake/server";
import { Chromium } from "./chromium";

const folder = process.env["RESIL_PICTURES"] ?? join("node_modules", ".made", "pictures");
const ALL_BYTES_MAX = 400_000;
const LEDGER = encodeURIComponent("resil:dlq:{orders}");

let browser: Chromium;
before(async () => {
  mkdirSync(folder, { recursive: true });
  browser = await Chromium.start();
});
after(() => browser.stop());

test("pictures are made, and are small", async () => {
  const fake = new FakeGateway();
  const watched = await browser.page(await fake.start());
  const { page } = watched;
  const made: string[] = [];
  const take = async (name: string, width: number, height: number, scheme: "light" | "dark"): Promise<void> => {
    await page.setViewportSize({ width, height });
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    await watched.settled();
    await page.locator(".connection.live").waitFor();
    const path = join(folder, `${name}.png`);
    await page.screenshot({ path });
    made.push(path);
  };
  await watched.go();
  await page.locator(".connection.live").waitFor();
  fake.world.change("resil:policy:{tenant-2}", "open", "consecutive-failures");
  fake.world.change("resil:policy:{tenant-2}", "half-open", "open-time-over");
  await page.locator(".feed li").nth(1).waitFor();
  await take("dashboard-overview", 1280, 800, "light");
  await watched.go("#/circuits");
  await page.locator("tbody tr").first().waitFor();
  await take("dashboard-circuits", 1280, 640, "dark");
  await take("dashboard-narrow", 360, 740, "light");
  await page.setViewportSize({ width: 1280, height: 800 });
  await watched.go("#/policies/payments");
  const text = page.getByLabel("Document, JSON or YAML");
  await text.fill((await text.inputValue()).replace('"maxAttempts": 3', '"maxAttempts": 4'));
  await page.getByText("The document is valid.").waitFor();
  await page.getByRole("button", { name: "Review and save…" }).press("Enter");
  await page.getByRole("dialog").waitFor();
  await take("dashboard-policy", 1280, 720, "light");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Undo my changes" }).press("Enter");

  const it = fake.world.ledgers.get("resil:dlq:{orders}") ?? assert.fail("no ledger");
  const group = "OrderPaid/gateway said <n>";
  it.cases.push({ case: 1, category: "infrastructure", cause: "the payment provider was down", fix: "it is up again, INC-204", decision: null, groups: [group], user: "default", actor: "ann", openedAt: Date.now() - 60_000, closedAt: null, discarded: false, autoUntil: null, redrive: null });
  for (const entry of it.entries.values()) if (entry.group === group) entry.cases = [1];
  const redrive = { phase: "verifying" as const, startedAt: Date.now() - 20_000, rate: { count: 100, periodMs: 60_000 }, first: 10, oneshot: false, auto: false, given: 0, resolved: 0, died: 0, active: 0 };
  const first = it.cases[0];
  if (first) first.redrive = redrive;
  fake.world.work();
  await watched.go(`#/ledgers/${LEDGER}/cases/1`);
  await page.locator(".progress").waitFor();
  await take("dashboard-redrive", 1280, 720, "light");
  const all = made.reduce((sum, path) => sum + statSync(path).size, 0);
  assert.ok(all <= ALL_BYTES_MAX, `${all} bytes of pictures, ${ALL_BYTES_MAX} are allowed`);
  watched.clean("pictures");
  await page.close();
  await fake.stop();
});
