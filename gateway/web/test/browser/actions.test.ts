// What can be done, done as a person would: forms, dialogs, conflicts, refusals.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { FakeGateway } from "../fake/server";
import { Chromium, type Watched } from "./chromium";

let browser: Chromium;
let fake: FakeGateway;
let base = "";
let watched: Watched;
const key = (kind: string, name: string): string => encodeURIComponent(`resil:${kind}:{${name}}`);

before(async () => {
  browser = await Chromium.start();
});
after(() => browser.stop());
beforeEach(async () => {
  fake = new FakeGateway();
  base = await fake.start();
  watched = await browser.page(base);
});

async function done(where: string): Promise<void> {
  watched.clean(where);
  await watched.page.close();
  await fake.stop();
}

async function sign(reason: string | null): Promise<void> {
  const dialog = watched.page.getByRole("dialog");
  await dialog.getByLabel("Your name").fill("ann");
  if (reason !== null) await dialog.getByLabel("Reason").fill(reason);
}

const posts = (): { path: string; body: unknown }[] => fake.requests.filter((each) => each.method === "POST" && !each.path.endsWith("/check") && !each.path.endsWith("/diff")).map(({ path, body }) => ({ path, body }));

test("a circuit is forced with actor and reason, visibly", async () => {
  const { page } = watched;
  await watched.go(`#/circuits/${key("policy", "inventory")}`);
  await page.getByRole("button", { name: "Force…" }).press("Enter");
  const dialog = page.getByRole("dialog");
  await watched.axe("force");
  await dialog.getByRole("button", { name: "Force", exact: true }).press("Enter");
  assert.match((await dialog.locator(".hint.wrong").first().textContent()) ?? "", /required/);
  assert.deepEqual(posts(), [], "nothing was sent without a name");
  await dialog.getByLabel("For (empty").fill("5m");
  await sign("bank maintenance");
  await page.keyboard.press("Enter");
  await dialog.waitFor({ state: "detached" });
  await page.locator("h1 + .badge", { hasText: "forced-open" }).waitFor();
  await page.getByText("Forced by ann").waitFor();
  assert.deepEqual(posts(), [{ path: `/api/circuits/${key("policy", "inventory")}/force`, body: { state: "open", forMs: 300_000, actor: "ann", reason: "bank maintenance" } }]);
  assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Force…", "the focus is back");
  await page.getByRole("button", { name: "Reset…" }).press("Enter");
  assert.equal(await page.getByRole("dialog").getByLabel("Your name").inputValue(), "ann", "the name is remembered in this tab");
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await done("force");
});

test("Tab stays in a dialog and Esc leaves it", async () => {
  const { page } = watched;
  await watched.go(`#/locks/${key("lock", "reports")}`);
  await watched.settled();
  await page.getByRole("button", { name: "Break…" }).press("Enter");
  await page.getByRole("dialog").waitFor();
  for (const press of ["Tab", "Shift+Tab"]) {
    for (let turn = 0; turn < 8; turn++) {
      await page.keyboard.press(press);
      assert.ok(await page.evaluate(() => document.activeElement?.closest("dialog") !== null), press);
    }
  }
  // Looks before the next frame: a key that is pressed then must not be lost.
  await page.evaluate(() => {
    const observer = new MutationObserver(() => {
      if (document.querySelector("dialog") !== null) return;
      observer.disconnect();
      document.body.dataset.focused = document.activeElement?.textContent ?? "";
    });
    observer.observe(document.body, { childList: true, subtree: true });
  });
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.equal(await page.locator("body").getAttribute("data-focused"), "Break…", "the focus is back when the dialog has gone");
  await page.keyboard.press("Enter");
  await sign("stuck since noon");
  await page.keyboard.press("Enter");
  await page.getByText("Nobody holds it and nobody waits").waitFor();
  assert.equal(posts().length, 1);
  await page.getByRole("button", { name: "Break…", disabled: true }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Break…", "what can no longer be pressed keeps the focus");
  await done("dialog");
});

test("a policy is checked, compared, saved and rolled back", async () => {
  const { page } = watched;
  await watched.go("#/policies/payments");
  const text = page.getByLabel("Document, JSON or YAML");
  const good = await text.inputValue();
  await text.fill(good.replace('"maxAttempts": 3', '"maxAttempts": 0'));
  await page.getByText("must be from 1 to 100, got 0").waitFor();
  await page.getByRole("button", { name: /^Line \d+$/ }).press("Enter");
  assert.match(await text.evaluate((area: HTMLTextAreaElement) => area.value.slice(area.selectionStart, area.selectionEnd)), /maxAttempts/);
  assert.equal(await page.getByRole("button", { name: "Review and save…" }).getAttribute("aria-disabled"), "true");
  await text.fill(good.replace('"maxAttempts": 3', '"maxAttempts": 4'));
  await page.getByText("The document is valid.").waitFor();
  await page.getByRole("button", { name: "Review and save…" }).press("Enter");
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("rowheader", { name: "retry.maxAttempts" }).waitFor();
  assert.deepEqual([await dialog.locator("del").textContent(), await dialog.locator("ins").textContent()], ["3", "4"]);
  await watched.axe("save");
  await sign("one more attempt");
  await page.keyboard.press("Enter");
  await page.locator(".chip", { hasText: "version 4" }).first().waitFor();
  assert.deepEqual((posts()[0]?.body as { expectedVersion: number }).expectedVersion, 3);
  await page.getByRole("button", { name: "Roll back… to version 2" }).press("Enter");
  await dialog.getByRole("rowheader", { name: "timeout.attempt" }).waitFor();
  await sign("as it was");
  await page.keyboard.press("Enter");
  await page.locator(".chip", { hasText: "version 5" }).first().waitFor();
  assert.ok(!(await text.inputValue()).includes("timeout"));
  await done("policy");
});

test("a policy saved meanwhile is never overwritten unseen", async () => {
  const { page } = watched;
  await watched.go("#/policies/inventory");
  const text = page.getByLabel("Document, JSON or YAML");
  await text.fill('{ "retry": { "maxAttempts": 7 } }');
  await page.getByText("The document is valid.").waitFor();
  await page.getByRole("button", { name: "Review and save…" }).press("Enter");
  await sign("mine");
  fake.world.emit = () => undefined;
  fake.world.store("inventory", '{\n  "retry": {\n    "maxAttempts": 9\n  }\n}', "ben", "quicker");
  await page.keyboard.press("Enter");
  await page.getByText("Version 2 was stored meanwhile").waitFor();
  assert.equal(fake.world.storedPolicy("inventory")?.version, 2, "nothing was saved");
  assert.match(await text.inputValue(), /7/, "the text is kept");
  await watched.axe("conflict");
  await page.getByRole("button", { name: "Keep my text, on top of it" }).press("Enter");
  await page.getByRole("button", { name: "Review and save…" }).press("Enter");
  await sign("both seen");
  await page.keyboard.press("Enter");
  await page.locator(".chip", { hasText: "version 3" }).first().waitFor();
  await done("conflict");
});

test("a policy is made, and deleted", async () => {
  const { page } = watched;
  await watched.go("#/policies");
  await page.getByRole("button", { name: "New policy…" }).press("Enter");
  await page.getByRole("dialog").getByLabel("Name").fill("shipping");
  await page.keyboard.press("Enter");
  await page.getByText("The document is valid.").waitFor();
  await page.getByRole("button", { name: "Review and save…" }).press("Enter");
  await sign("new service");
  await page.keyboard.press("Enter");
  await page.locator(".chip", { hasText: "version 1" }).first().waitFor();
  await page.getByRole("button", { name: "Delete…" }).press("Enter");
  await sign("was a trial");
  await page.keyboard.press("Enter");
  await page.locator("h1", { hasText: "Policies" }).waitFor();
  assert.deepEqual(posts().map((each) => each.path), ["/api/policies/shipping", "/api/policies/shipping/delete"]);
  await done("new policy");
});

test("an alert is seen, an entry held, a ledger paused", async () => {
  const { page } = watched;
  await watched.go("#/alerts");
  await page.getByRole("button", { name: /Mark as seen… alert 7/ }).press("Enter");
  await sign(null);
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: /Mark as seen… alert 7/ }).waitFor({ state: "detached" });
  await watched.go(`#/ledgers/${key("dlq", "orders")}/entries/${encodeURIComponent("orders/2")}`);
  await page.getByRole("button", { name: "Hold…" }).press("Enter");
  await sign("asked for by the auditors");
  await page.keyboard.press("Enter");
  await page.locator(".chip", { hasText: "held" }).waitFor();
  assert.equal(await page.locator("pre img").count(), 0, "what a payload says is text");
  await watched.axe("entry");
  await watched.go(`#/ledgers/${key("dlq", "orders")}`);
  await page.getByRole("button", { name: "Pause…" }).press("Enter");
  await page.getByRole("dialog").getByLabel("For (empty").fill("10m");
  await sign("deployment");
  await page.keyboard.press("Enter");
  await page.getByText("Nothing is given out").waitFor();
  assert.deepEqual((posts().at(-1)?.body as { forMs: number }).forMs, 600_000);
  await done("ledger");
});

test("entries are filtered in the address and come in pages", async () => {
  const { page } = watched;
  await watched.go(`#/ledgers/${key("dlq", "orders")}/entries`);
  await page.getByRole("button", { name: "Load 50 more" }).waitFor();
  assert.equal(await page.locator("tbody tr").count(), 50);
  await page.getByRole("button", { name: "Load 50 more" }).press("Enter");
  await page.locator("tbody tr").nth(99).waitFor();
  await page.getByLabel("Class", { exact: true }).selectOption("business");
  await page.locator(".count", { hasText: "35" }).waitFor();
  assert.match(page.url(), /failureClass=business/);
  await page.reload();
  await page.locator(".count", { hasText: "35" }).waitFor();
  await page.getByLabel("Filter entries", { exact: true }).last().fill("o-3 -o-36");
  await page.locator(".count", { hasText: "of 35" }).waitFor();
  await page.getByRole("columnheader", { name: "Entry" }).getByRole("button").press("Enter");
  assert.equal(await page.locator("th[aria-sort]").getAttribute("aria-sort"), "ascending");
  await done("entries");
});

test("a viewer sees why the rest is closed", async () => {
  const { page } = watched;
  fake.tokens.set("look-token", { role: "look", name: "a screen on the wall" });
  await watched.go(`#/circuits/${key("policy", "inventory")}`);
  await watched.axe("login");
  await page.getByLabel("Token").fill("wrong");
  await page.keyboard.press("Enter");
  await page.locator(".hint.wrong", { hasText: "not known" }).waitFor();
  await page.getByLabel("Token").fill("look-token");
  await page.keyboard.press("Enter");
  const force = page.getByRole("button", { name: "Force…" });
  await force.waitFor();
  assert.equal(await force.getAttribute("aria-disabled"), "true");
  await force.focus();
  await page.keyboard.press("Enter");
  assert.equal(await page.getByRole("dialog").count(), 0);
  assert.equal(await page.getByRole("tooltip").first().textContent(), "Needs the role operate; this session has look.");
  await watched.axe("a screen on the wall");
  const kept = await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }) + document.cookie);
  assert.ok(!kept.includes("look-token") && !kept.includes("resil_session"), "no secret is where scripts can read it");
  fake.endSessions();
  await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  await page.getByLabel("Token").waitFor({ timeout: 15_000 });
  await done("roles");
});
