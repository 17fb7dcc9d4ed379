//! GCRA held against what it promises (`promises`, `waits`), against an independent token bucket step by step
//! (`token_bucket`), and under changing configurations, several tiers (`tiers`), several keys (`many`) and
//! keys of redis-cell (`adopted`).
//!
//! How to repeat a failing run: see `seed`.

#[path = "../model/bucket.rs"]
mod bucket;
#[path = "../model/ratio.rs"]
mod ratio;
#[path = "../seed/mod.rs"]
mod seed;

mod adopted;
mod many;
mod promises;
mod schedule;
mod tiers;
mod token_bucket;
mod waits;
