//! Whatever valid change meets whatever valid state, the outcome is valid: it can be written and read back. Without a
//! server, so that there is time for many: a file that could not be loaded would keep a server from starting.

use fastrand::Rng;
use resil_core::circuit_breaker::{decode_breaker, encode_breaker};
use resil_core::codec::{self, Change};
use resil_core::{Sent, lock, single_flight};
use resil_harness::{Options, Server};

use crate::engine::payload::{Body, renumbered};
use crate::engine::resp::Client;
use crate::engine::samples::real_payloads;
use crate::engine::seed::{say, seeded};
use crate::engine::states::{log_change, tagged};
use crate::engine::waited_states::{self, after};

const TRIALS: usize = 300_000;
const NOW_US: u64 = 1_800_000_000_000_000;
const HOUR_US: u64 = 3_600_000_000;

/// States of real keys with this tag.
fn states(tag: u8) -> Vec<Vec<u8>> {
    all_states().into_iter().filter(|state| state[0] == tag).collect()
}

/// Those of one piece. Ledgers are made of many; core has properties of their own for them.
fn all_states() -> Vec<Vec<u8>> {
    let server = Server::start(Options::default().module_args(["test-clock", "yes"]).config("rdbcompression", "no"));
    let payloads = real_payloads(&mut Client::new(&server));
    let whole = |payload: &Vec<u8>| match Body::of(payload).pieces().expect("not compressed")[..] {
        [state] => Some(state.to_vec()),
        _ => None,
    };
    payloads.iter().filter_map(whole).collect()
}

/// One of `samples`, or something like it.
fn drawn(samples: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let sample = &samples[rng.usize(..samples.len())];
    if rng.u32(0..4) == 0 { sample.clone() } else { renumbered(sample, rng) }
}

/// Draws until enough pairs were both valid, and holds `meet` against each.
fn for_valid_pairs(what: &str, samples: (&[Vec<u8>], &[Vec<u8>]), meet: impl Fn(Change, Change) -> Result<(), String>) {
    let mut rng = seeded(what);
    let mut met = 0;
    for _ in 0..TRIALS {
        let (state, change) = (drawn(samples.0, &mut rng), drawn(samples.1, &mut rng));
        if let (Ok(valid_state), Ok(valid_change)) = (codec::decode(&state), codec::decode(&change)) {
            met += 1;
            if let Err(broken) = meet(valid_state, valid_change) {
                panic!("{broken}\n  state: {}\n  change: {}", state.escape_ascii(), change.escape_ascii());
            }
        }
    }
    say(&format!("{what}: {met} of {TRIALS} pairs were valid"));
    assert!(met > TRIALS / 100, "only {met} pairs were valid");
}

#[test]
fn every_edit_of_a_breaker_stays_readable() {
    let minute_us = 60_000_000;
    let spans = [1_000_000, minute_us, HOUR_US, minute_us, minute_us, HOUR_US];
    let numbers = [50, 100, 5, 10, 2_000, 3, 3, 2];
    let configure = |window: [u64; 2]| [[1, 1].as_slice(), &window, &spans, &numbers, &[7, 1, NOW_US]].concat();
    let enter = |phase: &[u64]| [[1, 4].as_slice(), phase, &[NOW_US, NOW_US, 3]].concat();
    let edits = [
        vec![1, 0],
        configure([0, 100]),
        configure([1, minute_us]),
        vec![1, 2, NOW_US, 1, 5, 3, 2, 1],
        vec![2, 3, 1, 9, 2, NOW_US, 1, 5, 3, 2, 1],
        enter(&[0]),
        enter(&[1, NOW_US, minute_us]),
        enter(&[2, 1, 2, 1, 2, NOW_US, 1, 1]),
        enter(&[3, NOW_US]),
        enter(&[4, 0, NOW_US, NOW_US, 1, 65, 1, 66]),
        vec![1, 5, 4, NOW_US, NOW_US + minute_us],
        vec![1, 6, 2, NOW_US, 1],
        vec![1, 7, NOW_US, NOW_US + minute_us],
    ];
    let edits = edits.map(|numbers| tagged(b'b', &numbers));
    for_valid_pairs("closure of breakers", (&states(b'B'), &edits), |state, change| {
        let (Change::Breaker(Sent::Whole(mut breaker)), Change::Breaker(Sent::Edits(edits))) = (state, change) else {
            return Ok(());
        };
        edits.iter().for_each(|edit| breaker.apply(edit));
        let bytes = codec::to_vec(|out| encode_breaker(&breaker, out));
        let again = decode_breaker(&bytes).map_err(|_| format!("cannot be read back: {}", bytes.escape_ascii()))?;
        let same = codec::to_vec(|out| encode_breaker(&again, out)) == bytes;
        if same { Ok(()) } else { Err(format!("is another when read back: {}", bytes.escape_ascii())) }
    });
}

#[test]
fn every_change_of_a_log_stays_readable() {
    let changes = [
        log_change(HOUR_US, 1 << 53, NOW_US, 1),
        log_change(HOUR_US, NOW_US, NOW_US, 0),
        log_change(HOUR_US, NOW_US, NOW_US, 10_000_000),
        log_change(1, 0, 0, 5),
    ];
    for_valid_pairs("closure of logs", (&states(b'W'), &changes), |state, change| {
        let (Change::Window(Sent::Whole(mut window)), Change::Window(Sent::Edits(change))) = (state, change) else {
            return Ok(());
        };
        window.apply(&change);
        if window.is_empty() {
            // The module deletes the key then.
            return Ok(());
        }
        let bytes = codec::to_vec(|out| codec::encode_log(&window, out));
        let again = codec::decode_log(&bytes).map_err(|_| format!("cannot be read back: {}", bytes.escape_ascii()))?;
        if again == *window { Ok(()) } else { Err("is another when read back".into()) }
    });
}

/// The bytes of a change, whole states and edits alike, as this program would write them.
fn written(change: Change) -> Option<Vec<u8>> {
    match change {
        Change::Tiers(tiers) => Some(codec::to_vec(|out| codec::encode_tiers(&tiers, out))),
        Change::Window(Sent::Whole(window)) => Some(codec::to_vec(|out| codec::encode_log(&window, out))),
        Change::Breaker(Sent::Whole(breaker)) => Some(codec::to_vec(|out| encode_breaker(&breaker, out))),
        Change::Lock(Sent::Edits(edits)) => {
            Some(codec::to_vec(|out| lock::encode_edits(lock::Kind::Lock, &edits, out)))
        }
        Change::Bulkhead(Sent::Edits(edits)) => {
            Some(codec::to_vec(|out| lock::encode_edits(lock::Kind::Bulkhead, &edits, out)))
        }
        Change::Flight(Sent::Edits(edits)) => Some(codec::to_vec(|out| single_flight::encode_edits(&edits, out))),
        Change::Window(Sent::Edits(_)) | Change::Breaker(Sent::Edits(_)) => None,
        whole => after(None, whole),
    }
}

#[test]
fn whatever_is_read_is_written_the_same() {
    let (samples, mut rng) = (all_states(), seeded("one spelling"));
    let mut read = 0;
    for _ in 0..TRIALS {
        let bytes = drawn(&samples, &mut rng);
        if let Some(written) = codec::decode(&bytes).ok().and_then(written) {
            read += 1;
            assert_eq!(written.escape_ascii().to_string(), bytes.escape_ascii().to_string(), "read, and written");
        }
    }
    say(&format!("one spelling: {read} of {TRIALS} could be read"));
    assert!(read > TRIALS / 10);
}

#[test]
fn every_edit_of_waited_state_stays_readable() {
    let mut rng = seeded("edits");
    for kind in *b"LPS" {
        let some: Vec<Vec<u8>> = (0..200).map(|_| waited_states::edits(kind, NOW_US, &mut rng)).collect();
        let what = format!("closure of {}", char::from(kind));
        for_valid_pairs(&what, (&states(kind), &some), |state, change| {
            let before = written(state).ok_or("a whole state")?;
            let fits = match &change {
                Change::Lock(Sent::Edits(_)) => before[0] == b'L',
                Change::Bulkhead(Sent::Edits(_)) => before[0] == b'P',
                Change::Flight(Sent::Edits(_)) => before[0] == b'S',
                _ => false,
            };
            if !fits {
                return Ok(());
            }
            let bytes = after(Some(&before), change).ok_or("edits")?;
            let again = codec::decode(&bytes).map_err(|_| format!("cannot be read back: {}", bytes.escape_ascii()))?;
            let same = written(again).as_ref() == Some(&bytes);
            if same { Ok(()) } else { Err(format!("is another when read back: {}", bytes.escape_ascii())) }
        });
    }
}
