// The few things that every view knows: the session, the stream of events, the clock, messages to the reader.

import { useEffect, useReducer, useState } from "preact/hooks";
import { get, post, Problem, setCsrf, whenUnauthenticated } from "./api";
import { EventStream, type StreamState } from "./sse";
import type { Session } from "./types";

/** A value that components follow. */
export class Cell<Value> {
  private readonly listeners = new Set<() => void>();
  constructor(private value: Value) {}

  get(): Value {
    return this.value;
  }

  set(value: Value): void {
    if (Object.is(value, this.value)) return;
    this.value = value;
    for (const run of [...this.listeners]) run();
  }

  follow(run: () => void): () => void {
    this.listeners.add(run);
    return () => this.listeners.delete(run);
  }
}

export function useCell<Value>(cell: Cell<Value>): Value {
  const [, again] = useReducer((turn: number, _: void) => turn + 1, 0);
  const shown = cell.get();
  useEffect(() => {
    // It may have changed since it was drawn: effects run after the next frame, and nobody listened until now.
    if (!Object.is(cell.get(), shown)) again();
    return cell.follow(() => again());
  }, [cell]);
  return shown;
}

export interface Connection {
  state: StreamState;
  /** Since when it is in this state, by this machine's clock. */
  since: number;
  retryAt: number | null;
  redis: { status: string; reason: string | null } | null;
  isDraining: boolean;
}

export interface Toast {
  id: number;
  kind: "done" | "problem";
  text: string;
}

export const session = new Cell<Session | null>(null);
export const sessionProblem = new Cell<Problem | null>(null);
export const connection = new Cell<Connection>({ state: "connecting", since: Date.now(), retryAt: null, redis: null, isDraining: false });
export const toasts = new Cell<Toast[]>([]);
/** What the server's clock is ahead of ours. */
export const clockAhead = new Cell<number>(0);

// --- The clock ------------------------------------------------------------------------------------

const second = new Cell<number>(0);
setInterval(() => second.set(second.get() + 1), 1_000);

/** The server's time; the component is drawn again every second. */
export function useNow(): number {
  useCell(second);
  return Date.now() + useCell(clockAhead);
}

// --- Messages -------------------------------------------------------------------------------------

let lastToast = 0;

export function tell(kind: Toast["kind"], text: string): void {
  const toast = { id: ++lastToast, kind, text };
  toasts.set([...toasts.get().slice(-3), toast]);
  setTimeout(() => dismiss(toast.id), kind === "done" ? 6_000 : 12_000);
}

export function dismiss(id: number): void {
  toasts.set(toasts.get().filter((toast) => toast.id !== id));
}

// --- Events ---------------------------------------------------------------------------------------

export interface LiveEvent {
  event: string;
  data: Record<string, unknown>;
}

type Hear = (event: LiveEvent) => void;
const hearers = new Set<Hear>();

export function hear(run: Hear): () => void {
  hearers.add(run);
  return () => hearers.delete(run);
}

function publish(event: LiveEvent): void {
  for (const run of [...hearers]) run(event);
}

const stream = new EventStream(
  "/api/events",
  {
    fetch: (path, options) => fetch(path, { ...options, credentials: "same-origin" }),
    setTimer: (run, ms) => window.setTimeout(run, ms),
    clearTimer: (timer) => window.clearTimeout(timer),
    random: () => Math.random(),
  },
  {
    state(state, retryInMs) {
      const before = connection.get();
      const since = before.state === state ? before.since : Date.now();
      connection.set({ ...before, state, since, retryAt: retryInMs === null ? null : Date.now() + retryInMs });
      // What happened meanwhile is fetched, whether or not the server can repeat it.
      if (state === "live" && before.state !== "live" && before.state !== "connecting") publish({ event: "gap", data: {} });
    },
    event({ event, data }) {
      let parsed: Record<string, unknown>;
      try {
        parsed = JSON.parse(data) as Record<string, unknown>;
      } catch {
        return;
      }
      if (event === "hello" && typeof parsed["serverNow"] === "number") {
        clockAhead.set(parsed["serverNow"] - Date.now());
        connection.set({ ...connection.get(), isDraining: false });
      }
      if (event === "redis") connection.set({ ...connection.get(), redis: { status: String(parsed["status"]), reason: (parsed["reason"] as string | null) ?? null } });
      if (event === "drain") connection.set({ ...connection.get(), isDraining: true });
      publish({ event, data: parsed });
    },
    unauthenticated: () => void refreshSession().then(() => setTimeout(resume, RESUME_MS)),
  },
);

/** The stream was refused but the session is good after all, as after a restart of the gateway. */
const RESUME_MS = 5_000;
function resume(): void {
  if (session.get()?.role && connection.get().state === "disconnected" && connection.get().retryAt === null) stream.start();
}

addEventListener("online", () => stream.hurry());
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) stream.hurry();
});

// --- The session ----------------------------------------------------------------------------------

function entered(now: Session): void {
  const before = session.get();
  setCsrf(now.csrf);
  clockAhead.set(now.serverNow - Date.now());
  sessionProblem.set(null);
  session.set(now);
  if (now.role !== null && (before === null || before.role === null)) stream.start();
  if (now.role === null && before?.role) stream.stop();
}

const AGAIN_MS = 2_000;

export async function refreshSession(): Promise<void> {
  try {
    entered(await get<Session>("/api/session"));
  } catch (error) {
    sessionProblem.set(error instanceof Problem ? error : new Problem(0, "UNKNOWN", "Error", String(error)));
    // A gateway that is just starting is found without a click.
    if (session.get() === null) setTimeout(() => session.get() ?? void refreshSession(), AGAIN_MS);
  }
}

export async function login(token: string): Promise<void> {
  entered(await post<Session>("/api/session", { token }));
}

export async function logout(): Promise<void> {
  entered(await post<Session>("/api/session/end", {}));
}

whenUnauthenticated(() => void refreshSession());

// --- Who acts -------------------------------------------------------------------------------------

/** The name for the audit, kept for this tab so that it is typed once. It is no secret. */
export const actor = {
  get: (): string => sessionStorage.getItem("actor") ?? "",
  set: (name: string): void => sessionStorage.setItem("actor", name),
};

// --- The theme ------------------------------------------------------------------------------------

export type Theme = "system" | "light" | "dark";
const THEMES: readonly string[] = ["system", "light", "dark"];

export function readTheme(): Theme {
  const kept = localStorage.getItem("theme") ?? "system";
  return THEMES.includes(kept) ? (kept as Theme) : "system";
}

export function showTheme(theme: Theme): void {
  document.documentElement.dataset["theme"] = theme;
  if (theme === "system") localStorage.removeItem("theme");
  else localStorage.setItem("theme", theme);
}

export function useTheme(): [Theme, (theme: Theme) => void] {
  const [theme, setTheme] = useState(readTheme);
  return [
    theme,
    (chosen) => {
      showTheme(chosen);
      setTheme(chosen);
    },
  ];
}
