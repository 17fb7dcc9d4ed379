//! What the SDK promises with a real server behind it, on good days. The bad ones are in `faults`.
#![cfg(feature = "redis")]

mod blocked_thread;
mod cache;
mod cache_many;
mod cache_names;
mod client_ends;
mod correlation;
mod dead_letters;
mod fleet_policy;
mod followed_policy;
mod followed_policy_abuse;
mod hard_use;
mod lock;
#[path = "../both/one_lock.rs"]
mod one_lock;
mod policy_watch;
mod quorum;
mod quorum_leaves_nothing;
