//! Every command as a typed struct with `parse` (arguments to struct) and `encode` (struct to arguments) side by side,
//! and its reply. The module parses what the SDKs encode with the same file, so the two cannot drift.
//!
//! # The map
//! - [`argv`]: the cursor over arguments; every refusal names the argument, what was given and what is allowed.
//! - [`duration`]: `250ms`, `30s`, `1h`.
//! - [`words`]: what calls are written to.
//! - [`reply`]: what replies are written to and read from.
//! - [`command`] and [`answer`]: every call as one type, and what it is answered as another.
//! - [`gcra`], [`mgcra`], [`window`], [`throttle`], [`breaker`], [`breaker_options`], [`breaker_state`], [`lock`], [`bulkhead`],
//!   [`holding`] (what the last two share), [`idempotency`], [`single_flight`], [`apply`]: one file per command family.
//!
//! # What this crate does not do
//! It asks no clock, opens no socket, and decides nothing: a number is only held against the bounds that core names.
#![forbid(unsafe_code)]

pub mod answer;
pub mod apply;
pub mod argv;
pub mod breaker;
pub mod breaker_options;
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
pub mod words;

pub use answer::Answer;
pub use argv::Refused;
pub use command::Command;
pub use words::Words;
