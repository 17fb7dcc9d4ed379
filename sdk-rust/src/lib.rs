//! Distributed resilience in one round trip.
//!
//! # The map
//! - [`connect`], [`Client`]: a server, a cluster, or the same machines in memory.
//! - limiter, breaker, lock, shared bulkhead, idempotency, cache: what a whole fleet shares.
//! - [`policy`]: what a process does by itself (retry, timeout, hedging, bulkhead, fallback), and whole policies of both.
//! - [`dispatcher`], [`group`]: many pieces of work, none of which can take the others down.
//! - [`error`]: one family of errors. [`http`]: headers and status codes. [`testing`]: a clock to drive, a script to play.
#![forbid(unsafe_code)]

pub(crate) mod backend;
pub mod breaker;
pub mod cache;
pub mod client;
pub mod clock;
pub mod dispatcher;
pub mod error;
pub mod group;
pub mod grpc;
pub mod health;
pub(crate) mod holding;
pub mod http;
pub mod idempotency;
pub(crate) mod isolate;
pub(crate) mod keys;
pub mod limiter;
pub mod lock;
pub mod policy;
pub mod shared_bulkhead;
pub mod shutdown;
pub(crate) mod telemetry;
pub mod testing;
#[cfg(feature = "tower")]
pub mod tower;

pub use client::{Client, ConnectOptions, connect};
pub use error::{Code, Error, Failure};
pub use health::{Away, Health, Status};
pub use shutdown::ShutdownReport;
