//! A brown-out: calls take three times as long, so a bulkhead of 100 places bears 333 calls a second instead of 1,000, and 800 come.

use std::collections::BTreeMap;

use resil_core::policy::shedding::{Priority, Shedder, SheddingRules};

use super::plot::{Series, publish};
use super::random::Random;

const PLACES: u32 = 100;

/// Of a hundred calls, by class.
const MIX: [(Priority, u64); 5] = [
    (Priority::Background, 10),
    (Priority::Low, 20),
    (Priority::Normal, 40),
    (Priority::High, 20),
    (Priority::Critical, 10),
];

/// Per class: the calls and those admitted while it is slow. Critical calls admitted per second, in percent.
fn simulate(rules: Option<SheddingRules>) -> ([(u64, u64); 5], Vec<u64>) {
    let (mut random, mut shedder) = (Random(3), Shedder::default());
    let mut ends: BTreeMap<i64, u32> = BTreeMap::new();
    let (mut taken, mut counts) = (0u32, [(0u64, 0u64); 5]);
    let mut critical = vec![(0u64, 0u64); 60];
    for now_ms in 0..60_000i64 {
        taken -= ends.remove(&now_ms).unwrap_or(0);
        let is_slow = (15_000..45_000).contains(&now_ms);
        for _ in 0..random.arrivals(800) {
            let mut drawn = random.below(100);
            let class = MIX.iter().position(|(_, part)| {
                let is_this = drawn < *part;
                drawn = drawn.saturating_sub(*part);
                is_this
            });
            let class = class.expect("the parts are a hundred");
            let is_shed = rules.is_some_and(|rules| shedder.refuses(&rules, MIX[class].0, taken, PLACES));
            let is_admitted = !is_shed && taken < PLACES;
            if is_admitted {
                taken += 1;
                let takes_ms = if is_slow { 300 } else { 100 } * (80 + random.below(41) as i64) / 100;
                *ends.entry(now_ms + takes_ms).or_default() += 1;
            }
            let seen = |(calls, admitted): &mut (u64, u64)| {
                *calls += 1;
                *admitted += u64::from(is_admitted);
            };
            if is_slow {
                seen(&mut counts[class]);
            }
            if MIX[class].0 == Priority::Critical {
                seen(&mut critical[(now_ms / 1_000) as usize]);
            }
        }
    }
    (counts, critical.into_iter().map(|(calls, admitted)| admitted * 100 / calls.max(1)).collect())
}

#[test]
fn critical_calls_survive_a_brownout() {
    let rules = SheddingRules { from_pct: [50, 70, 85, 95], hysteresis_pct: 10 };
    let (plain, plain_critical) = simulate(None);
    let (shed, shed_critical) = simulate(Some(rules));
    let part = |(calls, admitted): (u64, u64)| admitted as f64 / calls as f64;
    println!("admitted, lowest class first: plain {:.3?}, with shedding {:.3?}", plain.map(part), shed.map(part));
    assert!(part(plain[4]) < 0.6, "without shedding critical calls are refused like all others");
    assert!(part(shed[4]) >= 0.99, "{:.4}", part(shed[4]));
    for (lower, higher) in (0..4).map(|class| (class, class + 1)) {
        assert!(part(shed[lower]) <= part(shed[higher]) + 0.01, "class {lower} before class {higher}");
    }
    let total = |counts: [(u64, u64); 5]| counts.iter().map(|(_, admitted)| admitted).sum::<u64>();
    assert!(total(shed) * 100 >= total(plain) * 80, "places are not left empty: {} of {}", total(shed), total(plain));
    publish(
        "brownout.svg",
        "Critical calls that are admitted while a service is three times as slow, from 15 s to 45 s",
        "percent",
        &[
            Series { name: "a bulkhead alone", color: "#c33", values: plain_critical },
            Series { name: "with shedding", color: "#27c", values: shed_critical },
        ],
    );
}
