// Navigation, the state of the connection, and messages: what stays while views change.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { useLive } from "../lib/live";
import { link } from "../lib/route";
import { clockAhead, connection, dismiss, logout, tell, toasts, useCell, useNow, useTheme, type Theme } from "../lib/store";
import { span } from "../lib/time";
import type { Overview, Session } from "../lib/types";

interface Item {
  id: string;
  title: string;
  /** What asks for attention there. */
  count?: (overview: Overview) => number;
}

const GROUPS: { title: string; items: Item[] }[] = [
  { title: "Now", items: [{ id: "", title: "Overview" }, { id: "health", title: "Health", count: (now) => (now.health.status === "healthy" ? 0 : 1) }, { id: "work", title: "In flight" }] },
  {
    title: "Protection",
    items: [
      { id: "circuits", title: "Circuits", count: (now) => now.circuits.open + now.circuits.halfOpen },
      { id: "limits", title: "Limits" },
      { id: "locks", title: "Locks", count: (now) => now.locks.contended },
      { id: "bulkheads", title: "Bulkheads", count: (now) => now.bulkheads.full },
      { id: "policies", title: "Policies" },
    ],
  },
  {
    title: "Failures",
    items: [
      { id: "ledgers", title: "Dead letters", count: (now) => now.deadLetters.dead },
      { id: "alerts", title: "Alerts", count: (now) => now.deadLetters.alertsUnseen },
      { id: "audit", title: "Audit" },
    ],
  },
];

export function Frame({ session, section, title, children }: { session: Session; section: string; title: string; children: ComponentChildren }) {
  const overview = useLive<Overview>("/api/overview", { on: ["circuit", "dead", "alert", "health", "policy", "lost"] });
  const [isOpen, setOpen] = useState(false);
  const toggle = useRef<HTMLButtonElement>(null);
  useEffect(() => setOpen(false), [section, title]);
  return (
    <div class="frame">
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("title")?.focus(); }}>
        Skip to the content
      </a>
      <header class="bar">
        <button ref={toggle} type="button" class="icon-button menu" aria-expanded={isOpen} aria-controls="navigation" aria-label="Navigation" onClick={() => setOpen(!isOpen)}>
          <svg viewBox="0 0 16 16" aria-hidden="true" focusable="false">
            <path d="M2 4h12M2 8h12M2 12h12" />
          </svg>
        </button>
        <a class="brand" href="#/">
          <img src="/icon.svg" alt="" width="22" height="22" />
          Resil
        </a>
        <span class="where quiet">
          {session.instance}
          {session.backend === "memory" && <span class="chip">memory</span>}
        </span>
        <ConnectionState />
      </header>
      <nav
        id="navigation"
        class={isOpen ? "open" : ""}
        aria-label="Views"
        onKeyDown={(event) => {
          if (event.key === "Escape" && isOpen) {
            setOpen(false);
            toggle.current?.focus();
          }
        }}
      >
        {GROUPS.map((group) => (
          <div class="nav-group" key={group.title}>
            <h2>{group.title}</h2>
            <ul>
              {group.items.map((item) => {
                const many = overview.data && item.count ? item.count(overview.data) : 0;
                return (
                  <li key={item.id}>
                    <a href={link(item.id === "" ? [] : [item.id])} {...(section === item.id ? { "aria-current": "page" as const } : {})} onClick={() => setOpen(false)}>
                      {item.title}
                      {many > 0 && (
                        <span class="nav-count">
                          {many > 999 ? "999+" : many}
                          <span class="hidden"> need attention</span>
                        </span>
                      )}
                    </a>
                  </li>
                );
              })}
            </ul>
          </div>
        ))}
        <Settings session={session} />
      </nav>
      <main id="main" tabIndex={-1}>
        <Banner session={session} />
        {children}
      </main>
      <Toasts />
    </div>
  );
}

function Settings({ session }: { session: Session }) {
  const [theme, setTheme] = useTheme();
  const leave = async (): Promise<void> => {
    try {
      await logout();
    } catch (error) {
      tell("problem", error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <div class="settings">
      <div class="field inline">
        <label for="theme">Theme</label>
        <select id="theme" value={theme} onChange={(event) => setTheme(event.currentTarget.value as Theme)}>
          <option value="system">system</option>
          <option value="light">light</option>
          <option value="dark">dark</option>
        </select>
      </div>
      <p class="small quiet">
        {session.name ?? "Without a token"} · role <strong>{session.role}</strong>
      </p>
      {session.needsToken && (
        <button type="button" class="button small" onClick={() => void leave()}>
          Log out
        </button>
      )}
      <p class="small quiet">resil-gateway {session.version}</p>
    </div>
  );
}

const WORDS: Record<string, string> = { connecting: "connecting", live: "live", reconnecting: "reconnecting", disconnected: "disconnected", stopped: "stopped" };

function ConnectionState() {
  const now = useCell(connection);
  return (
    <p class={`connection ${now.state}`} role="status">
      <span class="dot" aria-hidden="true" />
      <span class="hidden">Connection: </span>
      {WORDS[now.state]}
    </p>
  );
}

function Banner({ session }: { session: Session }) {
  const now = useCell(connection);
  const time = useNow() - clockAhead.get();
  const isLost = (now.state === "reconnecting" && time - now.since > 3_000) || now.state === "disconnected";
  const isRedisAway = now.redis !== null && now.redis.status !== "healthy";
  return (
    <>
      {isLost && (
        <p class="banner bad" role="status">
          <strong>{now.state === "disconnected" ? "Disconnected." : "Reconnecting."}</strong> What you see is from before and may be stale.{" "}
          {now.retryAt !== null && now.retryAt > time ? <span class="quiet">Next attempt in {span(Math.max(1_000, Math.ceil((now.retryAt - time) / 1_000) * 1_000)).replace(".0", "")}.</span> : null}
        </p>
      )}
      {isRedisAway && !isLost && (
        <p class="banner bad" role="status">
          <strong>The gateway has lost Redis.</strong> {now.redis?.reason ?? "It reconnects by itself."} Lists show what was read before.
        </p>
      )}
      {(now.isDraining || session.draining) && (
        <p class="banner warn" role="status">
          <strong>This gateway is shutting down.</strong> It finishes what is in flight and takes nothing new.
        </p>
      )}
    </>
  );
}

export function Toasts() {
  const all = useCell(toasts);
  return (
    <div class="toasts" role="region" aria-label="Messages" aria-live="polite">
      {all.map((toast) => (
        <p key={toast.id} class={`toast ${toast.kind}`}>
          <span>{toast.text}</span>
          <button type="button" class="icon-button" aria-label="Dismiss" onClick={() => dismiss(toast.id)}>
            <svg viewBox="0 0 16 16" aria-hidden="true" focusable="false">
              <path d="M4 4l8 8M12 4l-8 8" />
            </svg>
          </button>
        </p>
      ))}
    </div>
  );
}
