// Actions: a button that says why it may not be pressed, and a dialog that asks who acts and why before anything
// happens. What the server replies is shown where the question was.

import type { ComponentChildren } from "preact";
import { useId, useState } from "preact/hooks";
import { Problem } from "../lib/api";
import { whyNot } from "../lib/roles";
import { actor, session, tell, useCell } from "../lib/store";
import type { Role } from "../lib/types";
import { Dialog } from "./dialog";

export interface ActButtonProps {
  needs: Role;
  onClick: () => void;
  children: ComponentChildren;
  /** A reason of its own why this cannot be done now. */
  blocked?: string | null | undefined;
  tone?: "primary" | "danger";
  small?: boolean;
  label?: string;
}

export function ActButton({ needs, onClick, children, blocked, tone, small, label }: ActButtonProps) {
  const role = useCell(session)?.role ?? null;
  const why = whyNot(role, needs) ?? blocked ?? null;
  const id = useId();
  const style = `button${tone ? ` ${tone}` : ""}${small ? " small" : ""}`;
  const refused = why === null ? {} : { "aria-disabled": "true" as const, "aria-describedby": id };
  // The same element whether or not it may be pressed: the focus stays where it is when that changes.
  return (
    <span class="act">
      <button type="button" class={style} onClick={why === null ? onClick : undefined} {...refused} {...(label ? { "aria-label": label } : {})}>
        {children}
      </button>
      {why !== null && (
        <span role="tooltip" id={id} class="tip">
          {why}
        </span>
      )}
    </span>
  );
}

export interface ActDialogProps {
  title: string;
  confirm: string;
  tone?: "primary" | "danger";
  /** False where the API takes no reason. */
  reason?: boolean;
  wide?: boolean;
  children?: ComponentChildren;
  done: string;
  act(who: { actor: string; reason: string }): Promise<unknown>;
  close: () => void;
  /** True when it dealt with the problem itself. */
  problem?: (problem: Problem) => boolean;
}

export function ActDialog({ title, confirm, tone = "danger", reason: asksReason = true, wide, children, done, act, close, problem: handle }: ActDialogProps) {
  const [who, setWho] = useState(actor.get);
  const [why, setWhy] = useState("");
  const [problem, setProblem] = useState<Problem | undefined>();
  const [isBusy, setBusy] = useState(false);
  const [isTried, setTried] = useState(false);
  const id = useId();
  const missing = { actor: tooLong(who, 128), reason: asksReason ? tooLong(why, 256) : null };

  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setTried(true);
    if (isBusy) return;
    if (missing.actor !== null || missing.reason !== null) {
      document.getElementById(missing.actor !== null ? `${id}-actor` : `${id}-reason`)?.focus();
      return;
    }
    setBusy(true);
    setProblem(undefined);
    try {
      await act({ actor: who.trim(), reason: why.trim() });
      actor.set(who.trim());
      tell("done", done);
      close();
    } catch (error) {
      const found = error instanceof Problem ? error : new Problem(0, "UNKNOWN", "Error", String(error));
      if (!handle?.(found)) setProblem(found);
      setBusy(false);
    }
  };

  return (
    <Dialog title={title} close={close} wide={wide ?? false}>
      <form onSubmit={(event) => void submit(event)} noValidate>
        {children}
        <Field id={`${id}-actor`} label="Your name" hint="Goes into the audit." problem={isTried ? missing.actor : null}>
          <input id={`${id}-actor`} value={who} autoComplete="username" maxLength={128} required aria-invalid={isTried && missing.actor !== null} aria-describedby={`${id}-actor-hint`} onInput={(event) => setWho(event.currentTarget.value)} {...(who === "" ? { "data-first": "" } : {})} />
        </Field>
        {asksReason && (
          <Field id={`${id}-reason`} label="Reason" hint="One sentence that others will read." problem={isTried ? missing.reason : null}>
            <input id={`${id}-reason`} value={why} autoComplete="off" maxLength={256} required aria-invalid={isTried && missing.reason !== null} aria-describedby={`${id}-reason-hint`} onInput={(event) => setWhy(event.currentTarget.value)} />
          </Field>
        )}
        {problem && (
          <p class="form-problem" role="alert">
            <strong>{problem.title}.</strong> {problem.detail}
            {problem.more.reason ? ` (${problem.more.reason})` : ""}
          </p>
        )}
        <div class="buttons">
          <button type="button" class="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" class={`button ${tone}`} aria-busy={isBusy}>
            {isBusy ? "Working…" : confirm}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** Bounds are in bytes, as the server counts. */
function tooLong(text: string, max: number): string | null {
  const length = new TextEncoder().encode(text.trim()).length;
  if (length === 0) return "This is required.";
  return length > max ? `At most ${max} bytes; this has ${length}.` : null;
}

export function Field({ id, label, hint, problem, children }: { id: string; label: string; hint?: ComponentChildren; problem?: string | null | undefined; children: ComponentChildren }) {
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children}
      <p class={`hint${problem ? " wrong" : ""}`} id={`${id}-hint`}>
        {problem ?? hint}
      </p>
    </div>
  );
}
