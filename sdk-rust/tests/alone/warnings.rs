//! What is said in the log when something is asked for that is seldom meant.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use resil::dead_letters::{DeadLettersSettings, DeathReason, Letter};
use resil::limiter::Limit;
use resil::policy::retry_all;
use resil::telemetry::Hooks;
use resil::testing::Clock;
use resil::worker::{LedgerSource, WorkError, WorkerSettings};
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
async fn a_local_limit_without_a_process_count_warns_once() {
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
async fn an_attempt_outliving_its_ticket_is_logged_per_version() {
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

const SECRET: &str = "hunter2-never-logged";

/// A client that keeps what it hears.
async fn noticing() -> (Client, Arc<Mutex<Vec<Notice>>>) {
    let noticed = Arc::new(Mutex::new(Vec::new()));
    let notices = Arc::clone(&noticed);
    let settings = ConnectSettings::new("memory://").on_notice(move |notice| notices.lock().push(notice.clone()));
    (settings.connect().await.expect("there"), noticed)
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..3_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited in vain until {what}");
}

#[tokio::test]
async fn each_dead_message_is_a_warning() {
    let (client, noticed) = noticing().await;
    let hooked = Arc::new(Mutex::new(Vec::new()));
    let hooks = Arc::clone(&hooked);
    let hook = move |name: &str, id: &str, deaths, reason: &str| {
        hooks.lock().push((name.to_owned(), id.to_owned(), deaths, reason.to_owned()));
    };
    let _hooks = Hooks::new().only("mourned").on_dead(hook).install();
    let warnings = Warnings::default();
    let _subscribed = tracing::subscriber::set_default(warnings.clone());
    let ledger = client.dead_letters("mourned", DeadLettersSettings::new()).expect("valid");
    ledger.fail(&Letter::of("shop", "1").payload("x"), "sent").await.expect("kept");
    let worker = client.worker("mourned", WorkerSettings::new()).expect("valid");
    let stop = worker.stopper();
    let source = LedgerSource::new(&client, "mourned").expect("valid");
    let watched = {
        let noticed = Arc::clone(&noticed);
        async move {
            until("it is dead", || !noticed.lock().is_empty()).await;
            stop.cancel();
        }
    };
    let handled = worker.run(source, |_| async { Err(WorkError::permanent(SECRET)) });
    let (report, ()) = tokio::join!(handled, watched);
    assert_eq!(report.expect("it ran").dead, 1);
    let (worker, id) = ("mourned".into(), "shop/1".to_owned());
    assert_eq!(*noticed.lock(), [Notice::Dead { worker, id, deaths: 1, reason: DeathReason::Final }]);
    assert_eq!(*hooked.lock(), [("mourned".to_owned(), "shop/1".to_owned(), 1, "final".to_owned())]);
    assert_eq!(warnings.0.load(Ordering::SeqCst), 1);
}

#[cfg(all(feature = "redis", feature = "amqp", feature = "postgres"))]
#[tokio::test]
async fn an_absent_broker_is_one_warning_with_its_address() {
    use resil::worker::postgres::{OutboxSettings, OutboxSource};
    use resil::worker::rabbit::{RabbitPublisher, RabbitSettings, RabbitSource};
    use resil::worker::streams::{StreamSettings, StreamSource};
    let (client, noticed) = noticing().await;
    let warnings = Warnings::default();
    let _subscribed = tracing::subscriber::set_default(warnings.clone());
    let url = |scheme: &str| format!("{scheme}://shop:{SECRET}@127.0.0.1:1");
    let rabbit = || RabbitSettings::new(url("amqp"), "orders");
    let _sources = (
        RabbitSource::new(&client, rabbit()).expect("valid"),
        OutboxSource::new(&client, OutboxSettings::new(url("postgres") + "/shop")).expect("valid"),
        StreamSource::new(&client, StreamSettings::new("orders").url(url("redis"))).expect("valid"),
        RabbitPublisher::new(&client, &rabbit()).expect("valid"),
    );
    until("all are away", || noticed.lock().len() >= 4).await;
    // Attempts go on, and are not said again.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let reported = noticed.lock().clone();
    assert_eq!((reported.len(), warnings.0.load(Ordering::SeqCst)), (4, 4), "{reported:?}");
    for notice in reported {
        let Notice::SourceAway { address, reason, .. } = &notice else { panic!("{notice:?}") };
        assert_eq!(address, "127.0.0.1:1");
        assert!(!reason.contains(SECRET), "{reason}");
    }
}
