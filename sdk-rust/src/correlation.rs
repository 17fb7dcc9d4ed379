//! What a report to a breaker is about, as tracing has it: a trace id.
//!
//! The server puts it into the event of the transition that the report led to, so that the event leads to the request that tripped the
//! circuit. It is sent with each report; a batch of calls carries that of its last failure.
//!
//! Where it comes from, the first that there is:
//! 1. [`correlated`], around the call.
//! 2. [`correlation_source`], set once for the process: for whatever tracing library it uses.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use resil::breaker::BreakerSettings;
//! use resil::correlation::{correlated, trace_id};
//!
//! // With OpenTelemetry: resil::correlation::correlation_source(|| {
//! //     let context = opentelemetry::Context::current().span().span_context().clone();
//! //     context.is_valid().then(|| context.trace_id().to_string())
//! // });
//! let client = resil::connect("memory://").await?;
//! let bank = client.breaker("bank", BreakerSettings::new())?;
//! let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"; // traceparent of the request
//! let call = bank.call(async || Ok::<_, std::io::Error>("paid"));
//! let paid = match trace_id(header) {
//!     Some(id) => correlated(id, call).await,
//!     None => call.await,
//! };
//! assert_eq!(paid.unwrap(), "paid");
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```

use std::future::Future;
use std::sync::{Arc, OnceLock};

use resil_core::limits::TEXT_MAX;
use tokio::task::futures::TaskLocalFuture;

use crate::idempotency::token::shortened;
use crate::worker::WorkerMessage;

tokio::task_local! {
    static CURRENT: Arc<str>;
    /// Says what a report is about only if there is one: most messages lead to none.
    static OF_MESSAGE: Arc<WorkerMessage>;
}

type TraceSource = Box<dyn Fn() -> Option<String> + Send + Sync>;

static SOURCE: OnceLock<TraceSource> = OnceLock::new();

/// Says where the process finds the trace id of whatever the current thread works on. It is asked when a report is sent, so it should be
/// quick. True the first time; later ones change nothing.
pub fn correlation_source(source: impl Fn() -> Option<String> + Send + Sync + 'static) -> bool {
    SOURCE.set(Box::new(source)).is_ok()
}

/// Reports that `future` makes carry `text`, of which at most 512 bytes are sent.
pub fn correlated<F: Future>(text: impl AsRef<str>, future: F) -> Correlated<F> {
    CURRENT.scope(shortened(text.as_ref(), TEXT_MAX).into(), future)
}

/// The same with the trace of a message, which is read when it is needed. [`correlated`] inside of `future` counts before it.
pub(crate) fn correlated_by<F: Future>(
    message: Arc<WorkerMessage>,
    future: F,
) -> TaskLocalFuture<Arc<WorkerMessage>, F> {
    OF_MESSAGE.scope(message, future)
}

/// The trace id of a W3C `traceparent` header. `None` if it is none, or all zeros.
pub fn trace_id(traceparent: &str) -> Option<&str> {
    resil_wire::trace::of_traceparent(traceparent)
}

/// What a report that is made now is about.
pub(crate) fn current() -> Option<Arc<str>> {
    let said = CURRENT.try_with(Arc::clone).ok();
    let of_message = || OF_MESSAGE.try_with(|message| shortened(message.correlation(), TEXT_MAX).into()).ok();
    said.or_else(of_message)
        .or_else(|| SOURCE.get().and_then(|source| source()).map(|text| shortened(&text, TEXT_MAX).into()))
        .filter(|text: &Arc<str>| !text.is_empty())
}

/// See [`correlated`].
pub type Correlated<F> = TaskLocalFuture<Arc<str>, F>;

#[cfg(test)]
#[path = "tests/correlation.rs"]
mod tests;
