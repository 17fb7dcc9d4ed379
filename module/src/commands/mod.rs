//! The commands: each parses, loads, steps, applies and replies; nothing else.

pub mod apply;
pub mod breaker;
pub mod clock;
pub mod gcra;
pub mod mgcra;
pub mod throttle;
pub mod window;
