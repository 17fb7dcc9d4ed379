// A gateway without Redis: docs/gateway-api.md over an in-memory world, with its roles, CSRF, problems, cursors and events,
// and with faults that a test can switch on.

import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { join } from "node:path";
import type { Role } from "../../src/lib/types";
import { respond, Refusal } from "./routes";
import { World } from "./world";

export const CSP =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const TYPES: Record<string, string> = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8", svg: "image/svg+xml" };

export interface Faults {
  redisAway: boolean;
  /** Path beginnings whose replies wait. */
  held: Map<string, Promise<void>>;
  refuseStreams: boolean;
  /** Path beginnings that reply with this problem. */
  fail: Map<string, { status: number; code: string; detail: string }>;
}

export class FakeGateway {
  readonly faults: Faults = { redisAway: false, held: new Map(), refuseStreams: false, fail: new Map() };
  readonly tokens = new Map<string, { role: Role; name: string }>();
  readonly requests: { method: string; path: string; body: unknown; status: number; lastEventId: string | undefined }[] = [];
  private readonly sessions = new Map<string, { role: Role; name: string; csrf: string }>();
  private readonly streams = new Set<ServerResponse>();
  private readonly sockets = new Set<Socket>();
  private readonly events: { id: number; text: string }[] = [];
  private lastId = 0;
  private server: Server | undefined;
  private port = 0;
  private life: NodeJS.Timeout | undefined;

  constructor(
    readonly world = new World(),
    private readonly dist = join(process.cwd(), "dist"),
  ) {
    world.emit = (event, data) => this.publish(event, data);
  }

  async start(port = 0): Promise<string> {
    const server = createServer((request, response) => void this.handle(request, response));
    this.server = server;
    // A test that fails must not keep its process alive.
    server.unref();
    server.on("connection", (socket) => {
      socket.unref();
      this.sockets.add(socket);
      socket.on("close", () => this.sockets.delete(socket));
    });
    await new Promise<void>((done) => server.listen(port, "127.0.0.1", done));
    this.port = (server.address() as AddressInfo).port;
    return `http://127.0.0.1:${this.port}`;
  }

  /** Gone, as a killed process: the same port can be used again. */
  async stop(): Promise<number> {
    clearInterval(this.life);
    for (const socket of this.sockets) socket.destroy();
    await new Promise<void>((done) => (this.server ? this.server.close(() => done()) : done()));
    return this.port;
  }

  lively(): void {
    this.life = setInterval(() => this.world.live(), 250);
    this.life.unref();
  }

  /** Responds to no request below a path until the returned function is called. */
  hold(start: string): () => void {
    let go = (): void => undefined;
    this.faults.held.set(start, new Promise<void>((done) => (go = done)));
    return () => {
      this.faults.held.delete(start);
      go();
    };
  }

  cutStreams(): void {
    for (const stream of this.streams) stream.destroy();
  }

  get streamCount(): number {
    return this.streams.size;
  }

  publish(event: string, data: Record<string, unknown>): void {
    const id = ++this.lastId;
    const text = `id: ${id}\nevent: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
    this.events.push({ id, text });
    if (this.events.length > 1_000) this.events.shift();
    for (const stream of this.streams) stream.write(text);
  }

  setRedis(isAway: boolean): void {
    this.faults.redisAway = isAway;
    this.world.redisReason = isAway ? "connection refused" : null;
    this.publish("redis", { status: isAway ? "unhealthy" : "healthy", reason: this.world.redisReason, at: Date.now() });
  }

  private async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? "/", `http://${request.headers.host}`);
    const method = request.method ?? "GET";
    let body: unknown;
    try {
      response.setHeader("X-Request-Id", randomBytes(6).toString("hex"));
      if (!url.pathname.startsWith("/api/")) return this.file(url.pathname, response);
      body = method === "POST" ? await this.body(request) : undefined;
      for (const [start, released] of this.faults.held) if (url.pathname.startsWith(start)) await released;
      for (const [start, fault] of this.faults.fail) {
        if (url.pathname.startsWith(start)) throw new Refusal(fault.status, fault.code, fault.detail);
      }
      const who = this.session(request);
      if (url.pathname.startsWith("/api/session")) return this.sessionRoute(url.pathname, method, body, who, response);
      if (who === undefined) throw new Refusal(401, "UNAUTHENTICATED", "Log in first.");
      if (method === "POST" && request.headers["x-resil-csrf"] !== who.csrf) throw new Refusal(403, "FORBIDDEN", "The CSRF header is missing or wrong.");
      if (url.pathname === "/api/events") return this.stream(request, response);
      if (this.faults.redisAway && !["/api/overview", "/api/health", "/api/upstreams"].includes(url.pathname)) throw new Refusal(503, "BACKEND_UNAVAILABLE", "Redis cannot be reached: connection refused.", { retryable: true });
      const reply = respond(this.world, { method, parts: url.pathname.split("/").slice(2).map(decodeURIComponent), query: url.searchParams, body: (body ?? {}) as Record<string, unknown>, role: who.role });
      this.send(response, 200, reply);
    } catch (error) {
      const refusal = error instanceof Refusal ? error : new Refusal(500, "INTERNAL", String(error));
      this.send(response, refusal.status, { type: "about:blank", title: refusal.title, status: refusal.status, code: refusal.code, detail: refusal.message, retryable: false, retryAfterMs: null, requestId: response.getHeader("X-Request-Id"), ...refusal.more }, "application/problem+json");
    } finally {
      this.requests.push({ method, path: url.pathname + url.search, body, status: response.statusCode, lastEventId: request.headers["last-event-id"] as string | undefined });
    }
  }

  private async body(request: IncomingMessage): Promise<unknown> {
    if (request.headers["content-type"] !== "application/json") throw new Refusal(400, "INVALID_ARGUMENT", "Content-Type must be application/json.");
    const origin = request.headers.origin;
    if (origin !== undefined && origin !== `http://${request.headers.host}`) throw new Refusal(403, "FORBIDDEN", "Another origin.");
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    return JSON.parse(Buffer.concat(parts).toString() || "{}");
  }

  private session(request: IncomingMessage): { role: Role; name: string; csrf: string } | undefined {
    if (this.tokens.size === 0) return { role: "govern", name: "", csrf: "loopback" };
    const cookie = /resil_session=([0-9a-f]+)/.exec(request.headers.cookie ?? "")?.[1];
    return cookie === undefined ? undefined : this.sessions.get(cookie);
  }

  private sessionRoute(path: string, method: string, body: unknown, who: { role: Role; name: string; csrf: string } | undefined, response: ServerResponse): void {
    let now = who;
    if (method === "POST" && path === "/api/session") {
      const token = this.tokens.get(String((body as { token?: string }).token));
      if (!token) throw new Refusal(401, "UNAUTHENTICATED", "The token is not known.");
      const id = randomBytes(16).toString("hex");
      now = { ...token, csrf: randomBytes(16).toString("hex") };
      this.sessions.set(id, now);
      response.setHeader("Set-Cookie", `resil_session=${id}; HttpOnly; SameSite=Strict; Path=/; Max-Age=43200`);
    } else if (method === "POST") {
      now = undefined;
      response.setHeader("Set-Cookie", "resil_session=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0");
    }
    this.send(response, 200, { role: now?.role ?? null, name: now?.name || null, csrf: now?.csrf ?? null, needsToken: this.tokens.size > 0, version: "0.1.0", instance: "gw-1", backend: "memory", serverNow: Date.now(), draining: false });
  }

  endSessions(): void {
    this.sessions.clear();
  }

  private stream(request: IncomingMessage, response: ServerResponse): void {
    if (this.faults.refuseStreams) throw new Refusal(503, "OVERLOADED", "Too many streams.");
    response.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
    const last = Number(request.headers["last-event-id"] ?? NaN);
    response.write(`event: hello\ndata: ${JSON.stringify({ instance: "gw-1", version: "0.1.0", serverNow: Date.now() })}\n\n`);
    if (Number.isFinite(last)) for (const event of this.events) if (event.id > last) response.write(event.text);
    this.streams.add(response);
    const beat = setInterval(() => response.write(": still here\n\n"), 15_000);
    response.on("close", () => {
      clearInterval(beat);
      this.streams.delete(response);
    });
  }

  private file(path: string, response: ServerResponse): void {
    const name = path === "/" ? "index.html" : path.slice(1);
    response.setHeader("Content-Security-Policy", CSP);
    response.setHeader("X-Content-Type-Options", "nosniff");
    response.setHeader("Referrer-Policy", "no-referrer");
    const type = TYPES[name.split(".").at(-1) ?? ""];
    if (!["index.html", "app.js", "app.css", "icon.svg"].includes(name) || type === undefined) {
      response.statusCode = 404;
      response.end();
      return;
    }
    response.setHeader("Content-Type", type);
    response.end(readFileSync(join(this.dist, name)));
  }

  private send(response: ServerResponse, status: number, body: unknown, type = "application/json"): void {
    if (response.headersSent) return;
    response.statusCode = status;
    response.setHeader("Content-Type", type);
    response.setHeader("Cache-Control", "no-store");
    response.end(JSON.stringify(body));
  }
}
