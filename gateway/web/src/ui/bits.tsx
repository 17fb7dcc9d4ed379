// Small parts that every view uses: times, states, empty and broken places, icons.

import type { ComponentChildren } from "preact";
import type { Live } from "../lib/live";
import { clockAhead, useNow } from "../lib/store";
import { exact, relative, span } from "../lib/time";
import type { Problem } from "../lib/api";

export function Time({ at, none = "–" }: { at: number | null | undefined; none?: string }) {
  const now = useNow();
  if (at === null || at === undefined || !Number.isFinite(at)) return <span class="quiet">{none}</span>;
  return (
    <time dateTime={new Date(at).toISOString()} title={exact(at)}>
      {relative(at, now)}
    </time>
  );
}

/** A span that was true when `live` was fetched and has grown, or shrunk, since. */
export function Running({ ms, at, down = false }: { ms: number | null | undefined; at: number | undefined; down?: boolean }) {
  const now = useNow() - clockAhead.get();
  if (ms === null || ms === undefined || ms < 0) return <span class="quiet">–</span>;
  const passed = at === undefined ? 0 : Math.max(0, now - at);
  const shown = down ? Math.max(0, ms - passed) : ms + passed;
  return <span title={`${ms} ms when it was read`}>{shown < 10_000 ? `${Math.floor(shown / 1000)} s` : span(shown)}</span>;
}

export type Tone = "good" | "warn" | "bad" | "info" | "idle";

const TONES: Record<string, Tone> = {
  closed: "good", healthy: "good", free: "good", running: "good", loading: "good", resolved: "good", finished: "good", done: "good", verified: "good", pass: "good",
  "half-open": "warn", ramping: "warn", degraded: "warn", contended: "warn", paused: "warn", waiting: "warn", verifying: "warn", draining: "warn", warning: "warn", parked: "warn", stopped: "warn",
  open: "bad", unhealthy: "bad", full: "bad", dead: "bad", failed: "bad", critical: "bad", refused: "bad", died: "bad",
  "forced-open": "bad", "forced-closed": "info", disabled: "info", metrics: "info", held: "info", taken: "info", redriven: "info", due: "info",
};

export function toneOf(state: string | null | undefined): Tone {
  return TONES[state ?? ""] ?? "idle";
}

const SHAPES: Record<Tone, string> = { good: "●", warn: "◐", bad: "▲", info: "◆", idle: "○" };

/** Never colour alone: each tone has its shape and its word. */
export function Badge({ state, tone, children }: { state?: string | null; tone?: Tone; children?: ComponentChildren }) {
  const shown = tone ?? toneOf(state);
  return (
    <span class={`badge ${shown}`}>
      <span class="shape" aria-hidden="true">
        {SHAPES[shown]}
      </span>
      {children ?? state ?? "unknown"}
    </span>
  );
}

export function Key({ value, name }: { value: string; name?: string | null | undefined }) {
  if (name !== null && name !== undefined && name !== "") {
    return (
      <span class="named">
        <span class="name">{name}</span>
        <code class="under">{value}</code>
      </span>
    );
  }
  return <code class="key">{value}</code>;
}

/** A share of a whole; the number is beside it, so the bar itself is decoration. */
export function Meter({ value, max, tone = "info" }: { value: number; max: number; tone?: Tone }) {
  const share = max > 0 ? Math.min(1, Math.max(0, value / max)) : 0;
  return (
    <svg class={`meter ${tone}`} viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true" focusable="false">
      <rect class="track" width="100" height="6" />
      <rect class="fill" width={share * 100} height="6" />
    </svg>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <svg viewBox="0 0 48 24" aria-hidden="true" focusable="false">
        <path d="M2 12h14l3-6 5 12 4-9 2 3h16" />
      </svg>
      <p class="empty-title">{title}</p>
      {children !== undefined && <p>{children}</p>}
    </div>
  );
}

export function Skeleton({ rows = 5 }: { rows?: number }) {
  return (
    <div class="skeleton" role="status">
      <span class="hidden">Loading</span>
      {Array.from({ length: rows }, (_, at) => (
        <span class="bone" key={at} />
      ))}
    </div>
  );
}

export function ProblemBox({ problem, again }: { problem: Problem; again?: (() => void) | undefined }) {
  return (
    <div class="problem" role="alert">
      <p class="problem-title">{problem.code === "BACKEND_UNAVAILABLE" ? "Redis cannot be reached" : problem.title}</p>
      <p>{problem.detail}</p>
      <p class="quiet small">
        {problem.code}
        {problem.more.requestId ? <> · request {problem.more.requestId}</> : null}
      </p>
      {again && (
        <button type="button" class="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

/** Loading, broken, stale or there: the four states of everything that is fetched. */
export function Shown<Data>({ live, rows, children }: { live: Live<Data>; rows?: number; children: (data: Data) => ComponentChildren }) {
  if (live.data === undefined) return live.problem ? <ProblemBox problem={live.problem} again={live.again} /> : <Skeleton rows={rows ?? 5} />;
  return (
    <div class={live.isStale ? "stale" : "fresh"}>
      {live.isStale && <StaleNote live={live} />}
      {children(live.data)}
    </div>
  );
}

function StaleNote({ live }: { live: Live<unknown> }) {
  return (
    <p class="stale-note" role="status">
      <Badge tone="warn">stale</Badge> Read <Time at={live.at === undefined ? null : live.at + clockAhead.get()} />.{" "}
      {live.problem ? live.problem.detail : "The live connection is down."}{" "}
      <button type="button" class="linklike" onClick={live.again}>
        Try again
      </button>
    </p>
  );
}

export function Facts({ rows }: { rows: readonly (readonly [string, ComponentChildren])[] }) {
  return (
    <dl class="facts">
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Panel({ title, aside, children, id }: { title: string; aside?: ComponentChildren; children: ComponentChildren; id?: string }) {
  const heading = id ?? `panel-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return (
    <section class="panel" aria-labelledby={heading}>
      <header>
        <h2 id={heading}>{title}</h2>
        {aside}
      </header>
      {children}
    </section>
  );
}
