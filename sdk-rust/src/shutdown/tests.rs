//! What needs the inside of a client: hooks, watchdogs, the order of things.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::timeout;

use crate::client::{Client, ConnectOptions};
use crate::clock::Clock;
use crate::error::Error;

const LONG: Duration = Duration::from_secs(10);

async fn driven() -> (Client, Clock) {
    let clock = Clock::driven();
    (ConnectOptions::new("memory://").clock(clock.clone()).connect().await.unwrap(), clock)
}

#[tokio::test]
async fn calls_end_before_watchdogs_stop_and_watchdogs_stop_before_anything_is_released() {
    let (client, _clock) = driven().await;
    let told: Arc<Mutex<Vec<&str>>> = Arc::default();
    let say = |what: &'static str| {
        let told = Arc::clone(&told);
        move || told.lock().push(what)
    };

    let pass = client.inner().gate.enter_owned().unwrap();
    let (stopped, said) = (client.inner().stopped.clone(), say("watchdog"));
    client.inner().tasks.spawn(async move {
        stopped.cancelled().await;
        said();
    });
    let said = say("release");
    let hook = move || -> super::held::Release {
        Box::pin(async move {
            said();
            Ok(())
        })
    };
    client.inner().held.register("lock:orders".into(), hook).unwrap();

    let said = say("call");
    let (ending, closing) = (
        tokio::spawn({
            let client = client.clone();
            async move { client.shutdown(LONG).await }
        }),
        client.inner().closing.clone(),
    );
    timeout(LONG, closing.cancelled()).await.expect("it begins");
    assert!(told.lock().is_empty(), "the call is still in flight");
    said();
    drop(pass);
    let report = timeout(LONG, ending).await.expect("it ends").unwrap();

    assert_eq!(*told.lock(), ["call", "watchdog", "release"]);
    assert_eq!((report.drained, report.cut_off), (1, 0));
    assert_eq!(report.released, ["lock:orders"]);
    assert!(report.is_clean());
}

#[tokio::test]
async fn a_hook_that_fails_or_panics_or_never_ends_does_not_stop_the_others() {
    let (client, clock) = driven().await;
    let held = &client.inner().held;
    held.register("stuck".into(), || Box::pin(std::future::pending())).unwrap();
    held.register("panics".into(), || Box::pin(async { panic!("oh no") })).unwrap();
    held.register("fails".into(), || Box::pin(async { Err(Error::ModuleMissing) })).unwrap();
    held.register("works".into(), || Box::pin(async { Ok(()) })).unwrap();

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
    let report = report.await.expect("it ends although a hook does not");

    assert_eq!(report.released, ["works"]);
    let names: Vec<_> = report.unreleased.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["stuck", "panics", "fails"]);
    assert!(report.unreleased[1].1.contains("oh no"));
    assert!(!report.is_clean());
}

#[tokio::test]
async fn a_watchdog_that_does_not_stop_is_counted_and_not_waited_for() {
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
    let pass = client.inner().gate.enter_owned().unwrap();
    let (sender, released) = tokio::sync::oneshot::channel();
    let hook =
        move || -> super::held::Release { Box::pin(async move { sender.send(()).map_err(|()| Error::Cancelled) }) };
    client.inner().held.register("lock:orders".into(), hook).unwrap();
    {
        let mut abandoned = std::pin::pin!(client.shutdown(LONG));
        assert!(futures_util::poll!(&mut abandoned).is_pending());
    }
    drop(pass);
    timeout(LONG, released).await.expect("it goes on").expect("it is released");
}
