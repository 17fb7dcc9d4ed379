//! The state machines of Resil.
//!
//! Every feature is a pure function `step(state, event, now)`: it reads no clock, draws no chance, does no I/O and
//! knows no Redis. What a step decides is a [`Step`]: the verdict for the caller and, if durable state is to change,
//! a change with absolute values. `apply(state, change)` is the only mutation, and it is the same function on the
//! server that decided, on its replicas and while an append-only file is read back.
//!
//! # The map
//! - [`time`]: the two time types, microseconds since the epoch and spans of them.
//! - [`step`]: the one shape every machine has. [`stored`]: what each says of its state.
//! - [`rate_limit`]: GCRA with up to eight tiers per key, and the replies redis-cell gives.
//! - [`window`]: the exact sliding window.
//! - [`circuit_breaker`]: one breaker for a whole fleet, with leased probes and generations.
//! - [`waited`]: the one engine for everything that can be waited for: queue, leases, fences, sessions, timers.
//! - [`lock`]: locks and bulkheads: holders with leases, a queue of waiters, fences.
//! - [`quorum`]: one lock over several independent servers, as its caller decides it.
//! - [`idempotency`]: work that is done once, and its result for every caller that asks again.
//! - [`single_flight`]: one caller loads, everybody gets what it loaded.
//! - [`generations`]: the tags of cached values, and what was invalidated of a cache name.
//! - [`dead_letters`]: messages that failed: retried by the server, kept when they are dead, redriven under governance.
//! - `policy` (a feature): the one schema of policy documents, and the small machines that adapt to what happens.
//! - [`guard`]: stored policies: a whole policy in two commands, for any language.
//! - [`heavy_hitters`]: which keys come most often, in a fixed amount of memory.
//! - [`codec`]: state and changes as versioned bytes; every decoded value is checked against its invariants.
//! - [`batch`]: work in parts that end when their time is used up.
//! - [`limits`]: every maximum in one table.
//!
//! # What this crate does not do
//! It does not parse commands (that is `resil-wire`), store keys, or know which server it runs in.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod batch;
pub mod circuit_breaker;
pub mod codec;
pub mod dead_letters;
pub mod generations;
pub mod guard;
pub mod heavy_hitters;
pub mod idempotency;
pub mod limits;
pub mod lock;
#[cfg(feature = "policy")]
pub mod policy;
pub mod quorum;
pub mod rate_limit;
pub mod single_flight;
pub mod step;
pub mod stored;
pub mod time;
pub mod waited;
pub mod window;

pub use step::Step;
pub use stored::{Plain, Sent, SentOf, Stored};
pub use time::{Instant, Span};
pub use waited::{lease, session};

/// The list of machines whose state is stored under a key. It calls the macro `$with` with the words after it, in
/// parentheses, and the list: whatever is the same for all machines (what is replicated, native types, the states of
/// `memory://`) is made from it. Tiers of rate limits are not in it: they are packed, and handled by name.
///
/// A row is a name and the machine's type, which is [`Plain`] or [`waited::Machine`].
#[macro_export]
macro_rules! machines {
    ($($with:ident)::+ $(, $($words:tt)*)?) => {
        $($with)::+! {
            ($($($words)*)?)
            plain {
                Window: $crate::window::Window,
                Breaker: $crate::circuit_breaker::Breaker,
                Generations: $crate::generations::Generations,
            }
            waited {
                Lock: $crate::lock::Locks,
                Bulkhead: $crate::lock::Bulkheads,
                Idempotency: $crate::idempotency::Idempotency,
                Flight: $crate::single_flight::Flights,
                Ledger: $crate::dead_letters::Ledgers,
                Guard: $crate::guard::Guards,
            }
        }
    };
}
