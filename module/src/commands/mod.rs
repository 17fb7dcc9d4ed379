//! The commands: each parses, loads, steps, applies and replies; nothing else.

pub mod apply;
pub mod breaker;
pub mod bulkhead;
pub mod clock;
pub mod gcra;
pub mod holding;
pub mod idempotency;
pub mod lock;
pub mod mgcra;
pub mod single_flight;
pub mod throttle;
pub mod waiting;
pub mod window;
