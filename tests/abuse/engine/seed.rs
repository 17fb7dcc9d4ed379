//! Where chance comes from, said aloud.

use std::io::Write;

use fastrand::Rng;

/// The seed of this run: `RESIL_SEED`, or a new one. Printed past the capture of the test runner, so that a run that
/// hangs or is killed has said it too.
pub fn seeded(what: &str) -> Rng {
    let seed = match std::env::var("RESIL_SEED") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("RESIL_SEED must be a number, got {text:?}")),
        Err(_) => fastrand::u64(..),
    };
    say(&format!("{what}: RESIL_SEED={seed}"));
    Rng::with_seed(seed)
}

/// Prints even while the test runner captures.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
