// The frame: who is here, where they are, and whether what they see is live.

import { render } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { forgetAll } from "./lib/live";
import { parse, type Route } from "./lib/route";
import { readTheme, refreshSession, session, sessionProblem, showTheme, useCell } from "./lib/store";
import { ProblemBox, Skeleton } from "./ui/bits";
import { Frame, Toasts } from "./ui/frame";
import { Login } from "./views/login";
import { view } from "./views/all";

function useRoute(): Route {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = (): void => setHash(location.hash);
    addEventListener("hashchange", changed);
    // It may have changed since it was drawn.
    changed();
    return () => removeEventListener("hashchange", changed);
  }, []);
  return useMemo(() => parse(hash), [hash]);
}

function App() {
  const now = useCell(session);
  const problem = useCell(sessionProblem);
  const route = useRoute();
  const place = route.parts.join("/");
  const { title, section, body } = view(route);
  const isFirst = useRef(true);

  useLayoutEffect(() => {
    // A new page is announced and read from its heading; the first one keeps the browser's own start.
    if (isFirst.current) isFirst.current = false;
    else document.getElementById("title")?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [place]);
  useLayoutEffect(() => {
    document.title = now?.role ? `${title} · Resil` : "Resil";
  }, [title, now?.role]);
  // After the login the reader starts at the heading of the page that they asked for.
  const roleBefore = useRef<string | null | undefined>(undefined);
  useLayoutEffect(() => {
    if (now?.role === null) forgetAll();
    if (now?.role && roleBefore.current === null) document.getElementById("title")?.focus();
    roleBefore.current = now?.role;
  }, [now?.role]);

  if (now === null) {
    return (
      <main id="main" class="alone">
        <h1>Resil</h1>
        {problem ? <ProblemBox problem={problem} again={() => void refreshSession()} /> : <Skeleton rows={3} />}
      </main>
    );
  }
  if (now.role === null) {
    return (
      <>
        <Login session={now} />
        <Toasts />
      </>
    );
  }
  return (
    <Frame session={now} section={section} title={title}>
      {body}
    </Frame>
  );
}

showTheme(readTheme());
const place = document.getElementById("app");
if (place) render(<App />, place);
void refreshSession();
