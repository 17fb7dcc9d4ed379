//! What options, operators, listeners and a server that is away make of a breaker.

use super::*;

#[tokio::test]
async fn exact_asks_and_reports_every_call_with_its_duration() {
    let server = Server::new();
    let breaker = server.breaker(
        BreakerSettings::new().mode(CountingMode::Exact).slow_call_duration(Duration::from_secs(1)).slow_call_rate(100),
    );
    let clock = server.clock.clone();
    for slow in [false, true] {
        let call = async || {
            clock.advance(Duration::from_secs(if slow { 1 } else { 0 }));
            Ok::<_, ()>(())
        };
        breaker.call(call).await.unwrap();
    }
    assert_eq!(server.asked(), ["ADMIT", "REPORT", "ADMIT", "REPORT"]);
    let state = breaker.state().await.unwrap();
    assert_eq!((state.calls, state.slow), (2, 1));
}

#[tokio::test]
async fn slow_calls_are_counted_in_batches_too() {
    let server = Server::new();
    let breaker = server.breaker(never_trips().slow_call_duration(Duration::from_secs(1)).slow_call_rate(100));
    let clock = server.clock.clone();
    let call = async || {
        clock.advance(Duration::from_secs(1));
        Ok::<_, ()>(())
    };
    breaker.call(call).await.unwrap();
    succeed(&breaker).await.unwrap();
    let_tasks_run().await;
    server.clock.advance(Duration::from_secs(1));
    let_tasks_run().await;
    let state = breaker.state().await.unwrap();
    assert_eq!((state.calls, state.slow), (2, 1));
}

#[tokio::test]
async fn one_process_is_one_caller_to_a_quorum() {
    let server = Server::new();
    let options = || trips_at(2).quorum(2);
    let (here, there) = (server.breaker(options()), server.breaker(options().mode(CountingMode::Exact)));
    for _ in 0..5 {
        fail(&here).await.unwrap_err();
    }
    let_tasks_run().await;
    assert_eq!(here.state().await.unwrap().state, State::Closed, "five failures of one process");
    fail(&there).await.unwrap_err();
    assert_eq!(here.state().await.unwrap().state, State::Open);
}

#[tokio::test]
async fn an_operator_is_heard_within_a_second_both_ways() {
    let server = Server::new();
    let (here, operator) = (server.breaker(BreakerSettings::new()), server.breaker(BreakerSettings::new()));
    succeed(&here).await.unwrap();
    operator.force(Force::Open, None, "maintenance").await.unwrap();
    server.clock.advance(Duration::from_millis(1_001));
    let refused = succeed(&here).await.unwrap_err();
    assert_eq!((refused.code(), refused.retry_after()), (Some(Code::CircuitOpen), None));
    server.asked();
    assert!(succeed(&here).await.is_err());
    assert!(server.asked().is_empty(), "believed for a while");
    let state = operator.state().await.unwrap();
    let forced = state.forced.unwrap();
    assert_eq!((state.state, &*forced.by, &*forced.reason), (State::ForcedOpen, "tester", "maintenance"));
    operator.force(Force::Auto, None, "").await.unwrap();
    server.clock.advance(Duration::from_secs(1));
    succeed(&here).await.unwrap();
    operator.force(Force::Open, Some(Duration::from_secs(60)), "again").await.unwrap();
    assert_eq!(succeed(&operator).await.unwrap_err().retry_after(), Some(Duration::from_secs(60)));
}

#[tokio::test]
async fn disabled_metrics_and_forced_closed_admit_whatever_fails() {
    let server = Server::new();
    for force in [Force::Disabled, Force::Metrics, Force::Closed] {
        let breaker = server.breaker(trips_at(1));
        breaker.force(force, None, "").await.unwrap();
        for _ in 0..5 {
            assert_eq!(fail(&breaker).await, Err(Failure::Inner("down")));
        }
    }
}

#[tokio::test]
async fn each_transition_is_reported_once_despite_panicking_listeners() {
    let server = Server::new();
    let breaker = server.breaker(trips_at(1).successes(1));
    let seen: Arc<Mutex<Vec<Transition>>> = Arc::default();
    let reported = Arc::clone(&seen);
    breaker.on_transition(|_| panic!("on purpose"));
    breaker.on_transition(move |transition| reported.lock().push(*transition));
    fail(&breaker).await.unwrap_err();
    let_tasks_run().await;
    succeed(&breaker).await.unwrap_err();
    server.clock.advance(Duration::from_secs(10));
    succeed(&breaker).await.unwrap();
    succeed(&breaker).await.unwrap();
    let seen = seen.lock().clone();
    let states: Vec<_> = seen.iter().map(|transition| (transition.previous, transition.new)).collect();
    use State::{Closed, HalfOpen, Open};
    assert_eq!(states, [(Closed, Open), (Open, HalfOpen), (HalfOpen, Closed)]);
    assert!(seen.is_sorted_by_key(|transition| transition.generation));
}

#[tokio::test]
async fn each_mode_keeps_its_promise_while_the_server_is_away() {
    let server = Server::new();
    let client = server.client();
    let open = client.breaker("open", trips_at(1).when_away(Away::Open)).unwrap();
    let closed = client.breaker("closed", trips_at(1).when_away(Away::Closed)).unwrap();
    let local = client.breaker("local", trips_at(2)).unwrap();
    server.set(Fate::RequestIsLost);
    for _ in 0..5 {
        assert_eq!(fail(&open).await, Err(Failure::Inner("down")));
        assert_eq!(fail(&closed).await, Err(Failure::Resil(GONE)));
    }
    for _ in 0..2 {
        assert_eq!(fail(&local).await, Err(Failure::Inner("down")));
    }
    assert_eq!(fail(&local).await.unwrap_err().code(), Some(Code::CircuitOpen));
    server.set(Fate::Arrives);
    for breaker in [&open, &closed, &local] {
        succeed(breaker).await.unwrap();
        assert_eq!(breaker.state().await.unwrap().failures, 0, "what was counted meanwhile is forgotten");
    }
    server.set(Fate::RequestIsLost);
    server.clock.advance(Duration::from_secs(2));
    assert_eq!(fail(&local).await, Err(Failure::Inner("down")), "away again begins from a clean slate");
    assert_eq!(
        client.inner().health.look(Some(crate::backend::WhyAway::test())).policies["breaker:closed"],
        Status::Unhealthy
    );
    assert_eq!(
        client.inner().health.look(Some(crate::backend::WhyAway::test())).policies["breaker:local"],
        Status::Degraded
    );
}

#[tokio::test]
async fn options_are_brought_back_to_a_key_that_was_lost() {
    let clock = Clock::driven();
    let (first, second) = (Arc::new(Memory::new(clock.clone())), Arc::new(Memory::new(clock.clone())));
    let server = Server::with_memory(Arc::clone(&first), clock);
    let breaker = server.breaker(never_trips());
    succeed(&breaker).await.unwrap();
    // As after FLUSHALL: the same server with nothing in it.
    let behind = Arc::clone(&second);
    server.scripted.lines.lock().by = Some(Replying(Box::new(move |command| behind.call(command))));
    for _ in 0..120 {
        server.clock.advance(Duration::from_millis(100));
        succeed(&breaker).await.unwrap();
        let_tasks_run().await;
    }
    let state = breaker.state().await.unwrap();
    assert!(state.config.contains(&("consecutive".to_owned(), "0".to_owned())), "{:?}", state.config);
}

#[test]
fn a_permit_can_be_dropped_where_there_is_no_runtime() {
    let server = Server::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let breaker = runtime.block_on(async { server.breaker(trips_at(1).mode(CountingMode::Exact)) });
    let permit = runtime.block_on(breaker.admit()).unwrap();
    drop(runtime);
    drop(permit);
}

#[tokio::test]
async fn equal_names_and_options_are_one_breaker() {
    let server = Server::new();
    let client = server.client();
    let one = client.breaker("b", trips_at(1)).unwrap();
    fail(&one).await.unwrap_err();
    let_tasks_run().await;
    server.asked();
    let other = client.breaker("b", trips_at(1)).unwrap();
    assert!(succeed(&other).await.is_err());
    assert!(server.asked().is_empty(), "it knows what the first one knows");
}
