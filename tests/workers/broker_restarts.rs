//! A broker of their own, which is killed and started again. The queue is a classic one: the quorum queue of a single node of RabbitMQ 3.10.8 was seen without a
//! leader for a minute after a kill with deliveries in flight, while the worker kept asking. The campaign kills the broker of a quorum queue.

use std::time::{Duration, Instant};

use resil::worker::rabbit::{QueueKind, RabbitPublisher};
use resil::worker::{OutgoingMessage, WorkerSettings};
use resil_harness::RabbitMq;

use crate::places::{AtRabbit, Place};
use crate::scene::{LedgerServer, RunningWorker, Seen, eventually};

const BOUND: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_and_producers_outlive_the_broker_and_lose_nothing() {
    let mut broker = tokio::task::spawn_blocking(RabbitMq::start).await.unwrap();
    let ledger = LedgerServer::start();
    let mut place = AtRabbit::of(&ledger, &broker).await;
    place.settings = place.settings.queue_kind(QueueKind::Classic);
    let (client, seen) = (ledger.client().await, Seen::default());
    let worker = client.worker(&place.name, WorkerSettings::new().workers(1)).unwrap();
    let (source, running, saw) = (place.source(&client), worker.clone(), seen.clone());
    let running = RunningWorker::new(&worker, async move {
        running
            .run(source, move |message| {
                saw.add(message.id());
                async {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    Ok(())
                }
            })
            .await
    });
    for id in 0..30 {
        place.send(OutgoingMessage::new("x").id(format!("{id}"))).await;
    }
    let idle = RabbitPublisher::new(&client, &place.settings).unwrap();
    eventually("it is connected", BOUND, || async { idle.health().is_connected }).await;
    seen.reaches(3, BOUND).await;
    let broker = tokio::task::spawn_blocking(move || {
        broker.kill();
        broker
    })
    .await
    .unwrap();
    eventually("both know", BOUND, || async {
        !idle.health().is_connected && worker.health().source.is_some_and(|source| !source.is_connected)
    })
    .await;
    let health = worker.health();
    assert!(health.is_live && health.is_ready, "nothing that it must drain makes it unready: {health:?}");
    let broker = tokio::task::spawn_blocking(move || {
        let mut broker = broker;
        broker.restart();
        broker
    })
    .await
    .unwrap();
    let since = Instant::now();
    eventually("the producer is ready without traffic", Duration::from_secs(15), || async {
        idle.health().is_connected
    })
    .await;
    println!("the producer is ready {:?} after the broker", since.elapsed());
    eventually("the consumer is connected", BOUND, || async {
        worker.health().source.is_some_and(|source| source.is_connected)
    })
    .await;
    println!("the consumer is connected {:?} after the broker", since.elapsed());
    eventually("every message was handled", BOUND, || async {
        let all = seen.all();
        (0..30).all(|id| all.contains(&format!("{}/{id}", place.name)))
    })
    .await;
    println!("every message was handled {:?} after the broker", since.elapsed());
    running.stop().await;
    drop(broker);
}
