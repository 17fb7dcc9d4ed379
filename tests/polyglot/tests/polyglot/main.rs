//! One server, and a fleet of processes in three languages: what they share they share with each other.
//!
//! The workers (see `src/main.rs`) say when they are inside, and stay until the test gives them the word. The test hears
//! one message after the other, so what it sees inside at once was inside at once.
//!
//! Replies over HTTP have programs of their own, the shops (see `src/shop.rs`).
//!
//! Needs the packages in place: `scripts/python place` and `scripts/node place`, which `make test` does before.

mod breaker;
mod bulkhead;
mod dead_letters;
mod fleet;
mod kept_replies;
mod killed;
mod lock;
mod operator;
mod policy;
mod queue;
mod shared_results;
mod shops;
mod stopped;
mod worker;
