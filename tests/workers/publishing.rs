//! Publishers: confirmed, returned, and sent again under one id.

use std::time::{Duration, Instant};

use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;
use resil::worker::rabbit::RabbitPublisher;
use resil::worker::streams::StreamPublisher;
use resil::worker::{OutgoingMessage, PublishError, WorkerSettings};
use resil_harness::Relay;

use crate::places::{AtRabbit, Place};
use crate::scene::{LedgerServer, RunningWorker, Seen, eventually};

const BOUND: Duration = Duration::from_secs(40);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_no_queue_takes_is_returned() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let publisher = RabbitPublisher::new(&ledger.client().await, &place.settings).unwrap();
    let returned = publisher.publish("", "no such queue", &OutgoingMessage::new("x")).await.unwrap_err();
    assert!(matches!(&returned, PublishError::Unroutable { reason, .. } if reason == "NO_ROUTE"), "{returned:?}");
    assert!(publisher.health().is_connected, "the channel is as good as before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_no_broker_takes_are_refused_before_sending() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let publisher = RabbitPublisher::new(&ledger.client().await, &place.settings).unwrap();
    eventually("it is connected", BOUND, || async { publisher.health().is_connected }).await;
    for (name, text) in [("n".repeat(256), "x".to_owned()), ("name".to_owned(), "x".repeat(70_000))] {
        let message = OutgoingMessage::new("x").header(name, text);
        let refused = publisher.publish("", &place.name, &message).await.unwrap_err();
        assert!(matches!(refused, PublishError::Invalid(_)), "{refused:?}");
    }
    assert_eq!(publisher.health().connections, 1, "nobody else was disturbed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_too_large_for_the_broker_is_refused() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let (_connection, channel) = place.channel().await;
    let name = place.name.as_str();
    channel.queue_declare(name.into(), QueueDeclareOptions::default(), FieldTable::default()).await.unwrap();
    let publisher = RabbitPublisher::new(&ledger.client().await, &place.settings).unwrap();
    eventually("it is connected", BOUND, || async { publisher.health().is_connected }).await;
    let limit = resil_harness::RabbitMq::MESSAGE_MAX;
    let large = |bytes: usize| OutgoingMessage::new(vec![b'x'; bytes]);
    let refused = |error: PublishError, bytes: usize| {
        let PublishError::Invalid(said) = error else { panic!("{error:?}") };
        assert!(said.contains(&bytes.to_string()) && said.contains(&limit.to_string()), "{said}");
    };
    // The broker says it, once; then it is known.
    refused(publisher.publish("", name, &large(limit + 1)).await.unwrap_err(), limit + 1);
    place.relay.freeze();
    refused(publisher.publish("", name, &large(limit + 2)).await.unwrap_err(), limit + 2);
    place.relay.open();
    publisher.publish("", name, &large(limit)).await.expect("one that is not too large");
    assert_eq!(publisher.health().connections, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_too_large_keeps_no_other_back() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let (_connection, channel) = place.channel().await;
    let name = place.name.as_str();
    channel.queue_declare(name.into(), QueueDeclareOptions::default(), FieldTable::default()).await.unwrap();
    let publisher = RabbitPublisher::new(&ledger.client().await, &place.settings).unwrap();
    let too_large = OutgoingMessage::new(vec![b'x'; resil_harness::RabbitMq::MESSAGE_MAX + 1]);
    let small: Vec<_> = (0..20).map(|number| OutgoingMessage::new(number.to_string())).collect();
    let (refused, sent) = tokio::join!(
        publisher.publish("", name, &too_large),
        futures_util::future::join_all(small.iter().map(|message| publisher.publish("", name, message))),
    );
    assert!(matches!(refused, Err(PublishError::Invalid(_))), "{refused:?}");
    assert!(sent.iter().all(Result::is_ok), "{sent:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_closes_in_time_though_the_broker_is_frozen() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let publisher = RabbitPublisher::new(&ledger.client().await, &place.settings).unwrap();
    eventually("it is connected", BOUND, || async { publisher.health().is_connected }).await;
    place.relay.freeze();
    let since = Instant::now();
    publisher.close().await;
    assert!(since.elapsed() < Duration::from_secs(8), "{:?}", since.elapsed());
    place.relay.open();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_leaves_a_connection_that_does_not_reply() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let (_connection, channel) = place.channel().await;
    let name = place.name.as_str();
    channel.queue_declare(name.into(), QueueDeclareOptions::default(), FieldTable::default()).await.unwrap();
    let publisher = RabbitPublisher::new(&ledger.client().await, &place.settings).unwrap();
    publisher.publish("", name, &OutgoingMessage::new("before")).await.unwrap();
    place.relay.freeze_those_there_are();
    let since = Instant::now();
    publisher.publish("", name, &OutgoingMessage::new("after")).await.unwrap();
    let took = since.elapsed();
    assert!(took < Duration::from_secs(12), "one attempt of 5 s, a pause, and another: {took:?}");
    eventually("it is connected", BOUND, || async { publisher.health().is_connected }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_outlives_a_cut_under_one_id() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let (client, seen) = (ledger.client().await, Seen::default());
    let worker = client.worker(&place.name, WorkerSettings::new()).unwrap();
    let (source, running, saw) = (place.source(&client), worker.clone(), seen.clone());
    let running = RunningWorker::new(&worker, async move {
        running
            .run(source, move |message| {
                saw.add(message.id());
                async { Ok(()) }
            })
            .await
    });
    place.send(OutgoingMessage::new("x").id("first")).await;
    // Nothing is confirmed while the network is frozen; then it is cut, and then it is well again.
    place.relay.freeze();
    let sending = async { place.send(OutgoingMessage::new("x").id("second")).await };
    let mending = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        place.relay.close();
        // Shorter than five attempts take, whatever their jitter is.
        tokio::time::sleep(Duration::from_millis(50)).await;
        place.relay.open();
    };
    tokio::join!(sending, mending);
    eventually("it arrives", BOUND, || async { seen.all().iter().any(|id| id.ends_with("/second")) }).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_gives_up_after_five_attempts() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let publisher = RabbitPublisher::new(&ledger.client().await, &place.settings).unwrap();
    place.relay.close();
    let failed = publisher.publish("", &place.name, &OutgoingMessage::new("x")).await.unwrap_err();
    assert!(matches!(failed, PublishError::NotConfirmed { attempts: 5, .. }), "{failed:?}");
    publisher.close().await;
    let closed = publisher.publish("", &place.name, &OutgoingMessage::new("x")).await.unwrap_err();
    assert_eq!(closed, PublishError::Closed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_without_traffic_is_ready_again_by_itself() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let publisher = RabbitPublisher::new(&ledger.client().await, &place.settings).unwrap();
    eventually("it is connected", BOUND, || async { publisher.health().is_connected }).await;
    place.relay.close();
    eventually("it says that it is not", BOUND, || async { !publisher.health().is_connected }).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    place.relay.open();
    let since = Instant::now();
    eventually("it is again", Duration::from_secs(15), || async { publisher.health().is_connected }).await;
    println!("ready again after {:?}", since.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_published_to_through_a_cut() {
    let ledger = LedgerServer::start();
    let relay = Relay::to(ledger.server.port());
    let client = ledger.client().await;
    let url = format!("redis://127.0.0.1:{}/", relay.port());
    let publisher = StreamPublisher::new(&client, "stream", Some(&url)).unwrap();
    publisher.publish(&OutgoingMessage::new("x")).await.unwrap();
    relay.cut();
    publisher.publish(&OutgoingMessage::new("x")).await.unwrap();
    relay.close();
    let failed = publisher.publish(&OutgoingMessage::new("x")).await.unwrap_err();
    assert!(matches!(failed, PublishError::NotConfirmed { attempts: 5, .. }), "{failed:?}");
    assert!(!publisher.health().is_connected);
}
