// From a dead letter to `verified`, with the keyboard alone, while workers handle what is given out.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { FakeGateway } from "../fake/server";
import { Chromium } from "./chromium";

let browser: Chromium;
before(async () => {
  browser = await Chromium.start();
});
after(() => browser.stop());

const LEDGER = encodeURIComponent("resil:dlq:{orders}");

test("a dead letter is redriven until its case is verified", async () => {
  const fake = new FakeGateway();
  const watched = await browser.page(await fake.start());
  const { page } = watched;
  await watched.go(`#/ledgers/${LEDGER}/entries/${encodeURIComponent("orders/7")}`);
  await page.getByText("A redrive needs a case").waitFor();
  await page.getByRole("button", { name: "Open a case…" }).press("Enter");
  await page.locator("h1", { hasText: "New case" }).waitFor();
  await page.getByRole("button", { name: "Open the case" }).press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement?.id), "case-cause", "what is missing gets the focus");
  await page.keyboard.type("the payment provider was down");
  await page.getByLabel("Fix", { exact: true }).fill("it is up again, INC-204");
  await page.getByLabel("Your name").fill("ann");
  await watched.axe("case editor");
  await page.keyboard.press("Enter");
  await page.locator("h1", { hasText: "Case 1" }).waitFor();

  await page.getByRole("button", { name: "Dry run" }).press("Enter");
  await page.locator(".big", { hasText: "17 entries would be delivered again" }).waitFor();
  assert.equal(await page.locator("[aria-current=step]").textContent().then((text) => text?.replace(/\d/g, "")), "Dry run");
  assert.equal(await page.evaluate(() => document.activeElement?.id), "step-title");
  await watched.axe("dry run");
  await page.getByRole("button", { name: "Choose the rate" }).press("Enter");
  await page.getByLabel("Entries", { exact: true }).fill("5000");
  await page.getByRole("button", { name: "Start the redrive…" }).press("Enter");
  const dialog = page.getByRole("dialog");
  assert.equal(await dialog.getByLabel("Your name").inputValue(), "ann");
  await dialog.getByRole("button", { name: "Start", exact: true }).press("Enter");
  await dialog.getByText("The rate is above 1000 per minute").waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await page.getByLabel("Entries", { exact: true }).fill("100");
  await watched.axe("rate");
  await page.getByRole("button", { name: "Start the redrive…" }).press("Enter");
  await dialog.getByRole("button", { name: "Start", exact: true }).press("Enter");
  await dialog.waitFor({ state: "detached" });

  await page.locator(".steps .now", { hasText: "Progress" }).waitFor();
  await watched.axe("progress");
  await page.getByRole("button", { name: "Stop…" }).waitFor();
  fake.world.work();
  await page.locator(".facts", { hasText: "Given out" }).getByText("10 of 17", { exact: true }).waitFor();
  fake.world.work();
  await page.locator(".verified", { hasText: "Everything under this case is resolved" }).waitFor();
  assert.equal(await page.locator("h1 + .badge").textContent().then((text) => text?.replace(/^\W+/, "")), "verified");
  await watched.axe("verified");
  await page.getByRole("button", { name: "Close…" }).press("Enter");
  await dialog.getByRole("button", { name: "Close", exact: true }).last().press("Enter");
  await page.locator(".facts dt", { hasText: "Closed" }).waitFor();

  const started = fake.requests.find((each) => each.path.endsWith("/redrive") && each.status === 200);
  assert.deepEqual(started?.body, { rate: { count: 100, periodMs: 60_000 }, first: 10, oneshot: false, actor: "ann" });
  await watched.go(`#/ledgers/${LEDGER}/entries/${encodeURIComponent("orders/7")}`);
  await page.locator(".timeline", { hasText: "redriven under case 1" }).waitFor();
  watched.clean("redrive");
  await page.close();
  await fake.stop();
});

test("a poison case is not redriven, only discarded", async () => {
  const fake = new FakeGateway();
  const watched = await browser.page(await fake.start());
  const { page } = watched;
  await watched.go(`#/ledgers/${LEDGER}`);
  const open = page.getByRole("button", { name: /^Open a case/ });
  assert.equal(await open.getAttribute("aria-disabled"), "true");
  await page.getByLabel(/^Choose OrderPaid/).check();
  await open.press("Enter");
  await page.getByLabel("Poison").check();
  await page.getByLabel("Cause", { exact: true }).fill("cannot be parsed");
  await page.getByLabel("Your name").fill("ann");
  await page.keyboard.press("Enter");
  await page.getByText("What is poison is only discarded").waitFor();
  await page.getByRole("button", { name: "Discard…" }).press("Enter");
  await page.getByRole("dialog").getByRole("button", { name: "Discard", exact: true }).press("Enter");
  await page.locator(".facts dt", { hasText: "Discarded" }).waitFor();
  watched.clean("poison");
  await page.close();
  await fake.stop();
});
