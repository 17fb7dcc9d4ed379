//! What a ledger promises, whatever happens: beside the model, and watched from outside.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use resil_core::dead_letters::{
    Class, ConfigChange, Failed, Jitter, Ledgers, Place, Rate, RedriveRequest, RetriesChange,
};
use resil_core::{Span, Stored};

use super::asking::{dead_case, fault, redrive};
use super::damage::damage;
use super::driver::{Driver, Event, IDS, calm, id, short, wild};
use super::key::*;
use super::model::{Model, Said};
use super::seed;

/// A property over schedules in which nothing dies, or is redriven, would promise little.
#[test]
fn the_schedules_reach_everything_that_can_happen() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeMap::new();
    for _ in 0..150 {
        let (mut driver, mut model) = (Driver::new(), Model::default());
        for event in calm().new_tree(&mut runner).expect("a schedule").current() {
            let said = driver.play_beside(&mut model, &event).expect("as the model says");
            let what = match said {
                Said::Dead(_, _, reason) => format!("dead {reason}"),
                Said::Refused(reason) => format!("refused {reason}"),
                said => format!("{said:?}").split(['(', ' ']).next().unwrap_or_default().to_string(),
            };
            *seen.entry(what).or_insert(0) += 1;
            for at in 0..IDS {
                let view = driver.key.ledger.get(id(at).as_bytes());
                let what = view.map_or("gone".into(), |entry| format!("{:?} {:?}", entry.place, entry.reason));
                *seen.entry(what).or_insert(0) += 1;
            }
        }
        for alert in &model.alarms.raised {
            *seen.entry(format!("alert {}", alert.kind)).or_insert(0) += 1;
        }
        let cases = driver.key.ledger.cases(0, 1_000).0;
        let autos = cases.filter(|case| case.redrive.is_some_and(|redrive| redrive.is_auto && redrive.given > 0));
        *seen.entry("auto".into()).or_insert(0) += autos.count();
    }
    let expected =
        "Retry Known Lost Conflict Taken Nothing Ended Free Behind Renewed Started Case Unknown Open Closed gone";
    let states = ["dead retries", "dead final", "dead age", "Dead Some(Crash)", "Resolved Some(Final)", "Parked None"];
    let refusals =
        ["case", "closed", "poison", "held", "again", "running", "nothing"].map(|of| format!("refused {of}"));
    let others = ["Archived Some(Final)", "alert many", "alert spike", "alert aggregate", "alert stopped", "auto"];
    let all = expected.split(' ').chain(states).chain(others).map(String::from).chain(refusals);
    for what in all {
        assert!(seen.get(&what).is_some_and(|times| *times >= 5), "schedules hardly see {what}: {seen:#?}");
    }
}

proptest! {
    #![proptest_config(seed::config())]

    /// Verdicts and states, on the ledger, on a replica and in its bytes; restarts and promotions included.
    #[test]
    fn a_ledger_does_exactly_what_the_contract_says(events in calm()) {
        let (mut driver, mut model) = (Driver::new(), Model::default());
        for event in &events {
            driver.play_beside(&mut model, event)?;
        }
    }

    /// Clocks that are set back included.
    #[test]
    fn nothing_leaves_but_by_done_purge_or_retention(events in wild()) {
        let mut driver = Driver::new();
        for event in &events {
            let before: Vec<_> = (0..IDS).map(|at| driver.key.ledger.get(id(at).as_bytes()).map(|entry| entry.place)).collect();
            let (said, _) = driver.play(&mut Model::default(), event);
            driver.key.settle();
            for (at, before) in before.into_iter().enumerate() {
                let is_gone = before.is_some() && driver.key.place(&id(at)).is_none();
                let may_go = matches!((event, &said), (Event::Done(_), Said::Ended) | (Event::Purge, _));
                prop_assert!(!is_gone || may_go || before == Some(Place::Resolved), "{} after {:?}", id(at), event);
            }
        }
    }

    #[test]
    fn attempts_never_exceed_the_retries_of_the_class(events in wild()) {
        let mut driver = Driver::new();
        for event in &events {
            driver.play(&mut Model::default(), event);
            driver.key.ledger.list(&Default::default(), 0, 100, |entry| {
                let most = if entry.class == Class::Business { 3 } else { 5 };
                let is_live = matches!(entry.place, Place::Waiting | Place::Taken);
                assert!(!is_live || entry.attempt <= most, "{entry:?}");
            });
        }
    }

    /// Nothing waits longer than it could have been reported, however clocks jump.
    #[test]
    fn no_clock_makes_an_entry_wait_for_ever(events in wild()) {
        let mut driver = Driver::new();
        for event in &events {
            driver.play(&mut Model::default(), event);
            driver.key.settle();
            let now = driver.key.now;
            driver.key.ledger.list(&Default::default(), 0, 100, |entry| {
                let wait = entry.due_at.map_or(0, |due| due.as_us() - now);
                assert!(wait <= HOUR + SECOND, "{wait} {entry:?}");
            });
        }
    }

    /// Never below the least delay, never above the cap, and spread as the jitter says.
    #[test]
    fn a_delay_obeys_the_law_of_its_jitter(
        base in 1..DAY / MS, cap in 1..DAY / MS, prior in 0..40u32, random: u64, jitter in 0..3u8, percent in 0..=100u8,
    ) {
        let mut key = Key::default();
        let retries = RetriesChange { most: Some(1_000), base: Some(Span::from_ms(base)), cap: Some(Span::from_ms(cap)) };
        let jitter = [Jitter::Full, Jitter::None, Jitter::Plus(percent)][jitter as usize];
        key.configure(&ConfigChange { retries: [retries; 3], jitter: Some(jitter), ..ConfigChange::default() });
        let Failed::Retry { delay, attempt } = key.fail(&fault("a").prior(prior).random(random)) else { panic!("retried") };
        prop_assert_eq!(attempt, prior + 1);
        let cap = (cap * MS).max(100 * MS) as f64;
        let backoff = (base as f64 * MS as f64 * 2f64.powi(prior as i32)).clamp(100e3, cap);
        let part = random as f64 / 2f64.powi(64);
        let expected = match jitter {
            Jitter::None => backoff,
            Jitter::Full => 100e3 + (backoff - 100e3) * part,
            Jitter::Plus(percent) => (backoff * (1.0 + f64::from(percent) / 100.0 * part)).min(cap),
        };
        prop_assert!((delay.as_us() as f64 - expected).abs() < 3.0, "{} {}", delay.as_us(), expected);
        prop_assert!((100 * MS..=cap as i64).contains(&delay.as_us()));
    }

    /// Any number of takers, idle hours, restarts, replicas that lag behind: between two redriven entries lies the interval.
    #[test]
    fn a_redrive_never_exceeds_its_rate(
        moves in vec((0..20u8, 0..8u8, 0..1_500i64), 100..200), per_minute in 20..1_000u32,
    ) {
        let mut key = Key { is_checked: false, ..Key::default() };
        let (case, _) = dead_case(&mut key, 80);
        let rate = Rate { count: per_minute, period: Span::from_secs(60) };
        key.start(&RedriveRequest { rate: Some(rate), ..redrive(case) });
        let (mut elapsed, mut given) = (0, Vec::new());
        let mut lagging = key.replica.clone();
        for (turn, (what, taker, ms)) in moves.into_iter().enumerate() {
            let before = key.now;
            match what {
                0 => key.later(ms * MINUTE / 10),
                1 => key.restart(ms * MS),
                2 => {
                    key.replica = lagging.clone();
                    key.promote(ms * MS);
                }
                3 => lagging = key.replica.clone(),
                4..8 => key.later(ms * MS),
                _ => {
                    let taken = key.take(&format!("taker {taker} {turn}"), 10);
                    for entry in taken {
                        given.push(elapsed);
                        if ms % 3 == 0 {
                            key.fail(&fault(&id_of(&entry)).by(entry.fence).random(0));
                        } else {
                            key.done(&id_of(&entry), entry.fence);
                        }
                    }
                }
            }
            elapsed += key.now - before;
        }
        let interval = MINUTE / i64::from(per_minute);
        for pair in given.windows(2) {
            prop_assert!(pair[1] - pair[0] >= interval, "{} apart", pair[1] - pair[0]);
        }
    }

    /// Forgeries of a stored ledger: refused, or a ledger that can be stepped, stored and loaded for ever.
    #[test]
    fn a_damaged_ledger_is_refused_or_lives_on(
        events in short(), forgeries in vec(vec(damage(), 1..4), 20), then in short(),
    ) {
        let mut driver = Driver::new();
        events.iter().for_each(|event| { driver.play(&mut Model::default(), event); });
        let bytes = bytes_of(&driver.key.ledger);
        for damages in forgeries {
            let mut forged = bytes.clone();
            damages.iter().for_each(|damage| damage.to(&mut forged));
            let Ok(ledger) = Ledgers::decode(&forged) else { continue };
            if Ledgers::is_whole(&ledger) {
                let mut lives = driver.clone();
                (lives.key.replica, lives.key.ledger) = (ledger.clone(), ledger);
                live(lives, &then);
            }
        }
    }

    /// The same of edits on their way to a replica.
    #[test]
    fn damaged_edits_are_refused_or_a_ledger_lives_on(
        events in short(), last in short(), forgeries in vec(vec(damage(), 1..4), 20), then in short(),
    ) {
        let mut driver = Driver::new();
        events.iter().for_each(|event| { driver.play(&mut Model::default(), event); });
        let ledger = driver.key.ledger.clone();
        let mut edits = Vec::new();
        for event in last.iter().take(10) {
            driver.play(&mut Model::default(), event);
            edits.append(&mut driver.key.edits);
        }
        let mut bytes = Vec::new();
        <Ledgers as resil_core::waited::Machine>::encode_edits(&ledger, &edits, &mut bytes);
        for damages in forgeries {
            let mut forged = bytes.clone();
            damages.iter().for_each(|damage| damage.to(&mut forged));
            let Ok(edits) = Ledgers::decode_edits(&forged) else { continue };
            let mut ledger = ledger.clone();
            Ledgers::apply_all(&mut ledger, edits);
            if Ledgers::is_whole(&ledger) {
                let mut lives = driver.clone();
                (lives.key.replica, lives.key.ledger) = (ledger.clone(), ledger);
                live(lives, &then);
            }
        }
    }
}

/// A forged ledger may say anything, but its steps keep the invariants, and its replica follows.
fn live(mut driver: Driver, then: &[Event]) {
    driver.key.is_checked = false;
    driver.fences.clear();
    for event in then {
        driver.play(&mut Model::default(), event);
    }
}
