//! Properties: whatever happens, in whatever order.

use proptest::collection::vec;
use proptest::prelude::*;
use resil_core::circuit_breaker::Report;
use resil_core::guard::*;
use resil_core::waited::Decision;

use crate::key::*;
use crate::model::{Entered, Model, POLICY, Said};
use crate::seed;

#[derive(Debug, Clone)]
enum Event {
    Enter { owner: usize, priority: usize, wait: bool },
    Retry { owner: usize, ticket: usize },
    Exit { ticket: usize, report: usize },
    Later(i64),
    Change(usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..5usize, 0..5usize, any::<bool>()).prop_map(|(owner, priority, wait)| Event::Enter { owner, priority, wait }),
        3 => (0..5usize, 0..12usize).prop_map(|(owner, ticket)| Event::Retry { owner, ticket }),
        4 => (0..12usize, 0..4usize).prop_map(|(ticket, report)| Event::Exit { ticket, report }),
        3 => prop_oneof![0..50i64, 50..700i64, 700..3_000i64].prop_map(Event::Later),
        1 => (0..3usize).prop_map(Event::Change),
    ]
}

const WHOLE: [&str; 3] = [
    r#"{"timeout":{"attempt":"1s","total":"4s"},"breaker":{"consecutiveFailures":2,"openFor":"500ms","probes":1,"successes":1},
        "rateLimit":{"limit":4,"period":"1s"},"sharedBulkhead":{"maxConcurrentCalls":2,"maxQueue":2},
        "retry":{"maxAttempts":3,"initialBackoff":"50ms","budget":{"ttl":"1s","minPerSecond":1,"percent":50}},
        "shedding":{"background":50}}"#,
    r#"{"timeout":{"attempt":"200ms"},"breaker":{"consecutiveFailures":3,"openFor":"200ms"},
        "rateLimit":{"kind":"window","limit":6,"period":"1s"},"bulkhead":{"maxConcurrentCalls":1},
        "retry":{"maxAttempts":2,"initialBackoff":"50ms","jitter":"decorrelated"},"throttle":{}}"#,
    r#"{"sharedBulkhead":{"maxConcurrentCalls":3,"adaptive":{"kind":"aimd"}},"retry":{"budget":null},
        "chaos":{"kind":"error","percent":30,"until":"2100-01-01T00:00:00Z"}}"#,
];

const REPORTS: [Report; 4] = [Report::Ok, Report::Fail, Report::Ignore, Report::Cancel];

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn all_layers_or_none_and_the_replica_is_the_same(events in vec(event(), 1..60)) {
        let mut key = Key::with(WHOLE[0]);
        let mut tickets: Vec<u64> = Vec::new();
        let pick = |tickets: &[u64], back: usize| tickets.len().checked_sub(back + 1).map_or(7, |at| tickets[at]);
        for event in events {
            // What time alone does is done before.
            key.tick();
            let before = key.digest();
            let asked = match event {
                Event::Enter { owner, priority, wait } => {
                    let request = EnterRequest { priority: Priority::ALL[priority], ..request() };
                    Some(key.ask(&format!("o{owner}"), request, wait.then_some(1_500)))
                }
                Event::Retry { owner, ticket } => {
                    let request = EnterRequest { ticket: Some(pick(&tickets, ticket)), ..request() };
                    Some(key.ask(&format!("o{owner}"), request, None))
                }
                Event::Exit { ticket, report } => {
                    let ticket = pick(&tickets, ticket);
                    let (reported, again) = (key.exit(ticket, REPORTS[report]), key.digest());
                    // Asking again is the same reply, and changes nothing.
                    prop_assert_eq!(key.exit(ticket, Report::Fail), reported);
                    prop_assert_eq!(key.digest(), again);
                    None
                }
                Event::Later(ms) => {
                    key.later(ms);
                    None
                }
                Event::Change(which) => {
                    key.set(WHOLE[which]);
                    None
                }
            };
            match asked {
                // A call that leaves the queue may let another in.
                Some(Decision::Refused(_)) if key.reported.is_empty() => prop_assert_eq!(key.digest(), before),
                Some(Decision::Granted(admitted)) => tickets.push(admitted.ticket),
                _ => {}
            }
            tickets.extend(key.reported.drain(..).filter_map(|(_, reported)| reported.ok()).map(|admitted| admitted.ticket));
            let view = key.view();
            prop_assert!(view.queued == 0 || view.max.is_some());
        }
    }

    #[test]
    fn every_reply_is_the_models(events in vec(event(), 1..80)) {
        let mut key = Key::with(POLICY);
        let mut model = Model::default();
        // Tickets as the model numbers them, from 1.
        let mut tickets: Vec<u64> = vec![0];
        for event in events {
            match event {
                Event::Enter { owner, .. } | Event::Retry { owner, .. } => {
                    let from = if let Event::Retry { ticket, .. } = event { tickets.len().checked_sub(ticket + 1) } else { None };
                    let from = from.filter(|from| *from > 0);
                    let request = EnterRequest { ticket: from.map(|from| tickets[from]), ..request() };
                    let entered = key.enter_as(&format!("o{owner}"), request);
                    let expected = model.enter(owner, from);
                    match (&entered, expected) {
                        (Ok(admitted), Entered::Admitted(number, attempt)) => {
                            if number == tickets.len() {
                                prop_assert!(tickets.iter().all(|before| *before < admitted.ticket));
                                tickets.push(admitted.ticket);
                            }
                            prop_assert_eq!((admitted.ticket, admitted.attempt), (tickets[number], attempt));
                        }
                        (refused, Entered::Full) => prop_assert_eq!(layer(refused), "bulkhead"),
                        (refused, Entered::Ticket) => prop_assert_eq!(layer(refused), "ticket"),
                        (refused, Entered::Admitted(..)) => prop_assert!(false, "{}, but the model admits", layer(refused)),
                    }
                }
                Event::Exit { ticket, report } => {
                    let Some(number) = tickets.len().checked_sub(ticket + 1).filter(|number| *number > 0) else { continue };
                    let fails = REPORTS[report] == Report::Fail;
                    key.tick();
                    let left = key.view().budget_left.unwrap();
                    let (most, used) = model.budget();
                    let said = model.exit(number, fails, left);
                    let expected = match said {
                        Said::Done => Exited::Done,
                        Said::Retry { delay_ms, attempt } => {
                            Exited::Retry { delay: resil_core::Span::from_ms(delay_ms), attempt }
                        }
                        Said::Stop(reason, attempts) => Exited::Stop { reason, attempts },
                    };
                    let waited = key.view().retrying;
                    prop_assert_eq!(key.exit(tickets[number], REPORTS[report]), expected);
                    if key.view().retrying > waited {
                        prop_assert!(used < most, "a retry beyond the budget: {} of {}", used, most);
                    }
                }
                Event::Later(ms) => {
                    key.later(ms);
                    model.now += ms;
                }
                Event::Change(_) => {}
            }
            key.tick();
            prop_assert_eq!((key.view().active, key.view().retrying), (model.active(), model.waiting()));
        }
    }

    #[test]
    fn no_class_is_admitted_while_a_higher_one_is_shed(
        inside in 0..12usize,
        before in vec(0..5usize, 0..20),
        asked in vec(0..5usize, 1..10),
    ) {
        let mut key = Key::with(r#"{"bulkhead":{"maxConcurrentCalls":10},"shedding":{}}"#);
        for (at, priority) in before.iter().enumerate() {
            drop(key.enter_as(&format!("b{at}"), EnterRequest { priority: Priority::ALL[*priority], ..request() }));
        }
        for at in 0..inside {
            drop(key.enter_as(&format!("i{at}"), EnterRequest { priority: Priority::Critical, ..request() }));
        }
        let shed = |key: &mut Key, priority: usize| {
            let verdict = key.enter_as("x", EnterRequest { priority: Priority::ALL[priority], ..request() });
            if let Ok(admitted) = &verdict {
                key.exit(admitted.ticket, Report::Cancel);
            }
            layer(&verdict) == "shed"
        };
        for priority in asked {
            if shed(&mut key, priority) {
                for lower in 0..priority {
                    prop_assert!(shed(&mut key, lower), "{} is shed, {} is not", priority, lower);
                }
            }
        }
    }

    /// A call that waits may be of a class that is shed by the time a place is free: policies change.
    #[test]
    fn no_class_leaves_the_queue_while_higher_ones_are_shed(
        events in vec((0..6usize, 0..8usize), 1..60),
    ) {
        const PCT: [usize; 4] = [40, 50, 60, 90];
        const CHANGES: [&str; 4] = [
            r#"{"bulkhead":{"maxConcurrentCalls":4,"maxQueue":20}}"#,
            r#"{"bulkhead":{"maxConcurrentCalls":4,"maxQueue":20},"shedding":{"background":40,"low":50,"normal":60,"high":90}}"#,
            r#"{"bulkhead":{"maxConcurrentCalls":2,"maxQueue":20},"shedding":{"background":40,"low":50,"normal":60,"high":90}}"#,
            r#"{"bulkhead":{"maxConcurrentCalls":9,"maxQueue":20},"shedding":{"background":40,"low":50,"normal":60,"high":90}}"#,
        ];
        let mut key = Key::with(CHANGES[0]);
        let (mut is_shedding, mut inside, mut classes) = (false, Vec::new(), std::collections::HashMap::new());
        for (at, (event, which)) in events.into_iter().enumerate() {
            match event {
                0..=2 => {
                    let priority = which % 5;
                    let request = EnterRequest { priority: Priority::ALL[priority], ..request() };
                    let asked = key.ask(&format!("o{at}"), request, Some(100_000));
                    classes.insert(key.id(), priority);
                    if let Decision::Granted(admitted) = asked {
                        key.reported.push((key.id(), Ok(admitted)));
                    }
                }
                3 | 4 if !inside.is_empty() => {
                    let ticket = inside.remove(which % inside.len());
                    key.exit(ticket, Report::Ok);
                }
                _ => {
                    key.set(CHANGES[which % 4]);
                    is_shedding = which % 4 != 0;
                }
            }
            let reported: Vec<_> = key.reported.drain(..).filter_map(|(id, reported)| reported.ok().map(|reported| (id, reported.ticket))).collect();
            let (max, active) = (key.view().max.unwrap(), key.view().active);
            for (nth, (id, ticket)) in reported.iter().enumerate() {
                let (class, taken) = (classes[id], active + nth - reported.len());
                inside.push(*ticket);
                if is_shedding && class < PCT.len() {
                    prop_assert!(taken * 100 < PCT[class] * max, "class {class} was let in at {taken} of {max}");
                }
            }
        }
    }
}
