//! A shutdown waits for what is in flight, and not for ever.

use std::time::Duration;

use proptest::prelude::*;
use resil::client::ConnectSettings;
use resil::clock::Clock;
use resil::limiter::Limit;
use resil::{Client, Code, Error, ShutdownReport};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(20);
const DEADLINE: Duration = Duration::from_secs(5);

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(LONG, future).await.expect("it ends") })
}

async fn driven() -> (Client, Clock) {
    let clock = Clock::driven();
    (ConnectSettings::new("memory://").clock(clock.clone()).connect().await.unwrap(), clock)
}

/// Lets everybody who can run do so.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Begins a shutdown, and lets it begin.
async fn shut_down(client: &Client, deadline: Duration) -> JoinHandle<ShutdownReport> {
    let client = client.clone();
    let task = tokio::spawn(async move { client.shutdown(deadline).await });
    settle().await;
    task
}

/// A call that is in flight until it is asked to end.
async fn begin_call(client: &Client) -> (oneshot::Sender<u8>, JoinHandle<Result<u8, Error>>) {
    let (end, ended) = oneshot::channel();
    let client = client.clone();
    let call = tokio::spawn(async move { client.in_flight(async { ended.await.unwrap() }).await });
    tokio::task::yield_now().await;
    (end, call)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    // Property 25: a shutdown ends when every call in flight has ended, or at its deadline.
    /// Of N calls in flight, those that end in time are drained, the others cut off; together they are N, and the
    /// shutdown ends with the last of the former or at the deadline.
    #[test]
    fn every_call_in_flight_is_drained_or_cut_off(ends_in_time in prop::collection::vec(any::<bool>(), 0..40)) {
        block_on(async {
            let (client, clock) = driven().await;
            let (mut calls, mut ends) = (Vec::new(), Vec::new());
            for _ in &ends_in_time {
                let (end, call) = begin_call(&client).await;
                calls.push(call);
                ends.push(end);
            }
            settle().await;
            let shutdown = shut_down(&client, DEADLINE).await;
            prop_assert!(client.is_shutting_down());
            prop_assert_eq!(client.in_flight(async {}).await, Err(Error::ShuttingDown), "nothing new begins");

            let mut held_back = Vec::new();
            for (end, in_time) in ends.into_iter().zip(&ends_in_time) {
                if *in_time {
                    end.send(7).unwrap();
                } else {
                    held_back.push(end);
                }
            }
            settle().await;
            let late = held_back.len();
            prop_assert_eq!(shutdown.is_finished(), late == 0, "it ends with the last call, not before");
            clock.advance(DEADLINE - Duration::from_nanos(1));
            settle().await;
            prop_assert_eq!(shutdown.is_finished(), late == 0, "it waits until the deadline");
            clock.advance(Duration::from_nanos(1));

            let report = shutdown.await.unwrap();
            prop_assert_eq!(report.drained, ends_in_time.len() - late);
            prop_assert_eq!(report.cut_off, late);
            prop_assert_eq!(report.is_clean(), late == 0);
            for (call, in_time) in calls.into_iter().zip(&ends_in_time) {
                let expected = if *in_time { Ok(7) } else { Err(Error::ShuttingDown) };
                prop_assert_eq!(call.await.unwrap(), expected);
            }
            Ok(())
        })?;
    }
}

#[test]
fn a_second_shutdown_awaits_and_may_hasten_the_first() {
    block_on(async {
        let (client, clock) = driven().await;
        let (_end, stuck) = begin_call(&client).await;
        settle().await;
        let patient = shut_down(&client, Duration::from_secs(60)).await;
        let more_patient = shut_down(&client, Duration::from_secs(600)).await;
        let hasty = shut_down(&client, Duration::from_secs(1)).await;
        assert!(!patient.is_finished() && !hasty.is_finished());
        clock.advance(Duration::from_secs(1));
        let report = hasty.await.unwrap();
        assert_eq!(report.cut_off, 1);
        assert_eq!(patient.await.unwrap(), report);
        assert_eq!(more_patient.await.unwrap(), report);
        assert_eq!(stuck.await.unwrap(), Err(Error::ShuttingDown));
        assert_eq!(client.shutdown(LONG).await, report, "afterwards it is known at once");
    });
}

#[test]
fn a_request_in_flight_may_make_calls_until_its_end() {
    block_on(async {
        let (client, _clock) = driven().await;
        let (resume, reported) = oneshot::channel::<()>();
        let (outer, inner) = (client.clone(), client.clone());
        let request = tokio::spawn(async move {
            let work = async move {
                reported.await.unwrap();
                inner.in_flight(async { "the inner call" }).await
            };
            outer.in_flight(work).await
        });
        settle().await;
        let shutdown = shut_down(&client, LONG).await;
        resume.send(()).unwrap();
        assert_eq!(request.await.unwrap(), Ok(Ok("the inner call")));
        let report = shutdown.await.unwrap();
        assert_eq!((report.drained, report.cut_off), (1, 0));
    });
}

#[test]
fn a_call_that_is_dropped_is_no_longer_in_flight() {
    block_on(async {
        let (client, _clock) = driven().await;
        let (_end, call) = begin_call(&client).await;
        settle().await;
        let shutdown = shut_down(&client, LONG).await;
        assert!(!shutdown.is_finished());
        call.abort();
        assert_eq!(shutdown.await.unwrap().drained, 1);
    });
}

#[tokio::test]
async fn a_synchronous_call_is_waited_for_and_its_parts_admitted() {
    let client = resil::connect("memory://").await.unwrap();
    let limiter = client.limiter("api", Limit::per_second(10)).unwrap();
    let call = client.begin_call().unwrap();
    let ending = tokio::spawn({
        let client = client.clone();
        async move { client.shutdown(Duration::from_secs(10)).await }
    });
    while !client.is_shutting_down() {
        tokio::task::yield_now().await;
    }
    assert!(call.part(limiter.check("k")).await.is_ok(), "it is a part of a call in flight");
    assert!(call.part(async { client.begin_call().is_ok() }).await);
    assert_eq!(limiter.check("k").await.unwrap_err().code(), Code::ShuttingDown);
    assert!(client.begin_call().is_err() && !ending.is_finished());
    drop(call);
    let report = ending.await.unwrap();
    assert_eq!((report.drained, report.cut_off), (1, 0));
}
