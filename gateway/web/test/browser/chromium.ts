// A real Chromium for the tests: its own profile, no traffic of its own, and everything noted that must not happen.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium, type BrowserContext, type Page } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export class Chromium {
  private constructor(
    readonly context: BrowserContext,
    private readonly profile: string,
  ) {}

  static async start(options: { width?: number; height?: number; scheme?: "light" | "dark" } = {}): Promise<Chromium> {
    const profile = mkdtempSync(join(tmpdir(), "resil-chromium-"));
    const context = await chromium.launchPersistentContext(profile, {
      executablePath: process.env["RESIL_CHROMIUM"] ?? "/usr/bin/chromium",
      headless: true,
      viewport: { width: options.width ?? 1024, height: options.height ?? 768 },
      colorScheme: options.scheme ?? "light",
      reducedMotion: "reduce",
      timezoneId: "UTC",
      args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"],
    });
    context.setDefaultTimeout(10_000);
    return new Chromium(context, profile);
  }

  async stop(): Promise<void> {
    await this.context.close();
    rmSync(this.profile, { recursive: true, force: true, maxRetries: 5 });
  }

  async page(base: string): Promise<Watched> {
    return Watched.open(await this.context.newPage(), base);
  }
}

/** A page whose requests, errors and violations are noted. */
export class Watched {
  readonly foreign: string[] = [];
  readonly errors: string[] = [];

  private constructor(
    readonly page: Page,
    readonly base: string,
  ) {}

  static async open(page: Page, base: string): Promise<Watched> {
    const watched = new Watched(page, base);
    // What a busy machine shows: `RESIL_THROTTLE=6` makes the page so many times slower.
    const rate = Number(process.env["RESIL_THROTTLE"] ?? 1);
    if (rate > 1) await (await page.context().newCDPSession(page)).send("Emulation.setCPUThrottlingRate", { rate });
    page.on("request", (request) => {
      if (!request.url().startsWith(`${base}/`) && !request.url().startsWith("data:")) watched.foreign.push(request.url());
    });
    page.on("pageerror", (error) => watched.errors.push(String(error)));
    page.on("console", (message) => {
      const text = message.text();
      // Statuses that a test asked for are written to the console by the browser itself.
      if (message.type() === "error" && !text.startsWith("Failed to load resource")) watched.errors.push(text);
    });
    return watched;
  }

  /** Lists are not read again every few seconds: what shows up was announced. Before the first `go`. */
  async withoutPolling(): Promise<void> {
    await this.page.addInitScript(() => {
      const timer = globalThis.setInterval;
      globalThis.setInterval = ((run: () => void, ms: number) => (ms > 1_000 ? 0 : timer(run, ms))) as typeof setInterval;
    });
  }

  async go(hash = ""): Promise<void> {
    await this.page.goto(`${this.base}/${hash}`);
    // Another fragment is no new document: let the new view be drawn before anybody looks.
    await this.page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    await this.page.locator("#title, .login").first().waitFor();
  }

  /** Nothing loads any more and nothing is missing. */
  async settled(): Promise<void> {
    await this.page.locator(".skeleton").first().waitFor({ state: "detached" });
  }

  async axe(where: string): Promise<void> {
    // Injected by the debugger, so that the page keeps its policy without eval.
    await this.page.evaluate(AXE);
    const found = await this.page.evaluate(async () => {
      const { axe } = globalThis as unknown as { axe: { run(context: Document, options: unknown): Promise<{ violations: { id: string; nodes: { html: string; failureSummary: string }[] }[] }> } };
      const { violations } = await axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] });
      return violations.map((each) => `${each.id}: ${each.nodes.map((node) => `${node.html} ${node.failureSummary}`).slice(0, 3).join("\n    ")}`);
    });
    assert.deepEqual(found, [], `${where}: accessibility`);
  }

  /** The page is never wider than the window. */
  async fits(where: string): Promise<void> {
    const [page = 0, window = 0] = await this.page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(page <= window, `${where}: ${page} px wide in a window of ${window}`);
  }

  clean(where: string): void {
    assert.deepEqual(this.foreign, [], `${where}: requests to elsewhere`);
    assert.deepEqual(this.errors, [], `${where}: errors and violations`);
  }
}
