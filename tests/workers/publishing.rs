//! Publishers: confirmed, returned, and sent again under one id.

use std::time::{Duration, Instant};

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
        tokio::time::sleep(Duration::from_millis(700)).await;
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
