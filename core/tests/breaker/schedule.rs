//! Random schedules: what happens, and how much later.

use std::fmt;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::model::{Calls, Forced, HOUR_US, Named, Reply, Window};

pub const MS_US: i64 = 1_000;
pub const SECOND_US: i64 = 1_000_000;
pub const DAY_US: i64 = 24 * HOUR_US;

#[derive(Debug, Clone, Copy)]
pub enum Gap {
    None,
    By(i64),
    /// To one of the moments at which something ends, or a microsecond off.
    To(Index, i64),
    /// In 64ths of the window of time, or of the open time.
    Window(i64),
    /// The clock is set, or jitters.
    ClockSet(i64),
}

#[derive(Debug, Clone, Copy)]
pub enum Seq {
    Next,
    Again,
    Older,
}

#[derive(Debug, Clone, Copy)]
pub enum Of {
    Zero,
    Now,
    /// The generation of some permit that was given out.
    Ticket(Index),
}

#[derive(Debug, Clone, Copy)]
pub enum What {
    Admit {
        caller: u8,
        chance: u32,
        options: Option<(Named, Option<u64>)>,
    },
    /// Calls one after the other that all come to the same.
    Calls {
        caller: u8,
        times: u32,
        reply: Reply,
        took_us: Option<i64>,
    },
    /// Of a permit: often a recent one; it may have been reported before, or be from long ago.
    Report {
        back: Index,
        reply: Reply,
        took_us: Option<i64>,
    },
    ReportForged(u64),
    Tally {
        of: Of,
        caller: u8,
        seq: Seq,
        calls: Calls,
    },
    Force {
        force: Option<(Forced, Option<i64>)>,
        by: &'static str,
    },
    Reset,
    Config {
        named: Named,
        version: Option<u64>,
    },
}

#[derive(Clone, Copy)]
pub struct Event {
    pub gap: Gap,
    pub what: What,
    /// The server is restarted after it.
    pub restart: bool,
    /// A key that may be collected is.
    pub collected: bool,
}

/// One line an event: a failing schedule is there to be read.
impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gap, what, restart, collected } = self;
        write!(f, "{gap:?}")?;
        match what {
            What::Admit { caller, chance, options: None } => write!(f, " Admit {caller} chance {chance}")?,
            What::Admit { caller, chance, options: Some((named, version)) } => {
                write!(f, " Admit {caller} chance {chance} version {version:?} {}", Shown(named))?;
            }
            What::Config { named, version } => write!(f, " Config version {version:?} {}", Shown(named))?,
            other => write!(f, " {other:?}")?,
        }
        write!(f, "{}{}", if *restart { " restart" } else { "" }, if *collected { " collected" } else { "" })
    }
}

/// Only what is named.
struct Shown<'a>(&'a Named);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = format!("{:?}", self.0);
        let inner = all.trim_start_matches("Named { ").trim_end_matches(" }");
        let named: Vec<&str> = inner.split(", ").filter(|field| !field.ends_with(": None")).collect();
        f.write_str(&named.join(", "))
    }
}

/// Each option is named with this chance.
fn named(chance: f64) -> BoxedStrategy<Named> {
    let window = prop_oneof![
        3 => (1..=12usize).prop_map(Window::Count),
        1 => select(vec![100usize, 1_000]).prop_map(Window::Count),
        4 => select(vec![100 * MS_US, 999_999, SECOND_US, 10 * SECOND_US, 60 * SECOND_US, HOUR_US, DAY_US])
            .prop_map(Window::Time),
    ];
    let pct = prop_oneof![Just(0u32), Just(1), Just(50), Just(100), 0..=100u32];
    let span = |all: Vec<i64>| select(all);
    let judged = (
        option::weighted(chance, window),
        option::weighted(chance, pct.clone()),
        option::weighted(chance, span(vec![1, 100 * MS_US, SECOND_US])),
        option::weighted(chance, pct),
        option::weighted(chance, 0..=5u32),
        option::weighted(chance, prop_oneof![1..=8u32, Just(1_000_000)]),
        option::weighted(chance, prop_oneof![4 => 1..=3u32, 1 => Just(64u32)]),
    );
    let timed = (
        option::weighted(chance, span(vec![MS_US, SECOND_US, 30 * SECOND_US, HOUR_US, DAY_US])),
        option::weighted(chance, prop_oneof![Just(1_000u32), Just(2_000), 1_000..=100_000u32]),
        option::weighted(chance, span(vec![MS_US, SECOND_US, 60 * SECOND_US, 2 * HOUR_US, DAY_US])),
        option::weighted(chance, 1..=4u32),
        option::weighted(chance, 1..=4u32),
        option::weighted(chance, span(vec![10 * MS_US, SECOND_US, 30 * SECOND_US, HOUR_US])),
        option::weighted(chance, span(vec![0, 1, 30 * SECOND_US, HOUR_US])),
        option::weighted(chance, span(vec![SECOND_US, 60 * SECOND_US, HOUR_US, 30 * DAY_US])),
    );
    (judged, timed)
        .prop_map(|(judged, timed)| {
            let (window, rate_pct, slow_us, slow_rate_pct, consecutive, min_calls, quorum) = judged;
            let (open_us, factor_milli, max_us, probes, successes, lease_us, ramp_us, idle_us) = timed;
            Named {
                window,
                rate_pct,
                slow_us,
                slow_rate_pct,
                consecutive,
                min_calls,
                open_us,
                factor_milli,
                max_us,
                probes,
                successes,
                lease_us,
                quorum,
                ramp_us,
                idle_us,
            }
        })
        .boxed()
}

fn version() -> impl Strategy<Value = Option<u64>> {
    option::weighted(0.7, 1..=3u64)
}

fn caller() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0u8), 0..=4u8]
}

fn calls() -> impl Strategy<Value = Calls> {
    let count = || prop_oneof![4 => 0..=3u32, 2 => 0..=30u32, 1 => Just(10_000u32)];
    (count(), count(), 0..=100u32, 0..=100u32).prop_map(|(ok, failed, slow, run)| {
        // Nothing but failures is a run.
        let run = if ok == 0 { failed } else { failed * run / 100 };
        Calls { ok, failed, slow: (ok + failed) * slow.saturating_sub(50) / 50, run }
    })
}

fn admit() -> impl Strategy<Value = What> {
    let options = option::weighted(0.15, (named(0.3), version()));
    (caller(), prop_oneof![Just(0u32), 0..100u32], options).prop_map(|(caller, chance, options)| What::Admit {
        caller,
        chance,
        options,
    })
}

fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        5 => Just(Reply::Ok),
        4 => Just(Reply::Fail),
        1 => Just(Reply::Ignore),
        1 => Just(Reply::Cancel),
    ]
}

fn took_us() -> impl Strategy<Value = Option<i64>> {
    option::weighted(0.5, select(vec![0, 1, 99_999, 100_000, SECOND_US, 30 * SECOND_US]))
}

fn calls_alike() -> impl Strategy<Value = What> {
    let calls = (caller(), 1..=6u32, reply(), took_us());
    calls.prop_map(|(caller, times, reply, took_us)| What::Calls { caller, times, reply, took_us })
}

fn report() -> impl Strategy<Value = What> {
    (any::<Index>(), reply(), took_us()).prop_map(|(back, reply, took_us)| What::Report { back, reply, took_us })
}

fn tally() -> impl Strategy<Value = What> {
    let of = prop_oneof![3 => Just(Of::Now), 2 => Just(Of::Zero), 1 => any::<Index>().prop_map(Of::Ticket)];
    let seq = prop_oneof![6 => Just(Seq::Next), 2 => Just(Seq::Again), 1 => Just(Seq::Older)];
    (of, caller(), seq, calls()).prop_map(|(of, caller, seq, calls)| What::Tally { of, caller, seq, calls })
}

fn force() -> impl Strategy<Value = What> {
    let all = [Forced::Open, Forced::Closed, Forced::Disabled, Forced::Metrics, Forced::OpenThenProbe];
    let how = select(all.to_vec());
    let length_us = option::weighted(0.7, select(vec![MS_US, 10 * SECOND_US, HOUR_US]));
    let force = prop_oneof![3 => (how, length_us).prop_map(Some), 2 => Just(None)];
    (force, select(vec!["ann", "bob"])).prop_map(|(force, by)| What::Force { force, by })
}

fn what() -> BoxedStrategy<What> {
    let what = prop_oneof![
        30 => admit(),
        30 => report(),
        20 => calls_alike(),
        1 => any::<u64>().prop_map(What::ReportForged),
        8 => tally(),
        1 => force(),
        1 => Just(What::Reset),
        1 => (named(0.2), version()).prop_map(|(named, version)| What::Config { named, version }),
    ];
    what.boxed()
}

/// From microseconds to days, and often exactly to where something ends.
fn gap() -> impl Strategy<Value = Gap> {
    prop_oneof![
        24 => Just(Gap::None),
        6 => (1..=3i64).prop_map(Gap::By),
        8 => (1..=3_000 * MS_US).prop_map(Gap::By),
        6 => (0..=70i64).prop_map(Gap::Window),
        10 => (any::<Index>(), -1..=1i64).prop_map(|(moment, off_us)| Gap::To(moment, off_us)),
        1 => select(vec![60 * SECOND_US, HOUR_US, 5 * HOUR_US, DAY_US, 40 * DAY_US]).prop_map(Gap::By),
    ]
}

fn clock_set() -> impl Strategy<Value = Gap> {
    let steps = select(vec![HOUR_US, -HOUR_US, -HOUR_US, -SECOND_US - 1, -DAY_US]);
    prop_oneof![3 => steps, 1 => -SECOND_US..=0i64].prop_map(Gap::ClockSet)
}

/// A schedule begins with somebody configuring the breaker, or nobody.
fn schedule(gap: impl Strategy<Value = Gap> + 'static, len: usize) -> BoxedStrategy<Vec<Event>> {
    let first = prop_oneof![
        3 => (named(0.6), version()).prop_map(|options| What::Admit { caller: 0, chance: 0, options: Some(options) }),
        2 => (named(0.6), version()).prop_map(|(named, version)| What::Config { named, version }),
        1 => Just(What::Reset),
    ];
    let first = first.prop_map(|what| Event { gap: Gap::None, what, restart: false, collected: false });
    let event = (gap, what(), prop::bool::weighted(0.05), prop::bool::weighted(0.5));
    let event = event.prop_map(|(gap, what, restart, collected)| Event { gap, what, restart, collected });
    // Nearly always there, so that a schedule has its 200 steps; but left out when a failure is being shrunk.
    let rest = vec(option::weighted(0.999, event), len..=len + 20);
    // Boxed: these strategies are large, and a test's stack is not.
    (first, rest).prop_map(|(first, rest)| std::iter::once(first).chain(rest.into_iter().flatten()).collect()).boxed()
}

/// A clock that only runs forward.
pub fn steady() -> BoxedStrategy<Vec<Event>> {
    schedule(gap(), 210)
}

/// The same, but short: to reach some state.
pub fn short() -> BoxedStrategy<Vec<Event>> {
    schedule(gap(), 30)
}

/// A clock that is also set, by an hour or a day, in both directions, and jitters.
pub fn unsteady() -> BoxedStrategy<Vec<Event>> {
    schedule(prop_oneof![20 => gap(), 1 => clock_set()], 210)
}
