//! One file for each handle. Generated from this folder by `cargo run -p resil-harness --bin generate`. Do not edit.

pub mod breaker;
pub mod cached;
pub mod dead_letters;
pub mod holding;
pub mod idempotent;
pub mod limiter;
pub mod policies;
pub mod stored_policies;
pub mod whole;
pub mod worker;
