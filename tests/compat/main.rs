//! What redis-cell left behind, and what its users expect: they change one `loadmodule` line and nothing else.
//!
//! The other side is real: the published crate 0.2.2, built as the module it is and loaded into a server of the same
//! kind. Later versions, which are not published as a crate, differ in three ways that matter here and are played by
//! hand: they replicate CL.THROTTLE as it came, write it into append-only files, and round seconds up.

#[path = "../abuse/engine/mod.rs"]
#[allow(dead_code)]
mod engine;
mod redis_cell;

mod adoption;
mod beside;
mod differences;
mod following;
mod replies;
