//! State as bytes: what is written reads back the same, whatever else is refused, and nothing that decodes can harm.
//! (That every state a schedule reaches survives a restart is checked by the schedules of `gcra` and `window`.)
//!
//! How to repeat a failing run: see `seed`.

#[path = "seed/mod.rs"]
mod seed;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use resil_core::codec::{self, Change};
use resil_core::limits::{
    CELLS_MAX, COST_MAX, FILL_MAX, INSTANT_MAX_US, PERIOD_MAX, RESERVE_MAX, WINDOW_LIMIT_CEILING,
};
use resil_core::rate_limit::{Ask, Packed, Quota, gc_at, step};
use resil_core::waited::Machine;
use resil_core::window::{self, Rule, Window};
use resil_core::{Instant, Plain, Sent, Span, Stored};

/// Numbers as the codec spells them, written here a second time.
fn spelled(numbers: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in numbers {
        let groups = (64 - number.leading_zeros()).div_ceil(7).max(1);
        for group in 0..groups {
            let more = if group + 1 < groups { 0x80 } else { 0 };
            bytes.push((number >> (7 * group) & 0x7f) as u8 | more);
        }
    }
    bytes
}

fn tagged(tag: u8, numbers: &[u64]) -> Vec<u8> {
    [vec![tag], spelled(numbers)].concat()
}

macro_rules! encoded_by_machine {
    (
        ($change:expr, $out:expr)
        plain { $($plain:ident: $plain_machine:ty,)* }
        waited { $($waited:ident: $waited_machine:ty,)* }
    ) => {
        match $change {
            Change::Tiers(tiers) => codec::encode_tiers(tiers, $out),
            $(Change::$plain(Sent::Whole(state)) => <$plain_machine>::encode(state, $out),)*
            $(Change::$plain(Sent::Edits(edits)) => <$plain_machine>::encode_edits(edits, $out),)*
            $(Change::$waited(Sent::Whole(state)) => <$waited_machine>::encode(state, $out),)*
            $(Change::$waited(Sent::Edits(edits)) => {
                let (state, mut reports) = (Default::default(), Default::default());
                edits.iter().for_each(|edit| <$waited_machine>::report(&state, edit, &mut reports));
                <$waited_machine>::encode_edits(&state, &reports, $out)
            })*
        }
    };
}

fn encoded(change: &Change) -> Vec<u8> {
    codec::to_vec(|out| resil_core::machines!(encoded_by_machine, change, out))
}

macro_rules! tags {
    (() plain { $($plain:ident: $plain_machine:ty,)* } waited { $($waited:ident: $waited_machine:ty,)* }) => {
        [
            $(Some(<$plain_machine>::WHOLE), <$plain_machine>::EDITS,)*
            $(Some(<$waited_machine>::WHOLE), <$waited_machine>::EDITS,)*
        ]
    };
}

#[test]
fn no_two_machines_share_a_tag() {
    let tags: Vec<u8> = resil_core::machines!(tags).into_iter().flatten().chain([b'G']).collect();
    let distinct: std::collections::BTreeSet<u8> = tags.iter().copied().collect();
    assert_eq!(distinct.len(), tags.len(), "{}", tags.escape_ascii());
}

/// From one end of the range to the other, the ends often.
fn spread(least: u64, most: u64) -> impl Strategy<Value = u64> {
    let by_size = (0..=most.ilog2(), any::<u64>()).prop_map(move |(log, bits)| (bits % (2 << log)).clamp(least, most));
    prop_oneof![1 => Just(least), 1 => Just(most), 6 => by_size]
}

/// A quota anywhere within the bounds.
fn quota() -> impl Strategy<Value = Quota> {
    let parts = (spread(1, CELLS_MAX as u64), spread(1, PERIOD_MAX.as_us() as u64), spread(1, CELLS_MAX as u64));
    parts.prop_map(|(limit, period_us, capacity)| {
        let fills = FILL_MAX.as_us() as u128 * limit as u128 / period_us as u128;
        let capacity = (capacity as u128).min(fills) as u32;
        Quota::new(limit as u32, Span::from_us(period_us as i64), capacity).expect("within the bounds")
    })
}

/// The bytes of one tier anywhere within the bounds, with its period.
fn tier() -> impl Strategy<Value = (u64, Vec<u8>)> {
    let rest = (spread(0, INSTANT_MAX_US as u64 - 1), any::<u32>(), spread(0, RESERVE_MAX.ceil_ms() as u64));
    (quota(), rest).prop_map(|(quota, (tat_us, frac, overhang_ms))| {
        let (limit, period_us) = (quota.limit() as u64, quota.period().as_us() as u64);
        let numbers = [period_us, limit, quota.capacity() as u64, tat_us, frac as u64 % limit, overhang_ms];
        (period_us, spelled(&numbers))
    })
}

/// The bytes of any key of tiers there can be.
fn tiers() -> impl Strategy<Value = Vec<u8>> {
    vec(tier(), 1..=16).prop_map(|mut tiers| {
        tiers.sort();
        tiers.dedup_by_key(|(period_us, _)| *period_us);
        let mut bytes = tagged(b'G', &[tiers.len() as u64]);
        tiers.into_iter().for_each(|(_, tier)| bytes.extend(tier));
        bytes
    })
}

/// The bytes of a log of up to 40 entries.
fn log() -> impl Strategy<Value = Vec<u8>> {
    let entries = vec((spread(1, INSTANT_MAX_US as u64 / 40), spread(1, WINDOW_LIMIT_CEILING as u64 / 40)), 1..=40);
    (spread(1, PERIOD_MAX.as_us() as u64), entries).prop_map(|(period_us, entries)| {
        let mut numbers = vec![period_us, entries.len() as u64];
        entries.into_iter().for_each(|(distance_us, cells)| numbers.extend([distance_us, cells]));
        tagged(b'W', &numbers)
    })
}

/// The bytes of a change to a log.
fn log_change() -> impl Strategy<Value = Vec<u8>> {
    let instant = || spread(0, INSTANT_MAX_US as u64);
    let numbers = (spread(1, PERIOD_MAX.as_us() as u64), instant(), instant(), spread(0, WINDOW_LIMIT_CEILING as u64));
    numbers.prop_map(|(period_us, cut_to_us, at_us, cells)| tagged(b'w', &[period_us, cut_to_us, at_us, cells]))
}

fn anything_valid() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![tiers(), log(), log_change()]
}

fn ask() -> impl Strategy<Value = Ask> {
    let cells = || spread(1, COST_MAX as u64).prop_map(|cells| cells as u32);
    prop_oneof![
        cells().prop_map(Ask::Take),
        cells().prop_map(Ask::UpTo),
        cells().prop_map(Ask::Refund),
        (1..=COST_MAX, spread(1, RESERVE_MAX.as_us() as u64))
            .prop_map(|(cells, us)| Ask::Reserve { cells, within: Span::from_us(us as i64) }),
        Just(Ask::Peek),
    ]
}

/// Instants a clock may show, and some it can not.
fn instant() -> impl Strategy<Value = Instant> {
    let us = prop_oneof![8 => 0..INSTANT_MAX_US / 2, 1 => any::<i64>(), 1 => select(vec![0, -1, i64::MAX, i64::MIN])];
    us.prop_map(Instant::from_us)
}

proptest! {
    #![proptest_config(seed::config())]

    // Property 2: every state of a breaker, like that of every machine, is written and read again as the same.
    #[test]
    fn every_state_within_the_bounds_round_trips(bytes in anything_valid()) {
        let change = codec::decode(&bytes);
        prop_assert!(change.is_ok(), "{}", bytes.escape_ascii());
        prop_assert_eq!(encoded(&change.expect("it decodes")), bytes);
    }

    #[test]
    fn truncated_extended_and_foreign_bytes_are_refused(
        bytes in anything_valid(),
        surplus in any::<u8>(),
        tag in any::<u8>().prop_filter("tags are letters", |tag| !tag.is_ascii_alphabetic()),
    ) {
        for len in 0..bytes.len() {
            prop_assert_eq!(codec::decode(&bytes[..len]), Err(codec::Malformed), "cut to {} bytes", len);
        }
        let extended = [bytes.as_slice(), &[surplus]].concat();
        prop_assert_eq!(codec::decode(&extended), Err(codec::Malformed));
        let foreign = [&[tag], &bytes[1..]].concat();
        prop_assert_eq!(codec::decode(&foreign), Err(codec::Malformed));
    }

    #[test]
    fn a_flipped_bit_is_refused_or_is_another_valid_state(bytes in anything_valid()) {
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(change) = codec::decode(&flipped) {
                prop_assert_eq!(encoded(&change), flipped, "one state has two spellings");
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_what_decodes_has_one_spelling(
        tag in select(b"GWwBbLlPpISs\0".to_vec()),
        bytes in vec(any::<u8>(), 0..200),
        small in vec(0..=3u8, 0..60),
    ) {
        for body in [bytes, small] {
            let bytes = [vec![tag], body].concat();
            if let Ok(change) = codec::decode(&bytes) {
                prop_assert_eq!(encoded(&change), bytes);
            }
        }
    }

    #[test]
    fn a_number_out_of_bounds_is_refused(
        limit in spread(1, 1000), capacity in spread(1, 1000), frac in any::<u32>(), period_us in spread(1, 1_000_000),
    ) {
        let frac = frac as u64 % limit;
        let tier = [1, period_us, limit, capacity, 1_800_000_000_000_000, frac, 0];
        prop_assert!(codec::decode(&tagged(b'G', &tier)).is_ok());
        let bad = |at: usize, number: u64| {
            let mut numbers = tier;
            numbers[at] = number;
            codec::decode(&tagged(b'G', &numbers)).is_err()
        };
        let huge = [u64::MAX, i64::MAX as u64];
        for at in 0..tier.len() {
            prop_assert!(huge.iter().all(|number| bad(at, *number)), "element {}", at);
        }
        prop_assert!(bad(0, 0) && bad(0, 2) && bad(0, 17), "count of tiers");
        prop_assert!(bad(1, 0) && bad(1, PERIOD_MAX.as_us() as u64 + 1), "period");
        prop_assert!(bad(2, 0) && bad(2, CELLS_MAX as u64 + 1), "limit");
        prop_assert!(bad(3, 0) && bad(3, CELLS_MAX as u64 + 1), "capacity");
        prop_assert!(bad(4, INSTANT_MAX_US as u64), "arrival time");
        prop_assert!(bad(5, limit), "fraction");
        prop_assert!(bad(6, RESERVE_MAX.ceil_ms() as u64 + 1), "overhang");
        let [_, tier @ ..] = tier;
        let twice = [&[2], tier.as_slice(), tier.as_slice()].concat();
        prop_assert!(codec::decode(&tagged(b'G', &twice)).is_err(), "the same period twice");
    }

    #[test]
    fn whatever_decodes_can_be_stepped_on_by_any_call(
        bytes in tiers(),
        quotas in vec(quota(), 1..=8),
        asks in vec((ask(), instant()), 1..=20),
    ) {
        let mut tiers = codec::decode_tiers(&bytes).expect("valid");
        let mut quotas = quotas;
        quotas.sort_by_key(Quota::period);
        quotas.dedup_by_key(|quota| quota.period());
        for (ask, now) in asks {
            gc_at(&tiers, 0);
            for tier in &tiers {
                if let Some(packed) = Packed::pack(tier) {
                    prop_assert_eq!(packed.unpack(), *tier);
                }
            }
            let Ok(decided) = step(&tiers, &quotas, ask, now) else { continue };
            for reading in &decided.verdict.tiers {
                prop_assert!(reading.remaining <= reading.capacity);
            }
            tiers = decided.change.unwrap_or(tiers);
        }
    }

    #[test]
    fn whatever_log_decodes_can_be_stepped_on_and_changed(
        bytes in log(),
        changes in vec(log_change(), 0..=5),
        asks in vec((ask(), instant()), 1..=20),
        limit in 1..=WINDOW_LIMIT_CEILING,
        period_us in spread(1, PERIOD_MAX.as_us() as u64),
    ) {
        let mut log = codec::decode_log(&bytes).expect("valid");
        let rule = Rule { limit, period: Span::from_us(period_us as i64) };
        for bytes in changes {
            log.apply(&codec::decode_log_change(&bytes).expect("valid"));
            check_order(&log)?;
        }
        for (ask, now) in asks {
            log.gc_at(0);
            let decided = window::step(&log, rule, ask, now);
            prop_assert!(decided.verdict.binding().remaining <= limit);
            if let Some(change) = decided.change {
                log.apply(&change);
                check_order(&log)?;
            }
        }
    }
}

fn check_order(log: &Window) -> Result<(), TestCaseError> {
    let entries: Vec<(i64, u64)> = log.entries().collect();
    prop_assert!(entries.windows(2).all(|pair| pair[0].0 < pair[1].0), "instants increase");
    prop_assert!(entries.iter().all(|(_, cells)| *cells > 0), "every entry has a cell");
    Ok(())
}

/// Decodes with each element in turn replaced; `true` in the table means still valid.
fn accepts(tag: u8, valid: &[u64], replaced: &[(usize, u64, bool)]) {
    assert!(codec::decode(&tagged(tag, valid)).is_ok());
    for (at, number, is_valid) in replaced {
        let mut numbers = valid.to_vec();
        numbers[*at] = *number;
        assert_eq!(codec::decode(&tagged(tag, &numbers)).is_ok(), *is_valid, "element {at} = {number}");
    }
}

#[test]
fn logs_changes_and_fill_times_have_bounds() {
    let (instant, period) = (INSTANT_MAX_US as u64, PERIOD_MAX.as_us() as u64);
    let cells = WINDOW_LIMIT_CEILING as u64;
    let year = [1, period, 1, 10, 1_800_000_000_000_000, 0, 0];
    accepts(b'G', &year, &[(3, 11, false)]); // eleven years to fill
    let log = [1_000, 2, 5, 1, 7, 1];
    accepts(b'W', &log, &[(0, 0, false), (0, period, true), (0, period + 1, false), (1, 0, false), (1, 1, false)]);
    accepts(b'W', &log, &[(1, 3, false), (2, 0, true), (2, instant - 7, true), (2, instant - 6, false), (4, 0, false)]);
    accepts(b'W', &log, &[(3, 0, false), (3, cells - 1, true), (3, cells, false), (5, u64::MAX, false)]);
    let change = [1_000, 9, 8, 7];
    accepts(b'w', &change, &[(0, 0, false), (0, period, true), (0, period + 1, false)]);
    accepts(b'w', &change, &[(1, instant, true), (1, instant + 1, false), (2, instant, true), (2, instant + 1, false)]);
    accepts(b'w', &change, &[(3, 0, true), (3, cells, true), (3, cells + 1, false)]);
}
