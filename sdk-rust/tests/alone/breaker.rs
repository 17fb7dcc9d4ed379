//! The breaker as services use it, on `memory://`: what it promises a whole fleet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;
use resil::breaker::{Breaker, BreakerSettings, CountingMode, Force, Snapshot, State};
use resil::clock::Clock;
use resil::correlation::correlated;
use resil::testing::{Reply, Script};
use resil::{Client, Code, ConnectSettings};

use crate::drive::seed;

async fn client(url: &str, clock: &Clock) -> Client {
    ConnectSettings::new(url).clock(clock.clone()).connect().await.unwrap()
}

async fn fleet(name: &str, callers: usize, clock: &Clock, options: &BreakerSettings) -> Vec<Breaker> {
    let mut breakers = Vec::new();
    for _ in 0..callers {
        let client = client(&format!("memory://{name}"), clock).await;
        breakers.push(client.breaker("dependency", options.clone()).unwrap());
    }
    breakers
}

async fn let_tasks_run() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_callers_make_five_doomed_calls_and_those_in_flight() {
    for mode in [CountingMode::Batched, CountingMode::Exact] {
        let clock = Clock::driven();
        let options = BreakerSettings::new().consecutive_failures(5).mode(mode);
        let name = format!("fleet-{mode:?}");
        let breakers = fleet(&name, 50, &clock, &options).await;
        let doomed = Arc::new(AtomicU32::new(0));
        let callers: Vec<_> = breakers
            .into_iter()
            .map(|breaker| {
                let doomed = Arc::clone(&doomed);
                tokio::spawn(async move {
                    let mut refusals = 0;
                    while refusals < 3 {
                        let call = async || {
                            doomed.fetch_add(1, Ordering::SeqCst);
                            tokio::task::yield_now().await;
                            Err::<(), _>("dead")
                        };
                        let result = breaker.call(call).await;
                        refusals += u32::from(result.unwrap_err().code() == Some(Code::CircuitOpen));
                    }
                    breaker
                })
            })
            .collect();
        let mut last = None;
        for caller in callers {
            let joined = tokio::time::timeout(Duration::from_secs(30), caller).await.expect("all of them stop");
            last = Some(joined.unwrap());
        }
        // Each of the fifty makes one call at a time.
        let doomed = doomed.load(Ordering::SeqCst);
        assert!((5..=5 + 50).contains(&doomed), "{doomed} doomed calls, {mode:?}");
        assert_eq!(last.unwrap().state().await.unwrap().state, State::Open);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn thirty_callers_at_half_open_get_exactly_the_probes() {
    let clock = Clock::driven();
    let options =
        BreakerSettings::new().consecutive_failures(1).open_for(Duration::from_secs(1)).probes(2).successes(2);
    let breakers = fleet("half-open", 30, &clock, &options).await;
    breakers[0].admit().await.unwrap().failure().await;
    clock.advance(Duration::from_secs(1));
    let asking: Vec<_> =
        breakers.iter().cloned().map(|breaker| tokio::spawn(async move { breaker.admit().await })).collect();
    let mut permits = Vec::new();
    for asked in asking {
        match asked.await.unwrap() {
            Ok(permit) => permits.push(permit),
            Err(error) => assert_eq!(error.code(), Code::CircuitOpen),
        }
    }
    assert_eq!(permits.len(), 2);
    for permit in permits {
        permit.success().await;
    }
    assert_eq!(breakers[7].state().await.unwrap().state, State::Closed);
    assert!(breakers[7].admit().await.is_ok());
}

#[tokio::test]
async fn a_dropped_call_frees_its_probe_at_once() {
    let clock = Clock::driven();
    let options = BreakerSettings::new().consecutive_failures(1).open_for(Duration::from_secs(1)).probes(1);
    let breaker = client("memory://", &clock).await.breaker("b", options).unwrap();
    breaker.admit().await.unwrap().failure().await;
    clock.advance(Duration::from_secs(1));
    let hanging = tokio::spawn({
        let breaker = breaker.clone();
        async move { breaker.call(async || std::future::pending::<Result<(), ()>>().await).await }
    });
    let_tasks_run().await;
    assert_eq!(breaker.admit().await.unwrap_err().code(), Code::CircuitOpen, "the only probe is out");
    hanging.abort();
    let_tasks_run().await;
    assert!(breaker.admit().await.is_ok());
}

#[tokio::test]
async fn ramping_admits_a_part_and_one_failure_opens_it_again() {
    let clock = Clock::driven();
    let options = BreakerSettings::new()
        .consecutive_failures(1)
        .open_for(Duration::from_secs(1))
        .successes(1)
        .ramp(Duration::from_secs(30));
    let breaker = client("memory://", &clock).await.breaker("b", options).unwrap();
    breaker.admit().await.unwrap().failure().await;
    clock.advance(Duration::from_secs(1));
    breaker.admit().await.unwrap().success().await;
    assert_eq!(breaker.last_known_state(), Some(State::Ramping));
    let (mut admitted, mut last) = (0, None);
    for _ in 0..1_000 {
        if let Ok(permit) = breaker.admit().await {
            admitted += 1;
            last = Some(permit);
        }
    }
    assert!((50..200).contains(&admitted), "about ten percent, got {admitted} of 1000");
    last.unwrap().failure().await;
    assert_eq!(breaker.state().await.unwrap().state, State::Open);
}

#[tokio::test]
async fn a_growing_open_time_is_answered_locally_as_long() {
    let clock = Clock::driven();
    let options = BreakerSettings::new()
        .consecutive_failures(1)
        .open_for(Duration::from_secs(1))
        .open_factor(3.0)
        .open_max(Duration::from_secs(60));
    let breaker = client("memory://", &clock).await.breaker("b", options).unwrap();
    for expected_secs in [1, 3, 9, 27, 60, 60] {
        breaker.admit().await.unwrap().failure().await;
        let refused = breaker.admit().await.unwrap_err();
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(expected_secs)));
        clock.advance(Duration::from_secs(expected_secs));
    }
}

#[tokio::test]
async fn a_reset_closes_it_and_new_options_take_effect() {
    let clock = Clock::driven();
    let breaker =
        client("memory://", &clock).await.breaker("b", BreakerSettings::new().consecutive_failures(1)).unwrap();
    breaker.admit().await.unwrap().failure().await;
    assert!(breaker.reset().await.unwrap());
    assert!(breaker.configure(&BreakerSettings::new().consecutive_failures(3)).await.unwrap());
    for _ in 0..3 {
        breaker.admit().await.expect("two are not enough any more").failure().await;
    }
    assert!(breaker.admit().await.is_err());
}

#[test]
fn handles_can_go_anywhere() {
    fn anywhere<T: Send + Sync + 'static>() {}
    anywhere::<Breaker>();
    anywhere::<resil::breaker::Permit>();
    anywhere::<resil::limiter::Limiter>();
}

#[tokio::test]
async fn a_report_says_which_request_it_is_about() {
    let admitted = || Reply::array([1.into(), "closed".into(), "1.1.1".into(), 0.into(), 1.into()]);
    let counted = || Reply::array([1.into(), "closed".into(), 1.into(), 0.into(), "counted".into()]);
    let script = Script::new();
    let script = (0..2).fold(script, |script, _| script.reply(admitted()).reply(counted()));
    let breaker = script.connect().breaker("bank", BreakerSettings::new().mode(CountingMode::Exact)).unwrap();
    let _ = correlated("0af7651916cd43dd8448eb211c80319c", breaker.call(async || Err::<(), _>("down"))).await;
    let _ = breaker.call(async || Err::<(), _>("down")).await;
    let reports: Vec<_> =
        script.asked().into_iter().filter(|words| words.iter().any(|word| word == "REPORT")).collect();
    assert_eq!(reports.len(), 2, "{:?}", script.asked());
    let about = |words: &Vec<String>| words.iter().skip_while(|word| *word != "CORRELATION").nth(1).cloned();
    assert_eq!(about(&reports[0]).as_deref(), Some("0af7651916cd43dd8448eb211c80319c"));
    assert_eq!(about(&reports[1]), None);
}

#[tokio::test]
async fn a_batch_says_which_request_its_last_failure_is_about() {
    let admitted = Reply::array([1.into(), "closed".into(), "1.1.1".into(), 0.into(), 1.into()]);
    let counted = || Reply::array([1.into(), "closed".into(), 1.into(), 0.into(), "counted".into()]);
    let script = Script::new().reply(admitted).reply(counted()).reply(counted());
    let breaker = script.connect().breaker("bank", BreakerSettings::new()).unwrap();
    for about in ["first", "second"] {
        let _ = correlated(about, breaker.call(async || Err::<(), _>("down"))).await;
        // The next call waits until the failure before it is answered.
        let _ = breaker.call(async || Ok::<_, &str>(())).await;
    }
    let tallies: Vec<_> = script.asked().into_iter().filter(|words| words.iter().any(|word| word == "TALLY")).collect();
    let about = |words: &Vec<String>| words.iter().skip_while(|word| *word != "CORRELATION").nth(1).cloned();
    let said: Vec<_> = tallies.iter().filter_map(about).collect();
    assert_eq!(said, ["first", "second"], "{:?}", script.asked());
}

fn heard(breaker: &Breaker) -> Arc<Mutex<Vec<(State, State)>>> {
    let reported = Arc::<Mutex<Vec<_>>>::default();
    let into = Arc::clone(&reported);
    breaker.on_transition(move |transition| into.lock().push((transition.previous, transition.new)));
    reported
}

#[tokio::test]
async fn a_listener_hears_of_others_changes_by_itself() {
    let clock = Clock::driven();
    let breakers = fleet("listens", 2, &clock, &BreakerSettings::new().consecutive_failures(1)).await;
    let [watching, calling] = &breakers[..] else { panic!("two") };
    let reported = heard(watching);
    let failed = calling.call(async || Err::<(), _>("down")).await;
    assert!(failed.is_err());
    let_tasks_run().await;
    assert_eq!(*reported.lock(), [(State::Closed, State::Open)]);
    assert_eq!(watching.last_known_state(), Some(State::Open));

    assert_eq!(calling.reset().await, Ok(true));
    let_tasks_run().await;
    calling.force(resil::breaker::Force::Open, None, "by hand").await.expect("forced");
    let_tasks_run().await;
    let all = [(State::Closed, State::Open), (State::Open, State::Closed), (State::Closed, State::ForcedOpen)];
    assert_eq!(*reported.lock(), all, "each once");
}

#[tokio::test]
async fn the_last_known_state_includes_what_state_answered() {
    let clock = Clock::driven();
    let breakers = fleet("known", 2, &clock, &BreakerSettings::new()).await;
    let [asking, calling] = &breakers[..] else { panic!("two") };
    assert_eq!(asking.last_known_state(), None);
    assert_eq!(asking.state().await.expect("a state").state, State::Closed);
    assert_eq!(asking.last_known_state(), Some(State::Closed));
    calling.force(resil::breaker::Force::Open, None, "by hand").await.expect("forced");
    assert_eq!(asking.state().await.expect("a state").state, State::ForcedOpen);
    assert_eq!(asking.last_known_state(), Some(State::ForcedOpen));
}

#[derive(Debug, Clone)]
enum Happening {
    Call { fails: bool, took_ms: u64 },
    Force(Force, Option<u64>, String),
    Reset,
    Advance(u64),
}

fn any_happening() -> impl Strategy<Value = Happening> {
    let force = prop::sample::select(vec![Force::Open, Force::Closed, Force::Disabled, Force::Metrics, Force::Auto]);
    prop_oneof![
        6 => (any::<bool>(), 0u64..300).prop_map(|(fails, took_ms)| Happening::Call { fails, took_ms }),
        1 => (force, prop::option::of(1u64..10_000), "\\PC{0,20}").prop_map(|(force, ms, why)| Happening::Force(force, ms, why)),
        1 => Just(Happening::Reset),
        2 => (0u64..20_000).prop_map(Happening::Advance),
    ]
}

proptest! {
    #![proptest_config(seed::config())]

    // Property 2: every state of a breaker that can be shown is written as JSON and read again as the same, with all its fields.
    #[test]
    fn any_state_is_written_as_json_and_read_again(
        happenings in prop::collection::vec(any_happening(), 1..20), rate in 1u32..100, ramp in 0u64..5_000,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let clock = Clock::driven();
            clock.advance(Duration::from_secs(1_700_000_000));
            let client = resil::ConnectSettings::new("memory://").clock(clock.clone()).connect().await.unwrap();
            let settings = BreakerSettings::new()
                .consecutive_failures(3).failure_rate(rate).min_calls(2).ramp(Duration::from_millis(ramp))
                .slow_call_duration(Duration::from_millis(100)).slow_call_rate(50)
                .open_for(Duration::from_secs(5)).open_factor(2.0).open_max(Duration::from_secs(60)).version(7);
            let breaker = client.breaker("bank", settings).unwrap();
            for happening in happenings {
                match happening {
                    Happening::Call { fails, took_ms } => {
                        let _ = breaker.call(async || {
                            clock.advance(Duration::from_millis(took_ms));
                            if fails { Err("down") } else { Ok(()) }
                        }).await;
                    }
                    Happening::Force(force, ms, why) => {
                        let length = ms.filter(|_| force != Force::Auto).map(Duration::from_millis);
                        breaker.force(force, length, &why).await.unwrap();
                    }
                    Happening::Reset => _ = breaker.reset().await.unwrap(),
                    Happening::Advance(ms) => clock.advance(Duration::from_millis(ms)),
                }
                let state = breaker.state().await.unwrap();
                let json = serde_json::to_string(&state).unwrap();
                let again: Snapshot = serde_json::from_str(&json).unwrap();
                assert_eq!(again, state);
                assert_eq!(serde_json::to_string(&again).unwrap(), json);
            }
        });
    }
}

#[tokio::test]
async fn a_trip_by_hand_ends_in_half_open() {
    let clock = Clock::driven();
    let breakers = fleet("by-hand", 2, &clock, &BreakerSettings::new()).await;
    let [operator, calling] = &breakers[..] else { panic!("two") };
    let minute = Duration::from_secs(60);
    operator.force(Force::OpenThenProbe, Some(minute), "drill").await.expect("forced");
    let forced = operator.state().await.expect("a state").forced.expect("forced");
    assert_eq!(forced.ends_in, Some(State::HalfOpen));
    let refused = calling.call(async || Ok::<_, &str>(())).await.expect_err("it is open");
    assert_eq!(refused.error().expect("ours").code(), Code::CircuitOpen);
    clock.advance(minute);
    assert_eq!(operator.state().await.expect("a state").state, State::HalfOpen);
    assert!(calling.call(async || Err::<(), _>("still down")).await.is_err(), "a probe");
    assert_eq!(operator.state().await.expect("a state").state, State::Open, "the probe decides");
    let endless = operator.force(Force::OpenThenProbe, None, "").await.expect_err("it needs an end");
    assert_eq!(endless.code(), Code::InvalidArgument);
}
