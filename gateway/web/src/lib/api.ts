// Requests to the gateway: JSON in and out, problems as errors, the CSRF header with every change, a bound on every wait.

export class Problem extends Error {
  override readonly name = "Problem";
  constructor(
    readonly status: number,
    readonly code: string,
    readonly title: string,
    readonly detail: string,
    readonly more: { field?: string | null; needs?: string | null; reason?: string | null; retryAfterMs?: number | null; requestId?: string | null } = {},
  ) {
    super(detail);
  }
}

const TIMEOUT_MS = 15_000;

let csrf: string | null = null;
let onUnauthenticated = (): void => undefined;

export function setCsrf(token: string | null): void {
  csrf = token;
}

export function whenUnauthenticated(run: () => void): void {
  onUnauthenticated = run;
}

export async function get<Reply>(path: string, signal?: AbortSignal): Promise<Reply> {
  return send<Reply>(path, { method: "GET" }, signal);
}

export async function post<Reply>(path: string, body: unknown): Promise<Reply> {
  const headers: Record<string, string> = { "Content-Type": "application/json" };
  if (csrf !== null) headers["X-Resil-Csrf"] = csrf;
  return send<Reply>(path, { method: "POST", headers, body: JSON.stringify(body) });
}

async function send<Reply>(path: string, options: RequestInit, signal?: AbortSignal): Promise<Reply> {
  const abort = new AbortController();
  const timer = setTimeout(() => abort.abort(), TIMEOUT_MS);
  const leave = (): void => abort.abort();
  signal?.addEventListener("abort", leave);
  try {
    const response = await fetch(path, { ...options, signal: abort.signal, credentials: "same-origin", cache: "no-store", redirect: "error" });
    if (!response.ok) throw await problemOf(response);
    return (await response.json()) as Reply;
  } catch (error) {
    if (error instanceof Problem) {
      if (error.status === 401 && path !== "/api/session") onUnauthenticated();
      throw error;
    }
    if (signal?.aborted) throw error;
    const detail = abort.signal.aborted ? `No reply within ${TIMEOUT_MS / 1000} s.` : "The gateway cannot be reached.";
    throw new Problem(0, "UNREACHABLE", "No connection", detail);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", leave);
  }
}

async function problemOf(response: Response): Promise<Problem> {
  let body: Record<string, unknown> = {};
  try {
    body = (await response.json()) as Record<string, unknown>;
  } catch {
    // A proxy in between may reply with anything.
  }
  const text = (name: string): string | null => (typeof body[name] === "string" ? (body[name] as string) : null);
  return new Problem(response.status, text("code") ?? "UNKNOWN", text("title") ?? `Status ${response.status}`, text("detail") ?? "The gateway gave no reason.", {
    field: text("field"),
    needs: text("needs"),
    reason: text("reason"),
    retryAfterMs: typeof body["retryAfterMs"] === "number" ? body["retryAfterMs"] : null,
    requestId: text("requestId") ?? response.headers.get("X-Request-Id"),
  });
}
