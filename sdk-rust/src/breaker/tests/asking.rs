//! Who asks whether a call may be made, who is refused without asking, and what happens to probes.

use super::*;
use crate::policy::Class;

#[tokio::test]
async fn a_closed_circuit_is_believed_for_a_second_without_word() {
    let server = Server::new();
    let (here, there) = (server.breaker(trips_at(1)), server.breaker(trips_at(1)));
    succeed(&here).await.unwrap();
    fail(&there).await.unwrap_err();
    let_tasks_run().await;
    server.clock.advance(Duration::from_millis(50));
    assert!(succeed(&here).await.is_ok(), "it has not heard yet");
    server.clock.advance(Duration::from_secs(1));
    assert_eq!(succeed(&here).await.unwrap_err().code(), Some(Code::CircuitOpen));
}

#[tokio::test]
async fn after_the_open_time_one_caller_asks() {
    let server = Server::new();
    let breaker = server.breaker(trips_at(1));
    fail(&breaker).await.unwrap_err();
    let_tasks_run().await;
    assert_eq!(succeed(&breaker).await.unwrap_err().retry_after(), Some(Duration::from_secs(10)));
    server.clock.advance(Duration::from_secs(10));
    server.asked();
    let deliveries = Arc::new(Semaphore::new(0));
    server.scripted.lines.lock().deliveries = Some(Arc::clone(&deliveries));
    let prober = tokio::spawn({
        let breaker = breaker.clone();
        async move { succeed(&breaker).await }
    });
    let_tasks_run().await;
    for _ in 0..5 {
        assert_eq!(succeed(&breaker).await.unwrap_err().code(), Some(Code::CircuitOpen));
    }
    assert_eq!(server.asked(), ["ADMIT"]);
    deliveries.add_permits(100);
    prober.await.unwrap().unwrap();
    assert_eq!(breaker.last_known_state(), Some(State::HalfOpen));
}

#[tokio::test]
async fn a_caller_that_drops_its_admission_returns_the_probe() {
    let server = Server::new();
    let breaker = server.breaker(trips_at(1).probes(1));
    fail(&breaker).await.unwrap_err();
    let_tasks_run().await;
    server.clock.advance(Duration::from_secs(10));
    let deliveries = Arc::new(Semaphore::new(0));
    server.scripted.lines.lock().deliveries = Some(Arc::clone(&deliveries));
    let waiting = tokio::spawn({
        let breaker = breaker.clone();
        async move { succeed(&breaker).await }
    });
    let_tasks_run().await;
    waiting.abort();
    let_tasks_run().await;
    deliveries.add_permits(100);
    let_tasks_run().await;
    assert_eq!(breaker.state().await.unwrap().probes_out, 0);
    assert!(breaker.admit().await.is_ok(), "the only place is free");
}

#[tokio::test]
async fn a_dropped_probe_is_cancelled_and_a_panic_fails() {
    let server = Server::new();
    let breaker = server.breaker(trips_at(1).probes(1));
    fail(&breaker).await.unwrap_err();
    let_tasks_run().await;
    server.clock.advance(Duration::from_secs(10));
    drop(breaker.admit().await.unwrap());
    assert_eq!(breaker.state().await.unwrap().probes_out, 1);
    let_tasks_run().await;
    let state = breaker.state().await.unwrap();
    assert_eq!((state.state, state.probes_out), (State::HalfOpen, 0));
    let panicking = breaker.clone();
    let call = async move { panicking.call(async || -> Result<(), ()> { panic!("on purpose") }).await };
    assert!(tokio::spawn(call).await.unwrap_err().is_panic());
    let_tasks_run().await;
    assert_eq!(breaker.state().await.unwrap().state, State::Open);
}

#[tokio::test]
async fn refused_calls_are_cancelled_and_ignored_ones_count_neither_way() {
    let server = Server::new();
    let breaker = server.breaker(trips_at(1).probes(1).mode(CountingMode::Exact));
    let name: Arc<str> = "inner".into();
    for error in [
        Error::RateLimitExceeded { name: name.clone(), retry_after: None },
        Error::BulkheadFull { name: name.clone(), retry_after: None },
        Error::CircuitOpen { name, retry_after: None },
        Error::ShuttingDown,
    ] {
        let refused = breaker.around(|_: &()| Class::Retry, async || Err::<(), _>(Failure::Resil(error.clone())));
        assert_eq!(refused.await, Err(Failure::Resil(error.clone())));
        assert!(server.asked_words().last().unwrap().contains("CANCEL"));
    }
    let ignored = breaker.call_classified(|_: &u16| Class::Ignore, async || Err::<(), _>(404)).await;
    assert_eq!(ignored, Err(Failure::Inner(404)));
    assert!(server.asked_words().last().unwrap().contains("IGNORE"));
    assert_eq!(breaker.state().await.unwrap().calls, 0);
    let timeout = Failure::<()>::Resil(Error::Timeout { after: Duration::from_secs(1) });
    breaker.around(|_: &()| Class::Retry, async || Err::<(), _>(timeout)).await.unwrap_err();
    assert_eq!(breaker.state().await.unwrap().state, State::Open);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn an_open_circuit_makes_no_attempts_and_round_trips(
        open_ms in 1u64..100_000, looks in prop::collection::vec(0.0f64..1.0, 1..20), exact in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let server = Server::new();
            let mode = if exact { CountingMode::Exact } else { CountingMode::Batched };
            let options = BreakerSettings::new().consecutive_failures(1).open_for(Duration::from_millis(open_ms)).mode(mode);
            let breaker = server.breaker(options);
            let begun = server.clock.now();
            fail(&breaker).await.unwrap_err();
            let_tasks_run().await;
            server.asked();
            let mut looks = looks;
            looks.sort_by(f64::total_cmp);
            for part in looks {
                let at = begun + Duration::from_micros((open_ms as f64 * 1_000.0 * part) as u64);
                server.clock.advance(at.saturating_sub(server.clock.now()));
                let refused = breaker.call(async || -> Result<(), ()> { unreachable!("an attempt was made") }).await;
                let left = begun + Duration::from_millis(open_ms) - server.clock.now();
                assert_eq!(refused.unwrap_err().retry_after(), Some(left));
            }
            assert!(server.asked().is_empty(), "nobody was asked");
            let left = begun + Duration::from_millis(open_ms) - server.clock.now();
            server.clock.advance(left);
            succeed(&breaker).await.unwrap();
        });
    }
}
