//! What a process does by itself: retry, timeout, hedging, bulkhead, fallback.
//!
//! Each policy is a small handle: made once from settings that are checked, cloned freely, used from every task. None spawns; what
//! is no longer wanted is dropped, and gives back what it held at that moment. Futures of yours need be neither `Send` nor
//! `'static`.
//!
//! # Two ways in
//! - `call` runs an operation that returns `Result<T, E>` and gives `Result<T, Failure<E>>`: your error, or what
//!   the policy has to say.
//! - `around` runs what already gives a [`Failure`](crate::Failure), that is another policy. So policies nest without their failures
//!   nesting: the error type stays `Failure<E>` however many there are.
//!
//! ```
//! use std::time::Duration;
//! use resil::policy::{LocalBulkhead, Retry, RetrySettings, Timeout, retry_all};
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let retry = Retry::new(&RetrySettings::default())?;
//! let bulkhead = LocalBulkhead::new("orders", 10, 0)?;
//! let timeout = Timeout::attempt(Duration::from_millis(250))?;
//! let result = retry
//!     .around(retry_all, || bulkhead.around(|| timeout.call(|| async { Ok::<_, std::io::Error>("hello") })))
//!     .await;
//! assert_eq!(result.unwrap(), "hello");
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```
//!
//! # Which is for what
//! | policy | against | not for |
//! | --- | --- | --- |
//! | [`Retry`] | failures that go away by themselves | calls that must not happen twice, unless idempotent |
//! | [`Timeout`] | results that never come | bounding work that blocks its thread |
//! | [`Hedge`] | a slow few among the fast many | a service that is slow because it is overloaded |
//! | [`LocalBulkhead`] | one dependency taking every task | limits of a whole fleet: that is the shared one |
//! | [`Fallback`] | having no result at all | hiding mistakes |
//!
//! [`Policy`] is all of them, and what a fleet shares, as one call; from the outside in: fallback, total timeout, shed, idempotent run,
//! retry, hedge, breaker, rate limit, bulkhead, attempt timeout. [`PolicyFile`] reads policies from JSON and YAML.
//!
//! # Time and settings
//! All time comes from a [`Clock`](crate::clock::Clock), so tests drive it. Settings are plain structures for JSON and YAML; unknown
//! fields are refused, and `validate` names the field that is out of bounds.

mod adapting;
pub mod backoff;
pub mod budget;
mod builder;
pub mod bulkhead;
pub mod chain;
pub mod classify;
pub mod fallback;
pub(crate) mod fleet;
mod guarded;
pub mod hedge;
mod in_flight;
mod latency;
pub(crate) mod made;
mod on_result;
pub mod retry;
pub mod settings;
mod stage;
pub mod timeout;
mod until;
pub mod watched;

pub use backoff::{Backoff, Jitter, Random};
pub use budget::{Budget, BudgetSettings};
pub use builder::PolicyBuilder;
pub use bulkhead::{BulkheadMetrics, BulkheadPermit, BulkheadSettings, LocalBulkhead, PartitionSettings};
pub use chain::{CallSettings, Policy, Priority};
pub use classify::{Class, Classify, retry_all, retry_none};
pub use fallback::Fallback;
pub use hedge::{Hedge, HedgeSettings};
#[doc(hidden)]
pub use on_result::{Unfit, classified, judged, settled};
pub use retry::{Retry, RetrySettings};
pub use settings::{PolicyFile, PolicySettings};
pub use stage::Stage;
pub use timeout::{Timeout, TimeoutSettings};
pub use watched::WatchedPolicies;
