//! Crowds, kills and races: locks on their worst days, judged by the acknowledged replies alone.
//!
//! - [`kills`]: clients and servers are killed for as long as it takes; what everybody heard goes into a [`journal`].
//! - [`judge`]: reads the journal, and nothing else, and says what was broken; [`forged`] journals show that it does.
//! - [`client`]: what the processes that are killed do. They are this very binary, started again.
//! - [`races`]: two things in one turn of the server's loop. [`crowd`]: ten thousand who wait for one key.
//! - [`stale`]: why fences exist, as the demonstration `fenced_store` shows it.
//!
//! The long form of [`kills`] is `RESIL_SOAK=1 cargo test --release -p resil-tests --test lock_torture kills -- --nocapture`.

mod client;
mod crowd;
mod forged;
mod journal;
mod judge;
mod kills;
mod races;
mod stale;
mod talk;
