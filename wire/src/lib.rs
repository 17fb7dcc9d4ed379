//! Every command in one file: its arguments with `parse` (words to struct) and `encode` (struct to words), their bounds,
//! its reply with `write` and `read`. The module parses what the SDKs encode, and writes what they read, with the same
//! file, so the two cannot drift.
//!
//! # The map
//! - [`command`]: the list of commands, every call as one type and every reply as another.
//! - [`pages`]: names, usages and HELP, generated from `commands/*.json`.
//! - [`gcra`], [`mgcra`], [`window`], [`throttle`], [`breaker`], [`lock`], [`bulkhead`], [`holding`] (what the last two
//!   share), [`heartbeat`], [`idempotency`], [`single_flight`], [`apply`]: the commands.
//! - [`argv`]: the cursor over arguments; every refusal names the argument, what was given and what is allowed.
//! - [`bound`]: what an argument may be. [`duration`]: `250ms`, `30s`, `1h`. [`words`]: what calls are written to.
//! - [`late`]: the verdict of an asynchronous wait, as it is published. [`reply`]: what replies are written to and read from.
//!
//! # What this crate does not do
//! It asks no clock, opens no socket, and decides nothing: a number is only held against the bounds that core names.
#![forbid(unsafe_code)]

pub mod apply;
pub mod argv;
pub mod bound;
pub mod breaker;
pub mod bulkhead;
pub mod command;
pub mod duration;
pub mod gcra;
pub mod heartbeat;
pub mod holding;
pub mod idempotency;
pub mod late;
pub mod lock;
pub mod mgcra;
#[rustfmt::skip] // as it is generated
pub mod pages;
pub mod reply;
pub mod single_flight;
pub mod throttle;
pub mod window;
pub mod words;

pub use argv::Refused;
pub use command::{Command, Reply};
pub use words::Words;
