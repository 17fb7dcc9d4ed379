//! What is particular to RabbitMQ: credentials, what it gives up, its timeouts, and what is declared.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lapin::BasicProperties;
use lapin::options::{
    BasicGetOptions, BasicPublishOptions, BasicRejectOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use resil::dead_letters::LetterState;
use resil::worker::rabbit::{QueueKind, RabbitPublisher, RabbitSettings, RabbitSource};
use resil::worker::{OutgoingMessage, PublishError, WorkError, WorkerSettings};

use crate::places::{AtRabbit, Place};
use crate::scene::{LedgerServer, RunningWorker, Seen, eventually};

const BOUND: Duration = Duration::from_secs(40);

fn message(id: u32) -> OutgoingMessage {
    OutgoingMessage::new(format!("payload {id}")).id(format!("m{id}"))
}

async fn seeing(place: &AtRabbit, ledger: &LedgerServer, settings: RabbitSettings, seen: &Seen) -> RunningWorker {
    let client = ledger.client().await;
    let worker = client.worker(&place.name, settings.worker_settings()).unwrap();
    let (source, running, seen) = (RabbitSource::new(&client, settings).unwrap(), worker.clone(), seen.clone());
    RunningWorker::new(&worker, async move {
        running
            .run(source, move |message| {
                seen.add(String::from_utf8_lossy(message.payload()));
                async { Ok(()) }
            })
            .await
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumer_and_producer_have_credentials_of_their_own() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let client = ledger.client().await;
    let settings = place.settings.clone().consumer("consumer", "in").producer("producer", "out");
    let seen = Seen::default();
    let running = seeing(&place, &ledger, settings.clone(), &seen).await;
    eventually("it consumes", BOUND, || async {
        running.worker.health().source.is_some_and(|source| source.is_connected)
    })
    .await;
    let producer = RabbitPublisher::new(&client, &settings).unwrap();
    producer.publish("", &place.name, &message(1)).await.unwrap();
    seen.reaches(1, BOUND).await;
    // The consumer's user may not publish.
    let wrong = RabbitPublisher::new(&client, &settings.clone().producer("consumer", "in")).unwrap();
    let refused = wrong.publish("", &place.name, &message(2)).await.unwrap_err();
    assert!(
        matches!(&refused, PublishError::NotConfirmed { last, .. } if last.contains("ACCESS_REFUSED") || last.contains("refused")),
        "{refused}"
    );
    // The producer's user may not consume.
    let other = client.worker(&format!("{}-other", place.name), WorkerSettings::new()).unwrap();
    let source = RabbitSource::new(&client, settings.consumer("producer", "out")).unwrap();
    let (running_other, stop) = (other.clone(), other.stopper());
    let task = tokio::spawn(async move { running_other.run(source, |_| async { Ok(()) }).await });
    eventually("it says why not", BOUND, || async {
        other.health().source.and_then(|source| source.reason).is_some_and(|reason| reason.contains("refused"))
    })
    .await;
    assert!(other.health().is_ready, "readiness does not depend on the queue");
    stop.cancel();
    task.await.unwrap().unwrap();
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_broker_gives_up_is_in_the_ledger() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let seen = Seen::default();
    // Declares, then leaves.
    let running = seeing(&place, &ledger, place.settings.clone(), &seen).await;
    place.send(message(1)).await;
    seen.reaches(1, BOUND).await;
    running.stop().await;
    let (_connection, channel) = place.channel().await;
    // One that another consumer rejects, and one that is returned more often than the limit.
    for id in ["rejected", "returned"] {
        let properties = BasicProperties::default().with_message_id(id.into()).with_delivery_mode(2);
        let sent = channel.basic_publish(
            "".into(),
            place.name.as_str().into(),
            BasicPublishOptions::default(),
            id.as_bytes(),
            properties,
        );
        sent.await.unwrap().await.unwrap();
        let times = if id == "rejected" { 1 } else { 21 };
        for time in 1..=times {
            let got = loop {
                if let Some(got) =
                    channel.basic_get(place.name.as_str().into(), BasicGetOptions::default()).await.unwrap()
                {
                    break got;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            };
            let options = BasicRejectOptions { requeue: id == "returned" };
            assert!(got.acker.reject(options).await.unwrap(), "{time}");
        }
    }
    let running = seeing(&place, &ledger, place.settings.clone(), &seen).await;
    // What was delivered too often is handled from the ledger, uncounted; what was rejected is dead, and waits for somebody.
    eventually("it is handled", BOUND, || async { seen.all().contains(&"returned".to_owned()) }).await;
    let letters = running.worker.ledger().clone();
    let rejected = format!("{}/rejected", place.name);
    eventually("it is dead", BOUND, || async { letters.standing(&rejected).await.unwrap() == Some(LetterState::Dead) })
        .await;
    let dead = letters.get(&rejected).await.unwrap().unwrap();
    assert_eq!(dead.last_error.as_deref(), Some("the broker gave it up: rejected"));
    assert!(!seen.all().contains(&"rejected".to_owned()));
    running.stop().await;
}

/// Whether `<queue>.dead` is there as a quorum queue with this limit of deliveries.
async fn dead_queue_has(place: &AtRabbit, limit: Option<i64>) -> bool {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    if let Some(limit) = limit {
        arguments.insert("x-delivery-limit".into(), AMQPValue::LongLongInt(limit));
    }
    let (_connection, channel) = place.channel().await;
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let dead = format!("{}.dead", place.name);
    // The broker compares it with what there is.
    channel.queue_declare(dead.as_str().into(), durable, arguments).await.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_broker_drops_what_it_gave_up_for_its_deliveries() {
    const LIMIT: i64 = 1_000_000_000;
    let ledger = LedgerServer::start();
    // A queue that is there already stays as it is, and is consumed.
    for is_there in [false, true] {
        let place = AtRabbit::new(&ledger).await;
        assert!(!is_there || dead_queue_has(&place, None).await);
        let running = seeing(&place, &ledger, place.settings.clone(), &Seen::default()).await;
        place.send(message(1)).await;
        eventually("it consumes", BOUND, || async { running.worker.health().report.done == 1 }).await;
        let found = (dead_queue_has(&place, Some(LIMIT)).await, dead_queue_has(&place, None).await);
        assert_eq!(found, (!is_there, is_there));
        let (_connection, channel) = place.channel().await;
        let (dlx, properties) =
            (format!("{}.dlx", place.name), BasicProperties::default().with_message_id("m2".into()));
        let sent = channel.basic_publish(dlx.as_str().into(), "".into(), Default::default(), b"x", properties);
        sent.await.unwrap().await.unwrap();
        let (letters, id) = (running.worker.ledger().clone(), format!("{}/m2", place.name));
        eventually("what was given up is in the ledger", BOUND, || async {
            letters.standing(&id).await.unwrap() == Some(LetterState::Dead)
        })
        .await;
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_that_the_broker_closes_is_opened_again() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let client = ledger.client().await;
    let worker = client.worker(&place.name, WorkerSettings::new()).unwrap();
    let (source, running) = (place.source(&client), worker.clone());
    let (calls, done) = (Arc::new(AtomicU32::new(0)), Seen::default());
    let (called, seen) = (Arc::clone(&calls), done.clone());
    let running = RunningWorker::new(&worker, async move {
        running
            .run(source, move |_| {
                let (first, seen) = (called.fetch_add(1, Ordering::Relaxed) == 0, seen.clone());
                async move {
                    if first {
                        // Longer than the broker waits for an acknowledgement, which is 5 s here.
                        tokio::time::sleep(Duration::from_secs(9)).await;
                    }
                    seen.add("done");
                    Ok(())
                }
            })
            .await
    });
    place.send(message(1)).await;
    done.reaches(2, BOUND).await;
    assert_eq!(calls.load(Ordering::Relaxed), 2, "it was delivered again on the new channel");
    let health = worker.health();
    assert!(health.source.is_some_and(|source| source.is_connected && source.connections >= 2));
    let report = running.stop().await;
    assert_eq!((report.done, report.unsettled), (1, 1), "the late acknowledgement settles nothing: {report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topology_and_prefetch_are_restored_after_a_cut() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let (began, client) = (Seen::default(), ledger.client().await);
    let settings = place.settings.clone().workers(1).prefetch(3).bind(format!("{}.in", place.name), "topic", "order.*");
    let worker = client.worker(&place.name, settings.worker_settings()).unwrap();
    let source = RabbitSource::new(&client, settings).unwrap();
    let (running, begun) = (worker.clone(), began.clone());
    let running = RunningWorker::new(&worker, async move {
        running
            .run(source, move |message| {
                begun.add(message.id());
                async {
                    tokio::time::sleep(Duration::from_millis(1_500)).await;
                    Ok(())
                }
            })
            .await
    });
    let is_connected = |times: u64| {
        let worker = worker.clone();
        move || {
            let worker = worker.clone();
            async move { worker.health().source.is_some_and(|source| source.is_connected && source.connections >= times) }
        }
    };
    eventually("it consumes", BOUND, is_connected(1)).await;
    // Somebody takes everything away while the connection is cut.
    let (_connection, channel) = place.channel().await;
    channel.queue_delete(place.name.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
    eventually("it consumes again", BOUND, is_connected(2)).await;
    place.relay.cut();
    eventually("and again", BOUND, is_connected(3)).await;
    let (_connection, channel) = place.channel().await;
    for id in 0..10 {
        let (exchange, properties) =
            (format!("{}.in", place.name), BasicProperties::default().with_message_id(format!("{id}").into()));
        let sent = channel.basic_publish(
            exchange.as_str().into(),
            "order.placed".into(),
            BasicPublishOptions::default(),
            b"x",
            properties,
        );
        sent.await.unwrap().await.unwrap();
    }
    began.reaches(1, BOUND).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    // The binding is there again, and so is the prefetch: 3 are with the consumer, the others are not.
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let ready = channel
        .queue_declare(place.name.as_str().into(), passive, FieldTable::default())
        .await
        .unwrap()
        .message_count();
    assert!((6..=7).contains(&ready), "{ready} of 10 are ready");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_with_other_arguments_is_used_as_it_is() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let (_connection, channel) = place.channel().await;
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(place.name.as_str().into(), durable, FieldTable::default()).await.unwrap();
    let seen = Seen::default();
    for kind in [QueueKind::Quorum, QueueKind::AsItIs] {
        let before = seen.count();
        let running = seeing(&place, &ledger, place.settings.clone().queue_kind(kind), &seen).await;
        place.send(message(1).id(format!("{kind:?}"))).await;
        seen.reaches(before + 1, BOUND).await;
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_without_ids_and_with_equal_ones_are_kept() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let client = ledger.client().await;
    let worker = client.worker(&place.name, WorkerSettings::new()).unwrap();
    let (source, running) = (place.source(&client), worker.clone());
    let running =
        RunningWorker::new(
            &worker,
            async move { running.run(source, |_| async { Err(WorkError::permanent("no")) }).await },
        );
    place.send(message(1)).await;
    place.send(OutgoingMessage::new("other bytes").id("m1")).await;
    let (_connection, channel) = place.channel().await;
    for _ in 0..2 {
        let sent = channel.basic_publish(
            "".into(),
            place.name.as_str().into(),
            BasicPublishOptions::default(),
            b"same",
            BasicProperties::default(),
        );
        sent.await.unwrap().await.unwrap();
    }
    let letters = worker.ledger().clone();
    eventually("all four are dead", BOUND, || async { letters.info().await.unwrap().dead == 4 }).await;
    running.stop().await;
}
