//! CL.THROTTLE beside redis-cell's own limiter, call by call: the published crate is the oracle.
//!
//! The crate is 0.2.2 and keeps times as durations; the command since then shows seconds, one more if a whole
//! millisecond is left over (0.5.0, `src/lib.rs`), which is done here. redis-cell computes with an emission interval in
//! whole nanoseconds and a remainder in whole microseconds, ours exactly. So rates whose interval is whole microseconds
//! are compared at any instant, and the others wherever no boundary is near enough for that rounding to matter.
//!
//! How to repeat a failing run: see `seed`.

#[path = "../core/tests/seed/mod.rs"]
mod seed;

use proptest::collection::vec;
use proptest::prelude::*;
use redis_cell::cell::store::Store;
use redis_cell::cell::{Rate, RateLimiter, RateQuota};
use redis_cell::error::CellError;
use resil_core::rate_limit::{TierSet, step};
use resil_core::{Instant, Step};
use resil_wire::argv::Argv;
use resil_wire::command::{Allowed, Arguments};
use resil_wire::pages;
use resil_wire::throttle::ClThrottle;

const START_US: i64 = 1_800_000_000_000_000;
const SECOND_US: i64 = 1_000_000;

/// redis-cell's storage with a clock we drive. A key is gone when its time to live, which ends with its debt, is over.
struct Strings {
    tat_ns: Option<i64>,
    now_us: i64,
}

impl Store for Strings {
    fn compare_and_swap_with_ttl(&mut self, _: &str, _: i64, new: i64, _: time::Duration) -> Result<bool, CellError> {
        self.tat_ns = Some(new);
        Ok(true)
    }

    fn get_with_time(&self, _: &str) -> Result<(i64, time::Tm), CellError> {
        let (seconds, us) = (self.now_us / SECOND_US, self.now_us % SECOND_US);
        let now = time::at_utc(time::Timespec::new(seconds, us as i32 * 1_000));
        Ok((self.tat_ns.filter(|tat_ns| *tat_ns > self.now_us * 1_000).unwrap_or(-1), now))
    }

    fn log_debug(&self, _: &str) {}

    fn set_if_not_exists_with_ttl(&mut self, _: &str, value: i64, _: time::Duration) -> Result<bool, CellError> {
        self.tat_ns = Some(value);
        Ok(true)
    }
}

/// A limit as CL.THROTTLE names it.
#[derive(Debug, Clone, Copy)]
struct Limit {
    max_burst: i64,
    count: i64,
    period_seconds: i64,
}

#[derive(Debug, Clone, Copy)]
enum Gap {
    None,
    Milliseconds(i64),
    Microseconds(i64),
    /// In 64ths of the emission interval.
    Cells(i64),
}

fn max_burst() -> impl Strategy<Value = i64> {
    prop_oneof![3 => 0..=20i64, 1 => 0..=99i64]
}

/// Emission intervals of whole microseconds.
fn whole() -> impl Strategy<Value = Limit> {
    let rates =
        vec![(30, 60), (1, 1), (2, 1), (8, 1), (64, 1), (1_000, 1), (100_000, 1), (5, 3_600), (1, 86_400), (40, 1)];
    (max_burst(), prop::sample::select(rates)).prop_map(|(max_burst, (count, period_seconds))| Limit {
        max_burst,
        count,
        period_seconds,
    })
}

/// Emission intervals that are no whole number of anything.
fn fractional() -> impl Strategy<Value = Limit> {
    let rates = vec![(3, 1), (7, 1), (7, 60), (11, 3), (13, 10), (30, 7), (90, 60), (7, 86_400)];
    (max_burst(), prop::sample::select(rates)).prop_map(|(max_burst, (count, period_seconds))| Limit {
        max_burst,
        count,
        period_seconds,
    })
}

fn calls() -> impl Strategy<Value = Vec<(Gap, Option<i64>)>> {
    let gap = prop_oneof![
        3 => Just(Gap::None),
        2 => (1..=3_000i64).prop_map(Gap::Milliseconds),
        2 => (1..=2_000_000i64).prop_map(Gap::Microseconds),
        4 => (0..=200i64).prop_map(Gap::Cells),
    ];
    let quantity = prop_oneof![4 => Just(None), 4 => (1..=5i64).prop_map(Some), 2 => (0..=110i64).prop_map(Some), 1 => (-5..=-1i64).prop_map(Some)];
    vec((gap, quantity), 200..=230)
}

impl Limit {
    fn interval_us(&self) -> i64 {
        self.period_seconds * SECOND_US / self.count
    }

    /// The exact debt of an arrival time, in 1/count of a microsecond.
    fn debt(&self, arrival: i128, now_us: i64) -> i128 {
        (arrival - now_us as i128 * self.count as i128).max(0)
    }
}

impl Gap {
    fn us(self, limit: &Limit) -> i64 {
        match self {
            Self::None => 0,
            Self::Milliseconds(ms) => ms * 1_000,
            Self::Microseconds(us) => us,
            Self::Cells(parts) => limit.interval_us() * parts / 64,
        }
    }
}

/// Seconds as the command shows them.
fn seconds(span: time::Duration) -> i64 {
    let ms = span.num_milliseconds();
    if span < time::Duration::zero() { -1 } else { ms / 1_000 + (ms % 1_000 > 0) as i64 }
}

fn redis_cell_says(strings: &mut Strings, limit: &Limit, quantity: i64) -> [i64; 5] {
    let max_rate = Rate::per_period(limit.count, time::Duration::seconds(limit.period_seconds));
    let quota = RateQuota { max_burst: limit.max_burst, max_rate };
    let decided = RateLimiter::new(strings, &quota).rate_limit("key", quantity);
    let (limited, result) = decided.unwrap_or_else(|_| panic!("redis-cell failed"));
    [limited as i64, result.limit, result.remaining, seconds(result.retry_after), seconds(result.reset_after)]
}

fn we_say(tiers: &mut TierSet, limit: &Limit, quantity: Option<i64>, now_us: i64) -> [i64; 5] {
    let numbers = [limit.max_burst, limit.count, limit.period_seconds].into_iter().chain(quantity);
    let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
    let words: Vec<&[u8]> = ["key"].into_iter().chain(numbers.iter().map(String::as_str)).map(str::as_bytes).collect();
    let ClThrottle { throttle, .. } =
        ClThrottle::parse(Argv::new(&words, &pages::THROTTLE), &Allowed::DEFAULT).expect("a call");
    let Step { verdict, change, .. } =
        step(tiers, &[throttle.quota], throttle.ask, Instant::from_us(now_us)).expect("a step");
    if let Some(change) = change {
        *tiers = change;
    }
    throttle.reply(&verdict)
}

/// Plays the same calls on both. `guard_us` is how far off a boundary every instant is kept; the exact debt is followed
/// here a third time to know where the boundaries are.
fn play(limit: &Limit, calls: &[(Gap, Option<i64>)], guard_us: i64) -> Result<(), TestCaseError> {
    let mut strings = Strings { tat_ns: None, now_us: START_US };
    let mut tiers = TierSet::new();
    let (count, cell) = (limit.count as i128, limit.period_seconds as i128 * SECOND_US as i128);
    let mut arrival = 0i128;
    for (gap, quantity) in calls {
        strings.now_us += gap.us(limit);
        while guard_us > 0 && is_near_a_boundary(limit, arrival, strings.now_us, guard_us) {
            strings.now_us += guard_us;
        }
        let debt = limit.debt(arrival, strings.now_us);
        // redis-cell fails when more is given back than is owed.
        let quantity = quantity.map(|cells| cells.max(-((debt / cell) as i64)));
        let theirs = redis_cell_says(&mut strings, limit, quantity.unwrap_or(1));
        let ours = we_say(&mut tiers, limit, quantity, strings.now_us);
        prop_assert_eq!(ours, theirs, "{:?} of {:?} at {}", quantity, limit, strings.now_us - START_US);
        if ours[0] == 0 {
            arrival = strings.now_us as i128 * count + debt + quantity.unwrap_or(1) as i128 * cell;
        }
    }
    Ok(())
}

/// Whether, within `guard_us`, a cell becomes free or a shown time goes over a second or the millisecond after it.
fn is_near_a_boundary(limit: &Limit, arrival: i128, now_us: i64, guard_us: i64) -> bool {
    let (count, cell) = (limit.count as i128, limit.period_seconds as i128 * SECOND_US as i128);
    let debt = limit.debt(arrival, now_us);
    if debt == 0 {
        return false;
    }
    let guard = guard_us as i128 * count;
    let near = |value: i128, step: i128| (value + guard).rem_euclid(step) < 2 * guard;
    // Every time that may be shown is the debt, more or less some whole cells.
    let cells = limit.max_burst as i128 + 2;
    let second = SECOND_US as i128 * count;
    let shown = |cells: i128| near(debt + cells * cell, second) || near(debt + cells * cell - second / 1_000, second);
    near(debt, cell) || (-cells..=cells).any(shown)
}

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn throttle_replies_as_redis_cell_does(limit in whole(), calls in calls()) {
        play(&limit, &calls, 0)?;
    }

    #[test]
    fn throttle_replies_as_redis_cell_does_for_intervals_it_rounds(limit in fractional(), calls in calls()) {
        play(&limit, &calls, 100)?;
    }
}
