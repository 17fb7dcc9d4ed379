//! Schedules: what callers do to a key, in terms of its own rate so that a rate per day and one per microsecond are
//! exercised alike; and [`Key`], a stored key with a clock, which restarts through the codec.

use std::fmt;

use proptest::collection::vec;
use proptest::prelude::*;
use resil_core::codec;
use resil_core::rate_limit::{Ask, Packed, Quota, TierSet, Verdict, Wait, step};
use resil_core::{Instant, Span};

pub const SECOND_US: i64 = 1_000_000;
pub const HOUR_US: i64 = 3_600 * SECOND_US;
pub const DAY_US: i64 = 24 * HOUR_US;

/// Where every schedule starts: in 2027.
pub const START_US: i64 = 1_800_000_000_000_000;

/// How long callers pause.
#[derive(Debug, Clone, Copy)]
pub enum Gap {
    None,
    Microseconds(i64),
    /// In 64ths of the time one cell takes to drain.
    Cells(i64),
    /// In 64ths of the time the bucket takes to fill.
    Fills(i64),
    /// As long as the last reply said, exactly, or a little less or more.
    RetryAfter(i64),
    /// As long as the last reply said in milliseconds.
    RetryAfterMs,
    /// The clock is set; no time passes.
    ClockSet(i64),
}

#[derive(Debug, Clone, Copy)]
pub enum Cells {
    Exactly(u32),
    /// In 64ths of the capacity.
    OfCapacity(u32),
    BeyondCapacity(u32),
}

#[derive(Debug, Clone, Copy)]
pub enum Want {
    Take(Cells),
    UpTo(Cells),
    /// So many, within 64ths of the time the bucket takes to fill.
    Reserve(Cells, i64),
    Refund(Cells),
    Peek,
}

#[derive(Clone, Copy)]
pub struct Event {
    pub gap: Gap,
    pub want: Want,
    /// The reply was lost: the caller, not knowing what it got, asks the same again.
    pub reply_lost: bool,
    /// The server restarts before the call.
    pub restart: bool,
    /// Which of several configurations the caller has.
    pub config: prop::sample::Index,
}

/// One line an event: a failing schedule is there to be read.
impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gap, want, reply_lost, restart, config } = self;
        write!(f, "{gap:?} {want:?} lost: {reply_lost} restart: {restart} config: {}/100", config.index(100))
    }
}

/// Rates from one per day to a million per second, odd ones, and buckets from one cell to many.
pub fn quota() -> impl Strategy<Value = Quota> {
    let named = prop::sample::select(vec![
        (1, DAY_US),
        (100, DAY_US),
        (1, HOUR_US),
        (60, 60 * SECOND_US),
        (3, SECOND_US),
        (7, SECOND_US),
        (1_000_000, SECOND_US),
        (1, 7),
        (3, 2),
        (999_983, 7 * SECOND_US + 1),
    ]);
    let any =
        (1..=2_000u32, 0..36u32, 0..i64::MAX).prop_map(|(limit, log, rest)| (limit, (1 << log) + rest % (1 << log)));
    let capacity = prop_oneof![2 => Just(None), 1 => Just(Some(1)), 2 => (1..=20u32).prop_map(Some), 1 => (1..=2_000u32).prop_map(Some)];
    (prop_oneof![named, any], capacity).prop_map(|((limit, period_us), capacity)| {
        Quota::new(limit, Span::from_us(period_us), capacity.unwrap_or(limit)).expect("a rate within the bounds")
    })
}

fn cells() -> impl Strategy<Value = Cells> {
    prop_oneof![
        6 => (1..=3u32).prop_map(Cells::Exactly),
        4 => (1..=64u32).prop_map(Cells::OfCapacity),
        1 => (1..=2u32).prop_map(Cells::BeyondCapacity),
    ]
}

fn gap() -> impl Strategy<Value = Gap> {
    prop_oneof![
        4 => Just(Gap::None),
        2 => (1..=3i64).prop_map(Gap::Microseconds),
        6 => (0..=160i64).prop_map(Gap::Cells),
        2 => (0..=80i64).prop_map(Gap::Fills),
        3 => (-1..=1i64).prop_map(Gap::RetryAfter),
        1 => Just(Gap::RetryAfterMs),
    ]
}

fn clock_set() -> impl Strategy<Value = Gap> {
    prop::sample::select(vec![HOUR_US, -HOUR_US, HOUR_US, -HOUR_US, SECOND_US, -SECOND_US, -1]).prop_map(Gap::ClockSet)
}

/// COST, UPTO, REFUND and PEEK.
pub fn spending() -> impl Strategy<Value = Want> {
    prop_oneof![
        6 => cells().prop_map(Want::Take),
        3 => cells().prop_map(Want::UpTo),
        2 => cells().prop_map(Want::Refund),
        1 => Just(Want::Peek),
    ]
}

/// Mostly one cell: many reservations one behind the other.
fn one_or_more() -> impl Strategy<Value = Cells> {
    prop_oneof![1 => Just(Cells::Exactly(1)), 1 => cells()]
}

/// All of it.
pub fn anything() -> impl Strategy<Value = Want> {
    prop_oneof![3 => spending(), 1 => (one_or_more(), 1..=128i64).prop_map(|(cells, parts)| Want::Reserve(cells, parts))]
}

fn events(gap: impl Strategy<Value = Gap>, want: impl Strategy<Value = Want>) -> impl Strategy<Value = Vec<Event>> {
    let event = (gap, want, prop::bool::weighted(0.1), prop::bool::weighted(0.05), any::<prop::sample::Index>());
    let event =
        event.prop_map(|(gap, want, reply_lost, restart, config)| Event { gap, want, reply_lost, restart, config });
    // Nearly always there, so that a schedule has its 200 steps; but left out when a failure is being shrunk.
    vec(prop::option::weighted(0.999, event), 210..=230).prop_map(|events| events.into_iter().flatten().collect())
}

/// A clock that only runs forward.
pub fn steady(want: impl Strategy<Value = Want>) -> impl Strategy<Value = Vec<Event>> {
    events(gap(), want)
}

/// A clock that is set forward and back by an hour, a second, or a little, every now and then.
pub fn unsteady(want: impl Strategy<Value = Want>) -> impl Strategy<Value = Vec<Event>> {
    events(prop_oneof![30 => gap(), 1 => clock_set()], want)
}

impl Gap {
    /// By how much the clock moves, and how much time passes.
    pub fn us(self, quota: &Quota, last_wait: Wait) -> (i64, i64) {
        let passes = match self {
            Self::None => 0,
            Self::Microseconds(us) => us,
            Self::Cells(parts) => drain_us(quota, 1) * parts / 64,
            Self::Fills(parts) => fill_us(quota) * parts / 64,
            Self::RetryAfter(off) => (exactly(last_wait) + off).max(0),
            Self::RetryAfterMs => last_wait.ms().max(0) * 1_000,
            Self::ClockSet(us) => return (us, 0),
        };
        (passes, passes)
    }
}

impl Cells {
    fn number(self, quota: &Quota) -> u32 {
        match self {
            Self::Exactly(cells) => cells,
            Self::OfCapacity(parts) => (quota.capacity() as u64 * parts as u64 / 64).max(1) as u32,
            Self::BeyondCapacity(cells) => quota.capacity() + cells,
        }
    }
}

impl Want {
    pub fn ask(self, quota: &Quota) -> Ask {
        match self {
            Self::Take(cells) => Ask::Take(cells.number(quota)),
            Self::UpTo(cells) => Ask::UpTo(cells.number(quota)),
            Self::Refund(cells) => Ask::Refund(cells.number(quota)),
            Self::Peek => Ask::Peek,
            Self::Reserve(cells, parts) => {
                let within = Span::from_us((fill_us(quota) * parts / 64).clamp(1, DAY_US));
                Ask::Reserve { cells: cells.number(quota), within }
            }
        }
    }
}

fn drain_us(quota: &Quota, cells: u32) -> i64 {
    let grains = cells as i128 * quota.period().as_us() as i128;
    (grains / quota.limit() as i128).max(1) as i64
}

/// How long the bucket takes to fill, roughly.
pub fn fill_us(quota: &Quota) -> i64 {
    drain_us(quota, quota.capacity())
}

/// A wait in microseconds; never is 0, there is nothing to wait for.
pub fn exactly(wait: Wait) -> i64 {
    match wait {
        Wait::For(span) => span.as_us(),
        Wait::Never => 0,
    }
}

/// A stored key and the wall clock beside it.
#[derive(Debug, Clone)]
pub struct Key {
    pub tiers: TierSet,
    pub now_us: i64,
    last_wait: Wait,
}

/// What came of a call.
#[derive(Debug)]
pub struct Called {
    pub ask: Ask,
    pub verdict: Verdict,
    pub changed: bool,
}

impl Key {
    pub fn new() -> Self {
        Self { tiers: TierSet::new(), now_us: START_US, last_wait: Wait::NONE }
    }

    pub fn now(&self) -> Instant {
        Instant::from_us(self.now_us)
    }

    /// The clock moves as `event` says, and the server restarts if it does. Returns the time that passed.
    pub fn elapse(&mut self, event: &Event, quota: &Quota) -> i64 {
        let (moves_us, passes_us) = event.gap.us(quota, self.last_wait);
        self.now_us += moves_us;
        if event.restart {
            self.restart();
        }
        passes_us
    }

    pub fn call(&mut self, quotas: &[Quota], ask: Ask) -> Called {
        let decided = step(&self.tiers, quotas, ask, self.now()).expect("few tiers");
        self.last_wait = decided.verdict.binding().retry_after;
        let changed = decided.change.is_some();
        if let Some(tiers) = decided.change {
            self.tiers = tiers;
        }
        Called { ask, verdict: decided.verdict, changed }
    }

    /// The same call a while later, on a copy of the key: what would happen.
    pub fn would(&self, after_us: i64, quotas: &[Quota], ask: Ask) -> Verdict {
        let mut later = self.clone();
        later.now_us += after_us;
        later.call(quotas, ask).verdict
    }

    /// State leaves through the codec and comes back the same, packed or not.
    fn restart(&mut self) {
        if self.tiers.is_empty() {
            return;
        }
        let bytes = codec::to_vec(|out| codec::encode_tiers(&self.tiers, out));
        let back = codec::decode_tiers(&bytes).expect("a reachable state decodes");
        assert_eq!(back, self.tiers);
        self.tiers = back;
        for tier in &mut self.tiers {
            if let Some(packed) = Packed::pack(tier) {
                assert_eq!(packed.unpack(), *tier);
            }
        }
    }
}
