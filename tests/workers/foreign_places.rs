//! Places that somebody else made, or that are not as a worker needs them: nothing is lost, and it is said why nothing happens.

use std::sync::Arc;
use std::time::Duration;

use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};
use resil::worker::postgres::{Outbox, OutboxSettings, OutboxSource, connect};
use resil::worker::rabbit::RabbitSource;
use resil::worker::{OutgoingMessage, WorkError, WorkVerdict, WorkerSettings};
use resil_harness::{Postgres, Relay, reply};
use tokio::sync::Semaphore;

use crate::places::{AtRabbit, AtStream, Place};
use crate::scene::{LedgerServer, RunningWorker, Seen, eventually, fresh_name, postgres};

const BOUND: Duration = Duration::from_secs(40);

fn message(id: u32) -> OutgoingMessage {
    OutgoingMessage::new(format!("payload {id}")).id(format!("m{id}"))
}

async fn reason_of(running: &RunningWorker) -> String {
    let worker = &running.worker;
    let reason = || worker.health().source.filter(|source| !source.is_connected).and_then(|source| source.reason);
    eventually("it says why", BOUND, || async { reason().is_some_and(|reason| !reason.contains("not connected yet")) })
        .await;
    assert_eq!(worker.health().status, resil::health::Status::Degraded);
    reason().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_drops_what_it_gives_up_loses_nothing() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    arguments.insert("x-delivery-limit".into(), AMQPValue::LongLongInt(2));
    let (_connection, channel) = place.channel().await;
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(place.name.as_str().into(), durable, arguments).await.unwrap();
    place.send(message(1)).await;
    let (client, seen) = (ledger.client().await, Seen::default());
    let worker = client.worker(&place.name, WorkerSettings::new()).unwrap();
    let (source, running, saw) = (place.source(&client), worker.clone(), seen.clone());
    let running = RunningWorker::new(&worker, async move {
        running
            .run(source, move |message| {
                saw.add(message.id());
                let is_enough = saw.count() >= 5;
                let back = || WorkError::new(WorkVerdict::GiveBack(Duration::from_millis(50)), "not now");
                async move { if is_enough { Ok(()) } else { Err(back()) } }
            })
            .await
    });
    seen.reaches(5, BOUND).await;
    assert_eq!(running.stop().await.done, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_is_a_stream_is_refused() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("stream".into()));
    let (_connection, channel) = place.channel().await;
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(place.name.as_str().into(), durable, arguments).await.unwrap();
    let client = ledger.client().await;
    let worker = client.worker(&place.name, WorkerSettings::new()).unwrap();
    let (source, running) = (place.source(&client), worker.clone());
    let running = RunningWorker::new(&worker, async move { running.run(source, |_| async { Ok(()) }).await });
    let reason = reason_of(&running).await;
    assert!(reason.contains("is a stream"), "{reason}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_may_not_declare_is_notified() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let client = ledger.client().await;
    let worker = client.worker(&place.name, WorkerSettings::new()).unwrap();
    // It may write, and nothing else.
    let source = RabbitSource::new(&client, place.settings.clone().consumer("producer", "out")).unwrap();
    let running = worker.clone();
    let running = RunningWorker::new(&worker, async move { running.run(source, |_| async { Ok(()) }).await });
    let reason = reason_of(&running).await;
    assert!(reason.contains("ACCESS_REFUSED"), "{reason}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_that_takes_no_acknowledgements_says_why() {
    let ledger = LedgerServer::start();
    let server = tokio::task::spawn_blocking(postgres).await.unwrap();
    let (name, admin) = (fresh_name("rights"), connect(&server.url()).await.unwrap());
    let outbox = Outbox::new(&name).unwrap();
    admin.batch_execute(&outbox.migration()).await.unwrap();
    let forbid = format!(
        "CREATE FUNCTION {name}_no() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'nobody deletes here'; END $$ LANGUAGE plpgsql;
         CREATE TRIGGER {name}_no BEFORE DELETE ON {name} FOR EACH ROW EXECUTE FUNCTION {name}_no();"
    );
    admin.batch_execute(&forbid).await.unwrap();
    outbox.add(&admin, &message(1)).await.unwrap();
    let client = ledger.client().await;
    let worker = client.worker(&name, WorkerSettings::new()).unwrap();
    let settings = OutboxSettings::new(Postgres::url_at(server.port())).outbox(outbox);
    let source = OutboxSource::new(&client, settings.claim(Duration::from_secs(1)).poll(Duration::from_millis(50)));
    let (source, running) = (source.unwrap(), worker.clone());
    let running = RunningWorker::new(&worker, async move { running.run(source, |_| async { Ok(()) }).await });
    let handled = &running.worker;
    eventually("it is not acknowledged", BOUND, || async { handled.health().report.unsettled > 0 }).await;
    let reason = reason_of(&running).await;
    assert!(reason.contains("nobody deletes here"), "{reason}");
    admin.batch_execute(&format!("DROP TRIGGER {name}_no ON {name}")).await.unwrap();
    let healthy = || async { handled.health().source.is_some_and(|source| source.is_connected) };
    eventually("it is well again", BOUND, healthy).await;
    assert_eq!(running.stop().await.done, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_of_an_outbox_is_no_refusal() {
    let ledger = LedgerServer::start();
    let server = tokio::task::spawn_blocking(postgres).await.unwrap();
    let (name, admin, relay) =
        (fresh_name("lost_reply"), connect(&server.url()).await.unwrap(), Relay::to(server.port()));
    let outbox = Outbox::new(&name).unwrap();
    admin.batch_execute(&outbox.migration()).await.unwrap();
    outbox.add(&admin, &message(1)).await.unwrap();
    let client = ledger.client().await;
    let worker = client.worker(&name, WorkerSettings::new()).unwrap();
    let settings = OutboxSettings::new(Postgres::url_at(relay.port())).outbox(outbox).poll(Duration::from_millis(50));
    let (source, running) = (OutboxSource::new(&client, settings).unwrap(), worker.clone());
    let (seen, gate) = (Seen::default(), Arc::new(Semaphore::new(0)));
    let (saw, waiting) = (seen.clone(), Arc::clone(&gate));
    let running = RunningWorker::new(&worker, async move {
        running
            .run(source, move |message| {
                saw.add(message.id());
                let gate = Arc::clone(&waiting);
                async move {
                    drop(gate.acquire().await);
                    Ok(())
                }
            })
            .await
    });
    seen.reaches(1, BOUND).await;
    relay.freeze();
    gate.close();
    eventually("no reply came", BOUND, || async { worker.health().report.unsettled == 1 }).await;
    // It is gone all the same, and nothing is there that could be acknowledged.
    admin.batch_execute(&format!("DELETE FROM {name}")).await.unwrap();
    relay.open();
    let healthy = || async { worker.health().source.is_some_and(|source| source.is_connected) };
    eventually("it is well again", Duration::from_secs(15), healthy).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_that_is_something_else_is_said() {
    let ledger = LedgerServer::start();
    let place = AtStream::new(&ledger).await;
    let mut direct = ledger.server.connect();
    let key = format!("resil:dlq:{{{}}}", place.name());
    reply(&mut direct, &["SET", &key, "x"]).unwrap();
    let (client, seen) = (ledger.client().await, Seen::default());
    let worker = client.worker(place.name(), WorkerSettings::new().retries(false)).unwrap();
    let (source, running, saw) = (place.source(&client), worker.clone(), seen.clone());
    let running = RunningWorker::new(&worker, async move {
        running
            .run(source, move |message| {
                saw.add(message.id());
                async { Err(WorkError::permanent("no")) }
            })
            .await
    });
    place.send(message(1)).await;
    seen.reaches(1, BOUND).await;
    let health = || running.worker.health();
    eventually("it says why", BOUND, || async { health().ledger.is_some() }).await;
    assert!(health().is_paused && health().ledger.is_some_and(|why| why.contains("WRONGTYPE")), "{:?}", health());
    reply(&mut direct, &["DEL", &key]).unwrap();
    eventually("it is recorded", BOUND, || async { health().report.dead == 1 }).await;
    assert_eq!(seen.count(), 1, "it was kept, and not handled again");
    running.stop().await;
}
