// What a view shows of the server: fetched at once, again when an event is about it, and every 10 s. The last good
// reply stays on the page, marked as stale, while newer ones cannot be had.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { get, Problem } from "./api";
import { connection, hear, useCell, useNow, clockAhead, type LiveEvent } from "./store";

const EVERY_MS = 10_000;
/** Several events at once are one fetch. */
const TOGETHER_MS = 120;
const STALE_MS = 25_000;
const KEPT_PATHS = 60;

/** The last replies, so that going back shows something at once. */
const kept = new Map<string, { data: unknown; at: number }>();

export function forgetAll(): void {
  kept.clear();
}

export interface Live<Data> {
  data: Data | undefined;
  problem: Problem | undefined;
  /** When `data` was fetched, by this machine's clock. */
  at: number | undefined;
  isStale: boolean;
  again(): void;
}

export interface LiveOptions {
  /** Which events concern this; `gap` and `redis` always do. */
  on?: readonly string[] | ((event: LiveEvent) => boolean);
  everyMs?: number;
}

export function useLive<Data>(path: string | null, options: LiveOptions = {}): Live<Data> {
  const [state, setState] = useState<{ path: string | null; data: Data | undefined; problem: Problem | undefined; at: number | undefined }>(() => fromKept<Data>(path));
  const shown = state.path === path ? state : fromKept<Data>(path);
  const on = useRef(options.on);
  on.current = options.on;
  const fetchNow = useRef<() => void>(() => undefined);

  useEffect(() => {
    if (path === null) return;
    let abort: AbortController | undefined;
    let soon: number | undefined;
    let isWanted = false;

    const run = async (): Promise<void> => {
      if (abort) {
        isWanted = true;
        return;
      }
      abort = new AbortController();
      const mine = abort;
      try {
        const data = await get<Data>(path, mine.signal);
        const at = Date.now();
        keep(path, data, at);
        if (!mine.signal.aborted) setState({ path, data, problem: undefined, at });
      } catch (error) {
        if (mine.signal.aborted) return;
        const problem = error instanceof Problem ? error : new Problem(0, "UNKNOWN", "Error", String(error));
        setState((before) => ({ ...(before.path === path ? before : fromKept<Data>(path)), path, problem }));
      }
      abort = undefined;
      if (isWanted) {
        isWanted = false;
        later();
      }
    };
    const later = (): void => {
      soon ??= window.setTimeout(() => {
        soon = undefined;
        void run();
      }, TOGETHER_MS);
    };
    fetchNow.current = () => void run();
    void run();
    const every = window.setInterval(() => {
      if (!document.hidden) void run();
    }, options.everyMs ?? EVERY_MS);
    const seen = (): void => {
      if (!document.hidden) later();
    };
    document.addEventListener("visibilitychange", seen);
    const deaf = hear((event) => {
      const wanted = on.current;
      const concerns = event.event === "gap" || event.event === "redis" || (typeof wanted === "function" ? wanted(event) : wanted?.includes(event.event));
      if (concerns) later();
    });
    return () => {
      deaf();
      document.removeEventListener("visibilitychange", seen);
      clearInterval(every);
      clearTimeout(soon);
      abort?.abort();
      abort = undefined;
    };
  }, [path, options.everyMs]);

  const again = useCallback(() => fetchNow.current(), []);
  const state2 = useCell(connection);
  const now = useNow() - clockAhead.get();
  const isOld = shown.at !== undefined && now - shown.at > STALE_MS + (options.everyMs ?? 0);
  const isStale = shown.data !== undefined && (shown.problem !== undefined || isOld || state2.state === "disconnected");
  return { data: shown.data, problem: shown.problem, at: shown.at, isStale, again };
}

function fromKept<Data>(path: string | null): { path: string | null; data: Data | undefined; problem: undefined; at: number | undefined } {
  const found = path === null ? undefined : kept.get(path);
  return { path, data: found?.data as Data | undefined, problem: undefined, at: found?.at };
}

function keep(path: string, data: unknown, at: number): void {
  kept.delete(path);
  kept.set(path, { data, at });
  for (const oldest of kept.keys()) {
    if (kept.size <= KEPT_PATHS) break;
    kept.delete(oldest);
  }
}
