//! Minutes of what `abuse` does in seconds, on servers that stay up all the while: what creeps shows here.
//!
//! `RESIL_SOAK=1 cargo test --release -p resil-tests --test soak -- --nocapture`, for ten minutes or for
//! `RESIL_SOAK_SECONDS`. Without `RESIL_SOAK` it says so and returns.

#[path = "../abuse/engine/mod.rs"]
#[allow(dead_code)]
mod engine;

use std::time::{Duration, Instant};

use engine::fuzzing::Fuzz;
use engine::restoring::Restoring;
use engine::seed::{say, seeded};
use engine::streaming::Streaming;

const DEFAULT_SECONDS: u64 = 600;
/// Calls, payloads and replicated commands of one round: some seconds.
const CALLS: usize = 200_000;
const PAYLOADS: usize = 50_000;
const STREAMED: usize = 20_000;
/// Rounds after which the allocator has seen everything once.
const WARM_UP_ROUNDS: usize = 3;
/// What an emptied server may have grown by after that: query buffers, the backlog's blocks, fragmentation.
const GROWTH_BYTES_MAX: u64 = 4 << 20;

#[test]
fn minutes_of_abuse_leave_the_server_as_it_was() {
    if std::env::var_os("RESIL_SOAK").is_none() {
        return say("soak: not asked for; set RESIL_SOAK=1 to run it");
    }
    let seconds = std::env::var("RESIL_SOAK_SECONDS").map_or(DEFAULT_SECONDS, |text| {
        text.parse().unwrap_or_else(|_| panic!("RESIL_SOAK_SECONDS must be a number, got {text:?}"))
    });
    let budget = Duration::from_secs(seconds);
    let mut rng = seeded("soak");
    let began = Instant::now();
    let mut fuzz = Fuzz::start(rng.fork());
    let mut restoring = Restoring::start(rng.fork());
    let mut streaming = Streaming::start(rng.fork());
    let mut settled_bytes = None;
    for round in 1.. {
        fuzz.run(CALLS);
        fuzz.audit();
        restoring.run(PAYLOADS);
        streaming.run(STREAMED);
        streaming.audit();
        let bytes = fuzz.bytes_when_empty();
        say(&format!(
            "soak: {:>4} s of {seconds} s, round {round}: {} calls (slowest thousand {} ms), {} payloads, {} changes, {} KiB \
             when empty",
            began.elapsed().as_secs(),
            fuzz.tally.calls,
            fuzz.tally.slowest_batch_ms,
            restoring.accepted + restoring.refused,
            streaming.expected.applied,
            bytes >> 10,
        ));
        if let Some((ms, command)) = fuzz.slowest_command() {
            say(&format!("soak: the slowest command took {ms} ms: {}", command.get(..120).unwrap_or(&command)));
        }
        if round == WARM_UP_ROUNDS {
            settled_bytes = Some(bytes);
        }
        if let Some(settled) = settled_bytes {
            assert!(bytes <= settled + GROWTH_BYTES_MAX, "an empty server grew from {settled} to {bytes} bytes");
        }
        if began.elapsed() >= budget {
            break;
        }
    }
    fuzz.run(CALLS);
    fuzz.reload();
}
