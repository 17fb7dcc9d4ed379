/** The classes of errors, for `import`. Generated from commands/errors.json by `cargo run -p resil-harness --bin generate`. Do not edit. */
import errors from './errors.js';

export const {
  BackendUnavailableError,
  BulkheadFullError,
  CancelledError,
  CircuitOpenError,
  CrashedError,
  DeadlockError,
  IdempotencyBusyError,
  IdempotencyFailedError,
  IdempotencyHeldError,
  IdempotencyMismatchError,
  InternalError,
  InvalidArgumentError,
  InvalidPolicyError,
  LoadFailedError,
  LockLostError,
  LockTimeoutError,
  ModuleMissingError,
  PermissionDeniedError,
  RateLimitExceededError,
  ResilError,
  ResultUnrecordedError,
  RetryExhaustedError,
  ShuttingDownError,
  TimeoutError,
} = errors;
