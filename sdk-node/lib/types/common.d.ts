/** What is the same everywhere. */

/** Milliseconds, or text such as `"250ms"`, `"10s"`, `"1h"`. */
export type Duration = number | string;

/** What happens to a call while the server cannot be reached: it is let through, refused, or decided in this process. */
export type Away = 'open' | 'closed' | 'local';

/** See `resil/testing`. */
export interface Clock { readonly nowMs: number; advance(duration: Duration): void; readonly nextWakeMs: number | null }

/**
 * How values are written, so that others read the same. What would come back as something else is refused.
 *
 * - `'json'`, the default: what JSON has, readable in every language. No `undefined` inside, `NaN`, `bigint`, `Date`, `Map`, `Set`, bytes, or instances of classes.
 * - `'v8'`: what structured clone has (`bigint`, `Date`, `Map`, `Set`, typed arrays, ...), for services in Node alone.
 * - `'bytes'`: a `Uint8Array` as it is.
 * - your own.
 */
export type Serializer = 'json' | 'v8' | 'bytes' | OwnSerializer;
export interface OwnSerializer { serialize(value: any): Uint8Array | string; deserialize(bytes: Uint8Array): unknown }
