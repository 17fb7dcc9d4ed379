//! Locks and bulkheads: what they promise to one who holds or waits.
//!
//! `scene.rs` has a server whose clock the test sets, callers that may have to wait, and replies as one reads them;
//! `hearing.rs` what is published; `async_client.rs` a connection that waits asynchronously, and `async_walk.rs` a random walk
//! of many; `child.rs` clients that are processes of their own. The rest is one file per concern.

// The clock one sets, and commands as one types them, are those of the target `breaker`.
#[allow(dead_code)]
#[path = "../breaker/driven.rs"]
mod driven;
#[allow(dead_code)]
#[path = "../abuse/engine/seed.rs"]
mod seed;

mod async_client;
mod async_walk;
mod child;
mod hearing;
mod scene;

mod async_faults;
mod async_waits;
mod binding;
mod bulkheads;
mod crowd;
mod events;
mod grace;
mod heard;
mod holding;
mod instants;
mod leaving;
mod malformed;
mod memory;
mod processes;
mod raise;
mod replies;
mod same_step;
mod silence;
mod waiting;
