// Makes dist/ of src/: one script, one style sheet, one page, one icon. The same sources give the same bytes, so dist/ is
// checked in and building the gateway needs no Node.
//
//   node build.mjs           writes dist/
//   node build.mjs --check   fails when dist/ differs from its sources, is too large, or names another host

import { readdirSync, readFileSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const COMPRESSED_MAX = 150_000;

const root = new URL("./", import.meta.url);
const dist = new URL("dist/", root);

async function made() {
  const shared = {
    absWorkingDir: fileURLToPath(root),
    bundle: true,
    minify: true,
    write: false,
    charset: "utf8",
    legalComments: "none",
    target: ["chrome111", "firefox115", "safari16.4"],
    logLevel: "warning",
  };
  const script = await build({ ...shared, entryPoints: ["src/main.tsx"], format: "esm", jsx: "automatic", jsxImportSource: "preact" });
  const style = await build({ ...shared, entryPoints: ["src/style/all.css"] });
  return {
    "app.css": Buffer.from(style.outputFiles[0].contents),
    "app.js": Buffer.from(script.outputFiles[0].contents),
    "icon.svg": readFileSync(new URL("src/icon.svg", root)),
    "index.html": readFileSync(new URL("src/index.html", root)),
  };
}

function problems(files) {
  const found = [];
  const there = new Set(readdirSync(dist));
  for (const [name, bytes] of Object.entries(files)) {
    if (!there.delete(name) || !readFileSync(new URL(name, dist)).equals(bytes)) found.push(`dist/${name} is not what src/ makes: npm run build`);
    // The names of XML dialects are not addresses that anybody opens.
    for (const [address] of bytes.toString().matchAll(/https?:\/\/[^"'`\s)]+/g)) {
      if (!address.startsWith("http://www.w3.org/")) found.push(`dist/${name} names ${address}`);
    }
  }
  for (const name of there) found.push(`dist/${name} is made of nothing in src/`);
  return found;
}

const files = await made();
const compressed = Object.values(files).reduce((sum, bytes) => sum + gzipSync(bytes, { level: 9 }).length, 0);

if (process.argv.includes("--check")) {
  const found = problems(files);
  if (compressed > COMPRESSED_MAX) found.push(`dist/ is ${compressed} bytes compressed, ${COMPRESSED_MAX} are allowed`);
  for (const problem of found) console.error(problem);
  process.exitCode = found.length > 0 ? 1 : 0;
} else {
  rmSync(dist, { recursive: true, force: true });
  mkdirSync(dist);
  for (const [name, bytes] of Object.entries(files)) writeFileSync(new URL(name, dist), bytes);
  console.error(`dist/: ${compressed} bytes compressed`);
}
