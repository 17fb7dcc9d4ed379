//! What RES.BREAKER promises, on a real server.
//!
//! `driven.rs` has the clock one sets and commands as one types them; `asked.rs` the replies by their fields;
//! `phases.rs` a breaker in every phase; `listener.rs` what is heard of them. The rest is one file per concern.

mod asked;
mod driven;
mod listener;
mod phases;

// The protocol by hand, seeds and payloads are those of the target `abuse`.
#[allow(dead_code)]
#[path = "../abuse/engine/payload.rs"]
mod payload;
#[allow(dead_code)]
#[path = "../abuse/engine/resp.rs"]
mod resp;
#[allow(dead_code)]
#[path = "../abuse/engine/seed.rs"]
mod seed;
#[allow(dead_code)]
#[path = "../abuse/engine/states.rs"]
mod states;

mod configuration;
mod copies;
mod crowd;
mod events;
mod failover;
mod fleet;
mod fuzz;
mod keys;
mod malformed;
mod memory;
mod probes;
mod recovery;
mod schedule;
mod silence;
mod thresholds;
mod walk;
mod ways_in;
