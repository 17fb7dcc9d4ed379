//! One call of a primitive, as a span of `tracing` and as an [`Event::Call`].
//!
//! # Switched off
//! [`watch`] is two loads, and the call is made as if there were no telemetry. Inside of a span the future of the call is put on the heap, so that
//! the futures of those who do not trace stay small; for listeners alone it stays where it is.
//!
//! # The span
//! Its parent is whatever span is current where the call is first polled. Its fields are `name`, `operation` and, when it is over, `outcome`,
//! `error.type` (the code of the error) and `otel.status_code`. A call that is dropped has the outcome `cancelled`.

use std::future::Future;
use std::sync::Arc;
use std::time::SystemTime;

use tracing::field::Empty;
use tracing::level_filters::LevelFilter;
use tracing::{Instrument, Span};

use super::Primitive;
use super::event::{CallEnded, Event, Home, Interest, emit, is_wanted};
use crate::correlation;
use crate::error::{Code, Error, Failure};

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallEnding {
    pub outcome: &'static str,
    pub error: Option<Code>,
    pub is_error: bool,
}

impl CallEnding {
    pub const GRANTED: Self = Self::fine("granted");
    pub const DENIED: Self = Self::fine("denied");
    pub const OK: Self = Self::fine("ok");
    /// A function of the user's failed.
    pub const FAILED: Self = Self { outcome: "error", error: None, is_error: true };

    pub const fn fine(outcome: &'static str) -> Self {
        Self { outcome, error: None, is_error: false }
    }

    /// What an error of ours says.
    pub fn of_error(error: &Error) -> Self {
        let outcome = match error {
            Error::CircuitOpen { .. }
            | Error::RateLimitExceeded { .. }
            | Error::BulkheadFull { .. }
            | Error::Refused { .. }
            | Error::LockTimeout { .. }
            | Error::IdempotencyBusy { .. }
            | Error::IdempotencyMismatch { .. }
            | Error::IdempotencyHeld { .. } => "denied",
            Error::Timeout { .. } => "timeout",
            Error::LockLost { .. } => "lost",
            Error::Cancelled | Error::ShuttingDown => "cancelled",
            error if error.says_away() => "unavailable",
            _ => "error",
        };
        Self { outcome, error: Some(error.code()), is_error: true }
    }

    pub fn of<T>(result: &Result<T, Error>) -> Self {
        Self::or(result, |_| Self::OK)
    }

    pub fn or<T>(result: &Result<T, Error>, fine: impl FnOnce(&T) -> Self) -> Self {
        match result {
            Ok(value) => fine(value),
            Err(error) => Self::of_error(error),
        }
    }

    /// Of what runs a function of the user's.
    pub fn of_work<T, E>(result: &Result<T, Failure<E>>, fine: impl FnOnce(&T) -> Self) -> Self {
        match result {
            Ok(value) => fine(value),
            Err(Failure::Inner(_)) => Self::FAILED,
            Err(Failure::Resil(error)) => Self::of_error(error),
            Err(Failure::Exhausted { .. }) => {
                Self { outcome: "exhausted", error: Some(Code::RetryExhausted), is_error: true }
            }
        }
    }
}

/// A call that somebody watches.
pub(crate) struct CallWatch {
    span: Span,
    notes: Option<CallNotes>,
    is_over: bool,
}

/// What listeners get.
struct CallNotes {
    primitive: Primitive,
    name: Arc<str>,
    operation: &'static str,
    began: SystemTime,
    parent: Option<Arc<str>>,
    home: Home,
}

/// `None` if nobody watches.
#[inline]
pub(crate) fn watch(primitive: Primitive, operation: &'static str, name: &Arc<str>) -> Option<CallWatch> {
    if LevelFilter::current() >= LevelFilter::DEBUG || is_wanted(Interest::Calls) {
        CallWatch::new(primitive, operation, name)
    } else {
        None
    }
}

macro_rules! spans {
    ($primitive:expr, $operation:expr, $name:expr; $($variant:ident $text:literal),*) => {
        match $primitive {
            $(Primitive::$variant => tracing::debug_span!(
                $text,
                name = &**$name,
                operation = $operation,
                outcome = Empty,
                error.r#type = Empty,
                otel.status_code = Empty,
            ),)*
        }
    };
}

impl CallWatch {
    #[cold]
    fn new(primitive: Primitive, operation: &'static str, name: &Arc<str>) -> Option<Self> {
        let span = spans!(primitive, operation, name;
            Limiter "resil.limiter", Breaker "resil.breaker", Lock "resil.lock", Bulkhead "resil.bulkhead",
            SharedBulkhead "resil.shared_bulkhead", Idempotency "resil.idempotency", Cache "resil.cache",
            DeadLetters "resil.dead_letters", Policy "resil.policy", Worker "resil.worker");
        let notes = is_wanted(Interest::Calls).then(|| CallNotes {
            primitive,
            name: Arc::clone(name),
            operation,
            began: SystemTime::now(),
            parent: correlation::current(),
            home: None,
        });
        (notes.is_some() || !span.is_disabled()).then_some(Self { span, notes, is_over: false })
    }

    /// Its client has this home, and it may be made on any thread. `parent` is the context it belongs to.
    pub fn of_background(mut self, home: Home, parent: Option<&str>) -> Self {
        if let Some(notes) = &mut self.notes {
            notes.home = home;
            notes.parent = parent.map(Arc::from).or_else(|| notes.parent.take());
        }
        self
    }

    pub fn span(&self) -> &Span {
        &self.span
    }

    /// Whether anybody collects spans. If not, there are only listeners, and the call needs no span around it.
    pub fn has_span(&self) -> bool {
        !self.span.is_disabled()
    }

    /// Makes the call inside of its span, and says how it ended.
    pub async fn around<T>(self, call: impl Future<Output = T>, ending: impl FnOnce(&T) -> CallEnding) -> T {
        let value = Box::pin(call.instrument(self.span.clone())).await;
        let ending = ending(&value);
        self.end(ending);
        value
    }

    pub fn end_as<T>(self, value: &T, ending: impl FnOnce(&T) -> CallEnding) {
        self.end(ending(value));
    }

    pub fn end(mut self, ending: CallEnding) {
        self.finish(ending);
    }

    fn finish(&mut self, CallEnding { outcome, error, is_error }: CallEnding) {
        self.is_over = true;
        self.span.record("outcome", outcome);
        if is_error {
            self.span.record("otel.status_code", "ERROR");
            self.span.record("error.type", error.map_or("error", Code::text));
        }
        if let Some(CallNotes { primitive, name, operation, began, parent, home }) = self.notes.take() {
            // One clock for both ends: to read it is most of what a span costs.
            let took = began.elapsed().unwrap_or_default();
            emit(Interest::Calls, home, || {
                Event::Call(CallEnded { primitive, name, operation, outcome, error, is_error, began, took, parent })
            });
        }
    }
}

impl Drop for CallWatch {
    fn drop(&mut self) {
        if !self.is_over {
            self.finish(CallEnding::fine("cancelled"));
        }
    }
}

/// `$call` as it is if nobody watches, else inside of a span that ends as `$ending` says of its result.
macro_rules! watched {
    ($primitive:ident, $operation:expr, $name:expr, $call:expr, $ending:expr) => {
        match $crate::telemetry::watch($crate::telemetry::Primitive::$primitive, $operation, $name) {
            // On the heap, so that the future of the whole has room for the call once, and not for each way.
            Some(watch) if watch.has_span() => watch.around(Box::pin($call), $ending).await,
            watch => {
                let value = $call.await;
                if let Some(watch) = watch {
                    watch.end_as(&value, $ending);
                }
                value
            }
        }
    };
}
pub(crate) use watched;
