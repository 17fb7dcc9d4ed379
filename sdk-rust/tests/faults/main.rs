//! The worst days of a server, seen by those who use it through the SDK.
//!
//! # What is judged
//! Nobody panics and nobody is stuck: every call is bounded. While the server is away each does what its `when_away`
//! says. The client comes back by itself. No lock is believed beyond its deadline, and nothing is left behind.
//!
//! # The map
//! [`killed`]: killed and restarted under load. [`away`]: what each does meanwhile, and what `health` says. [`believed`]:
//! who believes in a lock, and when. [`overlaps`]: the same for bound locks, under everything at once. [`cut`]: connections cut in the middle of a wait. [`failover`]: clusters. [`slow`]:
//! a server that stalls. [`refusals`]: one that is there and is no help. [`waiters`]: queues through failovers, moving slots,
//! restarts and flushes. [`crowd`]: thousands of tasks on a handful of connections. [`ledger`]: workers of failed messages. [`scene`]: what they share.
//!
//! Nothing but [`overlaps`] and [`waiters`] is drawn at random but by the SDK itself (its pauses, from a seed that is printed: `RESIL_SEED=n` has the same
//! ones again); who is killed when follows the clock.
#![cfg(feature = "redis")]

mod away;
mod believed;
mod crowd;
mod cut;
mod failover;
mod killed;
mod ledger;
mod overlaps;
mod proxy;
mod refusals;
mod scene;
mod slow;
mod waiters;
