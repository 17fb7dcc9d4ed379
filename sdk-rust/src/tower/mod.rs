//! Layers for [tower](https://docs.rs/tower): every policy around any service.
//!
//! ```
//! use std::time::Duration;
//! use resil::policy::{LocalBulkhead, Retry, RetrySettings, Timeout, retry_all};
//! use resil::tower::{BulkheadLayer, RetryLayer, TimeoutLayer};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let service = ServiceBuilder::new()
//!     .layer(RetryLayer::around(Retry::new(&RetrySettings::default())?, retry_all::<std::io::Error>))
//!     .layer(BulkheadLayer::around(LocalBulkhead::new("orders", 10, 100)?))
//!     .layer(TimeoutLayer::new(Timeout::attempt(Duration::from_millis(250))?))
//!     .service(service_fn(|name: &'static str| async move { Ok::<_, std::io::Error>(format!("hello {name}")) }));
//! assert_eq!(service.oneshot("world").await.unwrap(), "hello world");
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```
//!
//! # Two constructors: `new` and `around`
//! As the policies have `call` and `around`, the layers have
//! - `new`, for the innermost one: the service has errors of its own (`E`), the result has [`Failure<E>`](crate::Failure);
//! - `around`, for all others: the service below is one of these layers and gives a `Failure<E>` already. It stays that.
//!
//! So failures never nest. `around` over a service with errors of its own does not compile.
//!
//! # What is promised
//! - They are always ready. What a policy refuses, it refuses in the response to the call: an error of readiness would end a
//!   [`Buffer`](https://docs.rs/tower/latest/tower/buffer/index.html) for good. An open circuit or a full bulkhead responds at once, even if
//!   the service below is not ready and never will be.
//! - The service below is made ready within the call, inside of the policy: waiting for it counts against a timeout, its error of
//!   readiness is a failure like any other. Every call (and attempt) has a clone of the service, made ready for itself:
//!   readiness that somebody waited for is never given to somebody else.
//! - Dropping the future of a call gives back what it held: a permit, a lock.
//! - A [`Guarded`] is `Clone` and `Send` if the service is. A call costs one allocation, for its future.
//!
//! Since they are always ready they pass no backpressure on: how much may wait is for a bulkhead's queue to say.
//!
//! # Responses that are failures
//! To a service for HTTP a 503 is a response, not an error. [`RetryLayer`], [`HedgeLayer`], [`BreakerLayer`] and [`PolicyLayer`] have
//! `classify_response` for that. When all attempts are used up, the last response is returned as it came.

#[macro_use]
mod guarded;
mod judging;
mod plain;

#[cfg(any(feature = "tonic", feature = "http"))]
pub(crate) use self::guarded::call_ready;
pub use self::guarded::{Around, CallFuture, Guard, GuardLayer, Guarded, Innermost, Nesting, Wrapped};
pub use self::judging::{
    BreakerLayer, ClassifyResponse, EveryResponseIsGood, HedgeLayer, Judging, PolicyLayer, RetryLayer, SameForAll,
    SettingsOf,
};
pub use self::plain::{
    BulkheadLayer, FallbackLayer, LimitedBy, LockLayer, LockedBy, OnePartition, Partition, Partitioned, RateLimitLayer,
    SharedBulkheadLayer, TimeoutLayer,
};
