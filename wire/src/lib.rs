//! Every command as a typed struct with `parse` (arguments to struct) and `encode` (struct to arguments) side by side,
//! and its reply. The module parses what the SDKs encode with the same file, so the two cannot drift.
//!
//! # The map
//! - [`argv`]: the cursor over arguments; every refusal names the argument, what was given and what is allowed.
//! - [`duration`]: `250ms`, `30s`, `1h`.
//! - [`reply`]: what replies are written to and read from.
//! - [`gcra`], [`mgcra`], [`window`], [`throttle`], [`breaker`], [`breaker_state`], [`lock`], [`bulkhead`],
//!   [`holding`] (what the last two share), [`idempotency`], [`single_flight`], [`apply`]: one file per command family.
//!
//! # What this crate does not do
//! It asks no clock, opens no socket, and decides nothing: a number is only held against the bounds that core names.
#![forbid(unsafe_code)]

pub mod answer;
pub mod apply;
pub mod argv;
pub mod breaker;
pub mod breaker_state;
pub mod bulkhead;
pub mod command;
pub mod duration;
pub mod gcra;
pub mod holding;
pub mod idempotency;
pub mod lock;
pub mod mgcra;
pub mod reply;
pub mod single_flight;
pub mod throttle;
pub mod window;

pub use argv::Refused;
