// Runs the tests: bundles them (they are TypeScript), then hands them to node --test.
//
//   node test/run.mjs unit                 logic alone
//   node test/run.mjs browser              in Chromium, against the fake gateway
//   node test/run.mjs browser real <url>   the tour alone, against a running gateway that needs no token
//   node test/run.mjs real <url>           actions, against the program that gateway/tests/gateway/browser.rs has started
//   node test/run.mjs fake [port]          serves the fake gateway, to look at
//
// RESIL_THROTTLE=6 makes the pages so many times slower, as on a busy machine.

import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const made = join(root, "node_modules", ".made", process.argv[2] ?? "unit");
const [, , what = "unit", ...words] = process.argv;
process.chdir(root);

const folder = what === "fake" ? "fake" : what;
const all = readdirSync(join("test", folder)).filter((name) => (what === "fake" ? name === "main.ts" : name.endsWith(".test.ts")));
const names = what === "real" ? all : words[0] === "real" ? all.filter((name) => name === "tour.test.ts") : words.length > 0 && what !== "fake" ? all.filter((name) => words.some((word) => name.includes(word))) : all;
rmSync(made, { recursive: true, force: true });
mkdirSync(made, { recursive: true });
await build({
  entryPoints: names.map((name) => join("test", folder, name)),
  outdir: made,
  outExtension: { ".js": ".mjs" },
  bundle: true,
  platform: "node",
  format: "esm",
  target: "node18",
  packages: "external",
  jsx: "automatic",
  jsxImportSource: "preact",
  sourcemap: "inline",
  logLevel: "warning",
});
const files = readdirSync(made).map((name) => join(made, name));
const env = { ...process.env, NODE_OPTIONS: "--enable-source-maps", ...(what === "real" ? { RESIL_GATEWAY: words[0] } : words[0] === "real" ? { RESIL_GATEWAY: words[1] } : {}) };
// A file of browser tests that fails beside others is run once more, alone, as the other suites do.
const again = join(root, "..", "..", "scripts", "again");
const [program, args] =
  what === "fake" ? [process.execPath, [...files, ...words]] : what === "browser" ? [again, ["node", ...files]] : [process.execPath, ["--test", ...files]];
// A page that never tells what a test waits for ends the run, but not all others' time.
const timeout = what === "fake" ? undefined : 15 * 60_000;
process.exit(spawnSync(program, args, { stdio: "inherit", env, timeout }).status ?? 1);
