//! Sentences about a real server.
//!
//! The first five files serve the others: `driven` has the clock one sets and commands as one types them, `samples` a
//! key of every form and its future, `listener` a connection that only hears, `traffic` clients that never rest, and
//! `dice` chance with a seed. The rest is one file per concern.
//!
//! A test that is ignored names the fault it waits for; `cargo test --test server -- --ignored` tries them.

mod dice;
mod driven;
mod listener;
mod pages;
mod samples;
mod traffic;

mod access;
mod capacity;
mod cluster;
mod compatibility;
mod documents;
mod events;
mod hammer;
mod in_flight;
mod keys;
mod leaving;
mod loading;
mod memory;
mod moving;
mod notifications;
mod overview;
mod overview_refusals;
mod protocol;
mod replication;
mod restart;
mod retiming;
mod schedule;
mod silence;
mod switch;
mod wrong_type;
