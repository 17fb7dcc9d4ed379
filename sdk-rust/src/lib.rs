//! Distributed resilience in one round trip: limits, breakers, locks, idempotency and single flight that a whole fleet shares,
//! and the policies around them.
//!
//! The state is in a Redis or Valkey server with the Resil module, or in this process: `memory://` runs the same state
//! machines, blocking waits included, with no set-up. Everything below runs on it.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! use resil::limiter::Limit;
//!
//! let client = resil::connect("memory://").await?; // or redis://, rediss://, redis+cluster://, redis+sentinel://, unix://
//! let api = client.limiter("api", Limit::per_second(10).burst(20))?;
//! api.acquire("user:42").await?;
//! # Ok(()) })
//! # }
//! ```
//!
//! # The map
//! What a fleet shares, made from a [`Client`]:
//!
//! | | what it is for | what a refusal is |
//! | --- | --- | --- |
//! | [`limiter`] | so many per second, per key | `RATE_LIMIT_EXCEEDED` |
//! | [`breaker`] | leaving alone what is down | `CIRCUIT_OPEN` |
//! | [`lock`] | one at a time, with a fence | `LOCK_TIMEOUT`, `LOCK_LOST` |
//! | [`shared_bulkhead`] | so many at once, in the fleet | `BULKHEAD_FULL` |
//! | [`idempotency`] | work that is done once | `IDEMPOTENCY_BUSY`, `IDEMPOTENCY_MISMATCH` |
//! | [`cache`] | values that are loaded once | `LOAD_FAILED` |
//! | [`dead_letters`] | messages that failed | `LEDGER_CONFLICT`, `LEDGER_FULL` |
//! | [`worker`] | messages of a queue, settled through a ledger | none: it waits |
//!
//! What a process does by itself: [`policy`] (retry, timeout, hedging, bulkhead, fallback), [`dispatcher`] and [`group`] (many pieces of
//! work, none of which can take the others down), [`shutdown`].
//!
//! At the edges: [`http`] (headers and problem responses), [`grpc`] (statuses and service configs), `tower` (layers), [`testing`] and [`clock`]
//! (a clock to drive), [`correlation`] (which request tripped a circuit), [`telemetry`] (metrics, spans, events and hooks), [`operator`] (by the key, for those who run
//! the fleet), [`health`], [`settings`] (all of it as plain structures).
//!
//! Which pattern when, what each guarantees, and what it does not: the guide (`docs/guide.md`).
//!
//! # One of each
//! A breaker, which opens for the whole fleet:
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! # let client = resil::connect("memory://").await?;
//! use resil::breaker::BreakerSettings;
//!
//! let bank = client.breaker("bank", BreakerSettings::new().consecutive_failures(5))?;
//! let paid = bank.call(async || Ok::<_, std::io::Error>("paid")).await;
//! assert_eq!(paid.unwrap(), "paid");
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```
//!
//! A lock, whose fence goes along with what is written:
//!
//! ```
//! use resil::lock::LockSettings;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! # let client = resil::connect("memory://").await?;
//! let stock = client.lock("stock:42", LockSettings::new())?;
//! let fence = stock.with_lock(|held| async move { Ok::<_, std::io::Error>(held.fence()) }).await;
//! assert!(fence.unwrap().is_some());
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```
//!
//! A bulkhead of the fleet:
//!
//! ```
//! use resil::shared_bulkhead::SharedBulkheadSettings;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! # let client = resil::connect("memory://").await?;
//! let reports = client.shared_bulkhead("reports", SharedBulkheadSettings::new(1))?;
//! let inside = reports.enter().await?;
//! assert_eq!(reports.enter().await.unwrap_err().code(), resil::Code::BulkheadFull);
//! inside.leave().await?;
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```
//!
//! Work that is done once:
//!
//! ```
//! use resil::idempotency::IdempotencySettings;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! # let client = resil::connect("memory://").await?;
//! let payments = client.idempotent("payments", IdempotencySettings::new())?;
//! for is_replay in [false, true] {
//!     let receipt = payments.run("order-42", b"7 EUR", async |_run| Ok::<_, std::io::Error>("receipt-17")).await.unwrap();
//!     assert_eq!((receipt.value.as_deref(), receipt.replayed), (Some(&b"receipt-17"[..]), is_replay));
//! }
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```
//!
//! A value that is loaded once:
//!
//! ```
//! use resil::cache::CacheSettings;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! # let client = resil::connect("memory://").await?;
//! let users = client.cached("user", CacheSettings::new())?;
//! let ada = users.get("42", async |_id| Ok::<_, std::io::Error>(Some("Ada".into()))).await.unwrap();
//! assert_eq!(ada.into_value().as_deref(), Some(&b"Ada"[..]));
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```
//!
//! Policies nest, and their errors do not: however many there are, it is [`Failure`].
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use std::time::Duration;
//! use resil::policy::{Retry, RetrySettings, Timeout, retry_all};
//!
//! let (retry, timeout) = (Retry::new(&RetrySettings::default())?, Timeout::attempt(Duration::from_secs(1))?);
//! let reply = retry.around(retry_all, || timeout.call(|| async { Ok::<_, std::io::Error>("hello") })).await;
//! assert_eq!(reply.unwrap(), "hello");
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```
//!
//! # Errors
//! [`Error`] is what Resil has to say: a stable [`Code`], whether to retry, when, and the status for HTTP and gRPC; `docs/errors.md` is the table.
//! A function of yours that ran and failed is [`Failure::Inner`], untouched.
//!
//! # Features
//! - `redis` (on unless switched off): a real server. Without it there is only `memory://`.
//! - `tower`: layers for tower services.
//! - `tonic`: statuses and a client layer for gRPC; includes `tower`.
//! - `amqp`: workers and publishers on RabbitMQ.
//! - `postgres`: workers on an outbox table, and events that are processed once.
//!
//! # Runtime
//! Tokio. Connections are kept and leases are renewed on a thread of their own, named `resil`, which all clients of the process share:
//! code that blocks its thread, or its whole runtime, loses no lease by it, and a client outlives the runtime it was connected in.
//! [`ConnectSettings::runtime`] names another runtime for that. Loads of [`cache`] run on the runtime of the caller. Handles are cheap to
//! clone, and can be used from every task. Any future may be dropped at any await.
#![forbid(unsafe_code)]

pub(crate) mod backend;
pub(crate) mod background;
pub mod breaker;
pub mod cache;
pub mod client;
pub mod clock;
pub mod correlation;
pub mod dead_letters;
pub mod dispatcher;
pub mod error;
#[cfg(feature = "redis")]
pub(crate) mod events;
#[doc(hidden)]
pub mod fork;
pub mod group;
pub mod grpc;
pub mod health;
pub(crate) mod holding;
pub mod http;
pub mod idempotency;
pub(crate) mod insisting;
pub(crate) mod isolate;
pub(crate) mod keys;
pub(crate) mod leases;
pub mod limiter;
pub mod lock;
pub mod operator;
pub mod policies;
pub mod policy;

#[cfg(test)]
#[path = "tests/scripted_scene.rs"]
pub(crate) mod scripted_scene;
pub mod settings;
pub mod shared_bulkhead;
pub mod shutdown;
pub mod telemetry;
pub mod testing;
#[cfg(any(feature = "redis", feature = "postgres"))]
mod tls;
#[cfg(feature = "tower")]
pub mod tower;
pub mod worker;

// What stands in signatures here, so that nobody has to depend on the right version of it.
pub use bytes::Bytes;
pub use tokio_util::sync::CancellationToken;

pub use client::{Client, ConnectSettings, connect};
pub use error::{Code, Error, Failure, Leased};
pub use health::{Away, Health, Notice, Status};
pub use shutdown::{CallInFlight, ShutdownReport};

/// The pages of the repository that show Rust: their code is run by the tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../docs/guide.md")]
    struct Guide;
    #[doc = include_str!("../../docs/sdk-rust.md")]
    struct SdkRust;
    #[doc = include_str!("../../docs/telemetry.md")]
    struct Telemetry;
    #[cfg(feature = "http")]
    #[doc = include_str!("../../docs/http.md")]
    struct HttpPage;
}
