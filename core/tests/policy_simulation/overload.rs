//! Five times the load that a service can bear, for half a minute.
//!
//! The service has 20 workers of about 50 ms: 400 calls a second. It serves in order, and does not know that a caller gave up after
//! a second. Without a limit its queue becomes longer than that, and it only works for callers who are gone.

use std::collections::{BinaryHeap, VecDeque};

use resil_core::policy::AdaptiveKind;
use resil_core::policy::concurrency::{Concurrency, ConcurrencyRules, Sample};
use resil_core::policy::throttle::{ThrottleRules, Throttler};
use resil_core::{Instant, Span};

use super::plot::{Series, publish};
use super::random::Random;

const TIMEOUT_MS: i64 = 1_000;
const WORKERS: usize = 20;
const CAPACITY: u64 = 400;

/// What happened in each second, and how long good calls took while the load was too high.
struct Seen {
    good: Vec<u64>,
    took_ms: Vec<i64>,
}

impl Seen {
    /// Good calls a second, when it has settled.
    fn goodput(&self) -> u64 {
        self.good[20..40].iter().sum::<u64>() / 20
    }

    fn p99_ms(&mut self) -> i64 {
        self.took_ms.sort_unstable();
        self.took_ms.get(self.took_ms.len() * 99 / 100).copied().unwrap_or(0)
    }
}

struct Waiting {
    id: u64,
    began_ms: i64,
}

fn simulate(kind: Option<AdaptiveKind>, throttle: bool) -> Seen {
    let mut random = Random(1);
    let rules = ConcurrencyRules { kind: kind.unwrap_or(AdaptiveKind::Gradient), min: 5, max: 2_000 };
    let throttle = throttle.then_some(ThrottleRules { k_milli: 2_000, window: Span::from_secs(10) });
    let (mut machine, mut throttler) = (Concurrency::default(), Throttler::default());
    let mut seen = Seen { good: vec![0; 60], took_ms: Vec::new() };
    let mut queue: VecDeque<Waiting> = VecDeque::new();
    let mut working: BinaryHeap<std::cmp::Reverse<(i64, u64, i64)>> = BinaryHeap::new();
    // Calls whose callers still wait, by the moment they give up.
    let mut patient: VecDeque<Waiting> = VecDeque::new();
    let mut gone: std::collections::HashSet<u64> = std::collections::HashSet::new();
    let mut ended: std::collections::HashSet<u64> = std::collections::HashSet::new();
    let (mut in_flight, mut id) = (0u32, 0u64);
    for now_ms in 0..60_000i64 {
        let now = Instant::from_us(now_ms * 1_000);
        let mut end = |in_flight: &mut u32, took_ms: i64, is_late: bool| {
            machine.ended(&rules, Sample { took: Span::from_ms(took_ms), is_overload: is_late, in_flight: *in_flight });
            if let Some(throttle) = &throttle {
                throttler.ended(throttle, !is_late, now);
            }
            *in_flight -= 1;
        };
        while patient.front().is_some_and(|call| now_ms - call.began_ms >= TIMEOUT_MS) {
            let call = patient.pop_front().expect("there");
            if !ended.remove(&call.id) {
                gone.insert(call.id);
                end(&mut in_flight, TIMEOUT_MS, true);
            }
        }
        while working.peek().is_some_and(|done| done.0.0 <= now_ms) {
            let std::cmp::Reverse((_, call, began_ms)) = working.pop().expect("there");
            if !gone.remove(&call) {
                ended.insert(call);
                end(&mut in_flight, now_ms - began_ms, false);
                seen.good[(now_ms / 1_000) as usize] += 1;
                if (20_000..40_000).contains(&now_ms) {
                    seen.took_ms.push(now_ms - began_ms);
                }
            }
        }
        let load = if (10_000..40_000).contains(&now_ms) { CAPACITY * 5 } else { CAPACITY * 3 / 4 };
        for _ in 0..random.arrivals(load) {
            let is_admitted = throttle.is_none_or(|throttle| throttler.admit(&throttle, random.next(), now));
            let limit = if kind.is_some() { machine.limit(&rules) } else { u32::MAX };
            // What the limit refuses was not made: it says nothing about the service.
            if is_admitted && in_flight < limit {
                (in_flight, id) = (in_flight + 1, id + 1);
                queue.push_back(Waiting { id, began_ms: now_ms });
                patient.push_back(Waiting { id, began_ms: now_ms });
            }
        }
        while working.len() < WORKERS {
            let Some(call) = queue.pop_front() else { break };
            let work_ms = 40 + random.below(21) as i64;
            working.push(std::cmp::Reverse((now_ms + work_ms, call.id, call.began_ms)));
        }
    }
    seen
}

#[test]
fn adaptive_concurrency_keeps_goodput_under_five_times_the_load() {
    let mut plain = simulate(None, false);
    let mut gradient = simulate(Some(AdaptiveKind::Gradient), false);
    let mut aimd = simulate(Some(AdaptiveKind::Aimd), false);
    let mut both = simulate(Some(AdaptiveKind::Gradient), true);
    let shown = |seen: &mut Seen| (seen.goodput(), seen.p99_ms());
    let (plain_seen, gradient_seen, aimd_seen, both_seen) =
        (shown(&mut plain), shown(&mut gradient), shown(&mut aimd), shown(&mut both));
    println!(
        "goodput and p99 in ms: plain {plain_seen:?}, gradient {gradient_seen:?}, aimd {aimd_seen:?}, with throttle {both_seen:?}"
    );
    assert!(plain_seen.0 < CAPACITY / 10, "without a limit it works for callers who are gone: {plain_seen:?}");
    for (name, seen) in [("gradient", gradient_seen), ("aimd", aimd_seen), ("gradient and throttle", both_seen)] {
        assert!(seen.0 >= CAPACITY * 9 / 10, "{name}: {seen:?}");
    }
    assert!(gradient_seen.1 <= 400, "{gradient_seen:?}");
    assert!(aimd_seen.1 <= 1_000, "{aimd_seen:?}");
    let line = |name, color, seen: Seen| Series { name, color, values: seen.good };
    publish(
        "overload.svg",
        "Goodput of a service for 400 calls a second: five times the load from 10 s to 40 s",
        "good calls per second",
        &[line("no limit", "#c33", plain), line("gradient", "#27c", gradient), line("aimd", "#2a2", aimd)],
    );
}
