//! Work that is done once, and values that are loaded once, on a real server.
//!
//! `talk.rs` has what these two commands need beside the scenes of the target `lock`: crowds of callers and short names
//! for what is asked. The rest is one file per concern.

// A server whose clock the test sets, callers that wait, what is published, clients that are processes of their own:
// all as in the targets `breaker` and `lock`.
#[allow(dead_code)]
#[path = "../lock_copies/asked.rs"]
mod asked;
#[allow(dead_code)]
#[path = "../lock/async_client.rs"]
mod async_client;
#[allow(dead_code)]
#[path = "../lock/child.rs"]
mod child;
#[allow(dead_code)]
#[path = "../breaker/driven.rs"]
mod driven;
#[allow(dead_code)]
#[path = "../lock/hearing.rs"]
mod hearing;
#[allow(dead_code)]
#[path = "../lock/scene.rs"]
mod scene;
#[allow(dead_code)]
#[path = "../abuse/engine/seed.rs"]
mod seed;
#[allow(dead_code)]
#[path = "../lock_copies/shapes.rs"]
mod shapes;

mod talk;

mod async_waits;
mod bound;
mod cluster;
mod copies;
mod crowd;
mod events;
mod examples;
mod flights;
mod large;
mod leaving;
mod malformed;
mod memory;
mod modes;
mod names;
mod payments;
mod promotion;
mod replies;
mod silence;
mod walk;
mod work;
