//! What is said in the log when something is asked for that is seldom meant.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use resil::limiter::Limit;
use resil::policy::retry_all;
use resil::telemetry::Hooks;
use resil::testing::Clock;
use resil::{Away, Client, ConnectSettings, Notice};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Counts warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn event(&self, _event: &Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn enter(&self, _span: &Id) {}
    fn exit(&self, _span: &Id) {}
}

/// Nobody listens there: the client is away, which is no error.
async fn away(options: impl FnOnce(ConnectSettings) -> ConnectSettings) -> Client {
    options(ConnectSettings::new("redis://127.0.0.1:1")).connect().await.expect("it may come later")
}

fn warnings_of(make: impl FnOnce()) -> usize {
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), make);
    warnings.0.load(Ordering::SeqCst)
}

#[tokio::test]
async fn a_local_limit_of_nobody_knows_how_many_processes_warns_once() {
    let limit = |away| Limit::per_second(10).when_away(away);
    let make = |client: &Client, name, away| drop(client.limiter(name, limit(away)).expect("valid"));

    let client = away(|options| options).await;
    assert_eq!(warnings_of(|| make(&client, "closed", Away::Closed)), 0);
    assert_eq!(warnings_of(|| make(&client, "api", Away::Local)), 1);
    assert_eq!(warnings_of(|| make(&client, "web", Away::Local)), 0, "once");

    let said = away(|options| options.instances(1)).await;
    assert_eq!(warnings_of(|| make(&said, "api", Away::Local)), 0, "it is meant");
    let memory = resil::connect("memory://").await.expect("there");
    assert_eq!(warnings_of(|| make(&memory, "api", Away::Local)), 0, "it is never away");
}

#[tokio::test]
async fn an_attempt_that_outlives_its_ticket_is_said_once_for_each_version() {
    let (clock, minute) = (Clock::driven(), Duration::from_secs(60));
    let (noticed, hooked) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let (notices, hooks) = (Arc::clone(&noticed), Arc::clone(&hooked));
    let settings = ConnectSettings::new("memory://").clock(clock.clone());
    let settings = settings.on_notice(move |notice| notices.lock().push(notice.clone()));
    let client = settings.connect().await.expect("there");
    let _hooks =
        Hooks::new().only("late").on_outlived(move |name, took| hooks.lock().push((name.to_owned(), took))).install();
    let warnings = Warnings::default();
    let _subscribed = tracing::subscriber::set_default(warnings.clone());
    let document = |lease| format!(r#"{{"sharedBulkhead":{{"maxConcurrentCalls":1,"lease":"{lease}s"}}}}"#);
    client.policies().set("late", document(1)).await.expect("valid");
    let late = client.policy("late").await.expect("stored");
    let outlive = async || {
        let call = late.call(retry_all, async || {
            clock.advance(minute);
            Ok::<_, &str>(7)
        });
        assert_eq!(call.await, Ok(7), "its value counts all the same");
    };
    for _ in 0..3 {
        outlive().await;
    }
    client.policies().set("late", document(2)).await.expect("valid");
    for _ in 0..100_000 {
        if late.version() == Some(2) {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(late.version(), Some(2));
    outlive().await;
    let notice = Notice::Outlived { policy: "late".into(), took: minute };
    assert_eq!(*noticed.lock(), [notice.clone(), notice]);
    assert_eq!(*hooked.lock(), [("late".to_owned(), minute), ("late".to_owned(), minute)]);
    assert_eq!(warnings.0.load(Ordering::SeqCst), 2);
}
