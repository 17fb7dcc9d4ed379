//! The sliding window beside a plain list of instants, step by step, and held against what it promises.
//!
//! How to repeat a failing run: see `seed`.

#[path = "model/log.rs"]
mod log;
#[path = "seed/mod.rs"]
mod seed;

use std::fmt;

use proptest::collection::vec;
use proptest::prelude::*;
use resil_core::codec;
use resil_core::rate_limit::{Ask, Verdict, Wait};
use resil_core::window::{Rule, Window, step};
use resil_core::{Instant, Span, Step};

use log::{Log, Reply, Request};

const SECOND_US: i64 = 1_000_000;
const HOUR_US: i64 = 3_600 * SECOND_US;
const START_US: i64 = 1_800_000_000_000_000;

#[derive(Debug, Clone, Copy)]
enum Gap {
    None,
    Microseconds(i64),
    /// In 64ths of the period.
    Period(i64),
    /// As the last reply said, or a microsecond off.
    RetryAfter(i64),
    ResetAfter,
    /// The clock is set, or jitters.
    ClockSet(i64),
}

#[derive(Debug, Clone, Copy)]
enum Want {
    Take(u32),
    UpTo(u32),
    /// In 64ths of the limit.
    TakePart(u32),
    UpToPart(u32),
    Peek,
}

#[derive(Clone, Copy)]
struct Event {
    gap: Gap,
    want: Want,
    /// The reply was lost: the caller asks the same again.
    reply_lost: bool,
    restart: bool,
    rule: prop::sample::Index,
}

/// One line an event: a failing schedule is there to be read.
impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gap, want, reply_lost, restart, rule } = self;
        write!(f, "{gap:?} {want:?} lost: {reply_lost} restart: {restart} rule: {}/100", rule.index(100))
    }
}

fn rule() -> impl Strategy<Value = Rule> {
    let limit = prop_oneof![6 => 1..=10u32, 3 => 1..=200u32, 1 => 1..=4_000u32];
    let period_us = prop_oneof![
        prop::sample::select(vec![1, 7, 1_000, SECOND_US, 60 * SECOND_US, HOUR_US, 24 * HOUR_US]),
        1..=100 * SECOND_US,
    ];
    (limit, period_us).prop_map(|(limit, period_us)| Rule { limit, period: Span::from_us(period_us) })
}

fn gap() -> impl Strategy<Value = Gap> {
    prop_oneof![
        4 => Just(Gap::None),
        2 => (1..=3i64).prop_map(Gap::Microseconds),
        5 => (0..=20i64).prop_map(Gap::Period),
        1 => (0..=130i64).prop_map(Gap::Period),
        3 => (-1..=1i64).prop_map(Gap::RetryAfter),
        1 => Just(Gap::ResetAfter),
    ]
}

fn clock_set() -> impl Strategy<Value = Gap> {
    let steps = prop::sample::select(vec![HOUR_US, -HOUR_US, -HOUR_US, -SECOND_US - 1]);
    prop_oneof![steps, -SECOND_US..=0].prop_map(Gap::ClockSet)
}

fn events(gap: impl Strategy<Value = Gap>) -> impl Strategy<Value = Vec<Event>> {
    let want = prop_oneof![
        5 => (1..=4u32).prop_map(Want::Take),
        3 => (1..=4u32).prop_map(Want::UpTo),
        2 => (1..=66u32).prop_map(Want::TakePart),
        2 => (1..=66u32).prop_map(Want::UpToPart),
        1 => Just(Want::Peek),
    ];
    let event = (gap, want, prop::bool::weighted(0.1), prop::bool::weighted(0.05), any::<prop::sample::Index>());
    let event = event.prop_map(|(gap, want, reply_lost, restart, rule)| Event { gap, want, reply_lost, restart, rule });
    // Nearly always there, so that a schedule has its 200 steps; but left out when a failure is being shrunk.
    vec(prop::option::weighted(0.999, event), 210..=230).prop_map(|events| events.into_iter().flatten().collect())
}

fn steady() -> impl Strategy<Value = Vec<Event>> {
    events(gap())
}

fn unsteady() -> impl Strategy<Value = Vec<Event>> {
    events(prop_oneof![20 => gap(), 1 => clock_set()])
}

impl Want {
    fn ask(self, rule: Rule) -> Ask {
        let part = |parts: u32| (rule.limit * parts / 64).max(1);
        match self {
            Self::Take(cells) => Ask::Take(cells),
            Self::UpTo(cells) => Ask::UpTo(cells),
            Self::TakePart(parts) => Ask::Take(part(parts)),
            Self::UpToPart(parts) => Ask::UpTo(part(parts)),
            Self::Peek => Ask::Peek,
        }
    }
}

/// A stored window, its replica, and the clock beside it.
#[derive(Clone)]
struct Key {
    window: Window,
    /// Fed with the changes only, as they travel.
    replica: Window,
    now_us: i64,
    last: Verdict,
}

impl Key {
    fn new() -> Self {
        let last = step(&Window::default(), Rule { limit: 1, period: Span::from_us(1) }, Ask::Peek, Instant::EPOCH);
        Self { window: Window::default(), replica: Window::default(), now_us: START_US, last: last.verdict }
    }

    fn elapse(&mut self, event: &Event, rule: Rule) {
        let last = self.last.binding();
        self.now_us += match event.gap {
            Gap::None => 0,
            Gap::Microseconds(us) | Gap::ClockSet(us) => us,
            Gap::Period(parts) => rule.period.as_us() * parts / 64,
            Gap::RetryAfter(off) => (exactly(last.retry_after).unwrap_or(0) + off).max(0),
            Gap::ResetAfter => last.reset_after.as_us(),
        };
        if event.restart && !self.window.is_empty() {
            let bytes = codec::to_vec(|out| codec::encode_log(&self.window, out));
            let back = codec::decode_log(&bytes).expect("a reachable state decodes");
            assert_eq!(back, self.window);
            self.window = back;
        }
    }

    /// Returns the verdict, and whether it was stored.
    fn call(&mut self, rule: Rule, ask: Ask) -> (Verdict, bool) {
        let Step { verdict, change, .. } = step(&self.window, rule, ask, Instant::from_us(self.now_us));
        self.last = verdict.clone();
        if let Some(change) = change {
            let capacity_before = self.window.heap_bytes();
            let growth_was_announced = self.window.would_grow(&change);
            self.window.apply(&change);
            assert!(growth_was_announced || self.window.heap_bytes() <= capacity_before, "grew unannounced");
            let bytes = codec::to_vec(|out| codec::encode_log_change(&change, out));
            self.replica.apply(&codec::decode_log_change(&bytes).expect("a reachable change decodes"));
            assert_eq!(self.replica, self.window);
        }
        (verdict, change.is_some())
    }

    fn would(&self, after_us: i64, rule: Rule, ask: Ask) -> Verdict {
        let mut later = self.clone();
        later.now_us += after_us;
        later.call(rule, ask).0
    }
}

fn exactly(wait: Wait) -> Option<i64> {
    match wait {
        Wait::For(span) => Some(span.as_us()),
        Wait::Never => None,
    }
}

fn play(
    rules: &[Rule],
    events: &[Event],
    mut each: impl FnMut(&mut Key, Rule, Ask) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let mut key = Key::new();
    for event in events {
        let rule = *event.rule.get(rules);
        key.elapse(event, rule);
        for _ in 0..1 + event.reply_lost as usize {
            each(&mut key, rule, event.want.ask(rule))?;
        }
    }
    Ok(())
}

/// Core and the model say the same after every step.
fn play_both(rules: &[Rule], events: &[Event]) -> Result<(), TestCaseError> {
    let mut model = Log::default();
    play(rules, events, |key, rule, ask| {
        let request = match ask {
            Ask::Take(cells) => Request::Take(cells as usize),
            Ask::UpTo(cells) => Request::UpTo(cells as usize),
            _ => Request::Peek,
        };
        let before = key.window.clone();
        let expected = model.call(rule.limit as usize, rule.period.as_us(), request, key.now_us);
        let (verdict, stored) = key.call(rule, ask);
        let reading = verdict.binding();
        let reply = Reply {
            granted: verdict.granted as usize,
            remaining: reading.remaining as usize,
            wait_us: exactly(reading.retry_after),
            reset_us: reading.reset_after.as_us(),
            stored,
        };
        prop_assert_eq!(reply, expected, "{:?} of {:?} at {} on {:?}", ask, rule, key.now_us, before);
        prop_assert_eq!(reading.capacity, rule.limit);
        let kept: u64 = key.window.entries().map(|(_, cells)| cells).sum();
        prop_assert_eq!(kept, model.cells.len() as u64, "cells remembered");
        Ok(())
    })
}

proptest! {
    #![proptest_config(seed::config())]

    // Property 13: a sliding window counts the calls of the last period and no others.
    #[test]
    fn the_window_counts_exactly_the_cells_of_the_last_period(rule in rule(), events in unsteady()) {
        play_both(&[rule], &events)?;
    }

    #[test]
    fn a_changed_limit_or_period_counts_the_same_cells(rules in vec(rule(), 2..=4), events in unsteady()) {
        play_both(&rules, &events)?;
    }

    #[test]
    fn no_period_ever_holds_more_than_the_limit(rule in rule(), events in steady()) {
        let mut admitted: Vec<(i64, u64)> = Vec::new();
        play(&[rule], &events, |key, rule, ask| {
            let (verdict, _) = key.call(rule, ask);
            if ask != Ask::Peek && verdict.granted > 0 {
                admitted.push((key.now_us, verdict.granted as u64));
            }
            let inside = admitted.iter().filter(|(at_us, _)| *at_us > key.now_us - rule.period.as_us());
            prop_assert!(inside.map(|(_, cells)| cells).sum::<u64>() <= rule.limit as u64);
            Ok(())
        })?;
    }

    #[test]
    fn retry_after_is_exact_for_a_lone_caller(
        rules in vec(rule(), 1..=3),
        events in steady(),
    ) {
        play(&rules, &events, |key, rule, ask| {
            let (verdict, _) = key.call(rule, ask);
            let again = match ask {
                Ask::Take(_) if verdict.granted == 0 => ask,
                Ask::UpTo(cells) if verdict.granted < cells => Ask::Take(1),
                _ => return Ok(()),
            };
            match verdict.binding().retry_after {
                Wait::Never => prop_assert!(matches!(ask, Ask::Take(cells) if cells > rule.limit)),
                wait => {
                    let us = exactly(wait).expect("a span");
                    prop_assert!(us > 0);
                    prop_assert!(key.would(us, rule, again).granted > 0);
                    prop_assert!(key.would(wait.ms() * 1_000, rule, again).granted > 0);
                    prop_assert_eq!(key.would(us - 1, rule, again).granted, 0);
                }
            }
            Ok(())
        })?;
    }

    /// Back by any amount: a caller that waits as it is asked to gets in, and is asked to wait at most a period and a second.
    #[test]
    fn no_clock_step_freezes_a_window_beyond_its_period(
        rules in vec(rule(), 1..=3),
        events in unsteady(),
    ) {
        play(&rules, &events, |key, rule, ask| {
            let (verdict, _) = key.call(rule, ask);
            let reading = verdict.binding();
            let longest_us = rule.period.as_us() + SECOND_US;
            prop_assert!(reading.reset_after.as_us() <= longest_us);
            if let (Ask::Take(_) | Ask::UpTo(_), 0, Wait::For(wait)) = (ask, verdict.granted, reading.retry_after) {
                prop_assert!(wait.as_us() <= longest_us);
                prop_assert!(key.would(wait.as_us(), rule, ask).granted > 0);
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_key_collected_in_time_is_not_missed(rule in rule(), events in steady()) {
        let mut collected = Key::new();
        play(&[rule], &events, |kept, rule, ask| {
            collected.now_us = kept.now_us;
            if !collected.window.is_empty() && collected.window.gc_at(0).as_us() <= kept.now_us {
                collected.window = Window::default();
                collected.replica = Window::default();
            }
            prop_assert_eq!(kept.call(rule, ask).0, collected.call(rule, ask).0);
            let newest = kept.window.entries().last().map_or(0, |(at_us, _)| at_us);
            let leaves = Instant::from_us(newest).plus(rule.period);
            prop_assert!(collected.window.is_empty() || collected.window.gc_at(0) >= leaves);
            Ok(())
        })?;
    }
}
