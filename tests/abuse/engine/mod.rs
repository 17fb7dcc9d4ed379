//! The machinery of abuse: what is sent, to whom, and what must hold for every reply.
//!
//! Shared by the targets `abuse` (a fixed budget), `soak` (minutes of it) and `compat` (the fake primary). Everything is
//! drawn from one seed, which is always printed: `RESIL_SEED=<seed> cargo test …` does the same again.

pub mod asked;
pub mod breaker_calls;
pub mod crowd;
pub mod fake_primary;
pub mod fuzzing;
pub mod generator;
pub mod guard_calls;
pub mod ledger_calls;
pub mod payload;
pub mod resp;
pub mod restoring;
pub mod samples;
pub mod seed;
pub mod server_state;
pub mod states;
pub mod streaming;
pub mod waited_asked;
pub mod waited_calls;
pub mod waited_samples;
pub mod waited_states;
