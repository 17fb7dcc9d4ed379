//! The loop on a source that delivers what a test wrote down, and remembers what it heard.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::{GivenUpBy, Incoming, IncomingMessage, Source, SourceError, SourceHealth, WorkError, WorkerSettings};
use crate::client::Client;
use crate::dead_letters::{DeadLettersSettings, Letter, LetterState};

#[derive(Clone, Default)]
struct ScriptedSource {
    messages: Arc<Mutex<Vec<IncomingMessage>>>,
    reported: Arc<Mutex<Vec<String>>>,
    refuses: bool,
    is_stale: bool,
    gathers: bool,
}

impl Source for ScriptedSource {
    type Receipt = String;

    fn name(&self) -> &str {
        "queue"
    }

    async fn next(&self) -> Option<Incoming<String>> {
        let message = self.messages.lock().pop()?;
        let receipt = message.id.clone();
        Some(Incoming { message, receipt })
    }

    async fn acknowledge(&self, receipt: String) -> Result<(), SourceError> {
        self.reported.lock().push(format!("ack {receipt}"));
        if self.refuses { Err(SourceError("gone".to_owned())) } else { Ok(()) }
    }

    fn acknowledges_at_once(&self) -> usize {
        if self.gathers { 100 } else { 1 }
    }

    async fn give_back(&self, receipt: String, _delay: Duration) -> Result<(), SourceError> {
        self.reported.lock().push(format!("back {receipt}"));
        Ok(())
    }

    fn is_stale(&self, _receipt: &String) -> bool {
        self.is_stale
    }

    fn health(&self) -> SourceHealth {
        SourceHealth { is_connected: true, reason: None, since: SystemTime::now(), connections: 1 }
    }

    async fn close(&self) {}
}

fn message(id: &str) -> IncomingMessage {
    IncomingMessage {
        id: format!("queue/{id}"),
        has_own_id: true,
        payload: id.to_owned().into(),
        deliveries: 1,
        ..IncomingMessage::default()
    }
}

/// Runs to the end of the script. What the source heard, and which messages were handled.
async fn run(
    client: &Client,
    source: &ScriptedSource,
    verdict: impl Fn() -> Result<(), WorkError> + Send + Sync + 'static,
) -> (crate::worker::WorkerReport, Vec<String>) {
    let worker = client.worker("orders", WorkerSettings::new().workers(1).retries(false)).unwrap();
    let handled = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&handled);
    let running = worker.run(source.clone(), move |message| {
        seen.lock().push(message.id().to_owned());
        std::future::ready(verdict())
    });
    let report = running.await.unwrap();
    let handled = handled.lock().clone();
    (report, handled)
}

fn script(messages: impl IntoIterator<Item = IncomingMessage>) -> ScriptedSource {
    let mut messages: Vec<IncomingMessage> = messages.into_iter().collect();
    messages.reverse();
    ScriptedSource { messages: Arc::new(Mutex::new(messages)), ..ScriptedSource::default() }
}

async fn client() -> Client {
    crate::connect("memory://").await.unwrap()
}

#[tokio::test]
async fn a_redelivered_message_that_the_ledger_knows_is_skipped() {
    let client = client().await;
    let ledger = client.dead_letters("orders", DeadLettersSettings::new()).unwrap();
    ledger.fail(&Letter::new("queue/a").payload("a"), "before").await.unwrap();
    let again = |id| IncomingMessage { is_redelivered: true, ..message(id) };
    let source = script([again("a"), again("b"), message("c")]);
    let (report, handled) = run(&client, &source, || Ok(())).await;
    assert_eq!(handled, ["queue/b", "queue/c"]);
    assert_eq!((report.known, report.done), (1, 2));
    assert_eq!(*source.reported.lock(), ["ack queue/a", "ack queue/b", "ack queue/c"]);
}

#[tokio::test]
async fn a_message_delivered_too_often_is_left_uncounted() {
    let client = client().await;
    let often = IncomingMessage { deliveries: 4, is_redelivered: true, ..message("a") };
    let limit = IncomingMessage { given_up: Some(GivenUpBy::DeliveryLimit), ..message("b") };
    let expired = IncomingMessage { given_up: Some(GivenUpBy::Broker("expired".to_owned())), ..message("c") };
    let source = script([often, limit, expired]);
    let (report, handled) = run(&client, &source, || Ok(())).await;
    assert!(handled.is_empty());
    assert_eq!((report.retried, report.dead), (2, 1));
    let ledger = client.dead_letters("orders", DeadLettersSettings::new()).unwrap();
    for (id, state) in [("a", LetterState::Waiting), ("b", LetterState::Waiting), ("c", LetterState::Dead)] {
        let letter = ledger.get(&format!("queue/{id}")).await.unwrap().unwrap();
        assert_eq!(letter.state, state, "{id}");
        assert!(state == LetterState::Dead || letter.attempt == 0, "{letter:?}");
    }
    assert_eq!(source.reported.lock().len(), 3, "all are acknowledged");
}

#[tokio::test]
async fn two_messages_of_one_id_are_both_kept() {
    let client = client().await;
    let other = IncomingMessage { payload: "other bytes".into(), ..message("a") };
    let source = script([message("a"), other]);
    let (report, _) = run(&client, &source, || Err(WorkError::permanent("no"))).await;
    assert_eq!(report.dead, 2);
    let ledger = client.dead_letters("orders", DeadLettersSettings::new()).unwrap();
    assert_eq!(ledger.info().await.unwrap().dead, 2);
    assert_eq!(*source.reported.lock(), ["ack queue/a", "ack queue/a"]);
}

#[tokio::test]
async fn a_failure_that_is_reported_twice_is_one_failure() {
    let client = client().await;
    let source = script([message("a"), message("a")]);
    let (report, handled) = run(&client, &source, || Err(WorkError::retry("no"))).await;
    assert_eq!((handled.len(), report.retried, report.known), (2, 1, 1));
    let ledger = client.dead_letters("orders", DeadLettersSettings::new()).unwrap();
    assert_eq!(ledger.get("queue/a").await.unwrap().unwrap().attempt, 1);
}

#[tokio::test]
async fn a_message_no_longer_ours_is_not_handled() {
    let client = client().await;
    let source = ScriptedSource { is_stale: true, ..script([message("a")]) };
    let (report, handled) = run(&client, &source, || Ok(())).await;
    assert_eq!((handled.len(), report.stale), (0, 1));
    assert!(source.reported.lock().is_empty());
}

#[tokio::test]
async fn a_source_that_cannot_be_notified_fails_no_worker() {
    let client = client().await;
    let source = ScriptedSource { refuses: true, ..script([message("a"), message("b")]) };
    let (report, handled) = run(&client, &source, || Ok(())).await;
    assert_eq!((handled.len(), report.unsettled, report.done), (2, 2, 0));
}

/// The clock of tokio stands still, so what is gathered is not sent because of its time.
#[tokio::test(start_paused = true)]
async fn what_was_gathered_is_acknowledged_at_the_end() {
    let client = client().await;
    let source = ScriptedSource { gathers: true, ..script([message("a"), message("b")]) };
    let (report, handled) = run(&client, &source, || Ok(())).await;
    assert_eq!((handled.len(), report.done), (2, 2));
    assert_eq!(*source.reported.lock(), ["ack queue/a", "ack queue/b"]);
}
