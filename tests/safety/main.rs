//! The server stays up: nothing touches freed memory, whatever is handed over, closed, killed, promoted or flushed.
//!
//! Every server of every test fills freed memory with junk (`resil-harness`), so that a stale pointer crashes. Here a server
//! runs under valgrind as well, which names the line.

#[allow(dead_code)]
#[path = "../lock/async_client.rs"]
mod async_client;
#[path = "../lock/async_walk.rs"]
mod async_walk;
#[allow(dead_code)]
#[path = "../breaker/driven.rs"]
mod driven;
#[allow(dead_code)]
#[path = "../abuse/engine/mod.rs"]
mod engine;
#[allow(dead_code)]
#[path = "../lock/scene.rs"]
mod scene;

mod databases;
mod hand_overs;
mod machines;
mod valgrind;

use engine::seed;
