//! States and edits of the machines that can be waited for, as bytes, written from the description of their encoding and
//! not with its code.

use fastrand::Rng;
use resil_core::codec::{Change, to_vec};
use resil_core::idempotency::Idempotency;
use resil_core::lock::{Bulkheads, Kind, Locks};
use resil_core::single_flight::Flights;
use resil_core::{Sent, SentOf, Stored};

use super::states::tagged;

/// The tags of whole states: locks, bulkheads, records, flights.
pub const KINDS: [u8; 4] = *b"LPIS";
const SECOND_US: u64 = 1_000_000;

/// A text of ASCII: its length, then its bytes, which are numbers of one byte each.
fn text(text: &str) -> Vec<u64> {
    std::iter::once(text.len() as u64).chain(text.bytes().map(u64::from)).collect()
}

fn owner(rng: &mut Rng) -> Vec<u64> {
    text(&format!("owner-{}", rng.u32(0..5)))
}

/// owner meta fence since end lease mode
fn holder(owner: &[u64], fence: u64, at_us: u64, mode: u64) -> Vec<u64> {
    [owner, &text("meta"), &[fence, at_us, at_us + SECOND_US, SECOND_US, mode]].concat()
}

/// token fence since lease end
fn leader(fence: u64, at_us: u64, rng: &mut Rng) -> Vec<u64> {
    [owner(rng).as_slice(), &[fence, at_us, SECOND_US, at_us + SECOND_US]].concat()
}

/// bytes? at fresh-until stale-until
fn value(at_us: u64, rng: &mut Rng) -> Vec<u64> {
    let content = if rng.bool() { [vec![1], text("value")].concat() } else { vec![0] };
    [content.as_slice(), &[at_us, at_us + SECOND_US, at_us + 2 * SECOND_US]].concat()
}

/// at until error?
fn pause(at_us: u64, rng: &mut Rng) -> Vec<u64> {
    let error = if rng.bool() { [vec![1], text("error")].concat() } else { vec![0] };
    [[at_us, at_us + SECOND_US].as_slice(), &error].concat()
}

/// A state, whole.
pub fn whole(kind: u8, at_us: u64, rng: &mut Rng) -> Vec<u8> {
    let fence = rng.u64(10..1_000);
    let numbers = match kind {
        b'L' | b'P' => {
            let count = if rng.bool() { 1 } else { rng.u64(1..5) };
            let mode = if kind == b'L' && count == 1 { rng.u64(0..2) } else { 1 };
            let holders = (0..count).map(|n| holder(&text(&format!("holder-{n}")), fence + n, at_us, mode));
            let holders: Vec<u64> = holders.flatten().collect();
            let ended = [owner(rng).as_slice(), &[fence - 1, at_us, SECOND_US, rng.u64(0..4)]].concat();
            [[fence + count, count].as_slice(), &holders, &[1], &ended].concat()
        }
        b'I' if rng.bool() => [vec![1], owner(rng), vec![at_us, at_us + SECOND_US]].concat(),
        b'I' => {
            let phase = match rng.u32(0..4) {
                0 => vec![0, at_us, SECOND_US, at_us + SECOND_US],
                1 => vec![1, at_us, rng.u64(0..3)],
                2 => vec![2, at_us, at_us + SECOND_US, 0, 0],
                _ => [vec![2, at_us, at_us + SECOND_US, 1, 1], text("result")].concat(),
            };
            [vec![2], text("print"), owner(rng), vec![fence, rng.u64(1..4), SECOND_US, rng.u64(0..2)], phase].concat()
        }
        _ => {
            let mut numbers = vec![fence];
            let value = value(at_us, rng);
            numbers.extend([vec![1], value].concat());
            numbers.extend(if rng.bool() { vec![0] } else { [vec![1], pause(at_us, rng)].concat() });
            numbers.extend(if rng.bool() { vec![0] } else { [vec![1], leader(fence, at_us, rng)].concat() });
            let ended = [owner(rng), vec![fence - 1, at_us, rng.u64(0..5)]].concat();
            numbers.extend(if rng.bool() { vec![0] } else { [vec![1], ended].concat() });
            numbers
        }
    };
    tagged(kind, &numbers)
}

/// What a step may do to such a state. A record is always sent whole.
pub fn edits(kind: u8, at_us: u64, rng: &mut Rng) -> Vec<u8> {
    let mut numbers = Vec::new();
    for _ in 0..rng.u32(1..4) {
        let fence = rng.u64(10..1_004);
        numbers.extend(match (kind, rng.u32(0..9)) {
            (b'L' | b'P', 0..3) => {
                let mode = if kind == b'L' { rng.u64(0..2) } else { 1 };
                [vec![0], holder(&owner(rng), fence, at_us, mode)].concat()
            }
            (b'L' | b'P', 3..5) => vec![1, fence, SECOND_US, at_us + 2 * SECOND_US],
            (b'L' | b'P', 5) => vec![2, fence, 1],
            (b'L' | b'P', _) => vec![3, fence, at_us, rng.u64(0..4)],
            (_, 0) => [vec![0], leader(fence, at_us, rng)].concat(),
            (_, 1) => vec![1, SECOND_US, at_us + 2 * SECOND_US],
            (_, 2) => vec![2, at_us, rng.u64(0..5)],
            // Something stays, or the key would be collected.
            (_, 3 | 4) => [vec![3], value(at_us, rng)].concat(),
            (_, 5) => vec![5, at_us + SECOND_US],
            (_, 6) => [vec![6], pause(at_us, rng)].concat(),
            (_, 7) => vec![7],
            _ => vec![8, at_us],
        });
    }
    match kind {
        b'I' => whole(kind, at_us, rng),
        _ => tagged(kind.to_ascii_lowercase(), &numbers),
    }
}

/// What such a change makes of a state, by the core's own `apply`; `None` for changes of another machine.
pub fn after(state: Option<&[u8]>, change: Change) -> Option<Vec<u8>> {
    match change {
        Change::Lock(sent) => Some(left_by::<Locks>(state, sent)),
        Change::Bulkhead(sent) => Some(left_by::<Bulkheads>(state, sent)),
        Change::Idempotency(sent) => Some(left_by::<Idempotency>(state, sent)),
        Change::Flight(sent) => Some(left_by::<Flights>(state, sent)),
        _ => None,
    }
}

fn left_by<M: Stored>(state: Option<&[u8]>, sent: SentOf<M>) -> Vec<u8> {
    let state = match sent {
        Sent::Whole(state) => *state,
        Sent::Edits(edits) => {
            let mut state = state.map(|state| M::decode(state).expect("a state")).unwrap_or_default();
            M::apply_all(&mut state, edits);
            state
        }
    };
    to_vec(|out| M::encode(&state, out))
}

/// As many holders as one says, each by an edit of its own.
pub fn crowd(kind: Kind, count: u64, at_us: u64) -> Vec<u8> {
    let holders = (1..=count).flat_map(|n| [vec![0], holder(&text(&format!("holder-{n}")), n, at_us, 1)].concat());
    let tag = if kind == Kind::Lock { b'l' } else { b'p' };
    tagged(tag, &holders.collect::<Vec<u64>>())
}
