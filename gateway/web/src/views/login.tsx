// The way in: a token, posted once. It is kept nowhere in the browser; the session is a cookie that scripts cannot read.

import { useState } from "preact/hooks";
import { Problem } from "../lib/api";
import { login } from "../lib/store";
import type { Session } from "../lib/types";
import { Field } from "../ui/act";

export function Login({ session }: { session: Session }) {
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (isBusy) return;
    if (token.trim() === "") {
      setProblem("Enter a token.");
      document.getElementById("token")?.focus();
      return;
    }
    setBusy(true);
    setProblem(null);
    try {
      await login(token.trim());
    } catch (error) {
      const is401 = error instanceof Problem && error.status === 401;
      setProblem(is401 ? "This token is not known to the gateway." : error instanceof Error ? error.message : String(error));
      setBusy(false);
      setToken("");
      document.getElementById("token")?.focus();
    }
  };
  return (
    <main id="main" class="login">
      <form class="panel" onSubmit={(event) => void submit(event)} noValidate>
        <h1>
          <img src="/icon.svg" alt="" width="32" height="32" /> Resil
        </h1>
        <p class="lead">Log in to {session.instance} with one of the gateway's tokens.</p>
        <Field id="token" label="Token" hint="It is sent once and not kept in the browser." problem={problem}>
          <input id="token" type="password" value={token} autoComplete="current-password" aria-invalid={problem !== null} aria-describedby="token-hint" onInput={(event) => setToken(event.currentTarget.value)} />
        </Field>
        <button type="submit" class="button primary" aria-busy={isBusy}>
          {isBusy ? "Logging in…" : "Log in"}
        </button>
        <p class="hidden" role="alert">
          {problem}
        </p>
        <p class="small quiet">resil-gateway {session.version}</p>
      </form>
    </main>
  );
}
