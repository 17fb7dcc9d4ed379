//! What one side encodes the other parses to the same, for every command and every reply.
//!
//! How to repeat a failing run: see `seed`.

#[path = "../../core/tests/seed/mod.rs"]
mod seed;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::subsequence;
use resil_core::limits::{
    CELLS_MAX, COST_MAX, FILL_MAX, PERIOD_MAX, RESERVE_MAX, WINDOW_LIMIT_CEILING, WINDOW_LIMIT_DEFAULT,
};
use resil_core::rate_limit::cell::{MAX_BURST_MAX, Throttle};
use resil_core::rate_limit::{Ask, ManyVerdict, Quota, Reading, Verdict, Wait};
use resil_core::window::Rule;
use resil_core::{Instant, Span, codec};
use resil_wire::Refused;
use resil_wire::apply::{self, Applied};
use resil_wire::argv::Argv;
use resil_wire::command::{Allowed, Arguments, Command, Page};
use resil_wire::duration::Shown;
use resil_wire::gcra::{Gcra, LimitReply, Numbers};
use resil_wire::mgcra::{LimitsReply, Mgcra};
use resil_wire::pages;
use resil_wire::reply::Value;
use resil_wire::throttle::{self, ClThrottle};
use resil_wire::window::Windowed;

/// Any bytes at all: keys are binary-safe.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(any::<u8>(), 0..40), Just(b"COST".to_vec()), Just(b"user:\0\xff\r\n42".to_vec())]
}

/// From 1 to `most`, small and large alike.
fn spread(most: i64) -> impl Strategy<Value = i64> {
    let by_size = (0..=most.ilog2(), any::<u32>())
        .prop_map(move |(log, bits)| (1i64 << log).saturating_add(bits as i64 % (1 << log).min(1 << 31)).min(most));
    prop_oneof![6 => by_size, 1 => Just(most), 1 => Just(1)]
}

fn count(most: u32) -> impl Strategy<Value = u32> {
    spread(most as i64).prop_map(|number| number as u32)
}

/// Round ones, as people write them, and odd ones.
fn span(most: Span) -> impl Strategy<Value = Span> {
    let unit = prop::sample::select(vec![1, 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000]);
    let round = (unit, 1..=366i64).prop_map(move |(unit_us, times)| Span::from_us(unit_us * times).min(most));
    prop_oneof![round, spread(most.as_us()).prop_map(Span::from_us)]
}

fn quota() -> impl Strategy<Value = Quota> {
    (count(CELLS_MAX), span(PERIOD_MAX), prop::option::of(count(CELLS_MAX))).prop_map(|(limit, period, burst)| {
        let fills = FILL_MAX.as_us() as u128 * limit as u128 / period.as_us() as u128;
        let capacity = (burst.unwrap_or(limit) as u128).min(fills) as u32;
        Quota::new(limit, period, capacity).expect("within the bounds")
    })
}

fn ask() -> impl Strategy<Value = Ask> {
    prop_oneof![
        Just(Ask::Take(1)),
        count(COST_MAX).prop_map(Ask::Take),
        count(COST_MAX).prop_map(Ask::UpTo),
        count(COST_MAX).prop_map(Ask::Refund),
        (count(COST_MAX), span(RESERVE_MAX)).prop_map(|(cells, within)| Ask::Reserve { cells, within }),
        Just(Ask::Peek),
    ]
}

fn reading() -> impl Strategy<Value = Reading> {
    let wait = prop_oneof![Just(Wait::Never), Just(Wait::NONE), span(FILL_MAX).prop_map(Wait::For)];
    (count(CELLS_MAX), 0..=CELLS_MAX, wait, span(FILL_MAX)).prop_map(
        |(capacity, remaining, retry_after, reset_after)| Reading { capacity, remaining, retry_after, reset_after },
    )
}

/// What a client must see of a reading.
fn numbers(reading: &Reading) -> Numbers {
    Numbers {
        capacity: reading.capacity as i64,
        remaining: reading.remaining as i64,
        retry_after_ms: match reading.retry_after {
            Wait::Never => -1,
            Wait::For(span) => (span.as_us() + 999) / 1_000,
        },
        reset_after_ms: (reading.reset_after.as_us() + 999) / 1_000,
    }
}

/// The arguments behind the command's name, as a server hands them over.
fn arguments(encoded: &[Vec<u8>]) -> Vec<&[u8]> {
    encoded.iter().map(Vec::as_slice).collect()
}

fn encoded(encode: impl FnOnce(&mut Vec<Vec<u8>>)) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    encode(&mut words);
    words
}

/// Words are the same in any case.
fn recased(mut encoded: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    encoded.iter_mut().skip(1).for_each(|word| word.make_ascii_lowercase());
    encoded
}

fn parse<'a, A: Arguments<'a>>(args: &'a [&'a [u8]], page: &'static Page) -> Result<A, Refused> {
    A::parse(Argv::new(args, page), &Allowed::CEILING)
}

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn gcra_parses_what_it_encodes(key in key(), quotas in vec(quota(), 1..=8), ask in ask()) {
        let mut quotas = quotas;
        quotas.sort_by_key(Quota::period);
        quotas.dedup_by_key(|quota| quota.period());
        let call = Gcra { key: &key, quotas: quotas.into_iter().rev().collect(), ask };
        let encoded = encoded(|words| call.encode(words));
        let page = if ask == Ask::Peek { &pages::GCRA_PEEK } else { &pages::GCRA };
        prop_assert_eq!(Command::Gcra(call.clone()).page(), page);
        for words in [encoded.clone(), recased(encoded)] {
            let args = arguments(&words);
            let parsed: Result<Gcra<'_>, _> = parse(&args, page);
            prop_assert!(parsed.as_ref() == Ok(&call), "{:?} instead of {:?}", parsed, call);
        }
    }

    #[test]
    fn mgcra_parses_what_it_encodes(
        cost in count(COST_MAX),
        limits in prop::collection::btree_map(key(), quota(), 1..=20),
    ) {
        let limits: Vec<(&[u8], Quota)> = limits.iter().map(|(key, quota)| (key.as_slice(), *quota)).collect();
        let encoded = encoded(|words| Mgcra { cost, limits: limits.iter().copied().collect() }.encode(words));
        let args = arguments(&encoded);
        let parsed = parse::<Mgcra<'_>>(&args, &pages::MGCRA).expect("it was encoded here");
        prop_assert_eq!((parsed.cost, parsed.limits.to_vec()), (cost, limits));
    }

    #[test]
    fn window_parses_what_it_encodes(
        key in key(),
        limit in count(WINDOW_LIMIT_CEILING),
        period in span(PERIOD_MAX),
        ask in ask().prop_filter("windows neither reserve nor refund", |ask| {
            matches!(ask, Ask::Take(_) | Ask::UpTo(_) | Ask::Peek)
        }),
    ) {
        let call = Windowed { key: &key, rule: Rule { limit, period }, ask };
        let encoded = encoded(|words| call.encode(words));
        let args = arguments(&encoded);
        let page = if ask == Ask::Peek { &pages::WINDOW_PEEK } else { &pages::WINDOW };
        let parse = |allowed| Windowed::parse(Argv::new(&args, page), allowed);
        let parsed = parse(&Allowed::CEILING);
        prop_assert!(parsed.as_ref() == Ok(&call), "{:?} instead of {:?}", parsed, call);
        prop_assert_eq!(parse(&Allowed::DEFAULT).is_ok(), limit <= WINDOW_LIMIT_DEFAULT);
    }

    #[test]
    fn throttle_reads_its_numbers_in_their_places(
        key in key(),
        (max_burst, count, seconds) in (0..=1_000_000u32, count(CELLS_MAX), spread(PERIOD_MAX.as_us() / 1_000_000)),
        quantity in prop::option::of(-(COST_MAX as i64)..=COST_MAX as i64),
    ) {
        let mut words = vec![key.clone()];
        words.extend([max_burst as i64, count as i64, seconds].into_iter().chain(quantity).map(|n| n.to_string().into_bytes()));
        let args: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let expected = Throttle::new(max_burst, count, Span::from_secs(seconds), quantity.unwrap_or(1));
        let parsed: Result<ClThrottle<'_>, _> = parse(&args, &pages::THROTTLE);
        prop_assert_eq!(parsed.as_ref().ok().map(|call| call.throttle), expected.ok());
        prop_assert!(parsed.is_err() || parsed.is_ok_and(|call| call.key == key));
        prop_assert!(max_burst <= MAX_BURST_MAX);
    }

    #[test]
    fn apply_reads_every_key_with_its_change(
        keys in vec(key(), 1..=10),
        quota in quota(),
        newer in 2..=i64::MAX,
        picked in subsequence((0..10usize).collect::<Vec<_>>(), 0..=10),
    ) {
        let now = Instant::from_us(1_800_000_000_000_000);
        let decided = resil_core::rate_limit::step(&[], &[quota], Ask::Take(1), now).expect("one tier");
        let tiers = decided.change.expect("granted");
        let bytes = codec::to_vec(|out| codec::encode_tiers(&tiers, out));
        let newer_text = newer.to_string();
        let mut args: Vec<&[u8]> = Vec::new();
        let mut expected: Vec<(&[u8], Applied)> = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            let known = !picked.contains(&index);
            args.extend([key.as_slice(), if known { b"1" } else { newer_text.as_bytes() }, &bytes]);
            let change = Applied::Change(codec::Change::Tiers(tiers.clone()));
            expected.push((key, if known { change } else { Applied::UnknownVersion(newer) }));
        }
        prop_assert_eq!(apply::parse(&args), Ok(expected));
    }

    #[test]
    fn a_client_reads_the_reply_that_was_written(granted in 0..=CELLS_MAX, tiers in vec(reading(), 1..=8)) {
        let verdict = Verdict { granted, tiers: tiers.iter().copied().collect() };
        let value = Value::written(|sink| LimitReply::from(&verdict).write(sink));
        let several = if tiers.len() > 1 { tiers.iter().map(numbers).collect() } else { Default::default() };
        let binding = numbers(&verdict.binding());
        prop_assert_eq!(LimitReply::read(value, tiers.len()), Ok(LimitReply { granted: granted as i64, binding, tiers: several }));
    }

    #[test]
    fn a_client_reads_the_reply_of_several_keys(
        granted in 0..=CELLS_MAX,
        refused_by in prop::option::of(any::<prop::sample::Index>()),
        readings in vec(reading(), 1..=20),
    ) {
        let refused_by = refused_by.map(|index| index.index(readings.len()));
        let many = ManyVerdict { granted, refused_by, readings: readings.clone().into() };
        let value = Value::written(|sink| LimitsReply::from(&many).write(sink));
        let keys = readings.iter().map(numbers).collect();
        prop_assert_eq!(LimitsReply::read(value, readings.len()), Ok(LimitsReply { granted: granted as i64, refused_by, keys }));
    }

    #[test]
    fn a_throttle_reply_is_five_integers(reply in any::<[i64; 5]>()) {
        let value = Value::written(|sink| throttle::write_numbers(reply, sink));
        prop_assert_eq!(value.integers::<5>(), Ok(reply));
    }

    #[test]
    fn durations_are_shown_so_that_they_parse_to_the_same(span in span(FILL_MAX)) {
        let shown = Shown(span).to_string();
        prop_assert_eq!(resil_wire::duration::parse(shown.as_bytes()), Some(span), "{}", shown);
    }
}
