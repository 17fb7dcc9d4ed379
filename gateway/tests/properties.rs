//! What holds for any input: properties 18, 19, 22, 23, 24 and 25 of docs/properties.md, as the gateway has them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config as RunConfig, TestRunner};
use resil::breaker::State;
use resil::operator::{ForceOrder, KeyKind};
use resil::{Code, Error};
use resil_gateway::audit::{AuditLog, Deed, Outcome};
use resil_gateway::config::Config;
use resil_gateway::drain::{Drain, NoPass};
use resil_gateway::errors::status_of;
use resil_gateway::feed::{Feed, Move};
use resil_gateway::health::{HealthEvent, HealthState, Reporter, Tracker, Webhooks, aggregate};
use resil_gateway::roles::{Caller, Role, Shown};

const CASES: u32 = 1_000;

/// Cases of one property in one runtime: the seed is printed by proptest, and kept.
fn check<S: Strategy>(
    strategy: S,
    mut holds: impl FnMut(S::Value, &tokio::runtime::Runtime) -> Result<(), TestCaseError>,
) where
    S::Value: Clone,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let holds = std::cell::RefCell::new(&mut holds);
    let mut runner = TestRunner::new(RunConfig { cases: CASES, failure_persistence: None, ..RunConfig::default() });
    runner.run(&strategy, |value| (holds.borrow_mut())(value, &runtime)).unwrap_or_else(|error| panic!("{error}"));
}

fn state() -> impl Strategy<Value = HealthState> + Clone {
    prop::sample::select(HealthState::ALL.to_vec())
}

// Property 18: all healthy is healthy, any degraded and none unhealthy is degraded, any unhealthy is unhealthy.
#[test]
fn the_health_of_all_is_that_of_the_worst() {
    check(prop::collection::vec(state(), 0..40), |states, _| {
        let expected = if states.contains(&HealthState::Unhealthy) {
            HealthState::Unhealthy
        } else if states.contains(&HealthState::Degraded) {
            HealthState::Degraded
        } else {
            HealthState::Healthy
        };
        prop_assert_eq!(aggregate(states.iter().copied()), expected);
        prop_assert_eq!(aggregate(states.into_iter().rev()), expected);
        Ok(())
    });
}

/// Three gateways with one store that nobody else has.
async fn reporters() -> Vec<Arc<Reporter>> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let store = format!("memory://health-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let mut all = Vec::new();
    for _ in 0..3 {
        let client = resil::connect(&store).await.expect("memory");
        all.push(Reporter::new(&client, Webhooks::new(&Config::default()).expect("no webhooks")).expect("a reporter"));
    }
    all
}

fn check_chain(events: &[HealthEvent]) -> Result<(), TestCaseError> {
    for pair in events.windows(2) {
        prop_assert_eq!(pair[1].previous, Some(pair[0].state), "events are a chain");
    }
    let mut ids: Vec<String> = events.iter().map(HealthEvent::id).collect();
    ids.sort();
    ids.dedup();
    prop_assert_eq!(ids.len(), events.len(), "each has its own id");
    for event in events {
        let token = event.token("https://issuer.test");
        let noticed = &token["events"]["https://issuer.test/event-type/service-health-change"];
        prop_assert_eq!(noticed["service"].as_str(), Some("payments"));
        prop_assert_eq!(noticed["previous_status"].as_str(), event.previous.map(HealthState::text));
        prop_assert_eq!(noticed["current_status"].as_str(), Some(event.state.text()));
    }
    Ok(())
}

// Property 19: each change of a service is one event with the service, the status before and the status after, however many gateways see it.
#[test]
fn each_change_of_health_is_one_event_of_one_gateway() {
    // Which gateway finds what, when: three of them, each with its own view.
    let findings = prop::collection::vec((0..3_usize, state(), 0..3_u64), 1..25);
    check((findings, 1..4_u32), |(findings, after), runtime| {
        runtime.block_on(async {
            let gateways = reporters().await;
            let mut trackers = vec![Tracker::default(); gateways.len()];
            let (mut events, mut reported, mut at_ms) = (Vec::new(), None::<HealthState>, 1_700_000_000_000);
            let (mut reporting, mut fence) = (None, 0);
            for (who, found, days) in findings {
                at_ms += days * 43_200_000 + 1;
                trackers[who].step(found, after);
                let Some(seen) = trackers[who].state() else { continue };
                // The one who reports has the lock; another one takes over.
                if reporting.replace(who) != Some(who) {
                    fence += 1;
                    gateways[who].take_over("payments", fence, at_ms).await.expect("memory responds");
                }
                let event = gateways[who].report("payments", seen, "found", at_ms).await.expect("memory responds");
                // The first state that is ever known is no change.
                let expected = reported.replace(seen).filter(|before| *before != seen).map(|before| (before, seen));
                let noticed = event.as_ref().map(|event| (event.previous.expect("a change"), event.state));
                prop_assert_eq!(noticed, expected);
                events.extend(event);
            }
            check_chain(&events)
        })
    });
}

// Property 19, with gateways that do not know that they have lost their lock, and remember what is no longer so: they report as well, and
// nothing comes of it.
#[test]
fn a_gateway_that_has_lost_its_lock_adds_no_event() {
    let steps = prop::collection::vec((0..3_usize, any::<bool>(), state(), 0..2_u64), 1..40);
    check((steps, state()), |(steps, first), runtime| {
        runtime.block_on(async {
            let gateways = reporters().await;
            let (mut events, mut reported, mut at_ms) = (Vec::new(), first, 1_700_000_000_000);
            // Fences of the locks that each believes to have; 0: none.
            let (mut fences, mut last) = ([1, 0, 0], 1);
            gateways[0].take_over("payments", 1, at_ms).await.expect("memory responds");
            gateways[0].report("payments", first, "found", at_ms).await.expect("memory responds");
            for (who, takes_over, seen, days) in steps {
                at_ms += days * 43_200_000 + 1;
                if takes_over {
                    last += 1;
                    fences[who] = last;
                    let known = gateways[who].take_over("payments", last, at_ms).await.expect("memory responds");
                    prop_assert_eq!(&known, &events, "the heir knows every change, the oldest first");
                    continue;
                }
                if fences[who] == 0 {
                    continue;
                }
                let event = gateways[who].report("payments", seen, "found", at_ms).await;
                if fences[who] < last {
                    prop_assert!(!matches!(event, Ok(Some(_))), "it has no lock: {:?}", event);
                    continue;
                }
                let event = event.expect("memory responds");
                let noticed = event.as_ref().map(|event| (event.previous.expect("a change"), event.state));
                prop_assert_eq!(noticed, (reported != seen).then_some((reported, seen)));
                reported = seen;
                events.extend(event);
            }
            check_chain(&events)
        })
    });
}

// Property 19, at the very first change: two have taken over where nothing was reported yet, and the first of them does not know it.
#[test]
fn a_gateway_that_has_lost_its_lock_begins_no_chain() {
    check((state(), state(), 0..3_u64), |(stale, seen, days), runtime| {
        runtime.block_on(async {
            let (gateways, began) = (reporters().await, 1_700_000_000_000);
            for (who, fence) in [(0, 1), (1, 2)] {
                let known = gateways[who].take_over("payments", fence, began).await.expect("memory responds");
                prop_assert!(known.is_empty(), "nothing has changed yet: {:?}", known);
            }
            let at_ms = began + days * 86_400_000;
            let event = gateways[0].report("payments", stale, "found", at_ms).await;
            prop_assert!(event.is_err(), "it has no lock: {:?}", event);
            let first = gateways[1].report("payments", seen, "found", at_ms).await.expect("memory responds");
            prop_assert_eq!(first, None, "the first state that is ever known is no change");
            let other = if seen == HealthState::Healthy { HealthState::Degraded } else { HealthState::Healthy };
            let event = gateways[1].report("payments", other, "found", at_ms + 1).await.expect("memory responds");
            prop_assert_eq!(event.map(|event| (event.previous, event.state)), Some((Some(seen), other)));
            Ok(())
        })
    });
}

// Property 19, all at once: three gateways that each believe to report, in one moment.
#[test]
fn concurrent_reporters_make_one_event_for_each_change() {
    let rounds = prop::collection::vec((state(), any::<bool>()), 1..10);
    check(rounds, |rounds, runtime| {
        runtime.block_on(async {
            let gateways = reporters().await;
            let (mut events, mut reported, at_ms) = (Vec::new(), HealthState::Healthy, 1_700_000_000_000);
            gateways[0].report("payments", reported, "found", at_ms).await.expect("memory responds");
            for (seen, forgets) in rounds {
                let reports = gateways.iter().map(|gateway| async move {
                    if forgets {
                        gateway.take_over("payments", 0, at_ms).await.expect("memory responds");
                    }
                    gateway.report("payments", seen, "found", at_ms).await.expect("memory responds")
                });
                let noticed: Vec<HealthEvent> =
                    futures_util::future::join_all(reports).await.into_iter().flatten().collect();
                prop_assert_eq!(noticed.len(), usize::from(reported != seen), "{:?}", noticed);
                reported = seen;
                events.extend(noticed);
            }
            check_chain(&events)
        })
    });
}

#[derive(Debug, Clone)]
enum Step {
    Call { fails: bool },
    Force(u8),
    Reset,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> + Clone {
    prop_oneof![
        4 => any::<bool>().prop_map(|fails| Step::Call { fails }),
        1 => (0..4_u8).prop_map(Step::Force),
        1 => Just(Step::Reset),
        1 => (1..400_u64).prop_map(Step::Wait),
    ]
}

// Property 22: the state that GetCircuitState returns is the one by which the next call is decided.
#[test]
fn the_circuit_that_is_shown_is_the_one_that_decides() {
    use resil::breaker::Force;
    check(prop::collection::vec(step(), 1..20), |steps, runtime| {
        runtime.block_on(async {
            let clock = resil::clock::Clock::driven();
            let client = resil::ConnectSettings::new("memory://").clock(clock.clone()).connect().await.expect("memory");
            let document = r#"{"breaker": {"consecutiveFailures": 2, "openFor": "300ms"}}"#;
            client.policies().set("bank", document).await.expect("valid");
            let bank = client.policy("bank").await.expect("stored");
            let key = KeyKind::Policy.key("bank").expect("a key");
            let look = async || client.operator().breaker(&key).await.expect("memory responds");
            for step in steps {
                match step {
                    Step::Call { fails } => {
                        let shown = look().await;
                        let circuit = resil_gateway::circuits::proto_circuit("bank", "key", &shown);
                        prop_assert_eq!(circuit.state, i32::from(resil_gateway::circuits::proto_state(shown.state)));
                        let called = bank.call(resil::policy::retry_none, || async move {
                            if fails { Err("it failed") } else { Ok(()) }
                        });
                        let refused = matches!(called.await, Err(resil::Failure::Resil(Error::CircuitOpen { .. })));
                        prop_assert_eq!(circuit.admits, !refused, "{:?}", shown);
                    }
                    Step::Force(which) => {
                        let force = [Force::Open, Force::Closed, Force::Disabled, Force::Auto][usize::from(which)];
                        let order = ForceOrder::new(force).actor("test").reason("test");
                        let state = client.operator().force(&key, &order).await.expect("memory responds");
                        prop_assert_eq!(look().await.state, state);
                    }
                    Step::Reset => {
                        client.operator().reset_breaker(&key).await.expect("memory responds");
                        prop_assert_eq!(look().await.state, State::Closed);
                    }
                    Step::Wait(ms) => clock.advance(Duration::from_millis(ms)),
                }
            }
            Ok(())
        })
    });
}

fn text() -> impl Strategy<Value = String> + Clone {
    "[a-z0-9:/@.]{1,24}"
}

/// Every kind of error, with texts that nobody outside may see.
fn error() -> impl Strategy<Value = Error> + Clone {
    let wait = prop::option::of((1..60_000_u64).prop_map(Duration::from_millis));
    let named = (text(), wait);
    prop_oneof![
        named.clone().prop_map(|(name, retry_after)| Error::CircuitOpen { name: name.into(), retry_after }),
        named.clone().prop_map(|(name, retry_after)| Error::RateLimitExceeded { name: name.into(), retry_after }),
        named.prop_map(|(name, retry_after)| Error::BulkheadFull { name: name.into(), retry_after }),
        (1..60_000_u64).prop_map(|ms| Error::Timeout { after: Duration::from_millis(ms) }),
        (text(), text()).prop_map(|(field, reason)| Error::InvalidPolicy { field, reason }),
        (2..10_u32).prop_map(|attempts| Error::RetryExhausted { attempts }),
        text().prop_map(Error::Internal),
        text().prop_map(Error::Crashed),
        Just(Error::ShuttingDown),
        Just(Error::BackendUnavailable("connection refused")),
    ]
}

// Property 23: an internal error has the gRPC status of its code, and says nothing that is internal.
#[test]
fn each_error_has_the_status_of_the_table() {
    check(error(), |error, _| {
        let expected = match error.code() {
            Code::CircuitOpen | Code::RetryExhausted | Code::BackendUnavailable | Code::ShuttingDown => {
                tonic::Code::Unavailable
            }
            Code::RateLimitExceeded | Code::BulkheadFull => tonic::Code::ResourceExhausted,
            Code::Timeout => tonic::Code::DeadlineExceeded,
            Code::InvalidPolicy => tonic::Code::InvalidArgument,
            _ => tonic::Code::Internal,
        };
        let status = status_of(&error);
        prop_assert_eq!(status.code(), expected, "{:?}", error);
        let code = status.metadata().get("resil-code").and_then(|value| value.to_str().ok());
        prop_assert_eq!(code, Some(error.code().text()));
        match &error {
            Error::CircuitOpen { name, .. }
            | Error::RateLimitExceeded { name, .. }
            | Error::BulkheadFull { name, .. } => {
                prop_assert!(name.len() < 4 || !status.message().contains(&**name), "{}", status.message());
            }
            Error::Internal(text) | Error::Crashed(text) => {
                prop_assert!(text.len() < 4 || !status.message().contains(text.as_str()), "{}", status.message());
            }
            _ => {}
        }
        Ok(())
    });
}

// Property 24: an audit event has an id, a time, a correlation id, a type, and the SPIFFE identity where it is known.
#[test]
fn every_audit_event_has_its_fields() {
    let log = AuditLog::new(Feed::new(1));
    let mut ids = std::collections::HashSet::new();
    let fields = (
        text(),
        text(),
        prop::option::of(text()),
        prop::option::of("[a-z0-9-]{0,40}"),
        prop::option::of("spiffe://[a-z]{1,9}/[a-z]{1,9}"),
    );
    check((fields, any::<bool>()), |((target, action, actor, correlation, spiffe), is_done), _| {
        let caller = Caller {
            role: Role::Operate,
            name: Some("token".into()),
            spiffe_id: spiffe.as_deref().map(Into::into),
            shown: Shown::Token,
            csrf: None,
        };
        let before = resil_gateway::now_ms();
        let outcome = if is_done { Outcome::Done } else { Outcome::Refused };
        let deed = Deed {
            kind: "circuit.force",
            target: &target,
            action: &action,
            actor: actor.as_deref(),
            correlation_id: correlation.as_deref(),
            outcome,
        };
        let event = log.write(deed, Some(&caller));
        let json = serde_json::to_value(&*event).expect("JSON");
        prop_assert!(ids.insert(event.id.clone()), "an id is used once");
        prop_assert_eq!(json["id"].as_str().map(str::len), Some(32));
        prop_assert!((before..=resil_gateway::now_ms()).contains(&json["at"].as_u64().expect("a time")));
        prop_assert_eq!(json["type"].as_str(), Some("circuit.force"));
        prop_assert_eq!(json["spiffeId"].as_str(), spiffe.as_deref());
        match correlation.as_deref().filter(|id| !id.is_empty()) {
            Some(id) => prop_assert_eq!(json["correlationId"].as_str(), Some(id)),
            None => prop_assert_eq!(json["correlationId"].as_str().map(str::len), Some(32)),
        }
        Ok(())
    });
}

// Property 25: after a drain began nobody is let in, and it ends when every call that was in flight has ended, or its time is over.
#[test]
fn a_drain_ends_when_every_call_has_ended() {
    // In which order calls end, and before which of them the time is over.
    let order =
        (0..40_usize).prop_flat_map(|calls| (Just((0..calls).collect::<Vec<_>>()).prop_shuffle(), 0..=calls + 5));
    check(order, |(order, over_at), runtime| {
        runtime.block_on(async {
            let drain = Drain::new(100);
            let mut passes: Vec<_> = order.iter().map(|_| drain.enter().ok()).collect();
            prop_assert!(passes.iter().all(Option::is_some), "all are let in");
            let (over, is_over) = tokio::sync::oneshot::channel::<()>();
            let ending = tokio::spawn({
                let drain = drain.clone();
                async move { drain.drained_or(async { drop(is_over.await) }).await }
            });
            tokio::task::yield_now().await;
            let (mut over, mut left_when_over) = (Some(over), None);
            for (at, call) in order.iter().enumerate() {
                prop_assert_eq!(drain.enter().map(drop), Err(NoPass::Draining));
                if at == over_at {
                    left_when_over = Some(drain.in_flight());
                    drop(over.take());
                    tokio::task::yield_now().await;
                }
                prop_assert_eq!(ending.is_finished(), left_when_over.is_some(), "not before the last has ended");
                drop(passes[*call].take());
                tokio::task::yield_now().await;
            }
            let left = ending.await.map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(left, left_when_over.unwrap_or(0));
            prop_assert_eq!(drain.in_flight(), 0);
            Ok(())
        })
    });
}

/// What a watcher hears is the chain itself, for any chain, whatever is repeated or missed of it.
#[test]
fn a_watcher_hears_each_transition_once_or_of_a_gap() {
    use resil_gateway::circuits::{Novelty, judge};
    let shown = prop::sample::select(vec![State::Closed, State::Open, State::HalfOpen]);
    let chain = prop::collection::vec((shown, 1..5_u64), 1..60);
    check((chain, prop::collection::hash_map(0..60_usize, 0..3_u8, 0..20)), |(chain, what), _| {
        let what: HashMap<usize, u8> = what;
        let (mut generation, mut state) = (10, State::Closed);
        let mut moves = Vec::new();
        for (new, grows) in chain {
            if new == state {
                continue;
            }
            let moved = Move {
                key: "k".into(),
                previous: state,
                state: new,
                previous_generation: generation,
                generation: generation + grows,
                at_ms: 0,
                reason: String::new(),
                correlation_id: String::new(),
                actor: None,
                note: None,
            };
            (generation, state) = (moved.generation, new);
            moves.push(moved);
        }
        let (mut known, mut has_missed) = ((10, State::Closed), false);
        for (at, moved) in moves.iter().enumerate() {
            match what.get(&at) {
                // It is lost.
                Some(1) => {
                    has_missed = true;
                    continue;
                }
                // It comes twice.
                Some(2) if !has_missed => {
                    prop_assert_eq!(judge(known, moved), Novelty::Transition);
                    known = (moved.generation, moved.state);
                    prop_assert_eq!(judge(known, moved), Novelty::Known);
                }
                _ => {}
            }
            match judge(known, moved) {
                Novelty::Known => prop_assert!(moved.generation <= known.0),
                Novelty::Transition => {
                    prop_assert!(!has_missed, "a gap was not noticed: {:?} after {:?}", moved, known)
                }
                Novelty::Gap => prop_assert!(has_missed, "no gap was there: {:?} after {:?}", moved, known),
            }
            (known, has_missed) = ((moved.generation, moved.state), false);
        }
        Ok(())
    });
}
