// Dialogs on the native element: what is behind is inert, Esc closes, focus returns. Tab stays inside, also from the last
// field to the first.

import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";

const FOCUSABLE = "a[href],button:not([disabled]),input:not([disabled]),select:not([disabled]),textarea:not([disabled]),[tabindex='0']";

export function Dialog({ title, close, wide = false, children }: { title: string; close: () => void; wide?: boolean; children: ComponentChildren }) {
  const box = useRef<HTMLDialogElement>(null);
  const heading = useId();
  const closing = useRef(close);
  closing.current = close;

  // With the commit, not after the next frame: no key goes elsewhere in between.
  useLayoutEffect(() => {
    const dialog = box.current;
    if (!dialog) return;
    const before = document.activeElement;
    let isGone = false;
    // Browsers may close it without asking, as for a second Esc.
    dialog.addEventListener("close", () => isGone || closing.current());
    dialog.showModal();
    const first = dialog.querySelector<HTMLElement>("[data-first]") ?? dialog.querySelector<HTMLElement>("input,select,textarea,button.button");
    first?.focus();
    return () => {
      isGone = true;
      if (dialog.open) dialog.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
      else document.getElementById("main")?.focus();
    };
  }, []);

  const keepFocus = (event: KeyboardEvent): void => {
    if (event.key !== "Tab" || !box.current) return;
    const all = [...box.current.querySelectorAll<HTMLElement>(FOCUSABLE)].filter((each) => each.offsetParent !== null || each === document.activeElement);
    const first = all[0];
    const last = all[all.length - 1];
    const from = event.shiftKey ? first : last;
    const to = event.shiftKey ? last : first;
    if (to && document.activeElement === from) {
      event.preventDefault();
      to.focus();
    }
  };

  return (
    <dialog
      ref={box}
      class={wide ? "wide" : ""}
      aria-labelledby={heading}
      onKeyDown={keepFocus}
      onCancel={(event) => {
        event.preventDefault();
        closing.current();
      }}
    >
      <header>
        <h2 id={heading}>{title}</h2>
        <button type="button" class="icon-button" aria-label="Close" onClick={close}>
          <svg viewBox="0 0 16 16" aria-hidden="true" focusable="false">
            <path d="M4 4l8 8M12 4l-8 8" />
          </svg>
        </button>
      </header>
      <div class="dialog-body">{children}</div>
    </dialog>
  );
}
