/** What Resil has to say: one family of errors. */
import type { ItemResult } from './policies.js';

/** The stable names of errors, the same in every language. */
export type Code =
  | 'CIRCUIT_OPEN' | 'RATE_LIMIT_EXCEEDED' | 'TIMEOUT' | 'BULKHEAD_FULL' | 'RETRY_EXHAUSTED' | 'INVALID_POLICY'
  | 'INVALID_ARGUMENT' | 'LOCK_TIMEOUT' | 'LOCK_LOST' | 'DEADLOCK' | 'IDEMPOTENCY_BUSY' | 'IDEMPOTENCY_MISMATCH'
  | 'IDEMPOTENCY_HELD' | 'RESULT_UNRECORDED' | 'LOAD_FAILED' | 'BACKEND_UNAVAILABLE' | 'MODULE_MISSING' | 'PERMISSION_DENIED' | 'CANCELLED'
  | 'SHUTTING_DOWN' | 'PANICKED' | 'INTERNAL';

/** What Resil itself has to say. What your own functions throw comes through as the same object. */
export class ResilError extends Error {
  readonly code: Code;
  /** Whether the same call may succeed if it is made again, later. */
  readonly retryable: boolean;
  /** How long to wait before, if that is known. */
  readonly retryAfterMs: number | undefined;
  /** The status to answer with over HTTP. */
  readonly httpStatus: number;
  /** The name of the limit, breaker, lock or key it is about, if it is about one. */
  readonly resource: string | undefined;
}
export class CircuitOpenError extends ResilError { readonly code: 'CIRCUIT_OPEN' }
export class RateLimitExceededError extends ResilError { readonly code: 'RATE_LIMIT_EXCEEDED' }
export class TimeoutError extends ResilError { readonly code: 'TIMEOUT' }
export class BulkheadFullError extends ResilError { readonly code: 'BULKHEAD_FULL' }
/** Every attempt failed; `cause` is how the last one did. */
export class RetryExhaustedError extends ResilError { readonly code: 'RETRY_EXHAUSTED'; readonly attempts: number; readonly cause: unknown }
/** A setting cannot be used; `field` says which. Also a `RangeError`. */
export class InvalidPolicyError extends ResilError implements RangeError { readonly code: 'INVALID_POLICY'; readonly field: string }
/** An argument cannot be used. Also a `TypeError`. */
export class InvalidArgumentError extends ResilError implements TypeError { readonly code: 'INVALID_ARGUMENT' }
export class LockTimeoutError extends ResilError { readonly code: 'LOCK_TIMEOUT' }
export class LockLostError extends ResilError { readonly code: 'LOCK_LOST' }
export class DeadlockError extends ResilError { readonly code: 'DEADLOCK' }
export class IdempotencyBusyError extends ResilError { readonly code: 'IDEMPOTENCY_BUSY' }
export class IdempotencyMismatchError extends ResilError { readonly code: 'IDEMPOTENCY_MISMATCH' }
export class IdempotencyHeldError extends ResilError { readonly code: 'IDEMPOTENCY_HELD' }
/** The work is done, and is not done again under its key; but its result could not be kept for duplicates. */
export class ResultUnrecordedError extends ResilError {
  readonly code: 'RESULT_UNRECORDED';
  /** What the function returned, for the one who called it. `undefined` for duplicates. */
  readonly result?: unknown;
}
export class LoadFailedError extends ResilError { readonly code: 'LOAD_FAILED' }
export class BackendUnavailableError extends ResilError { readonly code: 'BACKEND_UNAVAILABLE' }
export class ModuleMissingError extends ResilError { readonly code: 'MODULE_MISSING' }
export class PermissionDeniedError extends ResilError { readonly code: 'PERMISSION_DENIED' }
/** The caller gave up: its signal was aborted, and `cause` is the reason. Or another attempt was faster. */
export class CancelledError extends ResilError { readonly code: 'CANCELLED'; /** Of a batch: what was done until then. */ readonly results?: ItemResult<unknown>[] }
export class ShuttingDownError extends ResilError { readonly code: 'SHUTTING_DOWN' }
export class PanickedError extends ResilError { readonly code: 'PANICKED' }
export class InternalError extends ResilError { readonly code: 'INTERNAL' }
