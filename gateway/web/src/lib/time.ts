// Spans and moments as people read them. Pure: the present is an argument.

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** `0.3 s`, `42 s`, `5 min`, `3 h 10 min`, `2 d 4 h`: at most two units, never more exact than useful. */
export function span(ms: number): string {
  if (!Number.isFinite(ms) || ms < 0) return "0 s";
  if (ms < SECOND) return `${Math.round(ms)} ms`;
  if (ms < 10 * SECOND) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)} s`;
  const two = (large: number, small: number, a: string, b: string): string => {
    const rest = Math.floor((ms % large) / small);
    return rest === 0 ? `${Math.floor(ms / large)} ${a}` : `${Math.floor(ms / large)} ${a} ${rest} ${b}`;
  };
  if (ms < 10 * MINUTE) return two(MINUTE, SECOND, "min", "s");
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min`;
  if (ms < DAY) return two(HOUR, MINUTE, "h", "min");
  if (ms < 30 * DAY) return two(DAY, HOUR, "d", "h");
  return `${Math.floor(ms / DAY)} d`;
}

/** `now`, `42 s ago`, `in 5 min`. Seconds alone change every second, so that a page does not flicker. */
export function relative(at: number, now: number): string {
  const ms = now - at;
  const away = Math.abs(ms);
  if (away < 2 * SECOND) return "now";
  const whole = away < MINUTE ? Math.floor(away / SECOND) * SECOND : away;
  const text = whole < MINUTE ? `${whole / SECOND} s` : whole < HOUR ? `${Math.floor(whole / MINUTE)} min` : span(whole);
  return ms > 0 ? `${text} ago` : `in ${text}`;
}

/** The exact moment, in the reader's zone and with its name. */
export function exact(at: number): string {
  const date = new Date(at);
  const two = (part: number, digits = 2): string => String(part).padStart(digits, "0");
  const offset = -date.getTimezoneOffset();
  const zone = offset === 0 ? "UTC" : `UTC${offset > 0 ? "+" : "−"}${two(Math.floor(Math.abs(offset) / 60))}:${two(Math.abs(offset) % 60)}`;
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${two(date.getMilliseconds(), 3)} ${zone}`;
}

/** A span that somebody typed: `30s`, `5m`, `2h`, `1d`, `250ms`. Undefined if it is none. */
export function parseSpan(text: string): number | undefined {
  const found = /^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)\s*$/.exec(text);
  if (!found) return undefined;
  const units: Record<string, number> = { ms: 1, s: SECOND, m: MINUTE, min: MINUTE, h: HOUR, d: DAY };
  const ms = Number(found[1]) * (units[found[2] ?? ""] ?? NaN);
  return Number.isFinite(ms) && ms >= 1 ? Math.round(ms) : undefined;
}

export function bytes(count: number): string {
  if (count < 1024) return `${count} B`;
  if (count < 1024 * 1024) return `${(count / 1024).toFixed(count < 10_240 ? 1 : 0)} KiB`;
  return `${(count / 1024 / 1024).toFixed(1)} MiB`;
}

export function count(value: number): string {
  return Math.round(value).toString().replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}
