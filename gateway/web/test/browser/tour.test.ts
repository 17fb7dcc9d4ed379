// Every view in turn, with the keyboard alone, narrow and wide, light and dark: nothing is missing, nothing is too wide,
// nothing leaves the origin, nothing breaks the policy, and axe has no complaint. Runs against the fake gateway, or
// against a real one whose address is in RESIL_GATEWAY.

import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { FakeGateway } from "../fake/server";
import { Chromium, Watched } from "./chromium";

const real = process.env["RESIL_GATEWAY"];
const fake = new FakeGateway();
let base = "";
let browser: Chromium;

before(async () => {
  base = real ?? (await fake.start());
});
after(async () => {
  if (real === undefined) await fake.stop();
});
// A browser of its own for each, so that none starts with what another left behind.
beforeEach(async () => {
  browser = await Chromium.start();
});
afterEach(() => browser.stop());

const VIEWS = ["Overview", "Health", "In flight", "Circuits", "Limits", "Locks", "Bulkheads", "Policies", "Dead letters", "Alerts", "Audit"];

/** Tab until a link or button with this name has the focus. */
async function tabTo(page: Watched["page"], name: RegExp, max = 80): Promise<void> {
  for (let turn = 0; turn < max; turn++) {
    await page.keyboard.press("Tab");
    const text = await page.evaluate(() => {
      const here = document.activeElement;
      return here?.getAttribute("aria-label") ?? here?.textContent?.trim() ?? "";
    });
    if (name.test(text)) return;
  }
  assert.fail(`Tab does not reach ${name}`);
}

test("the keyboard alone reaches every view, and each is accessible", async () => {
  const watched = await browser.page(base);
  const { page } = watched;
  await watched.go();
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Skip to the content");
  let times = 0;
  for (const name of VIEWS) {
    await tabTo(page, new RegExp(`^${name}`));
    await page.keyboard.press("Enter");
    await page.locator("h1", { hasText: name }).waitFor();
    await watched.settled();
    assert.equal(await page.locator("nav [aria-current=page]").first().evaluate((link) => link.firstChild?.textContent), name);
    if (name !== "Overview") assert.equal(await page.evaluate(() => document.activeElement?.id), "title", `${name}: the heading has the focus`);
    assert.equal(await page.title(), `${name} · Resil`);
    assert.equal(await page.locator(".problem").count(), 0, `${name} has a problem: ${await page.locator(".problem").allTextContents()}`);
    await watched.axe(name);
    for (const time of await page.locator("main time").all()) {
      assert.match(await time.innerText(), /^(now|.+ ago|in .+)$/, `${name}: times are relative`);
      assert.match((await time.getAttribute("title")) ?? "", /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC/, `${name}: with the exact one on hover`);
      times += 1;
    }
    await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
    await page.evaluate(() => document.querySelector<HTMLElement>(".skip")?.focus());
  }
  assert.ok(times > 0 || real !== undefined, "some views have times");
  await page.locator(".connection.live").waitFor();
  watched.clean("tour");
  await page.close();
});

test("every detail page opens from its list", async () => {
  const watched = await browser.page(base);
  const { page } = watched;
  for (const list of ["circuits", "locks", "bulkheads", "policies", "ledgers"]) {
    await watched.go(`#/${list}`);
    await watched.settled();
    const first = page.locator("tbody a").first();
    if ((await first.count()) === 0) continue;
    await first.press("Enter");
    await page.locator(".crumbs").waitFor();
    await watched.settled();
    assert.equal(await page.locator(".problem").count(), 0, list);
    await watched.axe(`one of ${list}`);
    await watched.fits(`one of ${list}`);
  }
  watched.clean("details");
  await page.close();
});

test("runs and loads are listed with callers, for keyboards", async () => {
  const watched = await browser.page(base);
  const { page } = watched;
  await watched.go("#/work");
  await watched.settled();
  const runs = page.getByRole("table", { name: "Runs under idempotency keys" });
  const loads = page.getByRole("table", { name: "Loads", exact: true });
  assert.match(await runs.innerText(), /resil:idemp:pay:\{c-1009\}[\s\S]*contended[\s\S]*api-1/);
  assert.match(await loads.innerText(), /resil:cache:catalogue:\{all\}[\s\S]*loading[\s\S]*api-2/);
  assert.equal(await page.getByText("resil load list").count(), 1, "there are more loads than are shown");
  assert.equal(await page.getByText("resil run list").count(), 0);
  const firstKey = (): Promise<string> => runs.locator("tbody tr").first().innerText();
  // The one that waits for a decision is the oldest; by state the other one comes first.
  assert.match(await firstKey(), /c-0997[\s\S]*held/);
  await runs.getByRole("button", { name: "State" }).focus();
  await page.keyboard.press("Enter");
  assert.match(await firstKey(), /c-1009[\s\S]*contended/);
  await watched.axe("runs and loads");
  watched.clean("runs and loads");
  await page.close();
});

for (const [width, scheme] of [[360, "dark"], [360, "light"], [1920, "dark"]] as const) {
  test(`every view fits and has contrast at ${width} px, ${scheme}`, async () => {
    const watched = await browser.page(base);
    const { page } = watched;
    await page.setViewportSize({ width, height: width === 360 ? 740 : 1080 });
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    for (const view of ["", "circuits", "limits", "locks", "bulkheads", "work", "policies", "policies/payments", "ledgers", "alerts", "audit", "health"]) {
      await watched.go(`#/${view}`);
      await watched.settled();
      await watched.fits(`${view} at ${width}`);
      if (width === 360 || view === "") await watched.axe(`${view} at ${width}, ${scheme}`);
    }
    watched.clean(`${width} ${scheme}`);
    await page.close();
  });
}

test("the theme can be switched and is remembered", async () => {
  const watched = await browser.page(base);
  const { page } = watched;
  await watched.go();
  const ground = (): Promise<string> => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await ground();
  await page.getByLabel("Theme").selectOption("dark");
  assert.notEqual(await ground(), light);
  await page.reload();
  await page.locator("#title").waitFor();
  assert.notEqual(await ground(), light);
  assert.equal(await page.getByLabel("Theme").inputValue(), "dark");
  await page.getByLabel("Theme").selectOption("system");
  assert.deepEqual(await page.evaluate(() => Object.keys(localStorage)), []);
  await page.close();
});
