//! What needs the inside of a client: watchdogs, the order of things.

use std::time::Duration;

use tokio::time::timeout;

use crate::client::{Client, ConnectSettings};
use crate::clock::Clock;
use crate::lock::LockSettings;

const LONG: Duration = Duration::from_secs(10);

async fn driven() -> (Client, Clock) {
    let clock = Clock::driven();
    (ConnectSettings::new("memory://").clock(clock.clone()).connect().await.unwrap(), clock)
}

#[tokio::test]
async fn calls_end_before_watchdogs_stop_and_before_anything_is_released() {
    let (client, _clock) = driven().await;
    let guard = client.lock("orders", LockSettings::new()).unwrap().acquire().await.unwrap();
    let pass = client.inner().gate.enter().unwrap();
    let (ending, closing) = (
        tokio::spawn({
            let client = client.clone();
            async move { client.shutdown(LONG).await }
        }),
        client.inner().closing.clone(),
    );
    timeout(LONG, closing.cancelled()).await.expect("it begins");
    assert!(guard.is_held() && !client.inner().stopped.is_cancelled(), "the call is still in flight");
    drop(pass);
    let report = timeout(LONG, ending).await.expect("it ends").unwrap();

    assert_eq!((report.drained, report.cut_off), (1, 0));
    assert_eq!(report.released, ["lock:orders"]);
    assert!(report.is_clean() && !guard.is_held() && client.inner().stopped.is_cancelled());
}

#[tokio::test]
async fn a_watchdog_that_does_not_stop_is_not_waited_for() {
    let (client, clock) = driven().await;
    client.inner().tasks.spawn(std::future::pending::<()>());
    let ending = tokio::spawn({
        let client = client.clone();
        async move { client.shutdown(LONG).await }
    });
    let report = timeout(LONG, async {
        while !ending.is_finished() {
            clock.advance(Duration::from_millis(100));
            tokio::task::yield_now().await;
        }
        ending.await.unwrap()
    });
    assert_eq!(report.await.expect("it ends").stragglers, 1);
}

#[tokio::test]
async fn a_shutdown_that_nobody_waits_for_any_more_still_releases() {
    let (client, _clock) = driven().await;
    let guard = client.lock("orders", LockSettings::new()).unwrap().acquire().await.unwrap();
    let pass = client.inner().gate.enter().unwrap();
    {
        let mut abandoned = std::pin::pin!(client.shutdown(LONG));
        assert!(futures_util::poll!(&mut abandoned).is_pending());
    }
    drop(pass);
    timeout(LONG, guard.lost().cancelled()).await.expect("it goes on, and releases");
}
