//! What is said in the log when something is asked for that is seldom meant.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use resil::limiter::Limit;
use resil::{Away, Client, ConnectSettings};
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
