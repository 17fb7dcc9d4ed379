// Every kind of action, as a person does it, against the real program on a real server: what the page shows afterwards came from there.
// gateway/tests/gateway/browser.rs starts all of it, and looks at the server afterwards.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Chromium, type Watched } from "../browser/chromium";

const base = process.env["RESIL_GATEWAY"] ?? "";
const token = process.env["RESIL_TOKEN"] ?? "";
const key = (kind: string, name: string): string => encodeURIComponent(`resil:${kind}:{${name}}`);
let browser: Chromium;
let watched: Watched;

before(async () => {
  browser = await Chromium.start();
  watched = await browser.page(base);
});
after(() => browser.stop());

async function sign(reason: string | null): Promise<void> {
  const dialog = watched.page.getByRole("dialog");
  await dialog.getByLabel("Your name").fill("ann");
  if (reason !== null) await dialog.getByLabel("Reason").fill(reason);
  await watched.page.keyboard.press("Enter");
  await dialog.waitFor({ state: "detached" });
}

test("a token is shown once, and a session is kept", async () => {
  const { page } = watched;
  await watched.go();
  await page.getByLabel("Token").fill("not-this-one-0123456789");
  await page.keyboard.press("Enter");
  await page.locator(".hint.wrong", { hasText: "not known" }).waitFor();
  await page.getByLabel("Token").fill(token);
  await page.keyboard.press("Enter");
  await page.locator(".connection.live").waitFor();
  const kept = await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }) + document.cookie);
  assert.ok(!kept.includes(token) && !kept.includes("resil_session"), "no secret is where scripts can read it");
  watched.clean("login");
});

test("a circuit is forced and reset, with actor and reason", async () => {
  const { page } = watched;
  await watched.go("#/circuits");
  await page.locator("tbody a", { hasText: "payments" }).first().press("Enter");
  await page.getByRole("button", { name: "Force…" }).press("Enter");
  await page.getByRole("dialog").getByLabel("For (empty").fill("5m");
  await sign("bank maintenance");
  await page.locator("h1 + .badge", { hasText: "forced-open" }).waitFor();
  await page.getByText("Forced by ann").waitFor();
  await page.getByText("bank maintenance").first().waitFor();
  await page.getByRole("button", { name: "Reset…" }).press("Enter");
  await sign("it is over");
  await page.locator("h1 + .badge", { hasText: "closed" }).waitFor();
  await page.getByRole("button", { name: "Force…" }).press("Enter");
  await sign("once more");
  await page.locator("h1 + .badge", { hasText: "forced-open" }).waitFor();
  await watched.axe("circuit");
  watched.clean("circuit");
});

test("a lock is broken, with actor and reason", async () => {
  const { page } = watched;
  await watched.go(`#/locks/${key("lock", "reports")}`);
  await watched.settled();
  await page.getByRole("button", { name: "Break…" }).press("Enter");
  await sign("stuck since noon");
  await page.locator("h1 + .badge", { hasText: "free" }).waitFor();
  watched.clean("lock");
});

test("a policy is checked, saved, and rolled back", async () => {
  const { page } = watched;
  await watched.go("#/policies/payments");
  const text = page.getByLabel("Document, JSON or YAML");
  await text.waitFor();
  const good = await text.inputValue();
  await text.fill(good.replace('"maxAttempts": 3', '"maxAttempts": 0'));
  await page.getByText("must be from 1 to 100, got 0").waitFor();
  await text.fill(good.replace('"maxAttempts": 3', '"maxAttempts": 4'));
  await page.getByText("The document is valid.").waitFor();
  await page.getByRole("button", { name: "Review and save…" }).press("Enter");
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("rowheader", { name: "retry.maxAttempts" }).waitFor();
  assert.deepEqual([await dialog.locator("del").first().textContent(), await dialog.locator("ins").first().textContent()], ["3", "4"]);
  await sign("one more attempt");
  await page.locator(".chip", { hasText: "version 2" }).first().waitFor();
  await page.getByRole("button", { name: "Roll back… to version 1" }).press("Enter");
  await dialog.getByRole("rowheader", { name: "retry.maxAttempts" }).waitFor();
  await sign("as it was");
  await page.locator(".chip", { hasText: "version 3" }).first().waitFor();
  assert.equal(await text.inputValue(), good);
  watched.clean("policy");
});

test("dead letters are redriven until their case is verified", async () => {
  const { page } = watched;
  await watched.go(`#/ledgers/${key("dlq", "orders")}/entries/${encodeURIComponent("orders/7")}`);
  await page.getByText("A redrive needs a case").waitFor();
  await page.getByRole("button", { name: "Open a case…" }).press("Enter");
  await page.locator("h1", { hasText: "New case" }).waitFor();
  await page.getByLabel("Cause", { exact: true }).fill("the payment provider was down");
  await page.getByLabel("Fix", { exact: true }).fill("it is up again, INC-204");
  await page.getByLabel("Your name").fill("ann");
  await page.keyboard.press("Enter");
  await page.locator("h1", { hasText: "Case 1" }).waitFor();
  await page.getByRole("button", { name: "Dry run" }).press("Enter");
  await page.locator(".big", { hasText: "12 entries would be delivered again" }).waitFor();
  await page.getByRole("button", { name: "Choose the rate" }).press("Enter");
  await page.getByLabel("Entries", { exact: true }).fill("1000");
  await page.getByRole("button", { name: "Start the redrive…" }).press("Enter");
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("button", { name: "Start", exact: true }).press("Enter");
  await dialog.waitFor({ state: "detached" });
  await page.locator(".verified", { hasText: "Everything under this case is resolved" }).waitFor({ timeout: 60_000 });
  assert.equal(await page.locator("h1 + .badge").textContent().then((text) => text?.replace(/^\W+/, "")), "verified");
  await watched.axe("verified");
  await page.getByRole("button", { name: "Close…" }).press("Enter");
  await dialog.getByRole("button", { name: "Close", exact: true }).last().press("Enter");
  await page.locator(".facts dt", { hasText: "Closed" }).waitFor();
  await watched.go(`#/ledgers/${key("dlq", "orders")}/entries/${encodeURIComponent("orders/7")}`);
  await page.locator(".timeline", { hasText: "case 1 redrove it" }).waitFor();
  watched.clean("redrive");
});

test("the audit has all of it", async () => {
  const { page } = watched;
  await watched.go("#/audit");
  await watched.settled();
  for (const text of ["bank maintenance", "it is over", "stuck since noon", "one more attempt", "as it was"]) {
    await page.locator("tbody tr", { hasText: text }).filter({ hasText: "ann" }).first().waitFor();
  }
  await watched.axe("audit");
  watched.clean("audit");
});
