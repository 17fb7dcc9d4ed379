/** What is the same everywhere. */

/** Milliseconds, or text such as `"250ms"`, `"10s"`, `"1h"`. */
export type Span = number | string;

/** What happens to a call while the server cannot be reached: it is let through, refused, or decided in this process. */
export type Away = 'open' | 'closed' | 'local';

/** See `resil/testing`. */
export interface Clock { readonly nowMs: number; advance(span: Span): void; readonly nextWakeMs: number | null }
