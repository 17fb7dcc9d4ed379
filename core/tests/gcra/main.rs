//! GCRA held against what it promises (`promises`, `waits`), against an independent token bucket step by step
//! (`token_bucket`), and under changing configurations and several tiers (`tiers`).
//!
//! How to repeat a failing run: see `seed`.

#[path = "../model/bucket.rs"]
mod bucket;
#[path = "../model/ratio.rs"]
mod ratio;
#[path = "../seed/mod.rs"]
mod seed;

mod promises;
mod schedule;
mod tiers;
mod token_bucket;
mod waits;
