//! How every property test of this repository runs, and how to run one again.
//!
//! A property plays at least 1,000 cases. The run's seed is printed with the failure (`PROPTEST_RNG_SEED=...`); the same
//! line in the environment repeats the run exactly. `PROPTEST_CASES=50000` plays more cases. A failing case is kept in
//! a `.proptest-regressions` file beside the test's source and is played first from then on: commit it with the fix.

use std::hash::{BuildHasher, RandomState};

use proptest::test_runner::{Config, FileFailurePersistence, RngSeed};

const CASES_LEAST: u32 = 1_000;

pub fn config() -> Config {
    let given = Config::default();
    let seed = match given.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => RandomState::new().hash_one(()),
    };
    println!("PROPTEST_RNG_SEED={seed}");
    Config {
        cases: given.cases.max(CASES_LEAST),
        rng_seed: RngSeed::Fixed(seed),
        max_shrink_iters: 50_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("proptest-regressions"))),
        ..given
    }
}
