/** Functions through policies: what every policy has. */
import type { Duration } from './common.js';

/** What a function receives when a policy calls it. */
export interface Context {
  /** Aborted when nobody waits for this attempt any more: it timed out, another was faster, the caller gave up. */
  readonly signal: AbortSignal;
  /** 1 the first time. */
  readonly attempt: number;
  /** Under a lock: send this number with each write. */
  readonly fence: bigint | undefined;
}

/** What is particular to one call. */
export interface CallSettings {
  /** Aborted, the call is given up: what is running is aborted, what is held is given back, and it is a `CancelledError`. */
  signal?: AbortSignal | undefined;
  /** The key of the rate limit: a user, a tenant. By default the name of the limiter or policy. */
  key?: string | undefined;
  /** How many cells of the rate limit. 1 by default. */
  cost?: number | undefined;
  /** Which partition of a local bulkhead. */
  partition?: string | undefined;
  /** In place of the policy's. Whole policies only. */
  attemptTimeout?: Duration | undefined;
  totalTimeout?: Duration | undefined;
  /** How important it is, to shedding. `normal` by default. Whole policies only. */
  priority?: 'critical' | 'high' | 'normal' | 'low' | 'background' | undefined;
}

/** For the compiler alone: what a guard may return in place of a failure. */
declare const ALT: unique symbol;

/** Anything that can call a function. `Alt` is what it may return in place of a failure. */
export interface Guard<Alt = never> {
  readonly [ALT]?: () => Alt;
  /** Calls `fn` through it. */
  call<T>(fn: (context: Context) => T, options?: CallSettings): Promise<Awaited<T> | Alt>;
  /** A function like `fn`, every call of which goes through it. Arguments, `this` and the result keep their types. */
  wrap<This, Args extends unknown[], R>(
    fn: (this: This, ...args: Args) => R, options?: CallSettings,
  ): (this: This, ...args: Args) => Promise<Awaited<R> | Alt>;
  /** The same, and `fn` gets the context as one more argument, the last. */
  wrap<This, Args extends unknown[], R>(
    fn: (this: This, ...argsAndContext: [...Args, Context]) => R, options: CallSettings & { context: true },
  ): (this: This, ...args: Args) => Promise<Awaited<R> | Alt>;
}

/** What a guard may return in place of a failure. */
export type AltOf<G> = G extends { readonly [ALT]?: () => infer Alt } ? Alt : never;

/** Guards around each other, outermost first. With a function last: that function, through them. */
export function wrap<G extends readonly [Guard<any>, ...Guard<any>[]]>(...guards: G): Guard<AltOf<G[number]>>;
export function wrap<This, Args extends unknown[], R, G extends readonly [Guard<any>, ...Guard<any>[]]>(
  ...guardsAndFunction: [...G, (this: This, ...args: Args) => R]
): (this: This, ...args: Args) => Promise<Awaited<R> | AltOf<G[number]>>;

/**
 * What an error means: `true` it may go away, a number it may go away after so many milliseconds, `false` it will not,
 * `'ignore'` it says nothing about the health of what was called (not found, a bad request).
 */
export type Meaning = boolean | number | 'ignore';
/** Which errors are worth another attempt: a function, one class, or several. Resil's own are judged by Resil. */
export type On = ((error: unknown) => Meaning) | ErrorClass | readonly ErrorClass[];
/** Which results are failures; `undefined` is none. */
export type OnResult = (result: any) => Meaning | undefined;
export type ErrorClass = abstract new (...args: any[]) => unknown;
/** Every error may go away. Only for calls that may be made twice. */
export const handleAll: (error: unknown) => true;
/** None does; what Resil itself says is still judged as usual. */
export const handleNone: (error: unknown) => false;
