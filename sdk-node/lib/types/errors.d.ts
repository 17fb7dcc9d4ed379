/** What Resil itself reports: one family of errors. Generated from commands/errors.json by `cargo run -p resil-harness --bin generate`. Do not edit. */
import type { ItemResult } from './policies.js';

/** The stable names of errors, the same in every language. */
export type Code =
  | 'CIRCUIT_OPEN'
  | 'RATE_LIMIT_EXCEEDED'
  | 'TIMEOUT'
  | 'BULKHEAD_FULL'
  | 'REFUSED'
  | 'RETRY_EXHAUSTED'
  | 'INVALID_POLICY'
  | 'INVALID_ARGUMENT'
  | 'LOCK_TIMEOUT'
  | 'LOCK_LOST'
  | 'DEADLOCK'
  | 'IDEMPOTENCY_BUSY'
  | 'IDEMPOTENCY_MISMATCH'
  | 'IDEMPOTENCY_HELD'
  | 'IDEMPOTENCY_FAILED'
  | 'RESULT_UNRECORDED'
  | 'REDRIVE_REFUSED'
  | 'LOAD_FAILED'
  | 'LEDGER_CONFLICT'
  | 'LEDGER_FULL'
  | 'PAYLOAD_TOO_BIG'
  | 'BACKEND_UNAVAILABLE'
  | 'MODULE_MISSING'
  | 'PERMISSION_DENIED'
  | 'CANCELLED'
  | 'SHUTTING_DOWN'
  | 'CRASHED'
  | 'INTERNAL';

/** What Resil itself reports. What your own functions throw comes through as the same object. */
export class ResilError extends Error {
  readonly code: Code;
  /** Whether the same call may succeed if it is made again, later. */
  readonly retryable: boolean;
  /** How long to wait before, if that is known. */
  readonly retryAfterMs: number | undefined;
  /** The status to reply with over HTTP. */
  readonly httpStatus: number;
  /** The name of the limit, breaker, lock or key it is about, if it is about one. */
  readonly resource: string | undefined;
}

/** The circuit breaker is open. Calls are rejected until it closes. */
export class CircuitOpenError extends ResilError {
  readonly code: 'CIRCUIT_OPEN';
}

/** The rate limit is exceeded. */
export class RateLimitExceededError extends ResilError {
  readonly code: 'RATE_LIMIT_EXCEEDED';
}

/** The call did not finish in time. */
export class TimeoutError extends ResilError {
  readonly code: 'TIMEOUT';
}

/** Too many calls are in progress, and no more can wait. */
export class BulkheadFullError extends ResilError {
  readonly code: 'BULKHEAD_FULL';
}

/** The policy refused the call by itself: it was shed, throttled, or struck by chaos. */
export class RefusedError extends ResilError {
  readonly code: 'REFUSED';
}

/** Every attempt failed. */
export class RetryExhaustedError extends ResilError {
  readonly code: 'RETRY_EXHAUSTED';
  /** How many attempts were made. */
  readonly attempts: number;
  /** How the last attempt failed. */
  readonly cause: unknown;
}

/** A setting of a policy is not valid. Also a `RangeError`. */
export class InvalidPolicyError extends ResilError implements RangeError {
  readonly code: 'INVALID_POLICY';
  /** The setting that is not valid. */
  readonly field: string;
}

/** An argument is not valid. Also a `TypeError`. */
export class InvalidArgumentError extends ResilError implements TypeError {
  readonly code: 'INVALID_ARGUMENT';
}

/** The lock could not be acquired in time. */
export class LockTimeoutError extends ResilError {
  readonly code: 'LOCK_TIMEOUT';
}

/** The lock, permit or lease was lost while the work was in progress. */
export class LockLostError extends ResilError {
  readonly code: 'LOCK_LOST';
}

/** A reader asked to write while others read or wait, which would deadlock. */
export class DeadlockError extends ResilError {
  readonly code: 'DEADLOCK';
}

/** The same request is already in progress. */
export class IdempotencyBusyError extends ResilError {
  readonly code: 'IDEMPOTENCY_BUSY';
}

/** The idempotency key was used before with a different request. */
export class IdempotencyMismatchError extends ResilError {
  readonly code: 'IDEMPOTENCY_MISMATCH';
}

/** The outcome of an earlier attempt is unknown. An operator has to decide. */
export class IdempotencyHeldError extends ResilError {
  readonly code: 'IDEMPOTENCY_HELD';
}

/** The work has failed finally in an earlier attempt. Do not repeat it. */
export class IdempotencyFailedError extends ResilError {
  readonly code: 'IDEMPOTENCY_FAILED';
}

/** The work is done, but its result could not be recorded. Do not repeat it. */
export class ResultUnrecordedError extends ResilError {
  readonly code: 'RESULT_UNRECORDED';
  /** What the function returned, for its caller; missing for duplicates. */
  readonly result?: unknown;
}

/** The dead letters cannot be redriven under this case now. */
export class RedriveRefusedError extends ResilError {
  readonly code: 'REDRIVE_REFUSED';
  /** case, closed, poison, held, again, rate, running or nothing. */
  readonly reason: string;
}

/** The value could not be loaded. */
export class LoadFailedError extends ResilError {
  readonly code: 'LOAD_FAILED';
}

/** Another message is in the ledger under the same id. Do not acknowledge this one. */
export class LedgerConflictError extends ResilError {
  readonly code: 'LEDGER_CONFLICT';
}

/** The ledger has no room for another message. Do not acknowledge it. */
export class LedgerFullError extends ResilError {
  readonly code: 'LEDGER_FULL';
}

/** The payload is larger than the ledger accepts. Store it elsewhere and give a reference. */
export class PayloadTooBigError extends ResilError {
  readonly code: 'PAYLOAD_TOO_BIG';
}

/** The server with the shared state cannot be reached. */
export class BackendUnavailableError extends ResilError {
  readonly code: 'BACKEND_UNAVAILABLE';
}

/** The server does not have the Resil module loaded. */
export class ModuleMissingError extends ResilError {
  readonly code: 'MODULE_MISSING';
}

/** The server does not allow this user to run the command. */
export class PermissionDeniedError extends ResilError {
  readonly code: 'PERMISSION_DENIED';
}

/** The caller cancelled the call. */
export class CancelledError extends ResilError {
  readonly code: 'CANCELLED';
  /** Of a batch: what was done until then. */
  readonly results?: ItemResult<unknown>[];
}

/** The service is shutting down and accepts no new work. */
export class ShuttingDownError extends ResilError {
  readonly code: 'SHUTTING_DOWN';
}

/** The work crashed. */
export class CrashedError extends ResilError {
  readonly code: 'CRASHED';
}

/** An internal error occurred. */
export class InternalError extends ResilError {
  readonly code: 'INTERNAL';
}
