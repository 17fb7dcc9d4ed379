//! What a hostile or broken client can do: it hurts only itself.
//!
//! Whatever bytes arrive, from a client, from a primary or in a file, the server stays up, `INFO resil` counts no internal
//! error, every call gets exactly one reply, and an error is one printable line that changes nothing.

// Shared with `soak` and `compat`, which use other parts of it.
#[allow(dead_code)]
mod engine;

mod closure;
mod foreign_keys;
mod forged_breakers;
mod forged_changes;
mod fuzz;
mod malformed;
mod malformed_breakers;
mod restore;
