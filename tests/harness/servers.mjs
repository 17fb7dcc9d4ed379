/**
 * Real servers for tests in Node: started on free ports, killed when the tests end, however they end.
 *
 *     const servers = new Servers();
 *     const server = await servers.start({ moduleArgs: ["test-clock", "yes"] });
 *     await server.say("RES._CLOCK", 4102444800000000);
 *     await server.kill();      // as kill -9
 *     await server.restart();   // same port, same folder
 *     await servers.close();
 *
 * It speaks JSON lines with the program `resil-servers` (see its main.rs), which `cargo build -p resil-harness` makes.
 */

import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");

/** The server answered a command with an error; the message is the line it wrote, code first. */
export class Refused extends Error {}

/** `RESIL_SERVERS_PROGRAM`, or else what the workspace's dev build leaves behind. */
export function program() {
  if (process.env.RESIL_SERVERS_PROGRAM) return process.env.RESIL_SERVERS_PROGRAM;
  // A relative target folder is meant from the workspace, as cargo does it there.
  const built = path.resolve(root, process.env.CARGO_TARGET_DIR || "target", "debug/resil-servers");
  if (!existsSync(built)) throw new Error(`${built} is not there: cargo build -p resil-harness`);
  return built;
}

/** The starter, and all servers it started. Requests are answered in order. */
export class Servers {
  #child;
  #waiting = [];
  #ended;

  constructor() {
    // A group of its own: a Ctrl-C at the terminal reaches the tests, and the end of our process ends its input.
    this.#child = spawn(program(), [], { stdio: ["pipe", "pipe", "inherit"], detached: true });
    this.#child.stdin.on("error", () => {}); // what a broken pipe means is reported by the exit below
    createInterface({ input: this.#child.stdout }).on("line", (line) => {
      this.#waiting.shift()?.resolve(JSON.parse(line));
      this.#mayExit();
    });
    this.#ended = new Promise((resolve) => {
      this.#child.on("error", (error) => resolve(`resil-servers did not start: ${error.message}`));
      this.#child.on("close", (code) => resolve(code === 0 ? null : "a server crashed during the tests"));
    }).then((problem) => {
      for (const { reject } of this.#waiting.splice(0)) reject(new Error(problem ?? "resil-servers has ended"));
      return problem;
    });
    this.#mayExit();
  }

  /** A server of its own process, port and folder. Options: flavor, moduleArgs, config (object or pairs), withoutModule. */
  async start(options = {}) {
    return new Server(this, await this.ask("start", { options: wishes(options) }));
  }

  /** A RabbitMQ of its own; users are guest, consumer and producer. */
  async rabbit() {
    return new Broker(this, await this.ask("rabbit"));
  }

  /** A Postgres of its own, with the database postgres. */
  async postgres() {
    return new Broker(this, await this.ask("postgres"));
  }

  /** One request as it is; rejects if it cannot be met. */
  async ask(what, fields = {}) {
    const reply = await new Promise((resolve, reject) => {
      if (this.#child.exitCode !== null || !this.#child.stdin.writable) reject(new Error("resil-servers has ended"));
      this.#waiting.push({ resolve, reject });
      this.#mustStay();
      this.#child.stdin.write(`${JSON.stringify({ do: what, ...fields })}\n`);
    });
    if ("error" in reply) throw new Error(`${what}: ${reply.error}`);
    return reply;
  }

  /** Ends all servers; rejects if one of them had crashed. Its log is on standard error. */
  async close() {
    this.#mustStay();
    this.#child.stdin.end();
    const problem = await this.#ended;
    if (problem) throw new Error(problem);
  }

  async [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    await this.close();
  }

  /** While nothing is asked, a test process may end without `close`: that closes our end of the pipes, too. */
  #mayExit() {
    if (this.#waiting.length > 0) return;
    for (const part of [this.#child, this.#child.stdin, this.#child.stdout]) part.unref();
  }

  #mustStay() {
    for (const part of [this.#child, this.#child.stdin, this.#child.stdout]) part.ref();
  }
}

/** A broker or a database; `url` says where it is. */
class Broker {
  #servers;
  #id;

  constructor(servers, { id, url }) {
    this.#servers = servers;
    this.#id = id;
    this.url = url;
  }

  /** The crash, as by kill -9. */
  async kill() {
    await this.#servers.ask("kill_broker", { id: this.#id });
  }

  /** Up again on the same folder and port; one that still runs is killed first. */
  async restart() {
    await this.#servers.ask("restart_broker", { id: this.#id });
  }

  /** Until a kill cannot make RabbitMQ forget a new queue. */
  async waitUntilRegistered(queue) {
    await this.#servers.ask("registered", { id: this.#id, queue });
  }
}

/** One server; `url`, `port` and `pid` say where it is. */
class Server {
  #servers;
  #id;

  constructor(servers, description) {
    this.#servers = servers;
    this.#id = description.id;
    this.#isAt(description);
  }

  #isAt({ url, port, pid }) {
    Object.assign(this, { url, port, pid });
  }

  /** One command on a connection of its own. Words may be Buffers; bytes that are not UTF-8 come back as a Buffer. */
  async say(...words) {
    const sent = words.map((word) => (word instanceof Uint8Array ? { base64: Buffer.from(word).toString("base64") } : word));
    const reply = await this.#servers.ask("say", { id: this.#id, words: sent });
    if ("refusal" in reply) throw new Refused(reply.refusal);
    return plain(reply.reply);
  }

  /** The crash, as by kill -9. */
  async kill() {
    await this.#servers.ask("kill", { id: this.#id });
  }

  /** Up again on the same folder and port; one that still runs is killed first. */
  async restart() {
    this.#isAt(await this.#servers.ask("restart", { id: this.#id }));
  }

  /** Down by SIGTERM and up again: what the configuration says is saved is there. */
  async restartOrderly() {
    this.#isAt(await this.#servers.ask("restart_orderly", { id: this.#id }));
  }

  /** Frozen: connections stay open and nothing replies. */
  async pause() {
    await this.#servers.ask("pause", { id: this.#id });
  }

  async resume() {
    await this.#servers.ask("resume", { id: this.#id });
  }

  /** A server that replicates this one, in step with it. */
  async replica(options = {}) {
    return new Server(this.#servers, await this.#servers.ask("replica", { of: this.#id, options: wishes(options) }));
  }

  /** Until `replica` has all that was written here so far. */
  async waitForSync(replica) {
    await this.#servers.ask("sync", { id: this.#id, replica: replica.#id });
  }

  async log() {
    return (await this.#servers.ask("log", { id: this.#id })).log;
  }

  /** Ends it and removes its folder. */
  async stop() {
    await this.#servers.ask("stop", { id: this.#id });
  }
}

function wishes({ flavor = null, moduleArgs = [], config = {}, withoutModule = false, ...unknown }) {
  const [name] = Object.keys(unknown);
  if (name) throw new TypeError(`a server has no option ${name}`);
  return { flavor, module_args: moduleArgs, config, without_module: withoutModule };
}

function plain(reply) {
  if (Array.isArray(reply)) return reply.map(plain);
  if (reply === null || typeof reply !== "object") return reply;
  const keys = Object.keys(reply);
  if (keys.length === 1 && keys[0] === "base64") return Buffer.from(reply.base64, "base64");
  return Object.fromEntries(Object.entries(reply).map(([key, value]) => [key, plain(value)]));
}
