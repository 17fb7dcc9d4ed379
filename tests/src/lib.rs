//! What the tests share.
//!
//! - [`memory`]: the commands without a server, in this process.
//! - [`vectors`]: the conformance vectors of `tests/vectors`.

mod flights_in_memory;
pub mod memory;
pub mod vectors;
