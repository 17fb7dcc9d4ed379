//! The keys of locks and bulkheads: files, replicas, failovers, clusters, and every way a key can leave.
//!
//! `asked.rs` has holders and waiters as a test sees them; `scene.rs` a lock that is held and waited for; `shapes.rs`
//! keys of every shape. The rest is one file per concern.

mod asked;
mod scene;
mod shapes;

// The clock one sets and commands as one types them are those of the target `breaker`.
#[allow(dead_code)]
#[path = "../breaker/driven.rs"]
mod driven;
// Payloads and seeds are those of the target `abuse`.
#[allow(dead_code)]
#[path = "../abuse/engine/payload.rs"]
mod payload;
#[allow(dead_code)]
#[path = "../abuse/engine/seed.rs"]
mod seed;
#[allow(dead_code)]
#[path = "../abuse/engine/states.rs"]
mod states;

mod cluster;
mod copies;
mod failover;
mod fences;
mod leaving;
mod pause;
mod raise;
mod restart;
mod roles;
mod staying;
mod stream;
mod walk;
